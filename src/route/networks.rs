//! Lists of networks, in which an address is found by a binary search.

use super::NO_ADDRESS;
use core::{
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The most networks that one line of words shows.
const SHOWN: usize = 8;

/// Networks in order, each with its place in the list or the file that it is from. Those within
/// another one are left out, so that none overlap.
#[derive(Clone, Debug, Default)]
pub struct NetworkSet {
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u128>>,
    /// The number of networks, with those left out.
    count: usize,
}

/// The addresses of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range<A> {
    first: A,
    last: A,
    /// The network's index in its list, or its line in its file.
    place: u32,
}

/// The networks of a file.
#[derive(Debug)]
pub struct NetworkFile {
    /// Its name, for people.
    pub path: PathBuf,
    /// Its networks, by their lines.
    pub networks: NetworkSet,
    /// The hash of its bytes and of how they were read.
    pub print: u64,
}

/// A list of networks, with files of more of them.
#[derive(Clone, Debug, Default)]
pub struct NetworkList {
    own: NetworkSet,
    files: Vec<Arc<NetworkFile>>,
}

/// A list without networks.
pub static NO_NETWORKS: NetworkList = NetworkList::none();

/// The network of a list that an address is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNetwork<'l> {
    /// The widest one.
    pub network: IpNet,
    /// Its file and the line in it, if it is not in the list itself.
    pub file: Option<(&'l Path, u32)>,
}

impl NetworkSet {
    const fn none() -> Self {
        Self { v4: Vec::new(), v6: Vec::new(), count: 0 }
    }

    /// Takes networks with their places.
    pub fn new(networks: impl IntoIterator<Item = (IpNet, u32)>) -> Self {
        let mut set = Self::none();
        for (network, place) in networks {
            set.count += 1;
            match network {
                IpNet::V4(network) => set.v4.push(Range {
                    first: network.network().to_bits(),
                    last: network.broadcast().to_bits(),
                    place,
                }),
                IpNet::V6(network) => set.v6.push(Range {
                    first: network.network().to_bits(),
                    last: network.broadcast().to_bits(),
                    place,
                }),
            }
        }
        keep_widest(&mut set.v4);
        keep_widest(&mut set.v6);
        set
    }

    /// Returns the number of networks, with those within another one.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns whether an address is in a network. It must be canonical: no IPv4 address mapped into
    /// IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => find(&self.v4, address.to_bits()).is_some(),
            IpAddr::V6(address) => find(&self.v6, address.to_bits()).is_some(),
        }
    }

    /// Returns the widest network that covers this one, and its place.
    pub fn covering(&self, network: &IpNet) -> Option<(IpNet, u32)> {
        let (found, place) = match network.network() {
            IpAddr::V4(first) => {
                let range = find(&self.v4, first.to_bits())?;
                (IpNet::V4(network_v4(range)?), range.place)
            }
            IpAddr::V6(first) => {
                let range = find(&self.v6, first.to_bits())?;
                (IpNet::V6(network_v6(range)?), range.place)
            }
        };
        found.contains(network).then_some((found, place))
    }

    /// Returns the networks that are not within another one, in order, with their places.
    pub fn widest(&self) -> impl Iterator<Item = (IpNet, u32)> {
        let v4 = self.v4.iter().filter_map(|range| Some((network_v4(range)?.into(), range.place)));
        let v6 = self.v6.iter().filter_map(|range| Some((network_v6(range)?.into(), range.place)));
        v4.chain(v6)
    }
}

/// Sorts ranges of networks, and leaves out those within another one. Of two networks, one contains
/// the other, or they share no address.
fn keep_widest<A: Copy + Ord>(ranges: &mut Vec<Range<A>>) {
    ranges.sort_by(|one, other| one.first.cmp(&other.first).then(other.last.cmp(&one.last)));
    let mut end = None;
    ranges.retain(|range| {
        let is_within = end.is_some_and(|end| range.last <= end);
        end = if is_within { end } else { Some(range.last) };
        !is_within
    });
    ranges.shrink_to_fit();
}

fn find<A: Copy + Ord>(ranges: &[Range<A>], address: A) -> Option<&Range<A>> {
    let after = ranges.partition_point(|range| range.first <= address);
    let before = after.checked_sub(1).and_then(|before| ranges.get(before));
    before.filter(|range| address <= range.last)
}

