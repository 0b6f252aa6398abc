//! The state of each certificate, for metrics and pages.

use crate::flow::Instant;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A certificate that flowgate gets and renews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// The end of the one in use; `None` while clients get a self-signed one.
    pub valid_until: Option<Instant>,
    /// The time of the next order.
    pub next_order: Instant,
    /// The failures since the last success.
    pub failures: u32,
    /// The last failure, if there was one since.
    pub error: Option<String>,
}

/// The certificates by their names, and what became of the orders.
#[derive(Debug, Default)]
pub struct Status {
    certificates: Mutex<BTreeMap<String, CertificateStatus>>,
    issued: AtomicU64,
    failed: AtomicU64,
}

impl Status {
    /// Returns the state of each certificate.
    pub fn certificates(&self) -> BTreeMap<String, CertificateStatus> {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how many orders of this process have led to a certificate.
    pub fn issued(&self) -> u64 {
        self.issued.load(Relaxed)
    }

    /// Returns how many orders of this process have failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Returns the state of one certificate that is due at once.
    #[cfg(test)]
    pub(crate) fn with_one(name: &str) -> Self {
        let status = Self::default();
        let next_order = Instant::EPOCH;
        let one = CertificateStatus { valid_until: None, next_order, failures: 0, error: None };
        status.replace(BTreeMap::from([(name.to_owned(), one)]));
        status
    }

    pub(super) fn count(&self, is_issued: bool) {
        let counter = if is_issued { &self.issued } else { &self.failed };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn replace(&self, certificates: BTreeMap<String, CertificateStatus>) {
        *self.certificates.lock().unwrap_or_else(PoisonError::into_inner) = certificates;
    }
}
