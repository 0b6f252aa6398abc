//! The parts of a certificate that its renewal depends on, and whether a chain is what was ordered.

use super::schedule::{Issued, Validity, instant};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::{civil::DateTime, tz::TimeZone};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most certificates of a chain.
const MOST_IN_CHAIN: usize = 10;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const KEY_IDENTIFIER: u8 = 0x80;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// `authorityKeyIdentifier`, 2.5.29.35.
const AUTHORITY_KEY: [u8; 3] = [0x55, 0x1d, 0x23];

/// The reason for which a chain is not the certificate that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WrongCertificate {
    /// Something else than certificates in PEM.
    #[error("it is no chain of certificates in PEM")]
    NoChain,
    /// A chain of more than ten.
    #[error("its chain is too long")]
    LongChain,
    /// One that is not read.
    #[error("its first certificate cannot be read")]
    Unreadable,
    /// One of another key.
    #[error("it is for another key")]
    OtherKey,
    /// One without a name that was ordered.
    #[error("it lacks one of the names")]
    OtherNames,
    /// One that is never valid.
    #[error("it ends before it begins")]
    NeverValid,
}

/// Checks that a text with a key and a chain is a certificate with these names.
///
/// # Errors
///
/// It is another one.
pub(super) fn inspect(pem: &[u8], names: &[String]) -> Result<Issued, WrongCertificate> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| WrongCertificate::OtherKey)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|_| WrongCertificate::NoChain)?;
    let Some(own) = chain.first().cloned() else { return Err(WrongCertificate::NoChain) };
    if chain.len() > MOST_IN_CHAIN {
        return Err(WrongCertificate::LongChain);
    }

    let found = webpki::EndEntityCert::try_from(&own).map_err(|_| WrongCertificate::Unreadable)?;
    let has = |name: &String| found.valid_dns_names().any(|own| own.eq_ignore_ascii_case(name));
    if !names.iter().all(has) {
        return Err(WrongCertificate::OtherNames);
    }
    let Parts { validity, serial, authority_key } =
        parts(&own).ok_or(WrongCertificate::Unreadable)?;
    if validity.lifetime().is_zero() {
        return Err(WrongCertificate::NeverValid);
    }
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(|_| WrongCertificate::OtherKey)?;

    let id = authority_key.map(|key| {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        format!("{}.{}", encode(key), encode(serial))
    });
    Ok(Issued { validity, id, share: share(&own) })
}

/// Returns the time in which a certificate is valid. `None` if it cannot be read.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    parts(certificate).map(|parts| parts.validity)
}

/// Returns a number from 0 to 1 that differs from certificate to certificate.
fn share(certificate: &CertificateDer<'_>) -> f64 {
    let mut hasher = DefaultHasher::new();
    certificate.as_ref().hash(&mut hasher);
    let [high, low, ..] = hasher.finish().to_be_bytes();
    f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX)
}

#[derive(Debug, PartialEq, Eq)]
struct Parts<'d> {
    validity: Validity,
    /// As it is encoded.
    serial: &'d [u8],
    authority_key: Option<&'d [u8]>,
}

/// Reads a certificate (RFC 5280, section 4.1). `None` if it is none.
fn parts(certificate: &[u8]) -> Option<Parts<'_>> {
    let mut certificate = Der(certificate);
    let mut outer = Der(certificate.value(SEQUENCE)?);
    let mut inner = Der(outer.value(SEQUENCE)?);
    inner.optional(VERSION);
    let serial = inner.value(INTEGER)?;

    // The algorithm of the signature, and the issuer.
    inner.value(SEQUENCE)?;
    inner.value(SEQUENCE)?;
    let mut validity = Der(inner.value(SEQUENCE)?);
    let not_before = validity.time()?;
    let not_after = validity.time()?;
    let validity = Validity { not_before: instant(not_before), not_after: instant(not_after) };

    // The subject and its key; then two identifiers that are not in use.
    inner.value(SEQUENCE)?;
    inner.value(SEQUENCE)?;
    let extensions = core::iter::from_fn(|| inner.next()).find(|(tag, _)| *tag == EXTENSIONS);
    let authority_key = extensions.and_then(|(_, content)| authority_key(content));
    Some(Parts { validity, serial, authority_key })
}

fn authority_key(extensions: &[u8]) -> Option<&[u8]> {
    let mut list = Der(Der(extensions).value(SEQUENCE)?);
    while let Some(extension) = list.value(SEQUENCE) {
        let mut extension = Der(extension);
        if extension.value(OBJECT)? != AUTHORITY_KEY {
            continue;
        }
        let (_, value) =
            core::iter::from_fn(|| extension.next()).find(|(tag, _)| *tag == OCTET_STRING)?;
        return Der(Der(value).value(SEQUENCE)?).value(KEY_IDENTIFIER);
    }
    None
}

