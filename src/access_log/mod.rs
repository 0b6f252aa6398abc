//! The access log: one line per request, as JSON or in the combined format, written by a thread of its own.
//!
//! Each worker appends to its own buffer; the writer thread takes the buffers at least every 100
//! ms. A buffer holds 1 MiB. If it is full because the disk or reader is too slow, lines are
//! dropped and counted; only while the gateway ends, workers wait for room. Lines of one worker
//! stay in order.
//!
//! Clients of the admin listener may watch the lines, also if they are not written: see [`Watching`].

mod combined;
mod decision;
mod record;
mod watch;
mod writer;

pub use decision::{DecisionKind, DecisionRecord};
#[cfg(test)]
pub(crate) use record::sample;
pub use record::{
    AccessRecord, FlowRecord, LoggedCost, LoggedKey, LoggedLimit, LoggedSharer, PreviewRecord,
    ResponseOutcome,
};
pub use watch::{StreamEnd, StreamLine, StreamState, Watch, Watching};
pub use writer::Output;

use self::{
    watch::Watchers,
    writer::{Buffer, Command, Shared, Writer, lock},
};
use crate::{
    clock::Clock,
    config::{AccessLog, LogFormat},
    meter::Counters,
};
use std::{
    io,
    num::NonZeroUsize,
    sync::{
        Arc, MutexGuard, OnceLock, PoisonError,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// A worker's buffer: a second's lines at 3000 requests/s.
const BUFFER: usize = 1024 * 1024;

/// The longest time that the writer may take for the last lines.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest time that workers wait for room while the gateway ends: half of the time that they
/// have.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);

/// The log: its writer thread and the workers' buffers.
///
/// Dropping it writes the buffers, within two seconds; drop it after the workers have ended.
#[derive(Debug)]
pub struct Sink {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    /// Disconnected when the writer has ended.
    ended: Receiver<()>,
}

/// A worker's handle of the log.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    worker: usize,
}

impl Sink {
    /// Starts the log of this many workers.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start(
        output: Output,
        workers: NonZeroUsize,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let workers = workers.get();
        // A worker has at most two commands queued, as its buffer gets half full and full once
        // before the writer takes it; reloads and signals add a few.
        let (commands, inbox) = sync_channel(2 * workers + 16);
        let shared = Arc::new(Shared {
            watchers: Watchers::new(output.is_on()),
            room_until: OnceLock::new(),
            buffers: (0..workers).map(|_| Buffer::default()).collect(),
            commands,
            counters,
        });

        let (end, ended) = sync_channel(0);
        let mut writer = Writer::new(Arc::clone(&shared), output);
        let writer = thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer.run(&inbox);
            drop(end);
        })?;
        Ok(Self { shared, writer: Some(writer), ended })
    }

    /// Returns the handle of this worker.
    pub fn handle(&self, worker: usize) -> Handle {
        Handle { shared: Arc::clone(&self.shared), worker: worker % self.shared.buffers.len() }
    }

    /// Returns the source of watches of the lines.
    pub fn watching(&self) -> Watching {
        Watching(Arc::clone(&self.shared))
    }

    /// Makes workers wait for room in full buffers for a second from now: all requests in flight
    /// are logged at once, and no client waits.
    pub fn wait_for_room(&self, clock: &Clock) {
        self.shared.room_until.get_or_init(|| (clock.clone(), clock.now() + ROOM_PATIENCE));
    }

    /// Writes the buffers, however long that takes.
    #[cfg(test)]
    pub(crate) fn finish(mut self) {
        self.shared.commands.send(Command::End).expect("the writer takes commands");
        let writer = self.writer.take().expect("it runs");
        writer.join().expect("the writer does not panic");
    }

    /// Opens `target` and writes there from the next line on; earlier lines go to the old file. The
    /// same target is reopened, for rotation. Waits for the writer, at most two seconds.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, and the log stays; or the writer hangs, and switches when it
    /// continues.
    pub fn redirect(&self, target: &AccessLog) -> io::Result<()> {
        self.switch(Output::open(target)?)
    }

    /// Writes to `output` from the next line on, like [`Self::redirect`].
    ///
    /// # Errors
    ///
    /// The writer hangs, and switches when it continues.
    pub fn switch(&self, output: Output) -> io::Result<()> {
        let on = output.is_on();
        let (done, finished) = sync_channel(0);
        let is_sent = self.shared.commands.try_send(Command::Use(output, done)).is_ok();
        if !is_sent || finished.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Disconnected) {
            return Err(io::Error::other("the access log's writer does not answer"));
        }
        self.shared.watchers.set_written(on);
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The queue is full if the writer hangs on a pipe that is not read.
        let is_sent = self.shared.commands.try_send(Command::End).is_ok();
        if is_sent && self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected) {
            if let Some(Err(_)) = self.writer.take().map(JoinHandle::join) {
                tracing::error!("the access log's writer panicked");
            }
            let lines = self.shared.counters.access_log_dropped.load(Relaxed);
            if lines > 0 {
                tracing::warn!(lines, "the access log has lost lines since the start");
            }
        } else {
            let lines = self.shared.counters.access_log_dropped.load(Relaxed) + self.shared.left();
            tracing::warn!(
                lines,
                "the access log's reader is stuck: lines are lost since the start, and the line \
                 being written"
            );
        }
    }
}

