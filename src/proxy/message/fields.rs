//! Which header fields a message has that the gateway must look at, found in one
//! walk instead of one look-up each: most messages have none but `Host`.

use crate::http1::{self, FieldList};
use http::{
    HeaderName,
    header::{CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE},
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// One of the fields, or the kind that is only removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Host,
    ContentLength,
    ContentType,
    TransferEncoding,
    Connection,
    Upgrade,
    Te,
    Expect,
    Cookie,
    Forwarded,
    Trailer,
    /// Fields between two neighbours that say nothing to this one.
    OtherHop,
}

/// Fields that mean something between two neighbours only (RFC 9110, 7.6.1; RFC 7540,
/// 3.2.1), and the framing, which is made anew on each side.
pub(crate) const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The set of fields that a message has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    present: u16,
    repeated: u16,
    has_blanks: bool,
}

impl Fields {
    /// Walks over `headers`.
    pub(crate) fn of(headers: &FieldList) -> Self {
        let mut fields = Self::default();
        for http1::Field { name, value, .. } in headers.iter() {
            fields.has_blanks |= is_blank(value.first(), value.last());
            if let Some(field) = Field::of(name) {
                let bit = field.bit();
                fields.repeated |= fields.present & bit;
                fields.present |= bit;
                // hyper takes a list of equal lengths for one.
                if field == Field::ContentLength && value.contains(&b',') {
                    fields.repeated |= bit;
                }
            }
        }
        fields
    }

    pub(crate) fn has(self, field: Field) -> bool {
        self.present & field.bit() != 0
    }

    /// Whether there is more than one line of it, or a list of lengths.
    pub(crate) fn repeats(self, field: Field) -> bool {
        self.repeated & field.bit() != 0
    }

    /// Whether some value has blanks around it, which HTTP/1.1 leaves out as it reads.
    pub(crate) fn have_blanks(self) -> bool {
        self.has_blanks
    }

    /// Whether there is anything that must not be passed on.
    pub(crate) fn has_hop_by_hop(self) -> bool {
        const HOPS: u16 = Field::Connection.bit()
            | Field::TransferEncoding.bit()
            | Field::Upgrade.bit()
            | Field::Te.bit()
            | Field::OtherHop.bit();
        self.present & HOPS != 0
    }
}

fn is_blank(first: Option<&u8>, last: Option<&u8>) -> bool {
    matches!((first, last), (Some(b' ' | b'\t'), _) | (_, Some(b' ' | b'\t')))
}

impl Field {
    const fn bit(self) -> u16 {
        1 << self as u16
    }

    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"host" => Self::Host,
            b"content-length" => Self::ContentLength,
            b"content-type" => Self::ContentType,
            b"connection" => Self::Connection,
            b"cookie" => Self::Cookie,
            b"transfer-encoding" => Self::TransferEncoding,
            b"upgrade" => Self::Upgrade,
            b"te" => Self::Te,
            b"expect" => Self::Expect,
            b"forwarded" => Self::Forwarded,
            b"trailer" => Self::Trailer,
            b"keep-alive"
            | b"http2-settings"
            | b"proxy-authenticate"
            | b"proxy-authorization"
            | b"proxy-connection" => Self::OtherHop,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{
        HeaderValue,
        header::{CONTENT_LENGTH, COOKIE, HOST},
    };

    #[test]
    fn each_hop_by_hop_field_is_seen() {
        for name in HOP_BY_HOP {
            let headers = FieldList::from_iter([(name.clone(), HeaderValue::from_static("x"))]);
            assert!(Fields::of(&headers).has_hop_by_hop(), "{name}");
        }
        let headers = FieldList::from_iter([(HOST, HeaderValue::from_static("x"))]);
        assert!(!Fields::of(&headers).has_hop_by_hop());
    }

    #[test]
    fn a_second_line_is_a_repetition() {
        let mut headers = FieldList::default();
        headers.append(HOST, HeaderValue::from_static("a"));
        headers.append(COOKIE, HeaderValue::from_static("b"));
        assert!(
            Fields::of(&headers).has(Field::Host) && !Fields::of(&headers).repeats(Field::Host)
        );
        headers.append(HOST, HeaderValue::from_static("a"));
        headers.append(CONTENT_LENGTH, HeaderValue::from_static("2, 2"));
        assert!(Fields::of(&headers).repeats(Field::ContentLength), "as a list");
        assert!(
            Fields::of(&headers).repeats(Field::Host)
                && !Fields::of(&headers).repeats(Field::Cookie)
        );
    }
}
