//! The thread that writes the access log.

use super::{
    buffers::{Order, Shared, lock},
    output::Output,
};
use crate::lines::Lost;
use std::{
    mem,
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

/// How often the buffers are written out, unless one is half full earlier.
const INTERVAL: Duration = Duration::from_millis(100);

/// The thread that writes.
pub(super) struct Writer {
    shared: Arc<Shared>,
    output: Output,
    /// An empty buffer, to be swapped for a full one.
    spare: Vec<u8>,
    /// Whether the last write failed, and may have left half a line.
    torn: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, output: Output) -> Self {
        Self { shared, output, spare: Vec::new(), torn: false }
    }

    /// Writes until an order ends it, or nothing is left that could send one.
    pub(super) fn run(&mut self, inbox: &Receiver<Order>) {
        loop {
            let mut order = inbox.recv_timeout(INTERVAL);
            // One pass is enough for all who want one.
            while let Ok(Order::Write) = order
                && let Ok(next) = inbox.try_recv()
            {
                order = Ok(next);
            }
            self.write_all();
            match order {
                Ok(Order::Write) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Use(output, done)) => {
                    self.output = output;
                    self.torn = false;
                    drop(done);
                }
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes out every worker's buffer.
    fn write_all(&mut self) {
        let shared = Arc::clone(&self.shared);
        for buffer in &shared.buffers {
            mem::swap(&mut *lock(&buffer.lines), &mut self.spare);
            if !self.spare.is_empty() {
                buffer.taken.notify_all();
                self.write_spare();
            }
        }
    }

    fn write_spare(&mut self) {
        let separated = if self.torn { self.output.write(b"\n") } else { Ok(()) };
        let written = separated
            .map_err(|lost| Lost::of(&self.spare, lost.error))
            .and_then(|()| self.output.write(&self.spare));
        if let Err(Lost { lines, error }) = &written {
            self.shared.counters.access_log_dropped.fetch_add(*lines as u64, Relaxed);
            // Once, not ten times a second for as long as the disk is full.
            if !self.torn {
                tracing::warn!(%error, "cannot write the access log");
            }
        }
        self.torn = written.is_err();
        self.spare.clear();
    }
}
