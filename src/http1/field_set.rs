//! The kinds of fields, and the set of those that a message has.
//!
//! The set is noted as the fields come: most questions about fields are about some that a message
//! does not have, and need no walk then.

/// The meaning of a field to framing and to a proxy, by its name.
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

        // Some servers take underscores for hyphens.
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

    /// Returns whether the field is for the next neighbour alone, as those that frame the body are.
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

/// Returns whether `name`, a token as long as `known`, is `known` in any case. `known` consists of
/// letters in lower case, digits and hyphens: no other character of a token differs from these by its
/// case bit alone.
fn is(name: &[u8], known: &[u8]) -> bool {
    let differences = name.iter().zip(known).map(|(byte, known)| (byte | 0x20) ^ known);
    differences.fold(0, |all, difference| all | difference) == 0
}

/// The kinds of fields that a message came with, and the names that it may have. Later changes of the
/// message only add names.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldSet {
    /// A bit for each [`FieldKind`].
    present: u16,
    repeated: u16,
    has_blanks: bool,
    /// True if `Connection` has other options than those for the duration of the connection.
    has_options: bool,
    /// A bit for each name, which it shares with others: also for those that were added later.
    names: u64,
}

impl FieldSet {
    /// The set of a message without fields.
    pub(super) const NONE: Self =
        Self { present: 0, repeated: 0, has_blanks: false, has_options: false, names: 0 };

    /// Adds a field that came with the message.
    #[inline]
    pub(super) fn add(&mut self, name: &[u8], value: &[u8], kind: FieldKind) {
        let bit = bit(kind);
        self.repeated |= self.present & bit;
        // Some take a list of equal lengths for one.
        if kind == FieldKind::ContentLength && value.contains(&b',') {
            self.repeated |= bit;
        }
        self.has_options |= kind == FieldKind::Connection && !is_about_duration(value);
        self.present |= bit;
        self.add_name(name);
    }

    /// Notes that a field may be called `name`.
    #[inline]
    pub(super) fn add_name(&mut self, name: &[u8]) {
        self.names |= name_bit(name);
    }

    /// Notes that fields may have the names of `others`.
    pub(super) fn add_names(&mut self, others: Self) {
        self.names |= others.names;
    }

    /// Notes that a value has blanks around it.
    pub(super) fn add_blanks(&mut self) {
        self.has_blanks = true;
    }

    /// Returns whether there is a field of this kind.
    pub fn has(self, kind: FieldKind) -> bool {
        self.present & bit(kind) != 0
    }

    /// Returns whether there is more than one line of this kind, or a list of lengths.
    pub fn repeats(self, kind: FieldKind) -> bool {
        self.repeated & bit(kind) != 0
    }

    /// Returns whether some value has blanks around it, which HTTP/1.1 removes while it reads.
    pub fn have_blanks(self) -> bool {
        self.has_blanks
    }

    /// Returns whether `Connection` has other options than `close` and `keep-alive`.
    pub fn has_options(self) -> bool {
        self.has_options
    }

    /// Returns whether there is a field that must not be passed on.
    pub fn has_hop_by_hop(self) -> bool {
        const HOPS: u16 = bit(FieldKind::Connection)
            | bit(FieldKind::TransferEncoding)
            | bit(FieldKind::Upgrade)
            | bit(FieldKind::Te)
            | bit(FieldKind::OtherHop);
        self.present & HOPS != 0
    }

    /// Returns whether all fields may be passed on as they came: none is for the next neighbour only,
    /// none is about the way of the request or its reading, and none is repeated that must not be.
    pub fn are_plain(self) -> bool {
        const KNOWN: u16 = bit(FieldKind::Host)
            | bit(FieldKind::ContentLength)
            | bit(FieldKind::ContentType)
            | bit(FieldKind::Cookie)
            | bit(FieldKind::EndToEnd);
        const ONCE: u16 = bit(FieldKind::ContentLength) | bit(FieldKind::Cookie);
        self.present & !KNOWN == 0 && self.repeated & ONCE == 0 && !self.has_blanks
    }

    /// Returns whether a field may be called `name`: if not, there is none.
    #[inline]
    pub(super) fn may_have(self, name: &str) -> bool {
        self.names & name_bit(name.as_bytes()) != 0
    }

