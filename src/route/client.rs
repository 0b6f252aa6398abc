//! The client: its address, also behind NAT64 (RFC 6052), and its identity.

use super::{FieldPattern, NetworkList};
use crate::http1::Fields;
use core::{
    array, fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
use http::HeaderName;
use ipnet::{IpNet, Ipv6Net};
use std::sync::Arc;

/// The address of a client without one, which has connected to a Unix socket: the unspecified address,
/// which no client can have (RFC 4291, 2.5.2).
pub const NO_ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The most entries to look at. Each trusted proxy adds one, so only forged lists are longer.
const MAX_ENTRIES: usize = 64;

/// Whose word about clients is believed, and which addresses of IPv6 are those of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxies<'a> {
    /// The networks of proxies whose word is believed, in their IPv4 form.
    pub trusted: &'a NetworkList,
    /// The field in which they name the client; `None`: `X-Forwarded-For`.
    pub header: Option<&'a HeaderName>,
    /// The prefixes behind which an IPv4 address stands.
    pub nat64: &'a Nat64,
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundClient<'h> {
    /// Its address, in its IPv4 form.
    pub address: IpAddr,
    /// True if the peer is a trusted proxy.
    pub is_proxied: bool,
    /// Why `address` is the proxy's, although its field names clients.
    pub unread: Option<Unread<'h>>,
}

/// Why no client is read from the field of a trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread<'h> {
    /// This entry is no address.
    Entry(&'h [u8]),
    /// It has more entries of trusted proxies than are read.
    TooMany,
}

impl Proxies<'_> {
    /// Returns the name of the field in which trusted proxies name the client.
    pub fn header_name(&self) -> &str {
        self.header.map_or("x-forwarded-for", HeaderName::as_str)
    }

    /// Returns whether `address` is a trusted proxy's.
    pub fn is_trusted(&self, address: IpAddr) -> bool {
        let address = self.nat64.canonical(address);
        self.trusted.contains(address)
    }

    /// Returns the client: `peer`, or, if `peer` is a trusted proxy, the right-most address of
    /// their field that is not one.
    ///
    /// Several lines are one list; empty entries are skipped; ports and brackets are accepted. If
    /// every entry is a trusted proxy, the left-most is the client. Garbage before an untrusted
    /// address, or more than 64 trusted entries, fall back to `peer`. Without the field, the client is
    /// `peer` too. IPv4 addresses that are written
    /// as IPv6 count and are returned as IPv4.
    pub fn client<'h>(&self, peer: IpAddr, headers: Fields<'h>) -> FoundClient<'h> {
        let peer = self.nat64.canonical(peer);
        if !self.is_trusted(peer) {
            return FoundClient { address: peer, is_proxied: false, unread: None };
        }
        let fallback = |why| FoundClient { address: peer, is_proxied: true, unread: Some(why) };

        let lines = headers.get_all(self.header_name()).rev();
        let entries = lines.flat_map(|line| line.rsplit(|byte| *byte == b','));
        let mut client = peer;
        for (walked, entry) in entries.enumerate() {
            let entry = entry.trim_ascii();
            if walked == MAX_ENTRIES {
                return fallback(Unread::TooMany);
            }
            if entry.is_empty() {
                continue;
            }
            let Some(address) = address(entry) else { return fallback(Unread::Entry(entry)) };
            client = self.nat64.canonical(address);
            if !self.is_trusted(client) {
                break;
            }
        }
        FoundClient { address: client, is_proxied: true, unread: None }
    }
}

/// Says why, with the beginning of the entry, whose control characters are escaped.
impl fmt::Display for Unread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        match self {
            Self::Entry(entry) => {
                let shown = entry.get(..SHOWN).unwrap_or(entry);
                write!(f, "the entry `{}` is not an address", shown.escape_ascii())
            }
            Self::TooMany => write!(f, "more than {MAX_ENTRIES} entries of trusted proxies"),
        }
    }
}

