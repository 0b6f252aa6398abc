//! The client's address.

use crate::http1::Fields;
use core::net::{IpAddr, SocketAddr};
use ipnet::IpNet;

/// The most entries to look at. Each trusted proxy adds one, so only forged lists are longer.
const MAX_ENTRIES: usize = 64;

/// Returns the client's address: `peer`, or, if `peer` is a trusted proxy, the
/// right-most address of `X-Forwarded-For` that is not one.
///
/// Several lines are one list; empty entries are skipped; ports and brackets are accepted. If every
/// entry is a trusted proxy, the left-most is the client. Garbage before an untrusted address, or
/// more than 64 trusted entries, fall back to `peer`. IPv4 addresses mapped into IPv6 count and are
/// returned as IPv4.
pub fn client_ip(peer: IpAddr, headers: Fields<'_>, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.to_canonical();
    let is_trusted = |address: &IpAddr| trusted.iter().any(|net| net.contains(address));
    if !is_trusted(&peer) {
        return peer;
    }
    let lines = headers.get_all("x-forwarded-for").rev();
    let entries = lines.flat_map(|line| line.rsplit(|byte| *byte == b','));
    let mut client = peer;
    for (walked, entry) in entries.enumerate() {
        let entry = entry.trim_ascii();
        if walked == MAX_ENTRIES {
            return peer;
        }
        if entry.is_empty() {
            continue;
        }
        match address(entry) {
            Some(address) if is_trusted(&address) => client = address,
            Some(address) => return address,
            None => return peer,
        }
    }
    client
}

/// Reads `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:80`.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(v6) => IpAddr::V6(v6.parse().ok()?),
        None => {
            text.parse().or_else(|_| text.parse().map(|address: SocketAddr| address.ip())).ok()?
        }
    };
    Some(address.to_canonical())
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
        ] {
            check("10.0.0.1", lines, expected);
        }
    }

    #[test]
    fn an_untrusted_peer_is_not_believed() {
        check("203.0.113.9", &["192.0.2.1"], "203.0.113.9");
        check("::ffff:203.0.113.9", &["192.0.2.1"], "203.0.113.9");
        check("::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1");
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
        let found = client_ip(peer.parse().unwrap(), (&headers).into(), &trusted);
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
    }
}
