//! What is around the spans of an export: the gateway, as OpenTelemetry describes a service.

use super::span::Attribute;
use crate::config::Tracing;

/// Returns the body of an export: `spans` with commas between them, and what stands around them.
pub(super) fn body(tracing: &Tracing, instance: &str, spans: &[Vec<u8>]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let own = [
        Attribute::text("service.name", &*tracing.service_name),
        Attribute::text("service.version", version),
        Attribute::text("service.instance.id", instance),
        Attribute::text("telemetry.sdk.name", "flowgate"),
        Attribute::text("telemetry.sdk.language", "rust"),
        Attribute::text("telemetry.sdk.version", version),
    ];
    let further = tracing.resource.iter().map(|(name, value)| Attribute::text(&**name, &**value));
    let attributes: Vec<Attribute<'_>> = own.into_iter().chain(further).collect();
    let mut body =
        Vec::with_capacity(1024 + spans.iter().map(|spans| spans.len() + 1).sum::<usize>());
    body.extend_from_slice(br#"{"resourceSpans":[{"resource":{"attributes":"#);
    // Writing to memory cannot fail.
    drop(serde_json::to_writer(&mut body, &attributes));
    body.extend_from_slice(br#"},"scopeSpans":[{"scope":{"name":"flowgate","version":""#);
    body.extend_from_slice(version.as_bytes());
    body.extend_from_slice(br#""},"spans":["#);
    for (at, spans) in spans.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(spans);
    }
    body.extend_from_slice(b"]}]}]}");
    body
}
