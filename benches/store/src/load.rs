//! Calls at a fixed rate, and what became of them.

use redis::cluster_async::ClusterConnection;
use std::time::{Duration, Instant};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinHandle,
    time,
};

/// Between two calls for the same key: 200 per second.
pub(crate) const PERIOD: Duration = Duration::from_millis(5);

/// One call that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) key: usize,
    pub(crate) began: Instant,
    pub(crate) lasted: Duration,
    pub(crate) failed: bool,
}

/// Calls for each key, which do not wait for each other.
pub(crate) struct Load {
    senders: Vec<JoinHandle<()>>,
    calls: UnboundedReceiver<Call>,
}

impl Load {
    pub(crate) fn start(connection: &ClusterConnection, keys: &[String]) -> Self {
        let (ended, calls) = mpsc::unbounded_channel();
        let senders = keys.iter().enumerate().map(|(at, key)| {
            tokio::spawn(send(connection.clone(), at, key.clone(), ended.clone()))
        });
        Self { senders: senders.collect(), calls }
    }

    /// Sends no more calls, and returns all of them when the last one has ended.
    pub(crate) async fn end(mut self) -> Vec<Call> {
        self.senders.iter().for_each(JoinHandle::abort);
        let mut calls = Vec::new();
        while let Some(call) = self.calls.recv().await {
            calls.push(call);
        }
        calls
    }
}

async fn send(connection: ClusterConnection, at: usize, key: String, ended: UnboundedSender<Call>) {
    let mut ticks = time::interval(PERIOD);
    loop {
        ticks.tick().await;
        let mut connection = connection.clone();
        let mut eval = redis::cmd("EVAL");
        eval.arg("return redis.call('INCR', KEYS[1])").arg(1).arg(&key);
        let ended = ended.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            let answer = eval.query_async::<u64>(&mut connection).await;
            let call = Call { key: at, began, lasted: began.elapsed(), failed: answer.is_err() };
            // An error says that the measurement was stopped: its calls count no more.
            let _stopped = ended.send(call);
        });
    }
}
