//! The old process's side of an upgrade, on a thread of its own.
//!
//! The thread exists from the start, since later ones would pass the control thread's lower
//! priority on to the new process.

use super::{
    channel::{Channel, ChannelError, MAX_DESCRIPTORS},
    message::{Handover, Hello, SocketName, Sockets, SuccessorReply},
    predecessor::VARIABLE,
    state::{Gates, OutgoingState, end},
};
use crate::{flow::transfer::FORM, proxy::ListenSocket};
use std::{
    env,
    ffi::OsString,
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::process::CommandExt,
    },
    path::{self, Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    watch,
};

/// The longest time for the new process to read its configuration, or for another answer. A hundred
/// thousand routes take seconds; a store that does not answer delays the start too.
const PATIENCE: Duration = Duration::from_mins(1);

/// The longest time for the new process to hear the last changes.
const FINISH_PATIENCE: Duration = Duration::from_secs(2);

/// The longest time for the workers to stop accepting.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The thread that hands over, and what it says.
#[derive(Debug)]
pub(crate) struct Successor {
    jobs: Sender<Job>,
    events: UnboundedReceiver<SuccessorEvent>,
    is_busy: watch::Sender<bool>,
    /// Disconnected when the thread has sent everything.
    finished: Receiver<()>,
    gates: Gates,
}

/// The parts to be handed over.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) program: Program,
    pub(crate) hello: Hello,
    pub(crate) sockets: Vec<(SocketName, ListenSocket)>,
    pub(crate) gates: Gates,
    /// The thread that follows the process before this one, which must have ended.
    pub(crate) before: Option<thread::JoinHandle<()>>,
}

/// An event of the upgrade, for the control thread.
#[derive(Debug)]
pub(crate) enum SuccessorEvent {
    /// The new process takes these listeners' sockets: stop accepting there, then answer.
    Stop(Vec<Option<String>>, Sender<()>),
    /// The new process with this id serves. Answer when the service manager knows it.
    Serves(u32, Sender<()>),
    /// It does not: serve on.
    Failed(String),
}

#[derive(Debug, thiserror::Error)]
enum HandoverError {
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{0}")]
    Rejected(String),
    #[error("the new process ended with {0}; its output says why")]
    Ended(ExitStatus),
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error("more requests arrived than could be reported to the new process")]
    TooBusy,
    #[error("the new process answered out of turn")]
    OutOfTurn,
    #[error("this process ends, or its workers hang")]
    Ending(#[from] RecvTimeoutError),
}