impl Handle {
    /// Returns whether lines are written or watched. If not, records need not be made.
    pub fn is_on(&self) -> bool {
        self.shared.watchers.want_lines()
    }

    /// Returns whether lines are written.
    pub fn is_written(&self) -> bool {
        self.shared.watchers.is_written()
    }

    /// Appends one line to the log, in this format, and to the queues of watchers, as JSON. Where there
    /// is no room, it is dropped and counted.
    pub fn log(&self, record: &AccessRecord<'_>, format: LogFormat) {
        if self.shared.watchers.is_watched() {
            self.show(record);
        }
        if self.is_written() {
            self.write(record, format);
        }
    }

    #[cold]
    fn show(&self, record: &AccessRecord<'_>) {
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        self.shared.watchers.send(&line);
    }

    fn write(&self, record: &AccessRecord<'_>, format: LogFormat) {
        let buffer = &self.shared.buffers[self.worker];
        let mut lines = lock(&buffer.lines);
        let before = loop {
            let before = lines.len();
            let is_written = match format {
                LogFormat::Json => serde_json::to_writer(&mut *lines, record).is_ok(),
                LogFormat::Combined => combined::write(&mut *lines, record).is_ok(),
            };
            lines.push(b'\n');
            if is_written && lines.len() <= BUFFER {
                break before;
            }
            lines.truncate(before);
            let Some(emptied) = self.make_room(buffer, lines) else {
                self.shared.counters.access_log_dropped.fetch_add(1, Relaxed);
                return;
            };
            lines = emptied;
        };

        let half_full = (before..lines.len()).contains(&(BUFFER / 2));
        drop(lines);
        if half_full {
            // If the queue is full, the writer has enough commands.
            let _sent = self.shared.commands.try_send(Command::Write);
        }
    }

