//! Traces: W3C Trace Context, spans, and their export by OTLP.
//!
//! A [`Recorder`] belongs to a worker. It decides to which trace a request belongs, and turns a
//! sampled request that has ended into spans, as JSON, which it puts into a bounded queue. The
//! [`Exporter`] takes them from there on the control thread; no request waits for it.

mod context;
mod export;
mod otlp;
mod recording;

pub use context::{TRACEPARENT, TRACESTATE, TraceContext, TraceParent};
pub use export::{Exporter, Queued, SpanQueue, queue};
pub use recording::{Client, Recording};

use crate::{
    access_log::AccessRecord,
    config::{ParentTraces, Tracing},
    flow::Instant,
    http1::Fields,
};
use context::trace_state;
use export::Spans;
use fastrand::Rng;
use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
};

/// Traces the requests of one worker.
#[derive(Debug)]
pub struct Recorder {
    /// Generators of 64 bits each.
    halves: Mutex<[Rng; 2]>,
    queue: SpanQueue,
}

/// A request that has arrived.
#[derive(Debug)]
pub struct Trace {
    /// Its trace.
    pub id: u128,
    /// The trace context that its server receives.
    pub context: TraceContext,
    /// Its recording, if it is sampled.
    pub recording: Option<Box<Recording>>,
}

impl Recorder {
    /// Returns the recorder of a worker.
    pub fn new(queue: SpanQueue) -> Self {
        // The standard library keys its maps with random numbers of the system.
        let halves = [(); 2].map(|()| Rng::with_seed(RandomState::new().hash_one(())));
        Self { halves: Mutex::new(halves), queue }
    }

    /// Returns the trace of a request that has arrived, and its recording if it is sampled.
    /// `is_trusted` says whether its client is one of `trusted_proxies`.
    pub fn begin(
        &self,
        tracing: &Tracing,
        headers: Fields<'_>,
        client: Client,
        is_trusted: impl FnOnce() -> bool,
    ) -> Trace {
        let caller = TraceParent::of(headers);
        let is_continued = caller.is_some()
            && match tracing.parents {
                ParentTraces::On => true,
                ParentTraces::Trusted => is_trusted(),
                ParentTraces::Off => false,
            };

        let own = self.own(tracing, caller.filter(|_| is_continued));
        let recording = own.is_sampled.then(|| {
            let state = if is_continued { trace_state(headers) } else { None };
            let state = state.unwrap_or_default();
            Box::new(Recording::new(own, caller, is_continued, state, headers, client))
        });
        Trace { id: own.trace_id, context: TraceContext::new(own, is_continued), recording }
    }

    /// Returns the trace and the span of a request: in the trace of `parent`, or in a new one.
    fn own(&self, tracing: &Tracing, parent: Option<TraceParent>) -> TraceParent {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let [high, low] = &mut *halves;
        let span_id = high.u64(..).max(1);
        if let Some(parent) = parent {
            return TraceParent { span_id, ..parent };
        }
        let trace_id = u128::from(high.u64(..)) << 64 | u128::from(low.u64(..).max(1));
        TraceParent { trace_id, span_id, is_sampled: tracing.sample.includes(trace_id) }
    }

    /// Puts the spans of a request that has ended into the queue, or drops and counts them if it is
    /// full. The request arrived at `arrival`.
    pub fn finish(&self, recording: &Recording, record: &AccessRecord<'_>, arrival: Instant) {
        let mut json = Vec::with_capacity(2048);
        let count = recording.write(record, arrival, &mut json);
        if self.queue.sender.try_send(Spans { json, count }).is_err() {
            self.queue.counters.spans_dropped.fetch_add(count, Relaxed);
        }
    }
}
