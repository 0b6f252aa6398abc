//! The writer of the access log: it takes the workers' buffers, and writes them to the output.

use super::watch::Watchers;
use crate::{
    clock::Clock,
    config::AccessLog,
    flow::Instant,
    lines::{self, Lost, write_out},
    meter::Counters,
};
use rustix::{
    fs::{Access, OFlags, access},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io, mem,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

/// The interval of writing if no buffer is half full earlier.
const INTERVAL: Duration = Duration::from_millis(100);

/// The state that workers and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) watchers: Watchers,
    /// The clock and the time until which workers wait for room.
    pub(super) room_until: OnceLock<(Clock, Instant)>,
    pub(super) buffers: Box<[Buffer]>,
    pub(super) commands: SyncSender<Command>,
    pub(super) counters: Arc<Counters>,
}

/// A worker's lines.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) lines: Mutex<Vec<u8>>,
    /// Notified when the writer has taken them.
    pub(super) taken: Condvar,
}

/// A command to the writer.
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

/// Writes the buffers of all workers, on a thread of its own.
pub(super) struct Writer {
    shared: Arc<Shared>,
    output: Output,
    /// An empty buffer to swap for a full one.
    spare: Vec<u8>,
    /// True if the last write failed and may have left a partial line.
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

/// An open output.
#[derive(Debug)]
pub struct Output(Target);

#[derive(Debug)]
enum Target {
    Off,
    Stdout,
    File(File),
}

impl Output {
    /// Opens `target`.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or is a pipe without a reader.
    pub fn open(target: &AccessLog) -> io::Result<Self> {
        Ok(Self(match target {
            AccessLog::Off => Target::Off,
            AccessLog::Stdout => Target::Stdout,
            AccessLog::File(path) => Target::File(open_file(path)?),
        }))
    }

    /// Checks whether `target` could be opened, without creating a file.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`] that are known without opening it.
    pub fn check(target: &AccessLog) -> io::Result<()> {
        let AccessLog::File(path) = target else { return Ok(()) };
        match fs::metadata(path) {
            Ok(known) if known.is_dir() => Err(Errno::ISDIR.into()),
            Ok(_) => Ok(access(path, Access::WRITE_OK)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or_else(|| Path::new("."));
                Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        !matches!(self.0, Target::Off)
    }

    /// Writes `lines`, and blocks until the reader takes them.
    pub(super) fn write(&self, lines: &[u8]) -> Result<(), Lost> {
        match &self.0 {
            Target::Off => Ok(()),
            Target::Stdout => write_out(io::stdout(), lines),
            Target::File(file) => write_out(file, lines),
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let explained = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => {
            io::Error::new(error.kind(), format!("{error} (a pipe without a reader, or a socket)"))
        }
        _ => error,
    };
    // Otherwise opening a pipe waits for its reader.
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).custom_flags(at_once).open(path);
    file.map_err(explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_what_opening_finds_and_makes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let within = |name: &str| AccessLog::File(directory.path().join(name));
        for bad in [".", "no/such/directory", "access.log/below"] {
            fs::write(&path, "").unwrap();
            let target = within(bad);
            let look = Output::check(&target);
            let open = Output::open(&target).map(drop);
            let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
            assert_eq!(kind(look), kind(open), "{bad}");
            assert!(Output::check(&target).is_err(), "{bad}");
        }
        Output::check(&within("access.log")).unwrap();
        Output::check(&within("another.log")).unwrap();
        assert!(!directory.path().join("another.log").exists());
    }
}