/// Reads `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:80`.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(v6) => v6.parse().map(IpAddr::V6).ok(),
        None => text.parse().or_else(|_| text.parse().map(|at: SocketAddr| at.ip())).ok(),
    }
}

/// Returns what counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address.
pub fn client_network(client: IpAddr) -> u128 {
    match client.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

/// The prefix that every NAT64 may use (RFC 6052, 2.1).
const WELL_KNOWN: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Addresses of IPv4 that are written as those of IPv6 (RFC 4291, 2.5.5.2).
const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);

/// The octet that belongs neither to a prefix of NAT64 nor to the IPv4 address behind it.
const RESERVED_OCTET: usize = 8;

/// The prefixes of IPv6 behind which an IPv4 address stands: the well-known one, and further ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nat64 {
    /// The longest first.
    further: Box<[Ipv6Net]>,
}

/// A network is a whole prefix of NAT64, which stands for all of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholePrefix;

impl Nat64 {
    /// The lengths that a prefix may have (RFC 6052, 2.2).
    pub const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

    /// Returns the well-known prefix and `further` ones, each of one of [`Self::LENGTHS`].
    pub fn new(mut further: Vec<Ipv6Net>) -> Self {
        further.sort_unstable_by_key(|prefix| core::cmp::Reverse(prefix.prefix_len()));
        Self { further: further.into() }
    }

    /// Returns the prefixes besides the well-known one.
    pub fn further(&self) -> &[Ipv6Net] {
        &self.further
    }

    /// Returns the IPv4 address that `address` stands for, or `address`.
    #[inline]
    pub fn canonical(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => self.embedded(v6).map_or(address, IpAddr::V4),
        }
    }

    fn embedded(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let prefix = self.prefixes().find(|prefix| prefix.contains(&address))?;
        Some(extract(*prefix, address))
    }

    /// Returns the network of IPv4 that `network` stands for, or `network`.
    ///
    /// # Errors
    ///
    /// It is a whole prefix of NAT64.
    pub fn network(&self, network: IpNet) -> Result<IpNet, WholePrefix> {
        let IpNet::V6(v6) = network else { return Ok(network) };
        let Some(prefix) = self.prefixes().find(|prefix| prefix.contains(&v6)) else {
            return Ok(network);
        };

        let length = embedded_length(*prefix, v6.prefix_len());
        if length == 0 && *prefix != MAPPED {
            return Err(WholePrefix);
        }
        let address = extract(*prefix, v6.network());
        Ok(IpNet::new(address.into(), length).unwrap_or(network))
    }

    fn prefixes(&self) -> impl Iterator<Item = &Ipv6Net> {
        [&MAPPED, &WELL_KNOWN].into_iter().chain(&self.further)
    }
}

/// Returns the four octets that follow a prefix, without the reserved one.
fn extract(prefix: Ipv6Net, address: Ipv6Addr) -> Ipv4Addr {
    let octets = address.octets();
    let start = usize::from(prefix.prefix_len() / 8);
    let mut rest = (start..octets.len()).filter(|index| *index != RESERVED_OCTET);
    let octet = |_| rest.next().and_then(|index| octets.get(index)).copied().unwrap_or_default();
    array::from_fn::<u8, 4, _>(octet).into()
}

/// Returns how many bits of the IPv4 address are among the first `length` bits of an IPv6 address.
fn embedded_length(prefix: Ipv6Net, length: u8) -> u8 {
    let reserved = if prefix.prefix_len() <= 64 { length.clamp(64, 72) - 64 } else { 0 };
    (length - reserved).saturating_sub(prefix.prefix_len()).min(32)
}

/// The value of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimValue {
    /// The key under which the client counts.
    key: Box<str>,
    /// The values of a list; `None` for a single value.
    list: Option<Box<[Box<str>]>>,
}

