//! What a field is for, by its name.

/// What a field means to framing and to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// `Host`.
    Host,
    /// `Content-Length`.
    ContentLength,
    /// `Content-Type`.
    ContentType,
    /// `Transfer-Encoding`.
    TransferEncoding,
    /// `Connection`.
    Connection,
    /// `Upgrade`.
    Upgrade,
    /// `TE`.
    Te,
    /// Another field for the next neighbour only: `Keep-Alive`, `Proxy-Connection`,
    /// `HTTP2-Settings`, `Proxy-Authenticate`, `Proxy-Authorization`.
    OtherHop,
    /// `Expect`.
    Expect,
    /// `Cookie`.
    Cookie,
    /// `Forwarded`.
    Forwarded,
    /// `Trailer`.
    Trailer,
    /// `Content_Length` or `Transfer_Encoding`, which some servers take for the fields with a hyphen.
    UnderscoreFraming,
    /// Any other field, for the recipient at the end.
    EndToEnd,
}

impl FieldKind {
    /// Returns the kind of the field `name`, a token in any case.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let Some(first) = name.first() else { return Self::EndToEnd };
        // Two bytes distinguish nearly all other names.
        let (known, kind) = match (name.len(), first | 0x20) {
            (2, b't') => ("te", Self::Te),
            (4, b'h') => ("host", Self::Host),
            (6, b'c') => ("cookie", Self::Cookie),
            (6, b'e') => ("expect", Self::Expect),
            (7, b't') => ("trailer", Self::Trailer),
            (7, b'u') => ("upgrade", Self::Upgrade),
            (9, b'f') => ("forwarded", Self::Forwarded),
            (10, b'c') => ("connection", Self::Connection),
            (10, b'k') => ("keep-alive", Self::OtherHop),
            (12, b'c') => ("content-type", Self::ContentType),
            (14, b'c') => ("content-length", Self::ContentLength),
            (14, b'h') => ("http2-settings", Self::OtherHop),
            (16, b'p') => ("proxy-connection", Self::OtherHop),
            (17, b't') => ("transfer-encoding", Self::TransferEncoding),
            (18, b'p') => ("proxy-authenticate", Self::OtherHop),
            (19, b'p') => ("proxy-authorization", Self::OtherHop),
            _ => return Self::EndToEnd,
        };
        if is(name, known.as_bytes()) {
            return kind;
        }
        let is_framing = matches!(kind, Self::ContentLength | Self::TransferEncoding);
        let is_alike = |(byte, known): (&u8, &u8)| {
            byte.eq_ignore_ascii_case(known) || (*byte == b'_' && *known == b'-')
        };
        if is_framing && name.iter().zip(known.as_bytes()).all(is_alike) {
            Self::UnderscoreFraming
        } else {
            Self::EndToEnd
        }
    }

    /// Whether the next neighbour alone is meant, as it is by what frames the body.
    pub fn is_hop_by_hop(self) -> bool {
        match self {
            Self::TransferEncoding
            | Self::Connection
            | Self::Upgrade
            | Self::Te
            | Self::OtherHop => true,
            Self::Host
            | Self::ContentLength
            | Self::ContentType
            | Self::Expect
            | Self::Cookie
            | Self::Forwarded
            | Self::Trailer
            | Self::UnderscoreFraming
            | Self::EndToEnd => false,
        }
    }
}

/// Whether `name`, a token as long as `known`, is that in any case. `known` has letters in lower case,
/// digits and hyphens: no other character of a token differs from these by its case bit alone.
fn is(name: &[u8], known: &[u8]) -> bool {
    let differences = name.iter().zip(known).map(|(byte, known)| (byte | 0x20) ^ known);
    differences.fold(0, |all, difference| all | difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_are_found_in_the_names_of_framing_only() {
        for (name, expected) in [
            ("Content_Length", FieldKind::UnderscoreFraming),
            ("transfer_ENCODING", FieldKind::UnderscoreFraming),
            ("content_type", FieldKind::EndToEnd),
            ("x_content_length", FieldKind::EndToEnd),
            ("content.length", FieldKind::EndToEnd),
        ] {
            assert_eq!(FieldKind::of(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn a_name_is_known_in_any_case_and_no_other_token_is_taken_for_it() {
        const TOKEN: &[u8] = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz\
                               ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        for name in ["te", "Host", "COOKIE", "keep-alive", "http2-settings", "Content-Length"] {
            let kind = FieldKind::of(name.as_bytes());
            assert_ne!(kind, FieldKind::EndToEnd, "{name}");
            for at in 0..name.len() {
                for byte in TOKEN {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = *byte;
                    let is_same = other.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(FieldKind::of(&other) == kind, is_same, "{other:?}");
                }
            }
        }
    }
}
