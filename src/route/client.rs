//! The client's address.

use super::Nat64;
use crate::http1::Fields;
use core::{
    fmt,
    net::{IpAddr, SocketAddr},
};
use ipnet::IpNet;

/// The most entries to look at. Each trusted proxy adds one, so only forged lists are longer.
const MAX_ENTRIES: usize = 64;

/// Whose word about clients is believed, and which addresses of IPv6 are those of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxies<'a> {
    /// The networks of proxies whose `X-Forwarded-For` is believed, in their IPv4 form.
    pub trusted: &'a [IpNet],
    /// The prefixes behind which an IPv4 address stands.
    pub nat64: &'a Nat64,
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundClient<'h> {
    /// Its address, in its IPv4 form.
    pub address: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub is_proxied: bool,
    /// Why `address` is the proxy's, although `X-Forwarded-For` names clients.
    pub unread: Option<Unread<'h>>,
}

/// Why no client is read from `X-Forwarded-For`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread<'h> {
    /// This entry is no address.
    Entry(&'h [u8]),
    /// It has more entries of trusted proxies than are read.
    TooMany,
}

impl Proxies<'_> {
    /// Returns whether `address` is a trusted proxy's.
    pub fn is_trusted(&self, address: IpAddr) -> bool {
        let address = self.nat64.canonical(address);
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// Returns the client: `peer`, or, if `peer` is a trusted proxy, the right-most address of
    /// `X-Forwarded-For` that is not one.
    ///
    /// Several lines are one list; empty entries are skipped; ports and brackets are accepted. If
    /// every entry is a trusted proxy, the left-most is the client. Garbage before an untrusted
    /// address, or more than 64 trusted entries, fall back to `peer`. IPv4 addresses that are written
    /// as IPv6 count and are returned as IPv4.
    pub fn client<'h>(&self, peer: IpAddr, headers: Fields<'h>) -> FoundClient<'h> {
        let peer = self.nat64.canonical(peer);
        if !self.is_trusted(peer) {
            return FoundClient { address: peer, is_proxied: false, unread: None };
        }
        let fallback = |why| FoundClient { address: peer, is_proxied: true, unread: Some(why) };

        let lines = headers.get_all("x-forwarded-for").rev();
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
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let nat64 = Nat64::default();
        let proxies = Proxies { trusted: &trusted, nat64: &nat64 };
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
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let mut headers = http::HeaderMap::new();
        for line in lines {
            let line = http::HeaderValue::from_bytes(line.as_bytes()).unwrap();
            headers.append("x-forwarded-for", line);
        }
        let nat64 = Nat64::new(vec!["64:ff9b:1::/48".parse().unwrap()]);
        let proxies = Proxies { trusted: &trusted, nat64: &nat64 };
        let found = proxies.client(peer.parse().unwrap(), (&headers).into()).address;
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
    }
}
