//! Requests that the admin listener rejects.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why the admin listener rejected a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRejection {
    /// Its address asks too often.
    Rate,
    /// `Host` is not a name of the listener.
    Host,
    /// A page of another site sent it.
    Site,
    /// It proves no operator, or the wrong one.
    Auth,
}

/// Counts [`AdminRejection`]s.
#[derive(Debug, Default)]
pub struct AdminRejections([AtomicU64; AdminRejection::ALL.len()]);

impl AdminRejection {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Rate, Self::Host, Self::Site, Self::Auth];

    /// Returns the reason as a metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Host => "host",
            Self::Site => "site",
            Self::Auth => "auth",
        }
    }
}

impl AdminRejections {
    /// Counts a rejection.
    pub fn count(&self, reason: AdminRejection) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// Returns the rejections counted for `reason`.
    pub fn of(&self, reason: AdminRejection) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }
}
