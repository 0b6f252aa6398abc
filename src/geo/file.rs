//! A file in the format `.mmdb`, in memory.
//!
//! `maxminddb` checks the offsets that it follows and bounds the depth, the number and the size of what it
//! decodes. Nothing here depends on more than that: whatever a file has, a look-up returns.

use super::{Asn, Country};
use ahash::AHasher;
use core::{
    fmt,
    hash::Hasher,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use maxminddb::{LookupResult, PathElement, Reader};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, Visitor},
};
use std::{path::PathBuf, sync::Arc};

/// The most networks of each family that are read to see what a file has.
const SAMPLE: usize = 4096;

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeoKind {
    /// The countries of addresses.
    Country,
    /// The autonomous systems of addresses.
    Asn,
}

/// The place of the value in the records of a file.
type ValuePath = &'static [PathElement<'static>];

const ISO_CODE: ValuePath = &[PathElement::Key("country"), PathElement::Key("iso_code")];
const COUNTRY_CODE: ValuePath = &[PathElement::Key("country_code")];
const COUNTRY: ValuePath = &[PathElement::Key("country")];
const SYSTEM_NUMBER: ValuePath = &[PathElement::Key("autonomous_system_number")];
const ASN: ValuePath = &[PathElement::Key("asn")];

impl GeoKind {
    /// Returns the paths at which files have the value, the most specific first.
    const fn paths(self) -> &'static [ValuePath] {
        match self {
            // GeoIP2, GeoLite2 and DB-IP; IPinfo Lite, whose `country` is a name; IPinfo's others.
            Self::Country => &[ISO_CODE, COUNTRY_CODE, COUNTRY],
            Self::Asn => &[SYSTEM_NUMBER, ASN],
        }
    }

    /// Returns the word for what the file has.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Country => "countries",
            Self::Asn => "AS numbers",
        }
    }
}

/// A file in memory.
#[derive(Debug)]
pub struct GeoFile {
    /// Its name, as reports show it.
    pub path: PathBuf,
    reader: Reader<Arc<[u8]>>,
    value: ValuePath,
    /// The hash of its contents.
    print: u64,
}

/// Two with the same contents, read for the same value, are equal.
impl PartialEq for GeoFile {
    fn eq(&self, other: &Self) -> bool {
        (self.print, self.value) == (other.print, other.value)
    }
}

impl Eq for GeoFile {}

/// A file that cannot be used, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableGeoFile {
    /// It is empty, as a file is that a program is about to write.
    #[error("is empty")]
    Empty,
    /// It is compressed, as it is downloaded.
    #[error("is compressed")]
    Compressed,
    /// It is of another format, or was cut off.
    #[error("is not a file in MaxMind's format (`.mmdb`), or was cut off: {0}")]
    NotMaxMind(String),
    /// A record cannot be read.
    #[error("is damaged: {0}")]
    Damaged(String),
    /// It is of another kind.
    #[error("has no {}: it is of the type `{of_type}`", wanted.word())]
    WrongKind {
        /// The purpose that it is read for.
        wanted: GeoKind,
        /// The type that it names.
        of_type: String,
    },
}

impl GeoFile {
    /// Takes `bytes` for the file at `path`.
    ///
    /// # Errors
    /// The bytes are of another format, or have not what `kind` says; or a record among the first
    /// 4,096 networks of IPv4 or of IPv6 cannot be read.
    pub fn new(path: PathBuf, bytes: Arc<[u8]>, kind: GeoKind) -> Result<Self, UnusableGeoFile> {
        /// The beginning of gzip's files.
        const GZIP: &[u8] = &[0x1f, 0x8b];
        if bytes.is_empty() {
            return Err(UnusableGeoFile::Empty);
        }
        if bytes.starts_with(GZIP) {
            return Err(UnusableGeoFile::Compressed);
        }

        let mut hasher = AHasher::default();
        hasher.write(&bytes);
        let print = hasher.finish();
        let reader = Reader::from_source(bytes)
            .map_err(|error| UnusableGeoFile::NotMaxMind(clipped(&error.to_string())))?;
        let value = value_path(&reader, kind)?;
        Ok(Self { path, reader, value, print })
    }

