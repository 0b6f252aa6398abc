//! Waits with an end: settings, timers, and bodies that move too slowly.

pub(crate) mod atomic_instant;
pub(crate) mod body_timeout;
pub(crate) mod minimum_rate;
pub(crate) mod poll_time;
pub(crate) mod streams;
pub(crate) mod timeout;
pub(crate) mod timer;
