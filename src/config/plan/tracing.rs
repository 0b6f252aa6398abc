//! Traces, as the file wants them.

use super::UpstreamTls;
use crate::config::spec::{CollectorEndpoint, ParentTraces, SampleRatio};
use http::{HeaderName, HeaderValue};
use std::{sync::Arc, time::Duration};

/// Which requests are recorded, and where their spans go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The collector.
    pub collector: Collector,
    /// How many of the requests are sampled that begin a trace.
    pub sample: SampleRatio,
    /// Whose `traceparent` is continued.
    pub parents: ParentTraces,
    /// The name of the gateway.
    pub service_name: String,
    /// Further attributes of the gateway.
    pub resource: Vec<(String, String)>,
}

/// A collector that speaks OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Where it is.
    pub endpoint: CollectorEndpoint,
    /// What each export is sent with; not to be shown.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long an export may take.
    pub timeout: Duration,
    /// How it is verified; `None` without TLS.
    pub tls: Option<Arc<UpstreamTls>>,
}
