//! A breaker's phase, transitions and statistics.

use core::fmt;

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

/// What metrics and `/routes` show of a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerStats {
    /// Its phase. An open breaker is half-open from its first probe on.
    pub phase: Phase,
    /// How often it opened.
    pub opened: u64,
    /// How often it became half-open.
    pub half_opened: u64,
    /// How often it closed again.
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
