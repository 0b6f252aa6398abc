//! Which fields a message has, noted as they come: most questions about fields are about some that a
//! message does not have, and need no walk then.

use super::field_kind::FieldKind;

/// The kinds of fields that a message came with, and the names that it may have. Later changes of the
/// message only add names.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldSet {
    /// A bit for each [`FieldKind`].
    present: u16,
    repeated: u16,
    has_blanks: bool,
    /// Whether `Connection` says more than how long the connection lasts.
    has_options: bool,
    /// A bit for each name, which it shares with others: also for those that were added later.
    names: u64,
}

impl FieldSet {
    /// Of a message without fields.
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

    /// Whether there is a field of this kind.
    pub fn has(self, kind: FieldKind) -> bool {
        self.present & bit(kind) != 0
    }

    /// Whether there is more than one line of this kind, or a list of lengths.
    pub fn repeats(self, kind: FieldKind) -> bool {
        self.repeated & bit(kind) != 0
    }

    /// Whether some value has blanks around it, which HTTP/1.1 leaves out as it reads.
    pub fn have_blanks(self) -> bool {
        self.has_blanks
    }

    /// Whether `Connection` says more than `close` or `keep-alive`.
    pub fn has_options(self) -> bool {
        self.has_options
    }

    /// Whether there is anything that must not be passed on.
    pub fn has_hop_by_hop(self) -> bool {
        const HOPS: u16 = bit(FieldKind::Connection)
            | bit(FieldKind::TransferEncoding)
            | bit(FieldKind::Upgrade)
            | bit(FieldKind::Te)
            | bit(FieldKind::OtherHop);
        self.present & HOPS != 0
    }

    /// Whether all may be passed on as they came: none is for the next neighbour only, none is about
    /// the way of the request or how it is read, and none has to be said once and is repeated.
    pub fn are_plain(self) -> bool {
        const KNOWN: u16 = bit(FieldKind::Host)
            | bit(FieldKind::ContentLength)
            | bit(FieldKind::ContentType)
            | bit(FieldKind::Cookie)
            | bit(FieldKind::EndToEnd);
        const ONCE: u16 = bit(FieldKind::ContentLength) | bit(FieldKind::Cookie);
        self.present & !KNOWN == 0 && self.repeated & ONCE == 0 && !self.has_blanks
    }

    /// Whether a field may be called `name`: if not, there is none.
    #[inline]
    pub(super) fn may_have(self, name: &str) -> bool {
        self.names & name_bit(name.as_bytes()) != 0
    }
}

/// Whether a value of `Connection` is one of the usual ones: nearly all are.
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
}