impl ClaimValue {
    /// Returns the value of a claim that is a text, a number or a truth value.
    pub const fn of_text(text: Box<str>) -> Self {
        Self { key: text, list: None }
    }

    /// Returns the value of a claim that is a list. Its order makes no difference.
    pub fn of_list(mut values: Vec<Box<str>>) -> Self {
        values.sort_unstable();
        Self { key: values.join(",").into(), list: Some(values.into()) }
    }

    /// Returns the key: a single value, or those of a list, sorted and joined by commas.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the single value, or each of the list.
    pub fn values(&self) -> &[Box<str>] {
        self.list.as_deref().unwrap_or_else(|| core::slice::from_ref(&self.key))
    }
}

/// An authenticated client: its user, and the claims of its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    user: Option<Arc<str>>,
    claims: Vec<(Box<str>, ClaimValue)>,
    /// The fields that an auth service has said about it, by name in lower case.
    fields: Vec<(Box<str>, Box<[u8]>)>,
}

impl Identity {
    /// Returns the identity of this user.
    pub const fn of_user(user: Option<Arc<str>>) -> Self {
        Self { user, claims: Vec::new(), fields: Vec::new() }
    }

    /// Returns the identity of a verified token: its `sub`, and other claims by name.
    pub const fn of_token(user: Option<Arc<str>>, claims: Vec<(Box<str>, ClaimValue)>) -> Self {
        Self { user, claims, fields: Vec::new() }
    }

    /// Returns the identity of a client about which an auth service has said the fields of these `names`
    /// in `headers`. Several lines of a name are one list (RFC 9110, 5.3).
    pub fn of_service<'n>(
        headers: Fields<'_>,
        names: impl Iterator<Item = &'n HeaderName>,
    ) -> Self {
        let of = |name: &HeaderName| {
            let lines = headers.get_all(name.as_str()).map(<[u8]>::trim_ascii);
            let lines: Vec<&[u8]> = lines.collect();
            (!lines.is_empty()).then(|| (name.as_str().into(), lines.join(&b", "[..]).into()))
        };
        Self { user: None, claims: Vec::new(), fields: names.filter_map(of).collect() }
    }

    /// Returns its user, if it has one.
    pub const fn user(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }

    /// Returns a claim of its token, if it has it.
    pub fn claim(&self, name: &str) -> Option<&ClaimValue> {
        let mut claims = self.claims.iter();
        claims.find(|(known, _)| **known == *name).map(|(_, value)| value)
    }

    /// Returns the value of a field that an auth service has said, if it has.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        fields.find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

/// The certificate that a client has shown in the handshake of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The distinguished name of its owner, as `CN=ann,O=Example` (RFC 4514); empty if it has none.
    pub subject: Box<str>,
    /// The SHA-256 of its DER form: 64 hexadecimal digits in lower case.
    pub fingerprint: Box<str>,
}

impl ClientCertificate {
    /// Reads a fingerprint in one of the forms that programs print: 64 hexadecimal digits, with colons
    /// or without. Returns the form of [`Self::fingerprint`].
    pub fn read_fingerprint(text: &str) -> Option<String> {
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        let is_one = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_one.then(|| digits.to_ascii_lowercase())
    }

    /// Returns the part with this name, unless it is empty.
    pub fn part(&self, name: &str) -> Option<&str> {
        let part = match name {
            "subject" => &*self.subject,
            "fingerprint" => &*self.fingerprint,
            _ => return None,
        };
        Some(part).filter(|part| !part.is_empty())
    }
}

/// A condition on what a client has proved to be. A client that has proved nothing meets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityPattern {
    /// Its user. The pattern's name stands for nothing.
    User(FieldPattern),
    /// The claim with the pattern's name: its key, or a value of its list.
    Claim(FieldPattern),
}

