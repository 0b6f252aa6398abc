//! Why a connection failed, in words.

use crate::config::UnsupportedCertificate;
use core::error::Error;
use std::io;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, OtherError};

/// Returns the first cause of an error, in words.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    loop {
        // What an error of IO wraps is not its source.
        let inner = innermost.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.map(|inner| inner as &(dyn Error + 'static));
        match inner.or_else(|| innermost.source()) {
            Some(inner) => innermost = inner,
            None => break,
        }
    }
    match innermost.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidMessage(_)) => "TLS: the server does not speak it".to_owned(),
        Some(tls) => tls_cause(tls),
        None => innermost.to_string(),
    }
}

/// Returns why a handshake failed, with what to do about it where that is not clear.
fn tls_cause(error: &rustls::Error) -> String {
    if let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error
        && let Some(unsupported) = other.downcast_ref::<UnsupportedCertificate>()
    {
        return format!("TLS: {unsupported}");
    }
    let hint = if let rustls::Error::AlertReceived(
        AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity
        | AlertDescription::ProtocolVersion,
    ) = error
    {
        // What the library has, which leaves out the others for their weaknesses.
        "; flowgate has TLS 1.3, and TLS 1.2 with ECDHE and AES-GCM or ChaCha20-Poly1305: a server \
         with CBC suites, RSA or DHE key exchange, or older versions alone needs one of these"
    } else {
        ""
    };
    format!("TLS: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    #[test]
    fn a_failed_connection_is_explained_in_words() {
        let tls = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        for (error, words) in [
            (io::ErrorKind::ConnectionReset.into(), "connection reset"),
            (
                tls(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)),
                "TLS: the server does not speak it",
            ),
            (
                tls(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)),
                "TLS: invalid peer certificate: UnknownIssuer",
            ),
            (
                tls(UnsupportedCertificate::RsaKey(1024).into()),
                "TLS: the server's RSA key has 1024 bits: give the server a key of 2048 to 8192 \
                 bits, or one of ECDSA",
            ),
            (
                tls(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)),
                "TLS: received fatal alert: HandshakeFailure; flowgate has TLS 1.3, and TLS 1.2 \
                 with ECDHE and AES-GCM or ChaCha20-Poly1305: a server with CBC suites, RSA or DHE \
                 key exchange, or older versions alone needs one of these",
            ),
        ] {
            assert_eq!(cause(&error), words);
        }
    }
}
