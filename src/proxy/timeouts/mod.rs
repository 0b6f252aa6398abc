//! Waits with an end: settings, timers, and bodies that move too slowly.

pub(crate) mod body_timeout;
pub(crate) mod streams;
pub(crate) mod timeout;
pub(crate) mod timer;
