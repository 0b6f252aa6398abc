//! One thread per core, each with its own runtime, sockets and upstream connections.

use crate::{
    clock::Clock,
    proxy::{Bound, GRACE, Worker, accept},
};
use core::time::Duration;
use std::{io, sync::Arc, thread};
use tokio::sync::{mpsc, oneshot};

/// Tasks between two polls of timers and sockets: half of tokio's default, because due paced
/// requests wait for them.
const POLL_INTERVAL: u32 = 32;

/// The time for which idle connections stay open after a handover. A client that sends its next request
/// meanwhile does not lose it.
const IDLE_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Command {
    /// Accept on this socket too.
    Listen(Bound),
    /// End when all listeners are closed and requests have ended.
    Drain,
    /// The same, after another process has taken the listeners over.
    Retire,
    /// End at once.
    Stop,
}

/// The control thread's handle of a worker.
#[derive(Debug)]
pub struct WorkerHandle {
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<thread::JoinHandle<()>>,
    ended: oneshot::Receiver<()>,
}

impl WorkerHandle {
    /// Starts worker number `index`. `make` builds its state on its own runtime, from a clock with
    /// an alarm.
    ///
    /// # Errors
    ///
    /// The thread or runtime cannot be created.
    pub fn start(
        index: usize,
        clock: Clock,
        make: impl FnOnce(Clock) -> Worker + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .event_interval(POLL_INTERVAL)
            .enable_all()
            .build()?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            runtime.block_on(async {
                let clock = clock.with_alarm().unwrap_or_else(|error| {
                    tracing::warn!(%error, "no high-resolution timer: pacing is exact to 1 ms only");
                    clock
                });
                run(Arc::new(make(clock)), inbox).await;
            });
            // Tasks left after a stop must not keep the thread. Their requests are dropped here and
            // so are logged before it ends.
            runtime.shutdown_background();
            drop(end);
        })?;
        Ok(Self { commands, thread: Some(thread), ended })
    }

    /// Makes the worker accept on `bound` too, until its sender is dropped.
    pub fn listen(&self, bound: Bound) {
        self.send(Command::Listen(bound));
    }

    /// Makes the worker end when the caller has closed its listeners and requests have ended.
    pub fn drain(&self) {
        self.send(Command::Drain);
    }

    /// Makes the worker end like [`Self::drain`] after another process has taken its listeners
    /// over. Clients need not hurry then: each connection's next answer is its last, and idle ones
    /// close after a few seconds.
    pub fn retire(&self) {
        self.send(Command::Retire);
    }

    /// Makes the worker end at once.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Waits until the worker has ended and logged its requests.
    pub async fn ended(&mut self) {
        if self.thread.is_none() {
            return;
        }
        // An error means that the sender is gone, so the thread ends.
        drop((&mut self.ended).await);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a worker panicked");
        }
    }

    fn send(&self, command: Command) {
        // A worker may have ended already.
        drop(self.commands.send(command));
    }
}

async fn run(worker: Arc<Worker>, mut inbox: mpsc::UnboundedReceiver<Command>) {
    let sweeper = tokio::spawn(sweep(Arc::clone(&worker)));

    while let Some(command) = inbox.recv().await {
        match command {
            Command::Listen(bound) => drop(worker.tasks.spawn(accept(Arc::clone(&worker), bound))),
            Command::Drain => {
                tokio::select! {
                    () = end(&worker, drain(&worker)) => {}
                    () = stopped(&mut inbox) => {}
                }
                break;
            }
            Command::Retire => {
                tokio::select! {
                    () = end(&worker, retire(&worker)) => {}
                    () = stopped(&mut inbox) => {}
                }
                break;
            }
            Command::Stop => break,
        }
    }
    worker.connections.cut_off();
    sweeper.abort();
}

/// Waits until all connections have ended, as `asked` asks them to, and their leases are released.
async fn end(worker: &Worker, asked: impl Future<Output = ()>) {
    worker.tasks.close();
    tokio::select! {
        () = worker.tasks.wait() => {}
        () = asked => {}
    }
    if let Some(store) = &worker.store {
        store.give_back().await;
    }
}

/// Asks the connections to end, and waits for them.
async fn drain(worker: &Worker) {
    worker.connections.drain_used();
    worker.clock.timer(worker.clock.now() + GRACE).await;
    worker.connections.drain();
    worker.tasks.wait().await;
}

/// Asks each connection to end after its next answer, and then the idle ones.
async fn retire(worker: &Worker) {
    worker.connections.retire();
    worker.clock.timer(worker.clock.now() + IDLE_GRACE).await;
    worker.connections.drain();
    worker.tasks.wait().await;
}

async fn stopped(inbox: &mut mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = inbox.recv().await {
        if matches!(command, Command::Stop) {
            return;
        }
    }
}

async fn sweep(worker: Arc<Worker>) {
    loop {
        let next = worker.servers.pools.sweep(&worker.live.load().upstreams, worker.clock.now());
        worker.clock.timer(next).await;
    }
}
