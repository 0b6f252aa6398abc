//! Traces: a collector that can be reached as the file says.

use super::compiler::Compiler;
use crate::config::{
    decode::{At, Entries, Key},
    diagnostics::{Problem, SourceSpan},
    plan::{Collector, Tracing, UpstreamTls},
    read::source::Files,
    spec::{
        CollectorEndpoint, OtlpSpec, TracingSpec, UpstreamProtocol, UpstreamTlsSpec,
        leaf::{EditableName, FieldValue, Text},
    },
};
use http::{HeaderName, HeaderValue};
use std::sync::Arc;

/// Attributes that the gateway has by itself.
const OWN: [&str; 3] = ["service.name", "service.version", "service.instance.id"];

impl Compiler {
    pub(super) fn tracing(
        &mut self,
        spec: Option<&TracingSpec>,
        files: &Files,
    ) -> Option<Arc<Tracing>> {
        let spec = spec?;
        let resource = self.resource(&spec.resource);
        let collector = self.collector(spec.otlp.value()?, files)?;
        let service_name = spec.service_name.as_ref()?;
        if service_name.value.0.is_empty() {
            let message = "the name of the service is empty";
            let problem = Problem::error(service_name.span, message);
            self.error(problem.help("write it, or remove the key"));
        }
        Some(Arc::new(Tracing {
            collector,
            sample: spec.sample.value()?.0,
            parents: *spec.parent.value()?,
            service_name: service_name.value.0.clone(),
            resource,
        }))
    }

    /// Returns the attributes of the gateway.
    fn resource(&mut self, key: &Key<Entries<Text, Text>>) -> Vec<(String, String)> {
        let entries = key.value().map_or(&[][..], |entries| &entries.0);
        self.unique(
            entries.iter().map(|(name, _)| (&name.value.0, name.span)),
            |_| "the attribute is in the map already".to_owned(),
            "remove one of them",
        );
        let mut resource = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            if OWN.contains(&&*name.value.0) || name.value.0.is_empty() {
                let message = "flowgate sets this attribute itself";
                let help = "remove it; `tracing.service_name` is the name of the service";
                self.error(Problem::error(name.span, message).help(help));
            }
            if let Some(value) = value.value() {
                resource.push((name.value.0.clone(), value.0.clone()));
            }
        }
        resource
    }

    fn collector(&mut self, spec: &OtlpSpec, files: &Files) -> Option<Collector> {
        let endpoint = spec.endpoint.as_ref()?;
        let tls = self.collector_tls(spec, endpoint.as_ref().map(|url| &url.0), files);
        let entries = spec.headers.value().map_or(&[][..], |entries| &entries.0);
        Some(Collector {
            endpoint: endpoint.value.0.clone(),
            headers: entries.iter().filter_map(header).collect(),
            timeout: spec.timeout.duration()?.value,
            tls,
        })
    }

    /// Returns how the connection to the collector is secured, if it is.
    fn collector_tls(
        &mut self,
        spec: &OtlpSpec,
        endpoint: At<&CollectorEndpoint>,
        files: &Files,
    ) -> Option<Arc<UpstreamTls>> {
        let tls = spec.tls.value();
        if !endpoint.value.is_tls {
            if let Some(span) = spec.tls.span {
                let problem = Problem::error(span, "`tls` with an endpoint without TLS");
                self.error(problem.help("write `https://…` at the endpoint, or remove it"));
            }
            return None;
        }

        if let Some((lone, name, other)) = tls.and_then(UpstreamTlsSpec::lone_file) {
            let problem = Problem::error(lone, format!("`{name}` without `{other}`"));
            self.error(problem.help("write both, or remove it"));
        }

        let options = tls.map(UpstreamTlsSpec::options).unwrap_or_default();
        let span: SourceSpan = endpoint.span;
        let loaded = UpstreamTls::load(&options, UpstreamProtocol::H1, files, span);
        let loaded = loaded.map_err(|problems| {
            for problem in problems {
                self.error(problem);
            }
        });
        let loaded = loaded.ok()?;

        if loaded.name_of(&endpoint.value.host).is_none() {
            let problem = Problem::error(span, "no certificate can be for this host");
            self.error(
                problem.help("write `tls: { server_name: NAME }` with the name of its certificate"),
            );
        }

        Some(Arc::new(loaded))
    }
}

fn header(
    (name, value): &(At<EditableName>, Key<FieldValue>),
) -> Option<(HeaderName, HeaderValue)> {
    let mut value = value.value()?.0.clone();
    value.set_sensitive(true);
    Some((name.value.0.clone(), value))
}
