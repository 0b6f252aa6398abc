//! Reads the certificates that clients show in the handshake of TLS.

use crate::{hex::digits_of_128, route::ClientCertificate};
use aws_lc_rs::digest::{SHA256, digest};
use x509_cert::{Certificate, der::Decode};

/// Reads a certificate in its DER form, which TLS has verified. A certificate that does not parse has
/// no subject.
pub fn client_certificate(der: &[u8]) -> ClientCertificate {
    let parsed = Certificate::from_der(der).ok();
    let subject = parsed.map(|parsed| parsed.tbs_certificate().subject().to_string());
    let digest = digest(&SHA256, der);
    let (halves, _) = digest.as_ref().as_chunks();
    let digits = halves.iter().flat_map(|half| digits_of_128(u128::from_be_bytes(*half)));
    let fingerprint: String = digits.map(char::from).collect();
    ClientCertificate {
        subject: subject.unwrap_or_default().into(),
        fingerprint: fingerprint.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            let value = DnValue::Utf8String((*value).to_owned());
            params.distinguished_name.push(kind.clone(), value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_subject_is_written_as_in_rfc_4514() {
        use DnType::{CommonName, CountryName, OrganizationName};
        for (parts, expected) in [
            (&[][..], ""),
            (
                &[(CountryName, "DE"), (OrganizationName, "Example"), (CommonName, "ann")],
                "CN=ann,O=Example,C=DE",
            ),
            // Names that would read as several parts are escaped.
            (&[(CommonName, "ann,O=Example")], "CN=ann\\,O=Example"),
            (&[(CommonName, "a+b\"c;<d>")], "CN=a\\+b\\\"c\\;\\<d\\>"),
            (&[(CommonName, "Zoë")], "CN=Zoë"),
        ] {
            assert_eq!(&*client_certificate(&certificate(parts)).subject, expected);
        }
    }

    #[test]
    fn the_fingerprint_is_the_sha_256_of_all_bytes() {
        let read = client_certificate(b"abc");
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((&*read.subject, &*read.fingerprint), ("", expected));
    }
}
