//! The contents of certificates that webpki does not read: of version 1, or with extensions that
//! it does not know. Nothing is trusted by this: see [`ServerVerifier`](super::ServerVerifier).

use std::net::IpAddr;

/// The tags of values (X.690, 8.1.2).
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// Strings in UTF-8, and in three sets of which ASCII is a part.
const STRINGS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

/// The contents of the object identifiers 2.5.4.3, 2.5.29.17 and 1.2.840.113549.1.1.1.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// A certificate, as far as a connection to a server that is trusted by it needs to know it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LenientCertificate<'c> {
    /// As `YYYYMMDDHHMMSS`.
    not_before: String,
    not_after: String,
    /// The last one of its subject.
    common_name: Option<&'c str>,
    /// True if it has names beside that, which then count alone.
    pub(super) has_alternative_names: bool,
    /// Its public key with the algorithm, as it is encoded.
    pub(super) key: &'c [u8],
}

impl<'c> LenientCertificate<'c> {
    /// Reads a certificate. `None`: it is none.
    pub(super) fn read(certificate: &'c [u8]) -> Option<Self> {
        let mut signed = Der(Der(certificate).expect(SEQUENCE)?);
        let mut fields = Der(signed.expect(SEQUENCE)?);
        fields.skip(VERSION);
        fields.expect(INTEGER)?;
        let _algorithm = fields.expect(SEQUENCE)?;
        let _issuer = fields.expect(SEQUENCE)?;

        let mut validity = Der(fields.expect(SEQUENCE)?);
        let not_before = validity.time()?;
        let not_after = validity.time()?;
        let common_name = common_name(Der(fields.expect(SEQUENCE)?));
        let key = fields.next().filter(|key| key.tag == SEQUENCE)?.whole;

        let mut has_alternative_names = false;
        while let Some(field) = fields.next() {
            if field.tag == EXTENSIONS {
                has_alternative_names = has_extension(field.content, ALTERNATIVE_NAMES)?;
            }
        }
        Some(Self { not_before, not_after, common_name, has_alternative_names, key })
    }

    /// Returns whether it is valid at this time, which is written as `2026-11-21T05:00:00Z`.
    pub(super) fn is_valid_at(&self, time: &str) -> bool {
        let time: String = time.chars().filter(char::is_ascii_digit).collect();
        self.not_before <= time && time <= self.not_after
    }

    /// Returns whether its common name is this host, or a wildcard for it.
    pub(super) fn is_for_host(&self, host: &str) -> bool {
        let Some(name) = self.common_name else { return false };
        let host = host.trim_end_matches('.');
        let parent = host.split_once('.').map(|(_, parent)| parent);
        let by_wildcard = name.strip_prefix("*.").is_some_and(|of| {
            of.contains('.') && parent.is_some_and(|parent| parent.eq_ignore_ascii_case(of))
        });
        name.eq_ignore_ascii_case(host) || by_wildcard
    }

    /// Returns whether its common name is this address.
    pub(super) fn is_for_address(&self, address: IpAddr) -> bool {
        self.common_name.is_some_and(|name| name.parse() == Ok(address))
    }

    /// Returns how many bits its key has, if it is of RSA.
    pub(super) fn rsa_bits(&self) -> Option<usize> {
        let mut key = Der(Der(self.key).expect(SEQUENCE)?);
        let algorithm = Der(key.expect(SEQUENCE)?).expect(OID)?;
        if algorithm != RSA {
            return None;
        }
        // The first byte counts the bits of the last one that are not used.
        let (_, encoded) = key.expect(BIT_STRING)?.split_first()?;
        let modulus = Der(Der(encoded).expect(SEQUENCE)?).expect(INTEGER)?;
        let start = modulus.iter().position(|byte| *byte != 0)?;
        let unused = usize::try_from(modulus.get(start)?.leading_zeros()).ok()?;
        Some((modulus.len() - start) * 8 - unused)
    }
}

/// Returns the last common name of a subject.
fn common_name(mut subject: Der<'_>) -> Option<&str> {
    let mut found = None;
    while let Some(set) = subject.expect(SET) {
        let mut attribute = Der(Der(set).expect(SEQUENCE)?);
        if attribute.expect(OID)? == COMMON_NAME {
            let value = attribute.next().filter(|value| STRINGS.contains(&value.tag))?;
            found = Some(str::from_utf8(value.content).ok()?);
        }
    }
    found
}

/// Returns whether an extension is among others. `None`: they cannot be read.
fn has_extension(extensions: &[u8], wanted: &[u8]) -> Option<bool> {
    let mut list = Der(Der(extensions).expect(SEQUENCE)?);
    let mut is_found = false;
    while !list.0.is_empty() {
        let mut extension = Der(list.expect(SEQUENCE)?);
        is_found |= extension.expect(OID)? == wanted;
        extension.skip(BOOLEAN);
    }
    Some(is_found)
}

/// Values in the distinguished encoding (X.690), which are still to be read.
struct Der<'d>(&'d [u8]);

/// A value.
struct Value<'d> {
    tag: u8,
    content: &'d [u8],
    /// With its tag and its length.
    whole: &'d [u8],
}

impl<'d> Der<'d> {
    /// Reads the next value. `None`: there is no other one, or its length is wrong.
    fn next(&mut self) -> Option<Value<'d>> {
        let (tag, rest) = self.0.split_first()?;
        let (first, mut rest) = rest.split_first()?;
        let mut length = usize::from(*first);
        if *first >= 0x80 {
            // So many bytes have the length.
            let count = usize::from(first & 0x7f);
            if !(1..=4).contains(&count) {
                return None;
            }
            let (bytes, after) = rest.split_at_checked(count)?;
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        let (whole, _) = self.0.split_at_checked(self.0.len() - after.len())?;
        self.0 = after;
        Some(Value { tag: *tag, content, whole })
    }