/// Values in DER, one behind the other.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// Takes the next value, with its tag.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..0x80 => (usize::from(first), rest),
            0x81..=0x83 => {
                let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)), rest)
            }
            0x80 | 0x84.. => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// Takes the next value if it has this tag.
    fn optional(&mut self, tag: u8) -> Option<&'d [u8]> {
        if self.0.first() != Some(&tag) {
            return None;
        }
        self.next().map(|(_, value)| value)
    }

    /// Takes the next value, which must have this tag.
    fn value(&mut self, tag: u8) -> Option<&'d [u8]> {
        self.optional(tag)
    }

    /// Takes a time, in seconds since 1970.
    fn time(&mut self) -> Option<u64> {
        let (tag, text) = self.next()?;
        let text = core::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (year, rest) = match (tag, text.len()) {
            (UTC_TIME, 12) => {
                let year: i16 = text[..2].parse().ok()?;
                (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
            }
            (GENERALIZED_TIME, 14) => (text[..4].parse().ok()?, &text[4..]),
            _ => return None,
        };

        let part = |index: usize| rest[2 * index..2 * index + 2].parse::<i8>().ok();
        let time = DateTime::new(year, part(0)?, part(1)?, part(2)?, part(3)?, part(4)?, 0).ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
        // A certificate from before 1970 begins with it.
        Some(u64::try_from(time).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::schedule::seconds;
    use rcgen::{
        BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SerialNumber, date_time_ymd,
    };

    fn issue(names: &[&str], change: impl Fn(&mut CertificateParams)) -> (String, String) {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(authority, authority_key);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.use_authority_key_identifier_extension = true;
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (key.serialize_pem(), certificate.pem())
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_times_and_the_identifier_of_a_certificate_are_read() {
        let (key, chain) = issue(&["a.example", "B.example"], |params| {
            params.not_before = date_time_ymd(2049, 12, 31);
            params.not_after = date_time_ymd(2050, 1, 2);
            params.serial_number = Some(SerialNumber::from_slice(&[0x87, 0x65]));
        });
        let issued = inspect((key + &chain).as_bytes(), &names(&["b.example"])).unwrap();
        let Validity { not_before, not_after } = issued.validity;
        assert_eq!(seconds(not_before), 2_524_521_600);
        assert_eq!(seconds(not_after), 2_524_521_600 + 2 * 24 * 3600);
        assert!((0.0..=1.0).contains(&issued.share));
        let id = issued.id.unwrap();
        // The serial is encoded as in the certificate, with the zero that keeps it positive.
        assert!(id.ends_with(".AIdl"), "{id}");
        assert_eq!(id.split_once('.').unwrap().0.len(), 27, "20 bytes: {id}");
    }

    #[test]
    fn another_certificate_than_the_one_ordered_is_rejected() {
        let wanted = names(&["a.example"]);
        let inspect_both =
            |key: &str, chain: &str| inspect(format!("{key}{chain}").as_bytes(), &wanted);
        let (key, chain) = issue(&["a.example"], |_| {});
        let (other_key, _) = issue(&["a.example"], |_| {});
        let (third_key, others) = issue(&["b.example"], |_| {});
        let (ended_key, ended) = issue(&["a.example"], |params| {
            params.not_before = date_time_ymd(2026, 1, 2);
            params.not_after = date_time_ymd(2026, 1, 1);
        });
        assert!(inspect_both(&key, &chain).is_ok());
        assert_eq!(inspect_both(&other_key, &chain), Err(WrongCertificate::OtherKey));
        assert_eq!(inspect_both(&third_key, &others), Err(WrongCertificate::OtherNames));
        assert_eq!(inspect_both(&ended_key, &ended), Err(WrongCertificate::NeverValid));
        assert_eq!(inspect_both(&key, ""), Err(WrongCertificate::NoChain));
        assert_eq!(inspect_both(&key, "<html>"), Err(WrongCertificate::NoChain));
        assert_eq!(inspect_both(&key, &chain.repeat(11)), Err(WrongCertificate::LongChain));
        let half = &chain[..chain.len() / 2];
        assert_eq!(inspect_both(&key, half), Err(WrongCertificate::NoChain));
    }

    #[test]
    fn no_bytes_are_read_beyond_the_end() {
        let (_, chain) = issue(&["a.example"], |_| {});
        let whole = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
        assert!(parts(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(parts(&whole[..end]), None);
        }
        for index in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.to_vec();
                changed[index] = byte;
                // It need not fail, and must not panic.
                let _read = parts(&changed);
            }
        }
    }
}
