//! The requests of a running gateway as they end, read like a file.

use crate::{
    admin_client::{AdminClient, ClientError, Pieces},
    clock::Clock,
    counted::counted,
    flow::{Instant, time::spelled},
    shutdown::Signals,
};
use bytes::{Bytes, BytesMut};
use core::{cell::RefCell, time::Duration};
use std::{
    io::{self, IsTerminal, Read},
    process,
    rc::Rc,
    thread,
};
use tokio::runtime::{self, Runtime};

/// The most requests that are recorded: they take about 600 MB.
pub(super) const MOST: u64 = 2_000_000;

/// The longest line, in bytes.
const LONGEST: usize = 16 << 20;

/// The time between two counts on a terminal.
const PROGRESS: Duration = Duration::from_millis(250);

/// The exit code of a process that was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Reads lines until the gateway ends them, a signal comes, or there are [`MOST`].
pub(super) struct Recording {
    /// `None` once it has ended.
    session: Option<Session>,
    /// The lines that were received, each whole.
    lines: Bytes,
    /// The beginning of the next line.
    rest: BytesMut,
    requests: u64,
    progress: Progress,
    /// The reason why it ended before its time, if it did.
    cut: Rc<RefCell<Option<String>>>,
}

struct Session {
    pieces: Pieces,
    signals: Signals,
    runtime: Runtime,
}

struct Progress {
    clock: Clock,
    started: Instant,
    written: Option<Instant>,
    is_terminal: bool,
}

impl Session {
    /// Waits for the next piece, which comes after `waiting` bytes of a line. Returns why there is
    /// none: `None` if the gateway has ended the recording.
    fn next(&mut self, waiting: usize) -> Result<Bytes, Option<String>> {
        let Self { pieces, signals, runtime } = self;
        let piece = runtime.block_on(async {
            tokio::select! {
                biased;
                () = signals.end() => Err(Some("by a signal".to_owned())),
                piece = pieces.next() => piece.map_err(|error| Some(error.to_string())),
            }
        })?;
        let piece = piece.ok_or(None)?;
        if waiting + piece.len() > LONGEST {
            return Err(Some(pieces.too_long("a line", LONGEST).to_string()));
        }
        Ok(piece)
    }
}

impl Recording {
    /// Asks a gateway for its requests of this time from now on.
    ///
    /// # Errors
    /// The gateway does not answer, or says no and why.
    pub(super) fn start(client: &AdminClient, time: Duration) -> Result<Self, ClientError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let path = format!("/requests?for={}ms", time.as_millis());
        let (pieces, signals, clock) = runtime.block_on(async {
            let signals = Signals::listen()?;
            Ok::<_, ClientError>((client.stream(&path).await?, signals, Clock::start()))
        })?;
        let endpoint = client.endpoint();
        eprintln!(
            "recording the requests of the gateway at {endpoint} for {}; Ctrl-C ends it early",
            spelled(time)
        );
        let is_terminal = io::stderr().is_terminal();
        let progress = Progress { started: clock.now(), clock, written: None, is_terminal };
        Ok(Self {
            session: Some(Session { pieces, signals, runtime }),
            lines: Bytes::new(),
            rest: BytesMut::new(),
            requests: 0,
            progress,
            cut: Rc::default(),
        })
    }

    /// Returns where it will be noted why the recording ended before its time, if it did.
    pub(super) fn cut(&self) -> Rc<RefCell<Option<String>>> {
        Rc::clone(&self.cut)
    }

    /// Waits for more lines.
    fn receive(&mut self) {
        let Some(session) = &mut self.session else { return };
        match session.next(self.rest.len()) {
            Ok(piece) => self.take(&piece),
            Err(cut) => self.end(cut),
        }
    }

    fn take(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.lines = self.rest.split_to(end).freeze();
        let lines = self.lines.split_inclusive(|byte| *byte == b'\n');
        self.requests += lines.filter(|line| !line.starts_with(b"{\"stream\":")).count() as u64;
        self.progress.show(self.requests);
        if self.requests >= MOST {
            self.end(Some(format!("after {MOST} requests, the most that are recorded")));
        }
    }

    /// Ends the recording. From now on a signal ends the process.
    fn end(&mut self, cut: Option<String>) {
        let Some(Session { pieces, mut signals, runtime }) = self.session.take() else { return };
        drop(pieces);
        self.progress.end(self.requests);
        *self.cut.borrow_mut() = cut;
        let waiting = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(signals.end());
            process::exit(INTERRUPTED);
        });
        // Without a thread only a signal that no process can handle ends the analysis.
        drop(waiting);
    }
}

impl Read for Recording {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.lines.is_empty() && self.session.is_some() {
            self.receive();
        }
        let length = self.lines.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.lines.split_to(length));
        Ok(length)
    }
}

impl Progress {
    fn show(&mut self, requests: u64) {
        let now = self.clock.now();
        let is_due = self.written.is_none_or(|written| now.since(written) >= PROGRESS);
        if self.is_terminal && is_due {
            self.written = Some(now);
            eprint!("\r\x1b[2K{} in {}", counted(requests, "request"), self.passed(now));
        }
    }

    fn end(&self, requests: u64) {
        let begin = if self.is_terminal { "\r\x1b[2K" } else { "" };
        let requests = counted(requests, "request");
        eprintln!("{begin}{requests} in {}", self.passed(self.clock.now()));
    }

    fn passed(&self, now: Instant) -> String {
        spelled(Duration::from_secs(now.since(self.started).as_secs()))
    }
}