    /// Returns whether a field may have a name that servers take for `name`: if not, there is none.
    #[inline]
    pub(super) fn may_have_alike(self, name: &str) -> bool {
        // Such names are as long. They begin with the same letter or digit, and so share a bit, or each
        // with some sign.
        self.may_have(name) || !name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
    }
}

/// Returns whether a value of `Connection` is one of the usual ones: nearly all are.
pub(super) fn is_about_duration(value: &[u8]) -> bool {
    matches!(value, b"keep-alive" | b"Keep-Alive" | b"close" | b"Close")
}

const fn bit(kind: FieldKind) -> u16 {
    1 << kind as u16
}

/// Returns the bit for a name in any case, by its length and its first letter.
fn name_bit(name: &[u8]) -> u64 {
    let first = name.first().map_or(0, |first| usize::from(first | 0x20));
    1 << ((name.len() + 5 * first) % 64)
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

    fn set(fields: &[(&str, &str)]) -> FieldSet {
        let mut set = FieldSet::default();
        for (name, value) in fields {
            set.add(name.as_bytes(), value.as_bytes(), FieldKind::of(name.as_bytes()));
        }
        set
    }

    #[test]
    fn each_hop_by_hop_field_is_seen() {
        for name in [
            "connection",
            "http2-settings",
            "keep-alive",
            "proxy-connection",
            "proxy-authenticate",
            "proxy-authorization",
            "te",
            "transfer-encoding",
            "upgrade",
        ] {
            assert!(FieldKind::of(name.as_bytes()).is_hop_by_hop(), "{name}");
            assert!(set(&[(name, "x")]).has_hop_by_hop(), "{name}");
        }
        for name in ["host", "content-length", "cookie", "trailer", "x"] {
            assert!(!FieldKind::of(name.as_bytes()).is_hop_by_hop(), "{name}");
            assert!(!set(&[(name, "x")]).has_hop_by_hop(), "{name}");
        }
    }

    #[test]
    fn a_second_line_is_a_repetition_and_so_is_a_list_of_lengths() {
        let once = set(&[("Host", "a"), ("Cookie", "b")]);
        assert!(once.has(FieldKind::Host) && !once.repeats(FieldKind::Host));
        let twice =
            set(&[("Host", "a"), ("Cookie", "b"), ("host", "a"), ("content-length", "2, 2")]);
        assert!(twice.repeats(FieldKind::Host) && !twice.repeats(FieldKind::Cookie));
        assert!(twice.repeats(FieldKind::ContentLength), "as a list");
    }

    #[test]
    fn other_options_of_a_connection_are_seen() {
        for (value, expected) in [
            ("close", false),
            ("Keep-Alive", false),
            ("keep-alive, x-secret", true),
            ("x-secret", true),
            ("upgrade", true),
        ] {
            assert_eq!(set(&[("Connection", value)]).has_options(), expected, "{value}");
        }
        assert!(set(&[("connection", "x"), ("connection", "close")]).has_options());
        assert!(!set(&[("x-connection", "x")]).has_options());
    }

    #[test]
    fn a_name_that_is_there_is_never_missed() {
        for name in ["Host", "x-request-id", "A", "date"] {
            let set = set(&[(name, "")]);
            assert!(set.may_have(name) && set.may_have(&name.to_ascii_uppercase()), "{name}");
        }
        let host = set(&[("host", "a")]);
        assert!(!["te", "date", "content-type", ""].iter().any(|name| host.may_have(name)));
    }

    #[test]
    fn a_name_that_is_there_in_another_spelling_is_never_missed() {
        for (sent, name) in [
            ("X_Real_IP", "x-real-ip"),
            ("x.real.ip", "x-real-ip"),
            ("x-real-ip", "x_real_ip"),
            ("_internal", "-internal"),
            ("!internal", "_internal"),
            ("1_2", "1-2"),
        ] {
            assert!(set(&[(sent, "")]).may_have_alike(name), "{sent} {name}");
        }
        let host = set(&[("host", "a")]);
        for name in ["x-real-ip", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"] {
            assert!(!host.may_have_alike(name), "{name}");
        }
    }
}
