use super::{
    buffers::{Command, Shared, lock},
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

/// How often the buffers are written if none is half full earlier.
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Writer {
    shared: Arc<Shared>,
    output: Output,
    /// An empty buffer to swap for a full one.
    spare: Vec<u8>,
    /// Whether the last write failed and may have left a partial line.
    is_torn: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, output: Output) -> Self {
        Self { shared, output, spare: Vec::new(), is_torn: false }
    }

    /// Writes until a command ends it or all senders are gone.
    pub(super) fn run(&mut self, inbox: &Receiver<Command>) {
        loop {
            let mut command = inbox.recv_timeout(INTERVAL);
            // One pass serves all queued requests.
            while let Ok(Command::Write) = command
                && let Ok(next) = inbox.try_recv()
            {
                command = Ok(next);
            }
            self.write_all();
            match command {
                Ok(Command::Write) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Command::Use(output, done)) => {
                    self.output = output;
                    self.is_torn = false;
                    drop(done);
                }
                Ok(Command::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

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
        let separated = if self.is_torn { self.output.write(b"\n") } else { Ok(()) };
        let written = separated
            .map_err(|lost| Lost::of(&self.spare, lost.error))
            .and_then(|()| self.output.write(&self.spare));
        if let Err(Lost { lines, error }) = &written {
            self.shared.counters.access_log_dropped.fetch_add(*lines as u64, Relaxed);
            // Once, not ten times a second while the disk is full.
            if !self.is_torn {
                tracing::warn!(%error, "cannot write the access log");
            }
        }
        self.is_torn = written.is_err();
        self.spare.clear();
    }
}
