//! Traces, as the file wants them.

use super::UpstreamTls;
use crate::config::spec::{CollectorEndpoint, ParentTraces, SampleRatio};
use http::{HeaderName, HeaderValue};
use std::{sync::Arc, time::Duration};

/// The requests that are recorded, and the collector of their spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The collector.
    pub collector: Collector,
    /// The share of new traces that are sampled.
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
    /// The header fields of each export; not to be shown.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest time that an export may take.
    pub timeout: Duration,
    /// The verification of its certificate; `None` without TLS.
    pub tls: Option<Arc<UpstreamTls>>,
}
