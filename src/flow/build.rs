//! Builds the slot of a rule.

use super::{
    keyed::Keyed,
    limiter::{Algorithm, by_wall::ByWall},
    shared::synced,
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
            synced::build(config, keyed).unwrap_or_else(|| build(&config.here(), keyed, wall))
        }
    }
}
