//! The view of a limit that finds itself, for logs, metrics and `/routes`.

use super::time::Instant;
use core::{fmt, time::Duration};
use serde::{Deserialize, Serialize};

/// A reason for which a limit that finds itself changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChangeReason {
    /// It has just begun, and the throughput grew with the limit: it doubles.
    Start,
    /// The throughput grows with the limit.
    MorePays,
    /// The throughput does not grow with the limit, or responses take much longer than unloaded.
    NobodyGains,
    /// Responses take more than twice as long as unloaded: it tries far fewer places.
    Dive,
    /// With far fewer places the throughput was the same: it stays there.
    DiveKept,
    /// With far fewer places the throughput was less: the service is slower, not fuller. The limit
    /// goes back.
    DiveRefuted,
    /// All requests of a slot failed: it starts anew from half.
    AllFailed,
    /// Without a queue: a few requests found no place, and responses take no longer than unloaded.
    HasRoom,
}

labels! {
    /// Returns its words in logs and metrics.
    pub fn words(ChangeReason) {
        Start => "start",
        MorePays => "more pays",
        NobodyGains => "nobody gains",
        Dive => "dive",
        DiveKept => "dive kept",
        DiveRefuted => "dive refuted",
        AllFailed => "all failed",
        HasRoom => "has room",
    }
}

/// A change of a limit that finds itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitChange {
    /// The time of the change.
    pub at: Instant,
    /// The reason for the change.
    pub reason: ChangeReason,
    /// The limit before.
    pub from: u32,
    /// The limit since.
    pub to: u32,
    /// By what share the throughput followed the limit, in thousandths.
    pub elasticity: i32,
    /// As in [`AutoStats`], in thousandths.
    pub trend: i32,
    /// As in [`AutoStats`].
    pub unloaded: Duration,
    /// As in [`AutoStats`].
    pub slot: Duration,
}

/// For the log: `from 8 to 12: more pays`.
impl fmt::Display for LimitChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {}: {}", self.from, self.to, self.reason.words())
    }
}

/// A limit that finds itself, at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoStats {
    /// The limit in slots at the lower level.
    pub limit: u32,
    /// The limit of this slot.
    pub level: u32,
    /// The length of a slot.
    pub slot: Duration,
    /// By what share the throughput followed the limit lately, in thousandths: 0 not at all, 1,000 in
    /// proportion.
    pub elasticity: i32,
    /// The mean of the elasticity, less what a place must gain to be worth it, in thousandths.
    pub trend: i32,
    /// The response time of a service that is not full; zero before the first slot in which requests
    /// waited.
    pub unloaded: Duration,
    /// The latest change.
    pub latest: Option<LimitChange>,
    /// The number of changes for each reason, in the order of [`ChangeReason::ALL`].
    pub changes: [u64; ChangeReason::ALL.len()],
}
