//! gRPC: how a call is recognised, how long it may take, and how it fails.

use crate::http1::{self, FieldList};
use core::{fmt::Write as _, time::Duration};
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};

/// The field with a call's status, in a head or in trailers.
pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The field that says why it failed.
pub(crate) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The most digits that a timeout may have.
const DIGITS_MAX: usize = 8;

/// The codes that are used here; see grpc.io's list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Reports whether a content type is one of gRPC.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type.starts_with(b"application/grpc")
}

/// Returns the content type of a request with these headers, if it is a call.
pub(crate) fn content_type(headers: &FieldList) -> Option<HeaderValue> {
    headers.value(&CONTENT_TYPE).filter(|value| is_grpc(value.as_bytes()))
}

/// Returns how long a call may take, if its client says so: up to eight digits and a unit.
pub(crate) fn timeout(headers: &FieldList) -> Option<Duration> {
    let text = http1::text(headers.get(&TIMEOUT)?)?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number =
        digits.len() <= DIGITS_MAX && digits.bytes().all(|digit| digit.is_ascii_digit());
    let amount = digits.parse().ok().filter(|_| is_number)?;
    Some(match unit {
        "H" => Duration::from_hours(amount),
        "M" => Duration::from_mins(amount),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// Returns a message as `grpc-message` has it: percent-encoded, but for printable ASCII without `%`.
pub(crate) fn encoded(message: &str) -> Option<HeaderValue> {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            // Text can always be written.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    HeaderValue::try_from(encoded).ok()
}

/// Returns the trailers of a call that was cut off.
pub(crate) fn trailers(code: Code, message: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from(code as u16));
    trailers.insert(MESSAGE, HeaderValue::from_static(message));
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_percent_encoded() {
        for (message, expected) in [
            ("the limit is used up", "the limit is used up"),
            ("`%u0061` ~", "`%25u0061` ~"),
            ("\u{e9}\n", "%C3%A9%0A"),
        ] {
            assert_eq!(encoded(message).unwrap(), expected);
        }
    }

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        for (text, nanos) in [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("00000003S", Some(3_000_000_000)),
            ("250m", Some(250_000_000)),
            ("7u", Some(7_000)),
            ("99999999n", Some(99_999_999)),
            ("0m", Some(0)),
            ("123456789n", None),
            ("m", None),
            ("", None),
            ("5", None),
            ("5s", None),
            ("+5S", None),
            ("-5S", None),
            ("1.5S", None),
            ("5\u{e9}", None),
        ] {
            let mut headers = FieldList::default();
            headers.insert(TIMEOUT, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            assert_eq!(timeout(&headers), nanos.map(Duration::from_nanos), "{text}");
        }
        assert_eq!(timeout(&FieldList::default()), None);
    }
}
