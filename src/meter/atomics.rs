//! The atomics that threads share; `tests/models.rs` has loom's in their place.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};
