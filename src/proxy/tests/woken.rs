//! A task that only counts how often it is woken.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{sync::Arc, task::Wake};

#[derive(Default)]
pub(crate) struct Woken(AtomicU32);

impl Woken {
    pub(crate) fn times(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}