    /// Returns the type that the file says that it has, as `GeoLite2-Country`, without control characters and
    /// at most 60 characters.
    pub fn type_name(&self) -> String {
        clipped(&self.reader.metadata().database_type)
    }

    /// Returns the time when its contents were made: seconds since 1970.
    pub fn built(&self) -> u64 {
        self.reader.metadata().build_epoch
    }

    /// Returns the country of an address.
    pub(super) fn country(&self, address: IpAddr) -> Option<Country> {
        self.value::<CountryValue>(address)?.0
    }

    /// Returns the autonomous system of an address.
    pub(super) fn asn(&self, address: IpAddr) -> Option<Asn> {
        self.value::<AsnValue>(address)?.0
    }

    fn value<'r, V: Deserialize<'r>>(&'r self, address: IpAddr) -> Option<V> {
        // It would make an error with words.
        if address.is_ipv6() && self.reader.metadata().ip_version == 4 {
            return None;
        }
        self.reader.lookup(address).ok()?.decode_path(self.value).ok()?
    }
}

/// Returns where the records of a file have what `kind` says, by the first one that has it.
///
/// # Errors
/// No record has it, or one cannot be read.
fn value_path(reader: &Reader<Arc<[u8]>>, kind: GeoKind) -> Result<ValuePath, UnusableGeoFile> {
    let families: &[IpAddr] = match reader.metadata().ip_version {
        4 => &[IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        _ => &[IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
    };

    let damaged = |at: IpAddr, error: &dyn fmt::Display| {
        UnusableGeoFile::Damaged(format!("the record of {at}: {}", clipped(&error.to_string())))
    };
    let mut found = None;
    for first in families {
        let mut next = Some(*first);
        for _ in 0..SAMPLE {
            let Some(address) = next else { break };
            let record = reader.lookup(address).map_err(|error| damaged(address, &error))?;
            record.decode::<IgnoredAny>().map_err(|error| damaged(address, &error))?;
            found = found.or_else(|| {
                kind.paths().iter().copied().find(|path| has_value(&record, path, kind))
            });
            let network = record.network().map_err(|error| damaged(address, &error))?;
            next = after(address, network.prefix());
        }
    }
    found.ok_or_else(|| UnusableGeoFile::WrongKind {
        wanted: kind,
        of_type: clipped(&reader.metadata().database_type),
    })
}

fn has_value(record: &LookupResult<'_, Arc<[u8]>>, path: ValuePath, kind: GeoKind) -> bool {
    match kind {
        GeoKind::Country => {
            let value = record.decode_path::<CountryValue>(path).ok().flatten();
            value.is_some_and(|value| value.0.is_some())
        }
        GeoKind::Asn => {
            let value = record.decode_path::<AsnValue>(path).ok().flatten();
            value.is_some_and(|value| value.0.is_some())
        }
    }
}

/// Returns the first address behind the network of `address` with this prefix, if there is one. A prefix of the
/// other family stands for the rest of the addresses.
fn after(address: IpAddr, prefix: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let host_bits = 32_u32.checked_sub(u32::from(prefix))?;
            let hosts = u32::MAX.checked_shr(32 - host_bits).unwrap_or(0);
            let last = address.to_bits() | hosts;
            last.checked_add(1).map(|next| IpAddr::V4(Ipv4Addr::from_bits(next)))
        }
        IpAddr::V6(address) => {
            let host_bits = 128_u32.checked_sub(u32::from(prefix))?;
            let hosts = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
            let last = address.to_bits() | hosts;
            last.checked_add(1).map(|next| IpAddr::V6(Ipv6Addr::from_bits(next)))
        }
    }
}

