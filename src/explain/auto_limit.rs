//! The JSON view of a limit that finds itself, and its words.

use crate::flow::{AutoStats, ChangeReason};
use core::fmt::{self, Display, Formatter};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap};

/// A limit that finds itself, with what it has seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AutoState {
    /// The limit in slots at the lower level.
    pub limit: u32,
    /// The limit of this slot.
    pub level: u32,
    /// The length of a slot.
    pub slot_ms: f64,
    /// By what share the throughput followed the limit: 0 not at all, 1 in proportion.
    pub elasticity: f64,
    /// The mean of the elasticity, less what a place must gain to be worth it.
    pub trend: f64,
    /// The response time of a service that is not full; 0 before the first slot in which requests waited.
    pub unloaded_ms: f64,
    /// The latest change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<LimitMove>,
    /// The number of changes by reason, of reasons that there were.
    pub changes: BTreeMap<Cow<'static, str>, u64>,
}

/// A change of a limit that finds itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitMove {
    /// The limit before.
    pub from: u32,
    /// The limit since.
    pub to: u32,
    /// The reason, in the words of the log.
    pub reason: Cow<'static, str>,
}

impl AutoState {
    /// Returns the view of these figures.
    pub fn of(stats: &AutoStats) -> Self {
        let reasons = ChangeReason::ALL.into_iter().zip(stats.changes);
        let reasons = reasons.filter(|(_, count)| *count > 0);
        Self {
            limit: stats.limit,
            level: stats.level,
            slot_ms: stats.slot.as_secs_f64() * 1e3,
            elasticity: f64::from(stats.elasticity) / 1e3,
            trend: f64::from(stats.trend) / 1e3,
            unloaded_ms: stats.unloaded.as_secs_f64() * 1e3,
            latest: stats.latest.map(|change| LimitMove {
                from: change.from,
                to: change.to,
                reason: change.reason.words().into(),
            }),
            changes: reasons.map(|(reason, count)| (reason.words().into(), count)).collect(),
        }
    }
}

/// As commands print it: `limit 8, latest 7 → 8: more pays, elasticity 0.05, trend -0.02, unloaded 50.2 ms,
/// slot 268 ms`.
impl Display for AutoState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { limit, elasticity, trend, .. } = self;
        write!(f, "limit {limit}, ")?;
        match &self.latest {
            Some(LimitMove { from, to, reason }) => write!(f, "latest {from} → {to}: {reason}")?,
            None => f.write_str("no change yet")?,
        }

        write!(f, ", elasticity {elasticity:.2}, trend {trend:.2}, unloaded ")?;
        if self.unloaded_ms > 0.0 {
            write!(f, "{} ms", short(self.unloaded_ms))?;
        } else {
            f.write_str("unknown")?;
        }
        write!(f, ", slot {} ms", short(self.slot_ms))
    }
}

/// Returns milliseconds with one digit after the point below 100, and without any above.
fn short(millis: f64) -> String {
    if millis < 100.0 { format!("{millis:.1}") } else { format!("{millis:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Instant, LimitChange};
    use core::time::Duration;

    fn stats(latest: Option<LimitChange>) -> AutoStats {
        AutoStats {
            limit: 8,
            level: 10,
            slot: Duration::from_nanos(1 << 28),
            elasticity: 50,
            trend: -20,
            unloaded: Duration::from_micros(50_240),
            latest,
            changes: [3, 1, 0, 0, 0, 0, 0, 0],
        }
    }

    #[test]
    fn a_limit_that_finds_itself_says_what_it_has_seen_and_why_it_changed() {
        let change = LimitChange {
            at: Instant::EPOCH,
            reason: ChangeReason::MorePays,
            from: 7,
            to: 8,
            elasticity: 50,
            trend: -20,
            unloaded: Duration::ZERO,
            slot: Duration::ZERO,
        };
        let view = AutoState::of(&stats(Some(change)));
        assert_eq!(
            view.to_string(),
            "limit 8, latest 7 → 8: more pays, elasticity 0.05, trend -0.02, unloaded 50.2 ms, slot 268 ms"
        );
        let changes: Vec<_> = view.changes.into_iter().collect();
        assert_eq!(changes, [("more pays".into(), 1), ("start".into(), 3)]);

        let new = AutoStats { unloaded: Duration::ZERO, ..stats(None) };
        assert_eq!(
            AutoState::of(&new).to_string(),
            "limit 8, no change yet, elasticity 0.05, trend -0.02, unloaded unknown, slot 268 ms"
        );
    }
}
