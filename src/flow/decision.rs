//! Decisions of slots, the report of the chain, and how a request may end.

use super::{limit_change::LimitChange, time::Instant};
use core::{cmp::Reverse, fmt, num::NonZeroU64, time::Duration};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A slot's answer to an arriving request.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may start at once.
    Pass,
    /// It may start after this long.
    Delay(Duration),
    /// It may not start.
    Reject(Reason),
}

/// Why a request may not start.
///
/// Each `retry_after` is exact to the nanosecond: a request of the same cost is admitted then if no
/// others came in between, and not earlier. When it depends on running requests, they must have
/// ended by then. That of a queue for places is an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rate limit is reached.
    Rate {
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The request costs more than the rule ever admits at once.
    TooCostly {
        /// The largest cost that can be admitted.
        limit: u64,
        /// The limited quantity.
        kind: ReasonKind,
    },
    /// The concurrency limit is reached. Only the end of a request changes that.
    Concurrency {
        /// Cost that may be in flight.
        limit: u64,
    },
    /// The queue is full.
    QueueFull {
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The wait for a start would be too long.
    QueueWait {
        /// The wait that was too long.
        wait: Duration,
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The queue for free places is full.
    NoRoomToWait {
        /// Estimated time until those that wait have started.
        retry_after: Duration,
    },
    /// The request has waited for a free place as long as it may.
    WaitedTooLong {
        /// Estimated time until those that wait have started.
        retry_after: Duration,
    },
    /// The client has exceeded the limit before, and is banned for it.
    Banned {
        /// Time until the ban is over and the request would be admitted.
        retry_after: Duration,
    },
    /// The limit is 0: nothing is admitted.
    Closed,
    /// The request lacks the rule's key.
    MissingKey,
    /// The request has the rule's key several times, and servers differ in which one they take.
    DuplicateKey,
    /// The store that decides about the rule cannot be asked.
    Undecided {
        /// Estimated time until another attempt can succeed.
        retry_after: Duration,
    },
    /// The breaker is open, or all its probes are running.
    BreakerOpen {
        /// Time until a probe would be admitted; `None` if that depends on running probes alone.
        retry_after: Option<Duration>,
    },
}

/// The kind of a [`Reason`], with one word for logs, metrics and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonKind {
    /// The client's quota over time is used up.
    Rate,
    /// The concurrency limit is reached.
    Concurrency,
    /// The breaker keeps requests from a failing service.
    Breaker,
    /// The queue is full, or the wait in it is too long.
    Queue,
    /// The request lacks the rule's key, or has it several times.
    Key,
    /// The shared store cannot be asked.
    Store,
    /// The limit is 0.
    Closed,
    /// The client is banned for a while.
    Banned,
}

impl Decision {
    /// Rejects a request that costs more than the rate `limit`.
    pub(super) const fn too_costly(limit: u64) -> Self {
        Self::Reject(Reason::TooCostly { limit, kind: ReasonKind::Rate })
    }
}

labels! {
    /// Returns its word.
    pub fn word(ReasonKind) {
        Rate => "rate",
        Concurrency => "concurrency",
        Breaker => "breaker",
        Queue => "queue",
        Key => "key",
        Store => "store",
        Closed => "closed",
        Banned => "banned",
    }
}

impl Reason {
    /// Returns which kind of reason this is.
    pub const fn kind(self) -> ReasonKind {
        match self {
            Self::Rate { .. } => ReasonKind::Rate,
            Self::TooCostly { kind, .. } => kind,
            Self::Concurrency { .. } => ReasonKind::Concurrency,
            Self::QueueFull { .. }
            | Self::QueueWait { .. }
            | Self::NoRoomToWait { .. }
            | Self::WaitedTooLong { .. } => ReasonKind::Queue,
            Self::MissingKey | Self::DuplicateKey => ReasonKind::Key,
            Self::Undecided { .. } => ReasonKind::Store,
            Self::BreakerOpen { .. } => ReasonKind::Breaker,
            Self::Closed => ReasonKind::Closed,
            Self::Banned { .. } => ReasonKind::Banned,
        }
    }

    /// Returns when the same request would be admitted, if time alone decides it.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after }
            | Self::Banned { retry_after }
            | Self::QueueFull { retry_after }
            | Self::Undecided { retry_after }
            | Self::NoRoomToWait { retry_after }
            | Self::WaitedTooLong { retry_after }
            | Self::QueueWait { retry_after, .. } => Some(retry_after),
            Self::BreakerOpen { retry_after } => retry_after,
            Self::Concurrency { .. }
            | Self::TooCostly { .. }
            | Self::Closed
            | Self::MissingKey
            | Self::DuplicateKey => None,
        }
    }

    /// Returns whether the same request can never be admitted.
    pub const fn is_lasting(self) -> bool {
        matches!(
            self,
            Self::TooCostly { .. } | Self::Closed | Self::MissingKey | Self::DuplicateKey
        )
    }

    /// Returns whether this reason prevails over `other`: lasting reasons first, then the latest
    /// `retry_after`, then reasons without one.
    #[must_use]
    pub fn outranks(self, other: Self) -> bool {
        let rank = |reason: Self| (reason.is_lasting(), reason.retry_after());
        rank(self) > rank(other)
    }

    /// Returns this reason with another `retry_after`, if it has one.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        match &mut self {
            Self::Rate { retry_after }
            | Self::Banned { retry_after }
            | Self::QueueFull { retry_after }
            | Self::QueueWait { retry_after, .. }
            | Self::NoRoomToWait { retry_after }
            | Self::WaitedTooLong { retry_after }
            | Self::Undecided { retry_after }
            | Self::BreakerOpen { retry_after: Some(retry_after) } => *retry_after = wait,
            Self::BreakerOpen { retry_after: None }
            | Self::Concurrency { .. }
            | Self::TooCostly { .. }
            | Self::Closed
            | Self::MissingKey
            | Self::DuplicateKey => {}
        }
        self
    }
}