/// Makes a text from a file fit to be shown: without control characters, and short.
fn clipped(text: &str) -> String {
    const LONGEST: usize = 60;
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

/// A country as a record has it; `None` for a text that is no code.
struct CountryValue(Option<Country>);

impl<'de> Deserialize<'de> for CountryValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Code;

        impl Visitor<'_> for Code {
            type Value = CountryValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two letters")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CountryValue, E> {
                Ok(CountryValue(Country::read(text)))
            }
        }

        deserializer.deserialize_str(Code)
    }
}

/// An autonomous system as a record has it: a number, or a text such as `AS64500`.
struct AsnValue(Option<Asn>);

impl<'de> Deserialize<'de> for AsnValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = AsnValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or `AS` and a number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<AsnValue, E> {
                Ok(AsnValue(u32::try_from(number).ok().map(Asn)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<AsnValue, E> {
                Ok(AsnValue(text.parse().ok()))
            }
        }

        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{Geo, Place};
    use proptest::prelude::*;

    const FILES: [(&str, &[u8]); 8] = [
        ("country.mmdb", include_bytes!("../../tests/geo/country.mmdb")),
        ("moved.mmdb", include_bytes!("../../tests/geo/moved.mmdb")),
        ("city.mmdb", include_bytes!("../../tests/geo/city.mmdb")),
        ("asn.mmdb", include_bytes!("../../tests/geo/asn.mmdb")),
        ("lite.mmdb", include_bytes!("../../tests/geo/lite.mmdb")),
        ("flat.mmdb", include_bytes!("../../tests/geo/flat.mmdb")),
        ("domains.mmdb", include_bytes!("../../tests/geo/domains.mmdb")),
        ("v4.mmdb", include_bytes!("../../tests/geo/v4.mmdb")),
    ];

    const ADDRESSES: [&str; 9] = [
        "192.0.2.1",
        "198.51.100.255",
        "203.0.113.127",
        "203.0.113.128",
        "10.0.0.1",
        "2001:db8:de::1",
        "2001:db8:a7::1",
        "2001:db8::1",
        "0.0.0.0",
    ];

    fn bytes(name: &str) -> Arc<[u8]> {
        FILES.iter().find(|(known, _)| *known == name).unwrap().1.into()
    }

    fn open(name: &str, kind: GeoKind) -> Result<GeoFile, UnusableGeoFile> {
        GeoFile::new(name.into(), bytes(name), kind)
    }

    #[track_caller]
    fn check(name: &str, kind: GeoKind, expected: &str) {
        let file = open(name, kind).unwrap();
        let value = |address: &&str| {
            let address = address.parse().unwrap();
            let shown = match kind {
                GeoKind::Country => file.country(address).map(|country| country.to_string()),
                GeoKind::Asn => file.asn(address).map(|asn| asn.to_string()),
            };
            shown.unwrap_or_else(|| "-".to_owned())
        };
        let values: Vec<_> = ADDRESSES.iter().map(value).collect();
        assert_eq!(values.join(" "), expected, "{name}");
    }

    #[test]
    fn files_of_several_makers_are_read() {
        check("country.mmdb", GeoKind::Country, "DE AT FR - - DE AT - -");
        check("city.mmdb", GeoKind::Country, "DE AT FR - - DE AT - -");
        check("lite.mmdb", GeoKind::Country, "DE AT - - - - - - -");
        check("flat.mmdb", GeoKind::Country, "DE - - - - - - - -");
        check("v4.mmdb", GeoKind::Country, "DE - - - - - - - -");
        check("asn.mmdb", GeoKind::Asn, "64500 64501 - - - 64500 - - -");
        check("lite.mmdb", GeoKind::Asn, "64500 - - - - - - - -");
        check("flat.mmdb", GeoKind::Asn, "64500 - - - - - - - -");
    }

    #[test]
    fn a_file_that_cannot_be_used_says_why() {
        let why = |bytes: &[u8], kind| {
            GeoFile::new("x".into(), bytes.into(), kind).unwrap_err().to_string()
        };
        let country = bytes("country.mmdb");
        assert_eq!(why(b"", GeoKind::Country), "is empty");
        assert_eq!(why(b"\x1f\x8b\x08\0", GeoKind::Country), "is compressed");
        let text = why(b"<!DOCTYPE html>", GeoKind::Country);
        assert!(text.starts_with("is not a file in MaxMind's format"), "{text}");
        let cut = why(&country[..country.len() / 2], GeoKind::Country);
        assert!(cut.contains("was cut off"), "{cut}");
        let wrong = open("asn.mmdb", GeoKind::Country).unwrap_err().to_string();
        assert_eq!(wrong, "has no countries: it is of the type `GeoLite2-ASN`");
        let wrong = open("city.mmdb", GeoKind::Asn).unwrap_err().to_string();
        assert_eq!(wrong, "has no AS numbers: it is of the type `GeoIP2-City`");
        assert!(open("domains.mmdb", GeoKind::Country).is_err());
    }

    #[test]
    fn files_are_equal_by_their_contents() {
        let country = open("country.mmdb", GeoKind::Country).unwrap();
        assert_eq!(country, open("country.mmdb", GeoKind::Country).unwrap());
        assert_ne!(country, open("moved.mmdb", GeoKind::Country).unwrap());
        assert_eq!(country.type_name(), "GeoLite2-Country");
        assert_eq!(country.built(), 1_790_000_000);

        let geo =
            |name| Geo { country: Some(open(name, GeoKind::Country).unwrap().into()), asn: None };
        let old = geo("country.mmdb");
        let kept = geo("country.mmdb").sharing(&old);
        assert!(Arc::ptr_eq(kept.country.as_ref().unwrap(), old.country.as_ref().unwrap()));
        let new = geo("moved.mmdb").sharing(&old);
        assert_ne!(new, old);
    }

    #[test]
    fn the_next_address_is_behind_the_network() {
        for (address, prefix, expected) in [
            ("192.0.2.0", 24, Some("192.0.3.0")),
            ("0.0.0.0", 32, Some("0.0.0.1")),
            ("0.0.0.0", 1, Some("128.0.0.0")),
            ("0.0.0.0", 0, None),
            ("255.255.255.255", 32, None),
            ("128.0.0.0", 1, None),
            ("0.0.0.0", 33, None),
            ("::", 0, None),
            ("::", 128, Some("::1")),
            ("2001:db8::", 32, Some("2001:db9::")),
            ("8000::", 1, None),
        ] {
            let next = after(address.parse().unwrap(), prefix);
            assert_eq!(next, expected.map(|next| next.parse().unwrap()), "{address}/{prefix}");
        }
    }

    /// Looks at everything that a file has, and at addresses on both sides of its networks.
    fn search(bytes: Vec<u8>) {
        let bytes: Arc<[u8]> = bytes.into();
        for kind in [GeoKind::Country, GeoKind::Asn] {
            let Ok(file) = GeoFile::new("x".into(), Arc::clone(&bytes), kind) else { continue };
            let file = Arc::new(file);
            let geo = Geo { country: Some(Arc::clone(&file)), asn: Some(Arc::clone(&file)) };
            for address in ADDRESSES {
                let _: Place = geo.place(address.parse().unwrap());
            }
            assert!(file.type_name().chars().count() <= 60);
            file.built();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn a_damaged_file_is_rejected_or_read(
            file in 0..FILES.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = FILES[file].1.to_vec();
            for (place, byte) in changes {
                let length = bytes.len();
                bytes[place.index(length)] = byte;
            }
            search(bytes);
        }

        #[test]
        fn a_file_that_was_cut_off_is_rejected_or_read(
            file in 0..FILES.len(),
            from: prop::sample::Index,
            until: prop::sample::Index,
        ) {
            let bytes = FILES[file].1;
            let until = until.index(bytes.len());
            search(bytes[..until].to_vec());
            // Without a part in the middle.
            let from = from.index(until + 1);
            search([&bytes[..from], &bytes[until..]].concat());
        }

        #[test]
        fn other_bytes_are_rejected_or_read(
            before in prop::collection::vec(any::<u8>(), 0..200),
            after in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            search([&before[..], b"\xab\xcd\xefMaxMind.com", &after].concat());
        }
    }
}
