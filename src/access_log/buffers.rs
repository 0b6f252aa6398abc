//! The workers' buffers, and what the writer is to do with them.

use super::output::Output;
use crate::{clock::Clock, flow::Instant, lines, meter::Counters};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicBool, mpsc::SyncSender,
};

/// What workers and the writer have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) on: AtomicBool,
    /// Until when, and by which clock, who finds no room waits for it.
    pub(super) room_until: OnceLock<(Clock, Instant)>,
    pub(super) buffers: Box<[Buffer]>,
    pub(super) orders: SyncSender<Order>,
    pub(super) counters: Arc<Counters>,
}

/// One worker's lines.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) lines: Mutex<Vec<u8>>,
    /// Notified when they have been taken.
    pub(super) taken: Condvar,
}

/// An order to the writer.
#[derive(Debug)]
pub(super) enum Order {
    /// A buffer is half full.
    Write,
    /// Write what is buffered, and from then on to another place; then answer.
    Use(Output, SyncSender<()>),
    /// Write what is buffered, and end.
    End,
}

impl Shared {
    /// How many lines are still in the buffers.
    pub(super) fn left(&self) -> u64 {
        self.buffers.iter().map(|buffer| lines::count(&lock(&buffer.lines))).sum::<usize>() as u64
    }
}

/// Locks a buffer. Nothing that runs under this lock panics, and no guard outlives a call.
pub(super) fn lock(buffer: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}
