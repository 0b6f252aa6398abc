//! Which header fields a message has that the gateway must look at, found in one
//! walk instead of one look-up each: most messages have none but `Host`.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED, HOST,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
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
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::and_host(headers).0
    }

    /// Walks over `headers`, and returns `Host` as well.
    pub(crate) fn and_host(headers: &HeaderMap) -> (Self, Option<&HeaderValue>) {
        let (mut fields, mut host) = (Self::default(), None);
        for (name, value) in headers {
            fields.has_blanks |= is_blank(value.as_bytes().first(), value.as_bytes().last());
            if let Some(field) = Field::of(name) {
                let bit = field.bit();
                fields.repeated |= fields.present & bit;
                fields.present |= bit;
                // hyper takes a list of equal lengths for one.
                if field == Field::ContentLength && value.as_bytes().contains(&b',') {
                    fields.repeated |= bit;
                }
                if field == Field::Host {
                    host = Some(value);
                }
            }
        }
        (fields, host)
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

    fn of(name: &HeaderName) -> Option<Self> {
        Some(match name {
            name if *name == HOST => Self::Host,
            name if *name == CONTENT_LENGTH => Self::ContentLength,
            name if *name == CONTENT_TYPE => Self::ContentType,
            name if *name == CONNECTION => Self::Connection,
            name if *name == COOKIE => Self::Cookie,
            name if *name == TRANSFER_ENCODING => Self::TransferEncoding,
            name if *name == UPGRADE => Self::Upgrade,
            name if *name == TE => Self::Te,
            name if *name == EXPECT => Self::Expect,
            name if *name == FORWARDED => Self::Forwarded,
            name if *name == TRAILER => Self::Trailer,
            name if *name == PROXY_AUTHENTICATE
                || *name == PROXY_AUTHORIZATION
                || *name == KEEP_ALIVE
                || *name == HTTP2_SETTINGS
                || *name == PROXY_CONNECTION =>
            {
                Self::OtherHop
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hop_by_hop_field_is_seen() {
        for name in HOP_BY_HOP {
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("x"))]);
            assert!(Fields::of(&headers).has_hop_by_hop(), "{name}");
        }
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("x"))]);
        assert!(!Fields::of(&headers).has_hop_by_hop());
    }

    #[test]
    fn a_second_line_is_a_repetition() {
        let mut headers = HeaderMap::new();
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
