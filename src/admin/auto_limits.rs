//! The metrics of limits that find themselves.

use super::exposition::{counters, fractions, gauges};
use crate::flow::{AutoStats, ChangeReason};
use core::fmt;
use prometheus_client::encoding::DescriptorEncoder;
use std::borrow::Cow;

/// A limit that finds itself.
pub(super) struct AutoLimit<'m> {
    /// Of a rule of a route, `budget` is empty; of another one, `route` and `rule` are.
    pub(super) labels: [(&'static str, Cow<'m, str>); 3],
    pub(super) stats: AutoStats,
}

/// Writes the metrics of these limits.
pub(super) fn encode(limits: &[AutoLimit<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let each = |read: fn(&AutoStats) -> u64| {
        limits.iter().map(move |limit| (limit.labels.clone(), read(&limit.stats)))
    };
    let fraction = |read: fn(&AutoStats) -> f64| {
        limits.iter().map(move |limit| (limit.labels.clone(), read(&limit.stats)))
    };

    let help = "The limit in flight that a rule with `concurrency: auto` has found";
    gauges(encoder, ("flowgate_auto_limit", help), each(|stats| stats.limit.into()))?;
    let help = "The same in this slot: in every other one it is a step higher";
    gauges(encoder, ("flowgate_auto_level", help), each(|stats| stats.level.into()))?;
    let help = "By what share the throughput followed the limit: 0 not at all, 1 in proportion";
    let elasticity = fraction(|stats| f64::from(stats.elasticity) / 1e3);
    fractions(encoder, "flowgate_auto_elasticity", help, elasticity)?;
    let help = "The mean of the elasticity, less what a place must gain to be worth it";
    let trend = fraction(|stats| f64::from(stats.trend) / 1e3);
    fractions(encoder, "flowgate_auto_trend", help, trend)?;
    let help = "The response time of the service while it is not full";
    let unloaded = fraction(|stats| stats.unloaded.as_secs_f64());
    fractions(encoder, "flowgate_auto_unloaded_seconds", help, unloaded)?;
    let help = "The length of a slot";
    let slot = fraction(|stats| stats.slot.as_secs_f64());
    fractions(encoder, "flowgate_auto_slot_seconds", help, slot)?;

    let changes = limits.iter().flat_map(|AutoLimit { labels, stats }| {
        ChangeReason::ALL
            .into_iter()
            .zip(stats.changes)
            .map(move |(reason, count)| ((labels.clone(), [("reason", reason.words())]), count))
    });
    let help = "Changes of the limit by reason";
    counters(encoder, ("flowgate_auto_changes", help), changes)
}
