//! Why a connection failed, in words.

use core::error::Error;
use std::io;
use tokio_rustls::rustls;

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
        Some(tls) => format!("TLS: {tls}"),
        None => innermost.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{CertificateError, InvalidMessage};

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
        ] {
            assert_eq!(cause(&error), words);
        }
    }
}
