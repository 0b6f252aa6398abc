//! Builds the slot of a rule.

use super::{
    keyed::Keyed,
    limiter::{Algorithm, SyncedConfig, by_wall::ByWall, synced::Synced},
    slot::{LimiterSlot, Slot},
    time::WallOffset,
};

pub(super) fn build(
    algorithm: &Algorithm,
    keyed: Option<&Keyed>,
    wall: WallOffset,
) -> Box<dyn Slot> {
    match algorithm {
        Algorithm::TokenBucket(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::WarmUp(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::LeakyBucket(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::SlidingLog(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::SlidingWindow(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::SlidingCounter(config) => {
            LimiterSlot::boxed(ByWall::new(config.build(), wall), keyed)
        }
        Algorithm::FixedWindow(config) => {
            LimiterSlot::boxed(ByWall::new(config.build(), wall), keyed)
        }
        Algorithm::Concurrency(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::Pacing(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::Synced(config) => {
            build_synced(config, keyed).unwrap_or_else(|| build(&config.here(), keyed, wall))
        }
    }
}

/// Builds an unused slot; `None` for an algorithm that cannot sync, which no such configuration
/// has.
fn build_synced(config: &SyncedConfig, keyed: Option<&Keyed>) -> Option<Box<dyn Slot>> {
    let slot = match (config.whole(), &config.here()) {
        (Algorithm::TokenBucket(whole), Algorithm::TokenBucket(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::LeakyBucket(whole), Algorithm::LeakyBucket(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::SlidingWindow(whole), Algorithm::SlidingWindow(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::SlidingCounter(whole), Algorithm::SlidingCounter(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::FixedWindow(whole), Algorithm::FixedWindow(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        _ => return None,
    };
    Some(slot)
}