    /// Waits until the writer has taken `lines`, if the gateway ends.
    #[cold]
    fn make_room<'a>(
        &self,
        buffer: &'a Buffer,
        lines: MutexGuard<'a, Vec<u8>>,
    ) -> Option<MutexGuard<'a, Vec<u8>>> {
        let Shared { room_until, commands, .. } = &*self.shared;
        let (clock, until) = room_until.get()?;
        let patience = until.since(clock.now());
        if lines.is_empty() || patience.is_zero() {
            return None;
        }
        let _sent = commands.try_send(Command::Write);
        let waited = buffer.taken.wait_timeout_while(lines, patience, |lines| !lines.is_empty());
        let (lines, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (!waited.timed_out()).then_some(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::{sample as record, *};
    use serde_json::Value;
    use std::{fs, path::Path};

    #[test]
    fn lines_before_a_rotation_are_in_the_old_file_and_later_ones_in_the_new() {
        let (_directory, path) = place();
        let old = path.with_extension("old");
        let target = AccessLog::File(path.clone());
        let (sink, counters) = open(&target);
        let handle = sink.handle(0);
        handle.log(&record("/before"), LogFormat::Json);
        fs::rename(&path, &old).unwrap();
        sink.redirect(&target).unwrap();
        handle.log(&record("/after"), LogFormat::Json);
        drop(sink);
        assert_eq!(paths(&old), ["/before"]);
        assert_eq!(paths(&path), ["/after"]);
        assert_eq!(counters.access_log_dropped.load(Relaxed), 0);
    }

    #[test]
    fn every_line_of_every_worker_is_written_or_counted() {
        let (_directory, path) = place();
        let (sink, counters) = open(&AccessLog::File(path.clone()));
        thread::scope(|scope| {
            for worker in 0..2 {
                let handle = sink.handle(worker);
                scope.spawn(move || {
                    (0..5000).for_each(|_| handle.log(&record("/x"), LogFormat::Json));
                });
            }
        });
        drop(sink);
        let dropped = counters.access_log_dropped.load(Relaxed);
        assert_eq!(paths(&path).len() as u64 + dropped, 10_000);
    }

    #[test]
    fn a_full_buffer_drops_whole_lines_and_counts_them() {
        let (commands, _inbox) = sync_channel(16);
        let counters = Arc::new(Counters::default());
        let watchers = Watchers::new(true);
        let room_until = OnceLock::new();
        let buffers = Box::new([Buffer::default()]);
        let shared =
            Shared { watchers, room_until, buffers, commands, counters: Arc::clone(&counters) };
        let handle = Handle { shared: Arc::new(shared), worker: 0 };
        let long = "x".repeat(BUFFER / 3);
        for _ in 0..5 {
            handle.log(&record(&long), LogFormat::Json);
        }
        assert_eq!(counters.access_log_dropped.load(Relaxed), 3);
        let buffer = lock(&handle.shared.buffers[0].lines);
        assert!(buffer.len() <= BUFFER);
        assert_eq!(buffer.split_inclusive(|byte| *byte == b'\n').count(), 2);
    }

    // On a clock that stands, so that the deadline does not come on a slow machine.
    #[tokio::test(start_paused = true)]
    async fn as_the_gateway_ends_lines_wait_for_room_but_for_those_that_never_fit() {
        let (_directory, path) = place();
        let (sink, counters) = open(&AccessLog::File(path.clone()));
        sink.wait_for_room(&Clock::start());
        let handle = sink.handle(0);
        let long = "x".repeat(BUFFER / 3);
        for _ in 0..20 {
            handle.log(&record(&long), LogFormat::Json);
        }
        handle.log(&record(&"x".repeat(BUFFER)), LogFormat::Json);
        drop(sink);
        assert_eq!(paths(&path).len(), 20);
        assert_eq!(counters.access_log_dropped.load(Relaxed), 1);
    }

    #[test]
    fn a_log_that_is_off_takes_nothing_until_it_is_turned_on() {
        let (_directory, path) = place();
        let (sink, _) = open(&AccessLog::Off);
        let handle = sink.handle(7);
        handle.log(&record("/unseen"), LogFormat::Json);
        assert!(!handle.is_on());
        sink.redirect(&AccessLog::File(path.clone())).unwrap();
        assert!(handle.is_on());
        handle.log(&record("/seen"), LogFormat::Json);
        drop(sink);
        assert_eq!(paths(&path), ["/seen"]);
    }

    #[test]
    fn a_place_that_cannot_be_opened_leaves_the_log_where_it_is() {
        let (directory, path) = place();
        let (sink, _) = open(&AccessLog::File(path.clone()));
        let nowhere = AccessLog::File(directory.path().join("no/such/directory"));
        let error = sink.redirect(&nowhere).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        sink.handle(0).log(&record("/here"), LogFormat::Json);
        drop(sink);
        assert_eq!(paths(&path), ["/here"]);
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let (sink, counters) = open(&AccessLog::File("/dev/full".into()));
        let handle = sink.handle(0);
        handle.log(&record("/lost"), LogFormat::Json);
        handle.log(&record("/lost"), LogFormat::Json);
        drop(sink);
        assert_eq!(counters.access_log_dropped.load(Relaxed), 2);
    }

    fn place() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        (directory, path)
    }

    fn open(target: &AccessLog) -> (Sink, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        let workers = NonZeroUsize::new(2).unwrap();
        let output = Output::open(target).unwrap();
        (Sink::start(output, workers, Arc::clone(&counters)).unwrap(), counters)
    }

    fn paths(log: &Path) -> Vec<String> {
        let path =
            |line| serde_json::from_str::<Value>(line).unwrap()["path"].as_str().map(str::to_owned);
        fs::read_to_string(log).unwrap().lines().filter_map(path).collect()
    }
}
