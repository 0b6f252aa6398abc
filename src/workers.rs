//! One thread per core, each with a runtime, sockets and upstream connections of
//! its own. Nothing is handed from one to another.

use crate::{
    clock::Clock,
    proxy::{Bound, GRACE, Worker, accept},
};
use core::time::Duration;
use std::{io, sync::Arc, thread};
use tokio::sync::{mpsc, oneshot};

/// How often idle upstream connections are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Tasks that are run before timers and sockets are asked again: half of tokio's usual
/// number, as a paced request that is due waits for them.
const POLL_INTERVAL: u32 = 32;

/// What the control thread asks of a worker.
#[derive(Debug)]
enum Order {
    /// Accept on this socket too.
    Listen(Bound),
    /// End when all listeners are closed and what is under way has ended.
    Drain,
    /// End at once.
    Stop,
}

/// The control thread's hold on one worker.
#[derive(Debug)]
pub struct Handle {
    orders: mpsc::UnboundedSender<Order>,
    thread: Option<thread::JoinHandle<()>>,
    ended: oneshot::Receiver<()>,
}

impl Handle {
    /// Starts worker number `index`. `make` builds what its requests share, on the
    /// worker's own runtime, from a clock with an alarm.
    ///
    /// # Errors
    ///
    /// No thread or runtime can be had.
    pub fn start(
        index: usize,
        clock: Clock,
        make: impl FnOnce(Clock) -> Worker + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .event_interval(POLL_INTERVAL)
            .enable_all()
            .build()?;
        let (orders, inbox) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            runtime.block_on(async {
                let clock = clock.with_alarm().unwrap_or_else(|error| {
                    tracing::warn!(%error, "no high-resolution timer: pacing is exact to 1 ms only");
                    clock
                });
                run(Arc::new(make(clock)), inbox).await;
            });
            // What is left after a stop must not keep the thread. Its requests are dropped
            // here, so that they are logged before it has ended.
            runtime.shutdown_background();
            drop(end);
        })?;
        Ok(Self { orders, thread: Some(thread), ended })
    }

    /// Has the worker accept on `bound` too, for as long as its face can be changed.
    pub fn listen(&self, bound: Bound) {
        self.send(Order::Listen(bound));
    }

    /// Has the worker end when its listeners are closed, which is up to the caller, and what is
    /// under way has ended.
    pub fn drain(&self) {
        self.send(Order::Drain);
    }

    /// Has the worker end at once.
    pub fn stop(&self) {
        self.send(Order::Stop);
    }

    /// Waits until the worker has ended and all that it had to log is logged.
    pub async fn ended(&mut self) {
        if self.thread.is_none() {
            return;
        }
        // An error says that the sender is gone: the thread is at its end.
        drop((&mut self.ended).await);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a worker panicked");
        }
    }

    fn send(&self, order: Order) {
        // A worker that has ended needs no orders.
        drop(self.orders.send(order));
    }
}

async fn run(worker: Arc<Worker>, mut inbox: mpsc::UnboundedReceiver<Order>) {
    let sweeper = tokio::spawn(sweep(Arc::clone(&worker)));
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Listen(bound) => drop(worker.tasks.spawn(accept(Arc::clone(&worker), bound))),
            Order::Drain => {
                worker.tasks.close();
                tokio::select! {
                    () = end(&worker) => {}
                    () = stopped(&mut inbox) => {}
                }
                break;
            }
            Order::Stop => break,
        }
    }
    worker.connections.cut_off();
    sweeper.abort();
}

/// Waits until all connections have ended, and the store has heard of it.
async fn end(worker: &Worker) {
    tokio::select! {
        () = worker.tasks.wait() => {}
        () = drain(worker) => {}
    }
    if let Some(store) = &worker.store {
        store.give_back().await;
    }
}

/// Asks the connections to end, and waits until they have.
async fn drain(worker: &Worker) {
    worker.connections.drain_used();
    worker.clock.timer(worker.clock.now() + GRACE).await;
    worker.connections.drain();
    worker.tasks.wait().await;
}

async fn stopped(inbox: &mut mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = inbox.recv().await {
        if matches!(order, Order::Stop) {
            return;
        }
    }
}

async fn sweep(worker: Arc<Worker>) {
    loop {
        let now = worker.clock.now();
        worker.clock.timer(now + SWEEP_INTERVAL).await;
        worker.pools.sweep(&worker.live.load().upstreams, worker.clock.now());
    }
}
