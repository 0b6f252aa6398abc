//! The command: it writes the file whenever the containers change.

use super::{
    engine::{Engine, EngineError, Events},
    output,
    services::Services,
};
use crate::{clock::Clock, shutdown::Signals};
use core::time::Duration;
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

/// After a change, the file is written once nothing has changed for so long.
const QUIET: Duration = Duration::from_millis(100);

/// It is written at the latest after this number of pieces of events, however many more come.
const PIECES: u32 = 100;

/// The first wait for a connection to Docker after a failure, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The place of Docker, and the file of its routes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The file for the routes, which `include` of the gateway's configuration names.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The Unix socket of Docker.
    #[arg(long, value_name = "PATH", default_value = "/var/run/docker.sock")]
    pub socket: PathBuf,
    /// Write the file once, and end.
    #[arg(long)]
    pub once: bool,
}

/// The reason for which the file is not written.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    /// The containers are not known.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The system has no room for a runtime, or rejects the handlers of signals.
    #[error("cannot start")]
    Start(#[from] io::Error),
}

/// Writes the file, and writes it again after each change until a signal ends the process.
///
/// # Errors
/// With `once`, the file is not written. Otherwise what fails is logged and tried again.
pub fn run(options: &Options) -> Result<(), DockerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = Engine { socket: options.socket.clone(), clock: Clock::start() };
        let mut writer = Writer::new(&options.output);
        if options.once {
            return writer.write(&engine).await;
        }
        let mut signals = Signals::listen()?;
        tokio::select! {
            () = follow(&engine, &mut writer) => {}
            () = signals.end() => {}
        }
        Ok(())
    })
}

/// Writes the file after each change. After a failure it connects again, after longer waits each time.
async fn follow(engine: &Engine, writer: &mut Writer<'_>) {
    let mut wait = FIRST_WAIT;
    loop {
        let Err(error) = watch(engine, writer, &mut wait).await;
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let cause = cause.unwrap_or_default();
        tracing::warn!(again_in = ?wait, "{error}{cause}; the routes stay as they are");
        let clock = &engine.clock;
        clock.sleep_until(clock.now() + wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Writes the file after each change, until something fails. `wait` is short again once the file has been
/// written.
async fn watch(
    engine: &Engine,
    writer: &mut Writer<'_>,
    wait: &mut Duration,
) -> Result<core::convert::Infallible, DockerError> {
    // Before the list, so that no change between the two is lost.
    let mut events = engine.events().await?;
    loop {
        writer.write(engine).await?;
        *wait = FIRST_WAIT;
        events.next().await?;
        settle(&engine.clock, &mut events).await?;
    }
}

/// Waits until changes that come together have come.
async fn settle(clock: &Clock, events: &mut Events) -> Result<(), DockerError> {
    for _ in 0..PIECES {
        match clock.timeout(QUIET, events.next()).await {
            Ok(piece) => piece?,
            Err(_) => break,
        }
    }
    Ok(())
}

/// Writes the file, and logs each problem once.
struct Writer<'o> {
    output: &'o Path,
    problems: BTreeSet<String>,
}

impl<'o> Writer<'o> {
    const fn new(output: &'o Path) -> Self {
        Self { output, problems: BTreeSet::new() }
    }

    async fn write(&mut self, engine: &Engine) -> Result<(), DockerError> {
        let services = Services::of(engine.containers().await?);
        for problem in services.problems.difference(&self.problems) {
            tracing::warn!("a container gets no route: {problem}");
        }
        let written = output::replace(self.output, &output::text(&services));
        let is_new = written
            .map_err(|source| DockerError::Write { path: self.output.to_owned(), source })?;
        if is_new {
            let servers: usize = services.all.values().map(|service| service.servers.len()).sum();
            tracing::info!(routes = services.all.len(), servers, "routes written");
        }
        self.problems = services.problems;
        Ok(())
    }
}