fn network_v4(range: &Range<u32>) -> Option<Ipv4Net> {
    let bits = (range.first ^ range.last).leading_zeros();
    Ipv4Net::new(Ipv4Addr::from_bits(range.first), u8::try_from(bits).ok()?).ok()
}

fn network_v6(range: &Range<u128>) -> Option<Ipv6Net> {
    let bits = (range.first ^ range.last).leading_zeros();
    Ipv6Net::new(Ipv6Addr::from_bits(range.first), u8::try_from(bits).ok()?).ok()
}

/// Two sets with the same addresses are equal.
impl PartialEq for NetworkSet {
    fn eq(&self, other: &Self) -> bool {
        merged(&self.v4, |last| last.checked_add(1))
            .eq(merged(&other.v4, |last| last.checked_add(1)))
            && merged(&self.v6, |last| last.checked_add(1))
                .eq(merged(&other.v6, |last| last.checked_add(1)))
    }
}

impl Eq for NetworkSet {}

/// Returns the first and the last addresses of ranges, of which those beside each other are one.
fn merged<A: Copy + Ord>(
    ranges: &[Range<A>],
    next: impl Fn(A) -> Option<A>,
) -> impl Iterator<Item = (A, A)> {
    let mut ranges = ranges.iter().peekable();
    core::iter::from_fn(move || {
        let Range { first, mut last, .. } = *ranges.next()?;
        while let Some(beside) = ranges.next_if(|range| next(last) == Some(range.first)) {
            last = beside.last;
        }
        Some((first, last))
    })
}

impl NetworkList {
    const fn none() -> Self {
        Self { own: NetworkSet::none(), files: Vec::new() }
    }

    /// Returns a list with these networks of its own, and those of files.
    pub fn new(own: impl IntoIterator<Item = IpNet>, files: Vec<Arc<NetworkFile>>) -> Self {
        Self { own: NetworkSet::new(own.into_iter().zip(0..)), files }
    }

    /// Returns whether nothing is written in it. A list of an empty file is not empty: no address is
    /// in it.
    pub fn is_empty(&self) -> bool {
        self.own.count == 0 && self.files.is_empty()
    }

    /// Returns whether an address is in it. It must be canonical: no IPv4 address mapped into IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.own.contains(address) || self.files.iter().any(|file| file.networks.contains(address))
    }

    /// Returns the first network that has the address, for people.
    pub fn find(&self, address: IpAddr) -> Option<FoundNetwork<'_>> {
        let address = IpNet::from(address);
        if let Some((network, _)) = self.own.covering(&address) {
            return Some(FoundNetwork { network, file: None });
        }
        self.files.iter().find_map(|file| {
            let (network, line) = file.networks.covering(&address)?;
            Some(FoundNetwork { network, file: Some((&*file.path, line)) })
        })
    }

    /// Returns the networks of the list itself.
    pub const fn own(&self) -> &NetworkSet {
        &self.own
    }

    /// Returns the files of the list.
    pub fn files(&self) -> &[Arc<NetworkFile>] {
        &self.files
    }

    /// Returns the number of networks, with those of files.
    pub fn count(&self) -> usize {
        self.own.count + self.files.iter().map(|file| file.networks.count).sum::<usize>()
    }
}

/// Two that hold the same addresses, in the list itself and in each file, are equal.
impl PartialEq for NetworkList {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Arc<NetworkFile>, &Arc<NetworkFile>)| {
            one.path == other.path && (one.print == other.print || one.networks == other.networks)
        };
        self.own == other.own
            && self.files.len() == other.files.len()
            && self.files.iter().zip(&other.files).all(is_same)
    }
}

impl Eq for NetworkList {}

/// Writes `10.0.0.0/8, 192.0.2.1/32, blocked.txt (1200 networks)`.
impl fmt::Display for NetworkList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: Vec<IpNet> = self.own.widest().map(|(network, _)| network).collect();
        let mut own = IpNet::aggregate(&own);
        own.sort_unstable();
        let word = |network: &IpNet| {
            let is_unix = *network == IpNet::from(NO_ADDRESS);
            if is_unix { "unix".to_owned() } else { network.to_string() }
        };
        let mut words: Vec<_> = own.iter().take(SHOWN).map(word).collect();
        if let Some(last) = words.last_mut()
            && own.len() > SHOWN
        {
            // Writing to a String does not fail.
            _ = write!(last, " and {} more", own.len() - SHOWN);
        }
        for file in &self.files {
            let count = file.networks.count;
            let noun = if count == 1 { "network" } else { "networks" };
            words.push(format!("{} ({count} {noun})", file.path.display()));
        }
        f.write_str(&words.join(", "))
    }
}