impl IdentityPattern {
    /// Returns whether the client meets it. An empty value is none, as for keys.
    pub fn holds(&self, identity: Option<&Identity>) -> bool {
        let Some(identity) = identity else { return false };
        match self {
            Self::User(pattern) => {
                identity.user().is_some_and(|user| pattern.matches_exactly(user))
            }
            Self::Claim(pattern) => identity.claim(pattern.name()).is_some_and(|claim| {
                let mut values = claim.values().iter();
                !claim.key().is_empty()
                    && (pattern.matches_exactly(claim.key())
                        || values.any(|value| pattern.matches_exactly(value)))
            }),
        }
    }

    /// Returns the name of the claim that it looks at.
    pub fn claim(&self) -> Option<&str> {
        match self {
            Self::User(_) => None,
            Self::Claim(pattern) => Some(pattern.name()),
        }
    }
}

/// Writes `user=ann` or `jwt:plan=gold`.
impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(pattern) => pattern.fmt(f),
            Self::Claim(pattern) => write!(f, "jwt:{pattern}"),
        }
    }
}

#[cfg(test)]
mod identity_tests {
    use super::*;

    #[test]
    fn a_condition_holds_for_what_a_client_has_proved_exactly() {
        let list = |values: &[&str]| {
            ClaimValue::of_list(values.iter().map(|value| Box::from(*value)).collect())
        };
        let claims = vec![
            ("plan".into(), ClaimValue::of_text("gold".into())),
            ("name".into(), ClaimValue::of_text("x,admin".into())),
            ("roles".into(), list(&["dev", "admin"])),
            ("none".into(), list(&[])),
        ];
        let identity = Identity::of_token(Some("ann".into()), claims);
        let claim = |name, values: &[&str]| {
            IdentityPattern::Claim(FieldPattern::exactly_one_of(name, values).unwrap())
        };
        let user = |values: &[&str]| {
            IdentityPattern::User(FieldPattern::exactly_one_of("user", values).unwrap())
        };
        let present = |name| IdentityPattern::Claim(FieldPattern::present(name).unwrap());
        for (pattern, expected) in [
            (claim("plan", &["silver", "gold"]), true),
            (claim("plan", &["silver"]), false),
            (claim("plan", &["gold "]), false),
            (claim("Plan", &["gold"]), false),
            (claim("roles", &["admin"]), true),
            (claim("roles", &["admin,dev"]), true),
            (claim("roles", &["adm"]), false),
            (claim("name", &["admin"]), false),
            (claim("other", &["gold"]), false),
            (present("plan"), true),
            (present("none"), false),
            (present("other"), false),
            (user(&["bob", "ann"]), true),
            (user(&["Ann"]), false),
        ] {
            assert_eq!(pattern.holds(Some(&identity)), expected, "{pattern}");
            assert!(!pattern.holds(None), "{pattern}");
            assert!(!pattern.holds(Some(&Identity::default())), "{pattern}");
        }
        assert_eq!(claim("plan", &["b", "a"]).to_string(), "jwt:plan=a|b");
        assert_eq!(user(&["ann"]).to_string(), "user=ann");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_most_untrusted_entry_is_the_client() {
        for (lines, expected) in [
            (&[][..], "10.0.0.1"),
            (&["192.0.2.1"], "192.0.2.1"),
            (&["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
            (&["6.6.6.6, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
            (&["6.6.6.6, 192.0.2.1", "10.0.0.2"], "192.0.2.1"),
            (&["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
            (&["192.0.2.1,,\t , 10.0.0.2"], "192.0.2.1"),
            (&["192.0.2.1:4711"], "192.0.2.1"),
            (&["2001:db8::1"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            (&["[2001:db8::1]:80"], "2001:db8::1"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
            (&["192.0.2.1, ::ffff:10.0.0.2"], "192.0.2.1"),
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (&["192.0.2.1, unknown"], "10.0.0.1"),
            (&["192.0.2.1, unknown, 10.0.0.2"], "10.0.0.1"),
            (&["unknown, 192.0.2.1"], "192.0.2.1"),
            (&["192.0.2.1, 1.2.3"], "10.0.0.1"),
            (&["192.0.2.1, 010.0.0.2"], "10.0.0.1"),
            (&["192.0.2.1 10.0.0.2"], "10.0.0.1"),
            (&["[192.0.2.1]"], "10.0.0.1"),
            (&["fe80::1%eth0"], "10.0.0.1"),
            (&["\u{e9}"], "10.0.0.1"),
            (&["", " "], "10.0.0.1"),
            (&["64:ff9b::192.0.2.1"], "192.0.2.1"),
            (&["[64:ff9b::c000:201]:80"], "192.0.2.1"),
            (&["192.0.2.1, 64:ff9b::10.0.0.2"], "192.0.2.1"),
            (&["64:ff9b:1:c000:2:100::"], "192.0.2.1"),
        ] {
            check("10.0.0.1", lines, expected);
        }
    }

    #[test]
    fn an_untrusted_peer_is_not_believed() {
        check("203.0.113.9", &["192.0.2.1"], "203.0.113.9");
        check("::ffff:203.0.113.9", &["192.0.2.1"], "203.0.113.9");
        check("::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1");
        check("64:ff9b::10.0.0.1", &["192.0.2.1"], "192.0.2.1");
        check("64:ff9b::203.0.113.9", &["192.0.2.1"], "203.0.113.9");
    }

    #[test]
    fn an_entry_that_makes_the_proxy_the_client_is_shown() {
        let trusted = NetworkList::new(["10.0.0.0/8".parse().unwrap()], Vec::new());
        let nat64 = Nat64::default();
        let proxies = Proxies { trusted: &trusted, header: None, nat64: &nat64 };
        let many = "10.0.0.2,".repeat(65);
        for (list, peer, expected) in [
            ("\"192.0.2.1\"", "10.0.0.1", Some("the entry `\\\"192.0.2.1\\\"` is not an address")),
            ("192.0.2.1, a\tb", "10.0.0.1", Some("the entry `a\\tb` is not an address")),
            (&many, "10.0.0.1", Some("more than 64 entries of trusted proxies")),
            ("unknown, 192.0.2.1", "10.0.0.1", None),
            ("\"192.0.2.1\"", "203.0.113.9", None),
        ] {
            let mut headers = http::HeaderMap::new();
            headers.append("x-forwarded-for", list.parse().unwrap());
            let found = proxies.client(peer.parse().unwrap(), (&headers).into());
            let unread = found.unread.map(|unread| unread.to_string());
            assert_eq!(unread.as_deref(), expected, "{list}");
        }
    }

    #[test]
    fn the_walk_over_trusted_entries_is_bounded() {
        let list = |proxies: usize| format!("192.0.2.1{}", ", 10.0.0.2".repeat(proxies));
        check("10.0.0.1", &[&list(63)], "192.0.2.1");
        check("10.0.0.1", &[&list(64)], "10.0.0.1");
        check("10.0.0.1", &[&",".repeat(5000)], "10.0.0.1");
    }

    fn check(peer: &str, lines: &[&str], expected: &str) {
        let trusted = NetworkList::new(["10.0.0.0/8".parse().unwrap()], Vec::new());
        let mut headers = http::HeaderMap::new();
        for line in lines {
            let line = http::HeaderValue::from_bytes(line.as_bytes()).unwrap();
            headers.append("x-forwarded-for", line);
        }
        let nat64 = Nat64::new(vec!["64:ff9b:1::/48".parse().unwrap()]);
        let proxies = Proxies { trusted: &trusted, header: None, nat64: &nat64 };
        let found = proxies.client(peer.parse().unwrap(), (&headers).into()).address;
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
    }
}

#[cfg(test)]
mod nat64_tests {
    use super::*;

    /// A prefix of each length.
    fn nat64() -> Nat64 {
        let prefixes = [
            "2001:db8::/32",
            "2001:db9:100::/40",
            "2001:dba:122::/48",
            "2001:dbb:122:300::/56",
            "2001:dbc:122:344::/64",
            "2001:dbd:122:344::/96",
        ];
        Nat64::new(prefixes.map(|prefix| prefix.parse().unwrap()).into())
    }

    #[test]
    fn an_address_is_read_behind_a_prefix_of_each_length() {
        // The addresses of RFC 6052, 2.4, with a prefix of their own for each length.
        for (address, expected) in [
            ("2001:db8:c000:221::", "192.0.2.33"),
            ("2001:db9:1c0:2:21::", "192.0.2.33"),
            ("2001:dba:122:c000:2:2100::", "192.0.2.33"),
            ("2001:dbb:122:3c0:0:221::", "192.0.2.33"),
            ("2001:dbc:122:344:c0:2:2100::", "192.0.2.33"),
            ("2001:dbd:122:344::192.0.2.33", "192.0.2.33"),
            ("64:ff9b::192.0.2.33", "192.0.2.33"),
            ("::ffff:192.0.2.33", "192.0.2.33"),
            // What follows the address is reserved, and may become something.
            ("2001:db8:c000:221:1:2:3:4", "192.0.2.33"),
            ("64:ff9b:1::192.0.2.33", "64:ff9b:1::c000:221"),
            ("64:ff9a::192.0.2.33", "64:ff9a::c000:221"),
            ("::192.0.2.33", "::c000:221"),
            ("192.0.2.33", "192.0.2.33"),
        ] {
            let found = nat64().canonical(address.parse().unwrap());
            assert_eq!(found.to_string(), expected, "{address}");
        }
    }

    #[test]
    fn the_longest_prefix_that_fits_counts() {
        let prefixes = ["64:ff9b:1::/48", "64:ff9b:1:ffff::/96"];
        let nat64 = Nat64::new(prefixes.map(|prefix| prefix.parse().unwrap()).into());
        for (address, expected) in
            [("64:ff9b:1:ffff::c000:201", "192.0.2.1"), ("64:ff9b:1:c000:2:100::", "192.0.2.1")]
        {
            assert_eq!(nat64.canonical(address.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn a_network_is_the_one_of_its_ipv4_addresses() {
        for (network, expected) in [
            ("64:ff9b::192.0.2.0/120", Ok("192.0.2.0/24")),
            ("64:ff9b::192.0.2.7/128", Ok("192.0.2.7/32")),
            ("64:ff9b::/96", Err(WholePrefix)),
            ("::ffff:0:0/96", Ok("0.0.0.0/0")),
            ("::ffff:10.0.0.0/104", Ok("10.0.0.0/8")),
            ("2001:db8:c000:200::/56", Ok("192.0.2.0/24")),
            ("2001:db8:c000:221::/128", Ok("192.0.2.33/32")),
            ("2001:dba:122:c000:2:2100::/88", Ok("192.0.2.33/32")),
            ("2001:dba:122:c000:2::/80", Ok("192.0.2.0/24")),
            ("2001:dba:122:c000::/64", Ok("192.0.0.0/16")),
            ("2001:dba:122:c000::/70", Ok("192.0.0.0/16")),
            ("2001:dbc:122:344:c0::/80", Ok("192.0.0.0/8")),
            ("2001:dbc:122:344::/72", Err(WholePrefix)),
            ("2001:db8::/32", Err(WholePrefix)),
            ("2001:d00::/24", Ok("2001:d00::/24")),
            ("::/0", Ok("::/0")),
            ("192.0.2.0/24", Ok("192.0.2.0/24")),
        ] {
            let found = nat64().network(network.parse().unwrap());
            assert_eq!(
                found.map(|found| found.to_string()),
                expected.map(str::to_owned),
                "{network}"
            );
        }
    }
}
