//! How long certificates are valid, in words.

use super::super::{sample::Certificate, words::plain};

/// A day in seconds.
pub(super) const DAY: u64 = 24 * 60 * 60;

/// Says how long a certificate is valid.
pub(super) fn certificate_words(certificate: &Certificate, left: Option<u64>) -> String {
    let Certificate { used_by, file, valid_until, .. } = certificate;
    let left = match left {
        None => "EXPIRED".to_owned(),
        Some(left) if left < DAY => "less than a day left".to_owned(),
        Some(left) if left < 2 * DAY => "1 day left".to_owned(),
        Some(left) => format!("{} days left", left / DAY),
    };
    plain(&format!("certificate {file} ({used_by}): valid until {valid_until}, {left}"))
}
