//! What a slot may answer, what the chain reports, and how a request may end.

use super::{claim::SlotId, phase::Turn, time::Instant};
use core::{cmp::Reverse, time::Duration};
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
/// Each `retry_after` is exact to the nanosecond: a request of the same cost that
/// comes back then, and meets no others on the way, is admitted; one that comes
/// earlier is not. What hangs on requests under way must have ended by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rate is used up.
    Rate {
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The request costs more than the rule ever admits at once.
    TooCostly {
        /// The largest cost that can be admitted.
        limit: u64,
        /// What the rule limits.
        kind: ReasonKind,
    },
    /// As much is in flight as may be. No clock knows when that ends.
    Concurrency {
        /// Cost that may be in flight.
        limit: u64,
    },
    /// As many requests are waiting for their start as may wait.
    QueueFull {
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The wait for a start would be longer than is allowed.
    QueueWait {
        /// The wait that was too long.
        wait: Duration,
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The rule needs a key that the request does not have.
    MissingKey,
    /// The request has what the rule counts by several times, and servers differ in which one they
    /// take.
    DuplicateKey,
    /// Who decides about the rule cannot be asked.
    Undecided {
        /// Time until it is worth another attempt: a guess.
        retry_after: Duration,
    },
    /// The breaker is open, or as many probes are under way as may be.
    BreakerOpen {
        /// Time until a probe would be admitted; `None` if that hangs on those under way,
        /// and on no other request.
        retry_after: Option<Duration>,
    },
}

/// Why requests are rejected, in the one word that logs, metrics and reports have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonKind {
    /// The client's quota over time is used up.
    Rate,
    /// As much is in flight as may be.
    Concurrency,
    /// The breaker spares a service that fails.
    Breaker,
    /// The queue is full, or the wait in it too long.
    Queue,
    /// The request lacks the key that the rule counts by, or has it several times.
    Key,
    /// The shared store cannot be asked.
    Store,
}

impl ReasonKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Rate, Self::Concurrency, Self::Breaker, Self::Queue, Self::Key, Self::Store];

    /// Returns its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Concurrency => "concurrency",
            Self::Breaker => "breaker",
            Self::Queue => "queue",
            Self::Key => "key",
            Self::Store => "store",
        }
    }
}

impl Reason {
    /// Returns which kind of reason this is.
    pub const fn kind(self) -> ReasonKind {
        match self {
            Self::Rate { .. } => ReasonKind::Rate,
            Self::TooCostly { kind, .. } => kind,
            Self::Concurrency { .. } => ReasonKind::Concurrency,
            Self::QueueFull { .. } | Self::QueueWait { .. } => ReasonKind::Queue,
            Self::MissingKey | Self::DuplicateKey => ReasonKind::Key,
            Self::Undecided { .. } => ReasonKind::Store,
            Self::BreakerOpen { .. } => ReasonKind::Breaker,
        }
    }

    /// Returns when the same request would be admitted, if time alone decides it.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after }
            | Self::QueueFull { retry_after }
            | Self::Undecided { retry_after }
            | Self::QueueWait { retry_after, .. } => Some(retry_after),
            Self::BreakerOpen { retry_after } => retry_after,
            Self::Concurrency { .. }
            | Self::TooCostly { .. }
            | Self::MissingKey
            | Self::DuplicateKey => None,
        }
    }

    /// Returns whether the same request can never be admitted.
    pub const fn is_lasting(self) -> bool {
        match self {
            Self::TooCostly { .. } | Self::MissingKey | Self::DuplicateKey => true,
            Self::Rate { .. }
            | Self::Concurrency { .. }
            | Self::QueueFull { .. }
            | Self::QueueWait { .. }
            | Self::Undecided { .. }
            | Self::BreakerOpen { .. } => false,
        }
    }

    /// Returns whether this reason decides where `other` holds, too: what never ends goes before
    /// what ends, then what ends later, and what no clock knows the end of comes last.
    #[must_use]
    pub fn outranks(self, other: Self) -> bool {
        let rank = |reason: Self| (reason.is_lasting(), reason.retry_after());
        rank(self) > rank(other)
    }

    /// Returns this reason with another `retry_after`, if it has one.
    #[must_use]
    pub fn over_after(mut self, wait: Duration) -> Self {
        match &mut self {
            Self::Rate { retry_after }
            | Self::QueueFull { retry_after }
            | Self::QueueWait { retry_after, .. }
            | Self::Undecided { retry_after }
            | Self::BreakerOpen { retry_after: Some(retry_after) } => *retry_after = wait,
            Self::BreakerOpen { retry_after: None }
            | Self::Concurrency { .. }
            | Self::TooCostly { .. }
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

/// Where one slot stands after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Whose quota.
    pub slot: SlotId,
    /// What it decided.
    pub verdict: Verdict,
    /// The most that `used` may be. Pacing's is the length of its queue; a breaker
    /// has none, and says 0.
    pub limit: u64,
    /// What is used of it, the request included if it was admitted. More than
    /// `limit` after an edit lowered the limit.
    pub used: u64,
    /// What the request costs here.
    pub cost: u64,
    /// How long this slot makes the request wait; of a dry run, which lets it pass, how
    /// long it would.
    pub wait: Duration,
    /// Time until nothing is used, if nothing more comes. Zero for a concurrency
    /// limit, whose end no clock knows.
    pub reset: Duration,
}

impl Quota {
    /// Returns what is left.
    pub const fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Returns what orders quotas by which of them a client meets first: how many more requests of
    /// this cost fit, then how late it is over.
    pub fn tightness(&self) -> (u64, Reverse<Duration>) {
        let left = self.remaining();
        // Most cost 1, and a division costs more than the question.
        let requests = if self.cost > 1 { left / self.cost } else { left };
        (requests, Reverse(self.reset))
    }
}

/// The record of one decision, which headers, logs, metrics and replays read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One quota for each slot that was asked, in the chain's order.
    pub quotas: SmallVec<[Quota; 4]>,
    /// What the decision turned the breaker to, if it did: to be logged.
    pub turn: Option<Turn>,
}

impl Report {
    /// Returns how long the rules hold the request: the longest that any asked for in earnest.
    pub fn wait(&self) -> Duration {
        let holds = |quota: &&Quota| quota.verdict == Verdict::Delayed;
        self.quotas.iter().filter(holds).map(|quota| quota.wait).max().unwrap_or_default()
    }
}

/// Which slot rejected a request, and why: a [`Rejection`] without its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedBy {
    pub(super) slot: SlotId,
    pub(super) reason: Reason,
}

impl RejectedBy {
    /// Returns the rejection, given what each slot said.
    pub fn with(self, report: Report) -> Rejection {
        let Self { slot, reason } = self;
        Rejection { slot, reason, report }
    }
}

/// A request that may not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The slot that decided: of those that rejected, the one whose reason
    /// [outranks](Reason::outranks) the others', the first if several are equal.
    pub slot: SlotId,
    /// Why. By its `retry_after` every slot would admit the request.
    pub reason: Reason,
    /// What each slot said.
    pub report: Report,
}

/// How an admitted request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The upstream answered in full.
    Success {
        /// When the last byte was sent.
        at: Instant,
    },
    /// The upstream failed or ran out of time.
    Failure {
        /// When that was known.
        at: Instant,
    },
    /// The client left. Nothing can be learnt from its timing.
    #[default]
    Cancelled,
}
