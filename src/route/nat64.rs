//! IPv4 clients whose addresses are written as IPv6: mapped ones, and those that NAT64 translates
//! (RFC 6052).

use core::{
    array,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use ipnet::{IpNet, Ipv6Net};

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

#[cfg(test)]
mod tests {
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
