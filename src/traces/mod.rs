//! Traces: W3C Trace Context, spans, and their export by OTLP.
//!
//! A [`Recorder`] belongs to a worker. It says to which trace a request belongs, and turns a sampled
//! request that has ended into spans, as JSON, which it puts into a bounded queue. The [`Exporter`]
//! takes them from there on the control thread; no request waits for it.

mod context;
mod exporter;
mod post;
mod recorder;
mod recording;
mod resource;
mod span;

pub use context::{TRACEPARENT, TRACESTATE, TraceContext, TraceParent};
pub use exporter::{Exporter, Queued, queue};
pub use recorder::{Recorder, SpanQueue, Trace};
pub use recording::{Client, Recording};
