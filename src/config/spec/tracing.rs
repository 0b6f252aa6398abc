//! Traces: which requests are recorded, and where that goes.

use super::{
    ParentTraces, UpstreamTlsSpec,
    keys::keys,
    leaf::{CollectorUrl, EditableName, FieldValue, Share, Text, Timeout},
};
use crate::config::{decode::Entries, diagnostics::Source};
use std::path::PathBuf;

keys! {
    /// Traces, sent by OTLP over HTTP. Each sampled request is a span, and each attempt to send it
    /// to a server is a child span. `docs/tracing.md` lists their attributes.
    struct TracingSpec: "the tracing" {
        /// The collector that receives the spans.
        otlp: OtlpSpec;
        /// The share of requests that are sampled, of those that begin a trace here. A request that
        /// continues a trace is sampled if its caller samples it.
        sample: Share = "1%";
        /// Whose `traceparent` flowgate continues: that of every client (on), only that of
        /// `trusted_proxies` (trusted), or none (off). Other requests begin a new trace, which
        /// links to the client's.
        parent: ParentTraces = "on";
        /// The name of this gateway in traces, `service.name`.
        service_name: Text = "flowgate";
        /// Further attributes of this gateway, such as `deployment.environment.name`.
        resource: Entries<Text, Text>, else "–";
    }

    /// A collector that speaks OTLP over HTTP, with JSON bodies: an OpenTelemetry Collector, Jaeger,
    /// Tempo and others.
    struct OtlpSpec: "the collector of traces" {
        /// `http://HOST:PORT` or `https://HOST:PORT`. Without a path, spans go to `/v1/traces`.
        endpoint: CollectorUrl;
        /// Header fields of each export, such as `authorization`.
        headers: Entries<EditableName, FieldValue>, else "–";
        /// How long an export may take, including the connection.
        timeout: Timeout = "10s";
        /// TLS to an endpoint with `https://`.
        tls: UpstreamTlsSpec, else "–";
    }
}

impl TracingSpec {
    /// Has relative names of files meant from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        let otlp = self.otlp.at.as_mut();
        if let Some(tls) = otlp.and_then(|otlp| otlp.value.tls.at.as_mut()) {
            tls.value.resolve(source);
        }
    }

    /// Returns the files that it names.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let tls = self.otlp.value().and_then(|otlp| otlp.tls.value());
        tls.map(|tls| tls.files().collect()).unwrap_or_default()
    }
}