/// One slot's part in a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The slot let the request pass at once.
    Passed,
    /// The slot let it pass after a wait.
    Delayed,
    /// The slot rejected it.
    Rejected(ReasonKind),
    /// The slot would have rejected it, were it not a dry run.
    DryRunRejected(ReasonKind),
}

/// One slot's record of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The slot as claimed.
    pub slot: SlotId,
    /// Its decision.
    pub verdict: Verdict,
    /// The most that `used` may be. For pacing the length of its queue, for a breaker 0.
    pub limit: u64,
    /// The used part, an admitted request included. It exceeds `limit` after an edit lowered the
    /// limit.
    pub used: u64,
    /// The cost of the request here.
    pub cost: u64,
    /// The plan of the request here.
    pub plan: Option<PlanKey>,
    /// The time by which this slot delays the request, or would without dry run.
    pub wait: Duration,
    /// Time until nothing is used if no request comes. Zero for a concurrency limit.
    pub reset: Duration,
    /// Time until one more request of this cost fits than now, if none comes. `None` if there is no
    /// such time, or the request was rejected.
    pub growth: Option<Duration>,
}

impl Quota {
    /// Returns what is left.
    pub const fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Returns the order in which a client reaches quotas: how many more requests of this cost fit,
    /// then those for which it takes longest that one more does.
    pub fn tightness(&self) -> (u64, Reverse<(Duration, Duration)>) {
        (fitting(self.remaining(), self.cost), Reverse((self.until_growth(), self.reset)))
    }

    /// Returns the time until more requests of this cost fit, or until nothing is used if no more
    /// ever do.
    pub fn until_growth(&self) -> Duration {
        self.growth.unwrap_or(self.reset)
    }
}

/// Returns how many requests of this `cost` fit into what is `left`.
pub(super) const fn fitting(left: u64, cost: u64) -> u64 {
    // Most requests cost 1, and a division is slower than this branch.
    if cost > 1 { left / cost } else { left }
}

/// The record of one decision, which headers, logs, metrics and replays read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One quota for each checked slot, in the chain's order.
    pub quotas: SmallVec<[Quota; 4]>,
    /// The breaker's transition by this decision, for the log.
    pub transition: Option<Transition>,
    /// The latest change of a limit that finds itself, for the log. The first request that passes
    /// afterwards reports it.
    pub change: Option<RuleChange>,
}

/// A change of the limit of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleChange {
    /// The rule's slot.
    pub slot: SlotId,
    /// The change.
    pub change: LimitChange,
}

impl Report {
    /// Returns how long the rules delay the request. Dry runs do not count.
    pub fn wait(&self) -> Duration {
        let holds = |quota: &&Quota| quota.verdict == Verdict::Delayed;
        self.quotas.iter().filter(holds).map(|quota| quota.wait).max().unwrap_or_default()
    }
}

