//! Sends spans to the collector: a batch at a time, again if need be, and never later than there is
//! room for.

use super::{
    post::{Again, ExportFailure, Post, Taken},
    recorder::{SpanQueue, Spans},
    resource,
};
use crate::{
    clock::Clock,
    config::{Live, Tracing},
    meter::Counters,
};
use core::time::Duration;
use std::sync::{Arc, atomic::Ordering::Relaxed};
use tokio::sync::mpsc::{Receiver, channel};

/// Requests whose spans wait. Further ones are dropped and counted.
const ROOM: usize = 2048;

/// How many spans are sent at once, and how long the first of them waits for others.
const BATCH: u64 = 512;
const GATHERING: Duration = Duration::from_secs(1);

/// The first wait before an export is repeated; each further one is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long an export is repeated.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns a queue for recorders, and its other end for the [`Exporter`].
pub fn queue(counters: Arc<Counters>) -> (SpanQueue, Queued) {
    let (sender, receiver) = channel(ROOM);
    (SpanQueue { sender, counters }, Queued(receiver))
}

/// Spans to be exported.
#[derive(Debug)]
pub struct Queued(Receiver<Spans>);

/// Sends what recorders put into the queue.
#[derive(Debug)]
pub struct Exporter {
    queue: Receiver<Spans>,
    live: Arc<Live>,
    clock: Clock,
    counters: Arc<Counters>,
    /// Tells this process from others of the same name.
    instance: String,
    post: Post,
    /// Whether the latest export failed.
    is_failing: bool,
}

impl Exporter {
    /// Returns an exporter that is to be [run](Self::run). It sends to the collector of the
    /// configuration in force.
    pub fn new(queued: Queued, live: Arc<Live>, clock: Clock, counters: Arc<Counters>) -> Self {
        Self {
            queue: queued.0,
            live,
            clock,
            counters,
            instance: format!("{:032x}", fastrand::u128(..)),
            post: Post::default(),
            is_failing: false,
        }
    }

    /// Runs until all recorders are gone, and everything is sent or given up.
    pub async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let mut count = first.count;
            let spans = self.gather(first, &mut count).await;
            let is_sent = self.send(&spans, count).await;
            let counter =
                if is_sent { &self.counters.spans_exported } else { &self.counters.spans_failed };
            counter.fetch_add(count, Relaxed);
        }
    }

    /// Waits until there are enough spans, or the first of them has waited long enough.
    async fn gather(&mut self, first: Spans, count: &mut u64) -> Vec<Vec<u8>> {
        let mut spans = vec![first.json];
        let end = self.clock.now() + GATHERING;
        while *count < BATCH {
            tokio::select! {
                biased;
                next = self.queue.recv() => match next {
                    Some(next) => {
                        *count += next.count;
                        spans.push(next.json);
                    }
                    None => break,
                },
                () = self.clock.sleep_until(end) => break,
            }
        }
        spans
    }

    /// Sends a batch, again if the collector may take it later. Each time goes by the configuration
    /// that is in force then. Returns whether the batch was taken.
    async fn send(&mut self, spans: &[Vec<u8>], count: u64) -> bool {
        let give_up = self.clock.now() + PATIENCE;
        let mut wait = FIRST_WAIT;
        loop {
            let tracing = self.live.load().settings.tracing.clone();
            // Without, nobody wants them any more.
            let Some(tracing) = tracing else { return false };
            let failure = match self.post(&tracing, spans).await {
                Ok(taken) => return self.note_success(&tracing, &taken, count),
                Err(failure) => failure,
            };
            self.note_failure(&tracing, &failure);
            let pause = match failure.again {
                Again::Never => return false,
                Again::After(pause) => pause,
                // A part more or less, so that gateways do not come back together.
                Again::Later => wait.mul_f64(0.5 + fastrand::f64()),
            };
            let next = self.clock.now() + pause;
            if next > give_up {
                return false;
            }
            self.clock.sleep_until(next).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Sends a batch once.
    async fn post(&mut self, tracing: &Tracing, spans: &[Vec<u8>]) -> Result<Taken, ExportFailure> {
        let collector = &tracing.collector;
        let body = resource::body(tracing, &self.instance, spans);
        let posted = self.post.send(collector, body.into());
        let Ok(posted) = self.clock.timeout(collector.timeout, posted).await else {
            self.post.disconnect();
            return Err(ExportFailure::again("no answer within tracing.otlp.timeout"));
        };
        posted
    }

    /// Notes that a batch was taken, perhaps without some of its spans.
    fn note_success(&mut self, tracing: &Tracing, taken: &Taken, count: u64) -> bool {
        if taken.rejected > 0 {
            let rejected = taken.rejected.min(count);
            self.counters.spans_rejected.fetch_add(rejected, Relaxed);
            tracing::warn!(
                collector = %tracing.collector.endpoint,
                spans = rejected,
                "the collector of traces has rejected spans: {}",
                taken.message
            );
        }
        if core::mem::take(&mut self.is_failing) {
            tracing::info!(collector = %tracing.collector.endpoint, "traces are exported again");
        }
        true
    }

    /// Logs the first of several failures.
    fn note_failure(&mut self, tracing: &Tracing, failure: &ExportFailure) {
        if !core::mem::replace(&mut self.is_failing, true) {
            let cause = &failure.cause;
            tracing::warn!(collector = %tracing.collector.endpoint, "cannot export traces: {cause}");
        }
    }
}
