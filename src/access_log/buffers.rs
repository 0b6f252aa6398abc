//! The workers' buffers and the writer's commands.

use super::{output::Output, watchers::Watchers};
use crate::{clock::Clock, flow::Instant, lines, meter::Counters};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc::SyncSender};

/// State of workers and writer.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) watchers: Watchers,
    /// Until when, by this clock, workers wait for room.
    pub(super) room_until: OnceLock<(Clock, Instant)>,
    pub(super) buffers: Box<[Buffer]>,
    pub(super) commands: SyncSender<Command>,
    pub(super) counters: Arc<Counters>,
}

#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) lines: Mutex<Vec<u8>>,
    /// Notified when the writer has taken them.
    pub(super) taken: Condvar,
}

#[derive(Debug)]
pub(super) enum Command {
    /// A buffer is half full.
    Write,
    /// Write the buffers, then switch to this output and drop the sender.
    Use(Output, SyncSender<()>),
    /// Write the buffers and end.
    End,
}

impl Shared {
    /// Counts the lines in the buffers.
    pub(super) fn left(&self) -> u64 {
        self.buffers.iter().map(|buffer| lines::count(&lock(&buffer.lines))).sum::<usize>() as u64
    }
}

/// Locks a buffer. Nothing panics under this lock.
pub(super) fn lock(buffer: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}
