//! What a slot may answer, what the chain reports, and how a request may end.

use super::{breaker::Turn, slot::SlotId, time::Instant};
use core::time::Duration;
use smallvec::SmallVec;

/// A slot's answer to an arriving request.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may start at once.
    Pass,
    /// It may start after this long.
    Wait(Duration),
    /// It may not start.
    Block(Reason),
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
    },
    /// As much is in flight as may be.
    Concurrency {
        /// Cost that may be in flight.
        limit: u64,
        /// Time until others that refused would admit the request; `None` if none did.
        retry_after: Option<Duration>,
    },
    /// As many requests are waiting for their start as may wait.
    QueueFull {
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The wait for a start would be longer than is allowed.
    QueueWait {
        /// The wait that was refused.
        wait: Duration,
        /// Time until the request would be admitted.
        retry_after: Duration,
    },
    /// The rule needs a key that the request does not have.
    MissingKey,
    /// Who decides about the rule cannot be asked.
    Undecided {
        /// Time until it is worth another attempt: a guess.
        retry_after: Duration,
    },
    /// The breaker is open, or as many probes are under way as may be.
    Broken {
        /// Time until a probe would be admitted; `None` if that hangs on those under way,
        /// and on nobody else.
        retry_after: Option<Duration>,
    },
}

impl Reason {
    /// Returns when the same request would be admitted, if time alone can tell.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after }
            | Self::QueueFull { retry_after }
            | Self::Undecided { retry_after }
            | Self::QueueWait { retry_after, .. } => Some(retry_after),
            Self::Concurrency { retry_after, .. } | Self::Broken { retry_after } => retry_after,
            Self::TooCostly { .. } | Self::MissingKey => None,
        }
    }

    /// Returns whether the same request can never be admitted.
    pub const fn is_lasting(self) -> bool {
        match self {
            Self::TooCostly { .. } | Self::MissingKey => true,
            Self::Rate { .. }
            | Self::Concurrency { .. }
            | Self::QueueFull { .. }
            | Self::QueueWait { .. }
            | Self::Undecided { .. }
            | Self::Broken { .. } => false,
        }
    }

    /// Returns this reason where `other` holds, too: none of the two admits earlier than its
    /// `retry_after`, unless one never does.
    #[must_use]
    pub fn beside(mut self, other: Self) -> Self {
        let least = other.retry_after();
        match &mut self {
            Self::Rate { retry_after }
            | Self::QueueFull { retry_after }
            | Self::QueueWait { retry_after, .. }
            | Self::Undecided { retry_after } => {
                *retry_after = least.unwrap_or_default().max(*retry_after);
            }
            // `None` is less than any time.
            Self::Concurrency { retry_after, .. } | Self::Broken { retry_after } => {
                *retry_after = least.max(*retry_after);
            }
            Self::TooCostly { .. } | Self::MissingKey => {}
        }
        self
    }
}

/// One slot's part in a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The slot let the request pass at once.
    Pass,
    /// The slot let it pass after a wait.
    Wait,
    /// The slot refused it.
    Block,
    /// The slot would have refused it, were it not a dry run.
    DryRunBlock,
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
        let holds = |quota: &&Quota| quota.verdict == Verdict::Wait;
        self.quotas.iter().filter(holds).map(|quota| quota.wait).max().unwrap_or_default()
    }
}

/// Who refused a request, and why: a [`Rejection`] without its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub(super) slot: SlotId,
    pub(super) reason: Reason,
}

impl Refused {
    /// Returns the rejection, given what each slot said.
    pub fn with(self, report: Report) -> Rejection {
        let Self { slot, reason } = self;
        Rejection { slot, reason, report }
    }
}

/// A request that may not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The slot whose reason is reported: the first that refused, but one that
    /// refuses for ever goes before one that refuses for a while.
    pub slot: SlotId,
    /// Why. Its `retry_after` heeds every slot that refused.
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
