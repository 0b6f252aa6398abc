//! Spans and exports in OTLP's JSON: the names of the fields are those of
//! `opentelemetry/proto/trace/v1`, ids are hexadecimal, numbers of 64 bits are texts, enums are
//! numbers.

use crate::{config::Tracing, hex};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// One span.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "OTLP's name")]
pub(super) struct Span<'a> {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub trace_state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// The trace's flags, and a flag for a parent in another process.
    pub flags: u32,
    pub name: Cow<'a, str>,
    pub kind: Kind,
    pub start_time_unix_nano: Decimal,
    pub end_time_unix_nano: Decimal,
    pub attributes: Vec<Attribute<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<SpanEvent<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    pub status: Status<'a>,
}

/// Something that happened while a span lasted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpanEvent<'a> {
    pub time_unix_nano: Decimal,
    pub name: &'static str,
    pub attributes: Vec<Attribute<'a>>,
}

/// A span of another trace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Link {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub flags: u32,
}

/// The status of a span.
#[derive(Debug, Default, Serialize)]
pub(super) struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
    #[serde(skip_serializing_if = "StatusCode::is_unset")]
    pub code: StatusCode,
}

/// The numbers of `StatusCode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StatusCode {
    #[default]
    Unset = 0,
    Error = 2,
}

/// The numbers of `SpanKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Server = 2,
    Client = 3,
}

/// A named value of a span, an event or a service.
#[derive(Debug, Serialize)]
pub(super) struct Attribute<'a> {
    key: Cow<'a, str>,
    value: Value<'a>,
}

#[derive(Debug, Serialize)]
enum Value<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    #[serde(rename = "intValue")]
    Whole(Decimal),
    #[serde(rename = "doubleValue")]
    Float(f64),
}

/// A number of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal(pub u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct TraceId(pub u128);

#[derive(Clone, Copy, Debug)]
pub(super) struct SpanId(pub u64);

impl<'a> Attribute<'a> {
    pub(super) fn text(key: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Self {
        Self { key: key.into(), value: Value::Text(value.into()) }
    }

    pub(super) fn number(key: &'static str, value: impl Into<u64>) -> Self {
        Self { key: key.into(), value: Value::Whole(Decimal(value.into())) }
    }

    pub(super) fn millis(key: &'static str, value: core::time::Duration) -> Self {
        Self { key: key.into(), value: Value::Float(value.as_secs_f64() * 1e3) }
    }
}

impl StatusCode {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    fn is_unset(&self) -> bool {
        *self == Self::Unset
    }
}

impl Serialize for StatusCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(itoa::Buffer::new().format(self.0))
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_digits(&hex::digits_of_128(self.0), serializer)
    }
}

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_digits(&hex::digits(self.0), serializer)
    }
}

fn serialize_digits<S: Serializer>(digits: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(str::from_utf8(digits).unwrap_or_default())
}

/// Returns the body of an export: `spans` with commas between them, inside the description of the
/// gateway as a service.
pub(super) fn export_body(tracing: &Tracing, instance: &str, spans: &[Vec<u8>]) -> Vec<u8> {
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