/// Writes `192.0.2.0/24`, or `192.0.2.0/24, line 7 of blocked.txt`.
impl fmt::Display for FoundNetwork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.network)?;
        match self.file {
            Some((file, line)) => write!(f, ", line {line} of {}", file.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::{cell::Cell, cmp::Ordering};
    use proptest::prelude::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn file(path: &str, networks: &[&str]) -> Arc<NetworkFile> {
        let networks = NetworkSet::new(nets(networks).into_iter().zip(1..));
        Arc::new(NetworkFile { path: path.into(), networks, print: 0 })
    }

    #[test]
    fn an_address_is_found_in_the_list_or_in_a_file_of_it() {
        let files = vec![file("a.txt", &["192.0.2.0/25", "192.0.2.7/32"]), file("b.txt", &[])];
        let list = NetworkList::new(nets(&["10.0.0.0/8", "2001:db8::/32"]), files);
        for (address, expected) in [
            ("10.1.2.3", Some("10.0.0.0/8")),
            ("192.0.2.7", Some("192.0.2.0/25, line 1 of a.txt")),
            ("192.0.2.128", None),
            ("2001:db8:ffff::", Some("2001:db8::/32")),
            ("2001:db9::", None),
            ("::a00:1", None),
        ] {
            let address = address.parse().unwrap();
            let found = list.find(address).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{address}");
            assert_eq!(list.contains(address), expected.is_some(), "{address}");
        }
        assert_eq!(list.count(), 4);
        let words = "10.0.0.0/8, 2001:db8::/32, a.txt (2 networks), b.txt (0 networks)";
        assert_eq!(list.to_string(), words);
    }

    #[test]
    fn a_list_of_an_empty_file_is_not_empty_and_has_no_address() {
        let list = NetworkList::new([], vec![file("a.txt", &[])]);
        assert!(!list.is_empty() && NO_NETWORKS.is_empty());
        assert!(!list.contains("192.0.2.1".parse().unwrap()));
        assert_ne!(list, NO_NETWORKS);
    }

    #[test]
    fn lists_with_the_same_addresses_are_equal_however_they_are_written() {
        let list = |texts: &[&str]| NetworkList::new(nets(texts), Vec::new());
        let one = list(&["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "::1/128"]);
        assert_eq!(one, list(&["::1/128", "10.0.0.0/8"]));
        assert_ne!(one, list(&["10.0.0.0/8"]));
        assert_eq!(list(&["0.0.0.0/0", "::/0"]), list(&["128.0.0.0/1", "0.0.0.0/1", "::/0"]));
        assert_eq!(one.to_string(), "10.0.0.0/8, ::1/128");
    }

    #[test]
    fn a_long_list_is_shown_by_its_first_networks() {
        let many: Vec<_> = (0..20_u8).map(|n| format!("10.0.0.{}/32", n * 2)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let words = NetworkList::new(nets(&many), Vec::new()).to_string();
        assert!(words.ends_with("10.0.0.14/32 and 12 more"), "{words}");
    }

    /// A number that counts its comparisons.
    #[derive(Clone, Copy, Debug)]
    struct Compared<'c>(u32, &'c Cell<usize>);

    impl PartialEq for Compared<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Compared<'_> {}

    impl PartialOrd for Compared<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Compared<'_> {
        fn cmp(&self, other: &Self) -> Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn a_look_up_among_100_000_networks_takes_19_comparisons_at_most() {
        let count = Cell::new(0);
        let range = |n: u32| {
            let bits = Compared(n * 2, &count);
            Range { first: bits, last: bits, place: n }
        };
        let ranges: Vec<_> = (0..100_000).map(range).collect();
        for address in [0, 1, 99_999, 100_000, 199_998, u32::MAX] {
            count.set(0);
            let found = find(&ranges, Compared(address, &count)).map(|range| range.place);
            let expected = Some(address / 2).filter(|n| address % 2 == 0 && *n < 100_000);
            assert_eq!(found, expected, "{address}");
            // A binary search takes 18, and one compares with the end of what it found.
            assert!(count.get() <= 19, "{address}: {}", count.get());
        }
    }

    fn network() -> impl Strategy<Value = IpNet> {
        // Few bits, so that networks overlap, lie inside one another and beside one another.
        let v4 = (0..8_u8, prop_oneof![Just(0), 24..=32_u8])
            .prop_map(|(low, bits)| IpNet::new([10, 0, 0, low].into(), bits).unwrap());
        let v6 = (0..8_u16, prop_oneof![Just(0), 120..=128_u8]).prop_map(|(low, bits)| {
            IpNet::new(IpAddr::from([0, 0, 0, 0, 0, 0, 0, low]), bits).unwrap()
        });
        prop_oneof![v4, v6]
    }

    fn addresses() -> impl Iterator<Item = IpAddr> {
        let v4 = (0..=300_u32).map(|low| Ipv4Addr::from_bits(0x0a00_0000 + low).into());
        let v6 = (0..=300_u128).map(|low| Ipv6Addr::from_bits(low).into());
        let ends = [[0; 4].into(), [255; 4].into(), Ipv6Addr::from_bits(u128::MAX).into()];
        v4.chain(v6).chain(ends)
    }

    /// Numbers that are equally distributed, by the algorithm `SplitMix64`.
    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A network of IPv4 or of IPv6. Of 100,000, many are within others.
    fn random_network(seed: &mut u64) -> IpNet {
        let bits = random(seed);
        let length = [16, 20, 22, 24, 28, 30, 32, 32][usize::try_from(bits % 8).unwrap()];
        let low = u32::try_from(bits >> 32).unwrap();
        if bits & 8 == 0 {
            IpNet::new(Ipv4Addr::from_bits(low).into(), length).unwrap()
        } else {
            let high = 0x2001_0db8_u128 << 96;
            IpNet::new(Ipv6Addr::from_bits(high | u128::from(low)).into(), length + 96).unwrap()
        }
    }

    /// The first and the last address of a network, and those beside them.
    fn at_its_ends(network: &IpNet) -> [IpAddr; 4] {
        match (network.network(), network.broadcast()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let first = first.to_bits();
                let last = last.to_bits();
                [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
                    .map(|bits| Ipv4Addr::from_bits(bits).into())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let first = first.to_bits();
                let last = last.to_bits();
                [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
                    .map(|bits| Ipv6Addr::from_bits(bits).into())
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => unreachable!(),
        }
    }

    proptest! {
        // A comparison with each network takes most of the time.
        #![proptest_config(ProptestConfig::with_cases(4))]
        #[test]
        fn a_look_up_among_100_000_networks_finds_what_a_comparison_with_each_does(
            mut seed in any::<u64>(),
        ) {
            let networks: Vec<_> = (0..100_000).map(|_| random_network(&mut seed)).collect();
            let list = NetworkList::new(networks.iter().copied(), Vec::new());
            prop_assert_eq!(list.count(), 100_000);
            for network in networks.iter().step_by(10_000) {
                for address in at_its_ends(network) {
                    let expected = networks.iter().any(|one| one.contains(&address));
                    prop_assert_eq!(list.contains(address), expected, "{}", address);
                }
                let other = random_network(&mut seed).network();
                let expected = networks.iter().any(|one| one.contains(&other));
                prop_assert_eq!(list.contains(other), expected, "{}", other);
            }
        }
    }

    proptest! {
        #[test]
        fn a_look_up_finds_what_a_comparison_with_each_network_does(
            own in prop::collection::vec(network(), 0..12),
            of_file in prop::collection::vec(network(), 0..12),
        ) {
            let networks = NetworkSet::new(of_file.iter().copied().zip(1..));
            let file = Arc::new(NetworkFile { path: "a.txt".into(), networks, print: 0 });
            let list = NetworkList::new(own.clone(), vec![file]);
            for address in addresses() {
                let is_in = |networks: &[IpNet]| networks.iter().any(|one| one.contains(&address));
                prop_assert_eq!(list.contains(address), is_in(&own) || is_in(&of_file));
                let found = list.find(address);
                prop_assert_eq!(found.is_some(), list.contains(address));
                if let Some(FoundNetwork { network, file }) = found {
                    prop_assert!(network.contains(&address));
                    let written = match file {
                        None => own.iter().any(|one| one.trunc() == network),
                        Some((_, line)) => of_file[line as usize - 1].trunc() == network,
                    };
                    prop_assert!(written, "{network} is one of the list or the line");
                }
            }
            for other in &of_file {
                let covers = own.iter().any(|one| one.contains(other));
                prop_assert_eq!(list.own().covering(other).is_some(), covers);
            }
        }
    }
}