    /// Reads the next value if it has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'d [u8]> {
        let before = self.0;
        let value = self.next().filter(|value| value.tag == tag);
        if value.is_none() {
            self.0 = before;
        }
        value.map(|value| value.content)
    }

    /// Leaves the next value out if it has this tag.
    fn skip(&mut self, tag: u8) {
        _ = self.expect(tag);
    }

    /// Reads a time as `YYYYMMDDHHMMSS`.
    fn time(&mut self) -> Option<String> {
        let Value { tag, content, .. } = self.next()?;
        let digits = str::from_utf8(content).ok()?.strip_suffix('Z')?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        match (tag, digits.len()) {
            // RFC 5280, 4.1.2.5.1
            (UTC_TIME, 12) if digits < "50" => Some(format!("20{digits}")),
            (UTC_TIME, 12) => Some(format!("19{digits}")),
            (GENERALIZED_TIME, 14) => Some(digits.to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a value.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn name(common: &[u8]) -> Vec<u8> {
        let attribute = [der(OID, COMMON_NAME), der(STRINGS[0], common)].concat();
        der(SEQUENCE, &der(SET, &der(SEQUENCE, &attribute)))
    }

    fn key(modulus: &[u8]) -> Vec<u8> {
        let numbers = [der(INTEGER, modulus), der(INTEGER, &[1, 0, 1])].concat();
        let bits = [&[0], &der(SEQUENCE, &numbers)[..]].concat();
        let algorithm = der(SEQUENCE, &[der(OID, RSA), vec![5, 0]].concat());
        der(SEQUENCE, &[algorithm, der(BIT_STRING, &bits)].concat())
    }

    fn certificate(version: &[u8], common: &[u8], extensions: &[u8]) -> Vec<u8> {
        let times = [der(UTC_TIME, b"491231235959Z"), der(GENERALIZED_TIME, b"20500101000000Z")];
        let fields = [
            version,
            &der(INTEGER, &[1]),
            &der(SEQUENCE, &[]),
            &name(b"issuer"),
            &der(SEQUENCE, &times.concat()),
            &name(common),
            &key(&[&[0x00, 0x80][..], &[7; 127]].concat()),
            extensions,
        ];
        der(SEQUENCE, &[der(SEQUENCE, &fields.concat()), vec![5, 0]].concat())
    }

    #[test]
    fn a_certificate_of_version_1_is_read() {
        let encoded = certificate(&[], b"Shop.Example", &[]);
        let read = LenientCertificate::read(&encoded).unwrap();
        assert!(read.is_for_host("shop.example") && read.is_for_host("shop.example."));
        assert!(!read.is_for_host("a.shop.example") && !read.is_for_host("example"));
        assert!(!read.has_alternative_names);
        assert_eq!(read.rsa_bits(), Some(1024));
        for (time, is_valid) in [
            ("2049-12-31T23:59:58Z", false),
            ("2049-12-31T23:59:59Z", true),
            ("2050-01-01T00:00:00Z", true),
            ("2050-01-01T00:00:01Z", false),
        ] {
            assert_eq!(read.is_valid_at(time), is_valid, "{time}");
        }
    }

    #[test]
    fn an_address_or_a_wildcard_may_be_the_common_name() {
        let encoded = certificate(&[], b"127.0.0.1", &[]);
        let read = LenientCertificate::read(&encoded).unwrap();
        assert!(read.is_for_address([127, 0, 0, 1].into()));
        assert!(!read.is_for_address([127, 0, 0, 2].into()));

        let encoded = certificate(&[], b"*.shop.example", &[]);
        let read = LenientCertificate::read(&encoded).unwrap();
        assert!(read.is_for_host("a.shop.example"));
        for other in ["shop.example", "b.a.shop.example", "*.shop.example.org", ""] {
            assert!(!read.is_for_host(other), "{other}");
        }
        let encoded = certificate(&[], b"*.example", &[]);
        assert!(!LenientCertificate::read(&encoded).unwrap().is_for_host("shop.example"));
    }

    #[test]
    fn names_beside_the_common_name_are_noticed() {
        let extension = |oid: &[u8]| {
            let critical = der(BOOLEAN, &[0xff]);
            der(SEQUENCE, &[der(OID, oid), critical, der(0x04, &[1, 2, 3])].concat())
        };
        let version = der(VERSION, &der(INTEGER, &[2]));
        for (oids, expected) in
            [(&[&[0x2a_u8, 0x03][..]][..], false), (&[&[0x2a, 0x03], ALTERNATIVE_NAMES], true)]
        {
            let list = oids.iter().flat_map(|oid| extension(oid)).collect::<Vec<_>>();
            let extensions = der(EXTENSIONS, &der(SEQUENCE, &list));
            let encoded = certificate(&version, b"shop.example", &extensions);
            let read = LenientCertificate::read(&encoded).unwrap();
            assert_eq!(read.has_alternative_names, expected);
        }
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        let whole = certificate(&[], b"shop.example", &[]);
        for end in 0..whole.len() {
            assert_eq!(LenientCertificate::read(&whole[..end]), None, "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            // It must not panic.
            _ = LenientCertificate::read(&changed).and_then(|read| read.rsa_bits());
        }
        assert_eq!(LenientCertificate::read(&[SEQUENCE, 0x85, 1, 1, 1, 1, 1]), None);
    }
}