/// The slot that rejected a request, and its reason: a [`Rejection`] without its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedBy {
    /// As in [`Rejection`].
    pub slot: SlotId,
    pub(super) key: Option<Key>,
    /// As in [`Rejection`].
    pub reason: Reason,
}

impl RejectedBy {
    /// Adds the report.
    pub fn with(self, report: Report) -> Rejection {
        let Self { slot, key, reason } = self;
        Rejection { slot, key, reason, report }
    }
}

/// A request that may not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The rejecting slot whose reason [outranks](Reason::outranks) the others', the first of equal
    /// ones.
    pub slot: SlotId,
    /// The request's key there; `None` if it was rejected because the store fails.
    pub key: Option<Key>,
    /// Why. At its `retry_after` every slot would admit the request.
    pub reason: Reason,
    /// Each slot's part in the decision.
    pub report: Report,
}

/// The end of an admitted request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The upstream answered in full.
    Success {
        /// The time at which the last byte was sent.
        at: Instant,
    },
    /// The upstream failed or ran out of time.
    Failure {
        /// The time at which that was known.
        at: Instant,
    },
    /// The client left; its timing says nothing about the upstream.
    #[default]
    Cancelled,
}

/// Identifies a slot among those of all gates that decide about a request together. An edit that
/// keeps or converts a rule keeps its slot; an added or reset rule gets a new one, and a reset rule
/// also answers claims on its previous slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// The number of its gate.
    pub(super) gate: u32,
    /// Its number in the gate.
    pub(super) number: u32,
}

/// Whose state a claim is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The state that all share.
    Shared,
    /// The state of this fingerprint, used as it is: it must be evenly spread and beyond a client's
    /// control (a keyed hash).
    Of(u128),
    /// The request has the key several times, and is rejected for it.
    Duplicate,
    /// The request lacks the key, and is rejected for it.
    Missing,
}

/// Identifies a plan by a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlanKey(NonZeroU64);

impl PlanKey {
    /// Returns the key of this hash.
    pub const fn new(hash: u64) -> Self {
        match NonZeroU64::new(hash) {
            Some(hash) => Self(hash),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// Returns the hash.
    pub const fn hash(self) -> u64 {
        self.0.get()
    }
}

/// A request's claim on one slot. A slot without a claim is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The slot.
    pub slot: SlotId,
    /// Whose state. A rule without keys only looks for [`Key::Missing`] and [`Key::Duplicate`].
    pub key: Key,
    /// The cost of the request. At zero it passes uncharged.
    pub cost: u64,
    /// The longest wait to borrow from a coming window, if the rule has windows; zero without
    /// priority.
    pub patience: Duration,
    /// The plan whose numbers the request has, if the rule has plans; `None`: the rule's own.
    pub plan: Option<PlanKey>,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    /// All requests pass.
    Closed,
    /// All requests are rejected.
    Open,
    /// A few probes pass and decide.
    HalfOpen,
}

impl Phase {
    /// Returns its word in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A change of state, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The new phase.
    pub to: Phase,
    /// The answers that caused it.
    pub on: AnswerCounts,
}

/// Counts of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// All of them.
    pub all: u64,
    /// Failures.
    pub failed: u64,
    /// Those that were slow.
    pub slow: u64,
}

/// The view of a breaker in metrics and `/routes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerStats {
    /// Its phase. An open breaker is half-open from its first probe on.
    pub phase: Phase,
    /// The number of times that it opened.
    pub opened: u64,
    /// The number of times that it became half-open.
    pub half_opened: u64,
    /// The number of times that it closed again.
    pub closed: u64,
    /// The answers that count now.
    pub answers: AnswerCounts,
}

/// For the log: `opened: of 24 answers 13 failed and 2 were slow`.
impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AnswerCounts { all, failed, slow } = self.on;
        match self.to {
            Phase::Open => {
                write!(f, "opened: of {all} answers {failed} failed and {slow} were slow")
            }
            Phase::HalfOpen => f.write_str("half-open: the first probe goes through"),
            Phase::Closed => write!(
                f,
                "closed: {all} {} good",
                if all == 1 { "probe was" } else { "probes were" }
            ),
        }
    }
}
