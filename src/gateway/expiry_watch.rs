//! Warnings of certificates that end soon, while the gateway runs.

use crate::{config::ShownCertificate, flow::Instant};
use std::collections::HashMap;

const DAY: u64 = 24 * 60 * 60;

/// The time to the end of a certificate, in stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// In two weeks at most.
    Soon,
    /// In three days at most.
    Near,
    Ended,
}

impl Stage {
    fn at(certificate: &ShownCertificate, now: Instant) -> Option<Self> {
        match certificate.seconds_left(now) {
            // It is never valid, which is another warning.
            None if certificate.not_after == 0 => None,
            None => Some(Self::Ended),
            // Failures to renew it are logged by themselves.
            Some(_) if certificate.renews => None,
            Some(left) if left <= 3 * DAY => Some(Self::Near),
            Some(left) if left <= 14 * DAY => Some(Self::Soon),
            Some(_) => None,
        }
    }
}

/// Remembers which certificates were warned of, so that each stage is logged once.
#[derive(Debug, Default)]
pub(super) struct ExpiryWatch {
    /// By the contents of the certificates in force.
    warned: HashMap<u64, Stage>,
}

impl ExpiryWatch {
    /// Logs each certificate that has come closer to its end, as of `now` by the wall clock.
    pub(super) fn warn(&mut self, certificates: &[ShownCertificate], now: Instant) {
        for (certificate, text) in self.due(certificates, now) {
            let used_by = certificate.used_by.as_str();
            tracing::warn!(file = %certificate.file, used_by, "{text}");
        }
    }

    /// Returns the certificates to warn of, and the texts.
    fn due<'c>(
        &mut self,
        certificates: &'c [ShownCertificate],
        now: Instant,
    ) -> Vec<(&'c ShownCertificate, String)> {
        let mut warned = HashMap::new();
        let mut due = Vec::new();
        for certificate in certificates {
            let Some(stage) = Stage::at(certificate, now) else { continue };
            // Several listeners may show one certificate.
            let is_other = warned.insert(certificate.print, stage).is_none();
            let before = self.warned.get(&certificate.print);
            if is_other && before.is_none_or(|before| *before < stage) {
                due.push((certificate, text(certificate, now)));
            }
        }
        self.warned = warned;
        due
    }
}

fn text(certificate: &ShownCertificate, now: Instant) -> String {
    let ShownCertificate { valid_until, peers, .. } = certificate;
    let next = if certificate.renews { "flowgate renews it" } else { "get another one" };
    let Some(left) = certificate.seconds_left(now) else {
        return format!(
            "the certificate {certificate} has expired: it was valid until {valid_until}; {peers} \
             reject it, {next}"
        );
    };
    let left = match left / DAY {
        0 => "for less than a day".to_owned(),
        1 => "for one more day".to_owned(),
        days => format!("for {days} more days"),
    };
    format!("the certificate {certificate} is valid until {valid_until}, {left}: renew it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(print: u64, not_after: u64) -> ShownCertificate {
        ShownCertificate {
            used_by: "listener web".to_owned(),
            file: "/etc/flowgate/site.pem".to_owned(),
            names: Vec::new(),
            valid_until: "THEN".to_owned(),
            not_after,
            renews: false,
            peers: "clients",
            print,
        }
    }

    fn texts(watch: &mut ExpiryWatch, certificates: &[ShownCertificate], now: u64) -> Vec<String> {
        let now = Instant::from_nanos(now * 1_000_000_000);
        watch.due(certificates, now).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_certificate_is_warned_of_once_at_each_stage() {
        let mut watch = ExpiryWatch::default();
        let end = 100 * DAY;
        // Two listeners have it.
        let certificates = [ending(1, end), ending(1, end)];
        let mut seen = Vec::new();
        for minute in 0..=(30 * 24 * 60) {
            let now = end - 20 * DAY + minute * 60;
            seen.extend(texts(&mut watch, &certificates, now).into_iter().map(|text| (now, text)));
        }
        let text = |rest: &str| format!("the certificate site.pem (listener web) {rest}");
        assert_eq!(
            seen,
            [
                (end - 14 * DAY, text("is valid until THEN, for 14 more days: renew it")),
                (end - 3 * DAY, text("is valid until THEN, for 3 more days: renew it")),
                (
                    end + 60,
                    text(
                        "has expired: it was valid until THEN; clients reject it, get another one"
                    )
                ),
            ]
        );
    }

    #[test]
    fn another_certificate_and_one_that_comes_back_are_warned_of_anew() {
        let mut watch = ExpiryWatch::default();
        let now = 100 * DAY;
        let old = ending(1, now + DAY);
        let new = ending(2, now + 10 * DAY);
        assert_eq!(texts(&mut watch, std::slice::from_ref(&old), now).len(), 1);
        // A reload with the same certificate says nothing.
        assert_eq!(texts(&mut watch, std::slice::from_ref(&old), now + 1).len(), 0);
        assert_eq!(texts(&mut watch, std::slice::from_ref(&new), now + 2).len(), 1);
        assert_eq!(texts(&mut watch, &[old], now + 3).len(), 1);
        // One with months to go is no matter for the log.
        assert_eq!(texts(&mut watch, &[ending(3, now + 90 * DAY)], now).len(), 0);
    }
}