impl Successor {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, inbox) = channel();
        let (outbox, events) = unbounded_channel();
        let (finishing, finished) = channel();
        thread::Builder::new().name("upgrade".to_owned()).spawn(move || {
            run(inbox, &outbox);
            drop(finishing);
        })?;
        Ok(Self {
            jobs,
            events,
            is_busy: watch::Sender::new(false),
            finished,
            gates: Gates::default(),
        })
    }

    /// Returns whether a new process is being started.
    pub(crate) fn is_busy(&self) -> bool {
        *self.is_busy.borrow()
    }

    /// Returns what shows whether a new process is being started.
    pub(crate) fn watch_busy(&self) -> watch::Receiver<bool> {
        self.is_busy.subscribe()
    }

    /// Begins to hand over.
    pub(crate) fn begin(&mut self, job: Job) {
        self.gates = Arc::clone(&job.gates);
        // The thread may export before `send` returns.
        self.is_busy.send_replace(true);
        if self.jobs.send(job).is_err() {
            self.is_busy.send_replace(false);
        }
    }

    /// Sends the rest to the new process, after the last request has ended.
    pub(crate) fn finish(&self) {
        end(&self.gates);
        if self.finished.recv_timeout(FINISH_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the new process does not read the changes of the last requests");
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(crate) async fn event(&mut self) -> SuccessorEvent {
        let Some(event) = self.events.recv().await else {
            return core::future::pending().await;
        };
        self.is_busy.send_replace(!matches!(event, SuccessorEvent::Failed(_)));
        event
    }
}

fn run(jobs: Receiver<Job>, events: &UnboundedSender<SuccessorEvent>) {
    for mut job in jobs {
        if let Some(before) = job.before.take() {
            // A panic there changes nothing here.
            drop(before.join());
        }
        match start(&job, events) {
            // A process hands over once.
            Ok(()) => return,
            // The process may be ending.
            Err(error) => drop(events.send(SuccessorEvent::Failed(error.to_string()))),
        }
    }
}

/// Starts the program, and ends it unless it takes over.
fn start(job: &Job, events: &UnboundedSender<SuccessorEvent>) -> Result<(), HandoverError> {
    let failed = |source| HandoverError::Start { program: job.program.to_string(), source };
    let (channel, theirs) = Channel::pair().map_err(failed)?;
    channel.limit(Some(PATIENCE)).map_err(failed)?;
    let mut command = job.program.command();
    command.env(VARIABLE, "1").stdin(theirs);
    let mut child = command.spawn().map_err(failed)?;
    // It has the other end now, and must be the only one.
    drop(command);
    hand_over(&channel, child.id(), job, events).map_err(|error| why(error, &mut child))
}

/// Ends a process that does not take over. Returns the reason, which may be its own end.
fn why(error: HandoverError, child: &mut Child) -> HandoverError {
    let is_gone = matches!(error, HandoverError::Channel(ChannelError::Closed));
    if !is_gone {
        // It may have ended.
        drop(child.kill());
    }
    match child.wait() {
        Ok(status) if is_gone => HandoverError::Ended(status),
        Ok(_) | Err(_) => error,
    }
}

fn hand_over(
    channel: &Channel,
    pid: u32,
    job: &Job,
    events: &UnboundedSender<SuccessorEvent>,
) -> Result<(), HandoverError> {
    channel.send(&job.hello)?;
    send_sockets(channel, &job.sockets)?;
    let SuccessorReply::Ready { form } = answer(channel)? else {
        return Err(HandoverError::OutOfTurn);
    };

    // It cannot read states of another form.
    let gates = if form == FORM { Arc::clone(&job.gates) } else { Gates::default() };
    let mut state = OutgoingState::send(&gates, channel)?;
    let SuccessorReply::Imported { listeners } = answer(channel)? else {
        return Err(HandoverError::OutOfTurn);
    };

    notify(events, |done| SuccessorEvent::Stop(listeners, done))?;
    state.send_changes(channel)?;
    if state.is_lost() {
        return Err(HandoverError::TooBusy);
    }

    channel.send(&Handover::Stopped)?;
    let SuccessorReply::Serving = answer(channel)? else { return Err(HandoverError::OutOfTurn) };
    notify(events, |done| SuccessorEvent::Serves(pid, done))?;

    let followed = channel.send(&Handover::Released).and_then(|()| {
        channel.limit(None)?;
        state.follow(channel)
    });
    // It serves, so nothing can be taken back.
    if let Err(error) = followed {
        tracing::warn!(%error, "the new process does not know the changes of the last requests");
    }
    Ok(())
}

fn send_sockets(
    channel: &Channel,
    sockets: &[(SocketName, ListenSocket)],
) -> Result<(), HandoverError> {
    let mut rest = sockets;
    loop {
        let (some, others) = rest.split_at(rest.len().min(MAX_DESCRIPTORS));
        rest = others;
        let descriptors: Vec<BorrowedFd<'_>> =
            some.iter().map(|(_, socket)| socket.as_fd()).collect();
        let names = some.iter().map(|(name, _)| name.clone()).collect();
        let message = Sockets { sockets: names, more: !rest.is_empty() };
        channel.send_with(&message, &descriptors)?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Sends an event to the control thread, and waits until it has done its part.
fn notify(
    events: &UnboundedSender<SuccessorEvent>,
    event: impl FnOnce(Sender<()>) -> SuccessorEvent,
) -> Result<(), HandoverError> {
    let (done, wait) = channel();
    // Without a receiver the wait ends.
    drop(events.send(event(done)));
    Ok(wait.recv_timeout(STOP_PATIENCE)?)
}

fn answer(channel: &Channel) -> Result<SuccessorReply, HandoverError> {
    match channel.receive()? {
        SuccessorReply::Failed { why } => Err(HandoverError::Rejected(why)),
        answer @ (SuccessorReply::Ready { .. }
        | SuccessorReply::Imported { .. }
        | SuccessorReply::Serving) => Ok(answer),
    }
}

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// Returns this process's own, by the path that it was started by: a link on the way may point
    /// elsewhere later. To be called at the start, because the file may be replaced then.
    pub(crate) fn own() -> io::Result<Self> {
        let mut arguments = env::args_os();
        let file = env::current_exe()?;
        let name = arguments.next().unwrap_or_else(|| file.clone().into());
        let path = started_by(Path::new(&name), &file).unwrap_or(file);
        Ok(Self { path, name, arguments: arguments.collect() })
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.arguments);
        command
    }
}

/// Returns the absolute path by which `file` is found as `name`, by a shell's rules.
fn started_by(name: &Path, file: &Path) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| path.canonicalize().is_ok_and(|found| found == file);
    if name.components().count() > 1 {
        return path::absolute(name).ok().filter(is_it);
    }
    let folders = env::var_os("PATH")?;
    let mut found =
        env::split_paths(&folders).filter_map(|folder| path::absolute(folder.join(name)).ok());
    found.find(is_it)
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_the_program_is_kept_as_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let file = folder.join("v1");
        std::fs::write(&file, "").unwrap();
        let link = folder.join("current");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(started_by(&link, &file), Some(link));
        assert_eq!(started_by(&folder.join("other"), &file), None);
        assert_eq!(started_by(Path::new("no-such-program"), &file), None);
    }
}
