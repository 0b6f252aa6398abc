//! Which clients may use a route: by their address, and by what they prove to be.

use crate::auth::{JwtKeys, JwtRules, TokenSource, Users};
use crate::counted::counted;
use ipnet::IpNet;
use std::{fmt, net::IpAddr, sync::Arc};

/// Clients that may use a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `None`: all.
    allow: Option<Networks>,
    deny: Networks,
}

impl Access {
    /// Returns the clients in `allow`, or all, except those in `deny`.
    pub(in crate::config) fn new(allow: Option<Vec<IpNet>>, deny: &[IpNet]) -> Self {
        Self { allow: allow.map(|allow| Networks::new(&allow)), deny: Networks::new(deny) }
    }

    /// Reports whether it names the clients that may.
    pub(in crate::config) const fn names_clients(&self) -> bool {
        self.allow.is_some()
    }

    /// Reports whether a client may use the route. `client` must be canonical: no IPv4 address
    /// mapped into IPv6.
    pub fn allows(&self, client: IpAddr) -> bool {
        let is_allowed = self.allow.as_ref().is_none_or(|allow| allow.contains(client));
        is_allowed && !self.deny.contains(client)
    }
}

/// Writes `allow 10.0.0.0/8; deny 10.0.0.5/32`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(allow) = &self.allow {
            write!(f, "allow {allow}")?;
        }
        let is_both = self.allow.is_some() && !self.deny.is_empty();
        f.write_str(if is_both { "; " } else { "" })?;
        if self.deny.is_empty() { Ok(()) } else { write!(f, "deny {}", self.deny) }
    }
}

/// What a client must prove: either, if there are both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Users with passwords.
    pub basic: Option<Arc<Users>>,
    /// Tokens.
    pub jwt: Option<Arc<Jwt>>,
}

/// Which tokens are valid.
#[derive(Debug)]
pub struct Jwt {
    /// By which keys they are signed.
    pub keys: JwtKeys,
    /// What they must say.
    pub rules: JwtRules,
    /// Differs if the file of the keys was edited.
    pub(in crate::config) print: u64,
}

impl PartialEq for Jwt {
    fn eq(&self, other: &Self) -> bool {
        (self.print, &self.rules) == (other.print, &other.rules)
    }
}

impl Eq for Jwt {}

impl Auth {
    /// Returns the name of the field that has a token, if it is one of its own.
    pub(in crate::config) fn header_name(&self) -> Option<&str> {
        match &self.jwt.as_ref()?.rules.source {
            TokenSource::Header(name) => Some(name.as_str()),
            TokenSource::Bearer | TokenSource::Cookie(_) => None,
        }
    }
}

/// Writes `basic, 3 users; jwt, 2 keys`.
impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.basic.as_ref().map(|users| users.count());
        let users = users.map(|count| format!("basic, {}", counted(count, "user")));
        let keys = self.jwt.as_ref().map(|jwt| jwt.keys.count());
        let keys = keys.map(|count| format!("jwt, {}", counted(count, "key")));
        f.write_str(&users.into_iter().chain(keys).collect::<Vec<_>>().join("; "))
    }
}

/// Networks, sorted and without overlaps, so that a look-up is a binary search.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Networks(Vec<IpNet>);

impl Networks {
    fn new(networks: &[IpNet]) -> Self {
        let mut networks = IpNet::aggregate(&networks.to_vec());
        networks.sort_unstable();
        Self(networks)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, address: IpAddr) -> bool {
        let after = self.0.partition_point(|network| network.network() <= address);
        let before = after.checked_sub(1).and_then(|before| self.0.get(before));
        before.is_some_and(|network| network.contains(&address))
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 8;
        let shown: Vec<_> = self.0.iter().take(MOST).map(ToString::to_string).collect();
        f.write_str(&shown.join(", "))?;
        match self.0.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[track_caller]
    fn check(access: &Access, client: &str, expected: bool) {
        assert_eq!(access.allows(client.parse().unwrap()), expected, "{access}: {client}");
    }

    #[test]
    fn deny_wins_over_allow() {
        let access =
            Access::new(Some(nets(&["10.0.0.0/8", "2001:db8::/32"])), &nets(&["10.1.0.0/16"]));
        check(&access, "10.0.0.1", true);
        check(&access, "10.1.0.1", false);
        check(&access, "11.0.0.1", false);
        check(&access, "2001:db8::1", true);
        check(&access, "2001:db9::1", false);
        assert_eq!(access.to_string(), "allow 10.0.0.0/8, 2001:db8::/32; deny 10.1.0.0/16");
    }

    #[test]
    fn without_allow_all_others_may() {
        let access = Access::new(None, &nets(&["192.0.2.7/32", "2001:db8::/32"]));
        check(&access, "192.0.2.6", true);
        check(&access, "192.0.2.7", false);
        check(&access, "::1", true);
        check(&access, "2001:db8::1", false);
        assert_eq!(access.to_string(), "deny 192.0.2.7/32, 2001:db8::/32");
    }

    fn network() -> impl Strategy<Value = IpNet> {
        // Few bits, so that networks overlap, lie inside one another and beside one another.
        let v4 = (0..8_u8, 24..=32_u8).prop_map(|(low, bits)| ([10, 0, 0, low], bits));
        let v4 = v4.prop_map(|(address, bits)| IpNet::new(address.into(), bits).unwrap());
        let v6 =
            (0..8_u16, 120..=128_u8).prop_map(|(low, bits)| ([0, 0, 0, 0, 0, 0, 0, low], bits));
        prop_oneof![
            v4,
            v6.prop_map(|(address, bits)| IpNet::new(IpAddr::from(address), bits).unwrap())
        ]
    }

    proptest! {
        #[test]
        fn a_sorted_list_contains_what_any_of_its_networks_contains(
            list in proptest::collection::vec(network(), 0..8),
            low in 0..16_u8,
            is_v6 in any::<bool>(),
        ) {
            let v6 = IpAddr::from([0, 0, 0, 0, 0, 0, 0, u16::from(low)]);
            let client = if is_v6 { v6 } else { IpAddr::from([10, 0, 0, low]) };
            let expected = list.iter().any(|network| network.contains(&client));
            prop_assert_eq!(Networks::new(&list).contains(client), expected);
        }
    }
}
