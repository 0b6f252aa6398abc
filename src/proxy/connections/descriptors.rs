//! How many file descriptors the process may have, and what of them clients get.

use std::os::fd::AsRawFd;

/// What the process has open beside the connections of clients and to upstreams: listeners,
/// logs, timers. More than a gateway with eight workers and two listeners needs.
const OWN: u64 = 128;

/// The limit of open files.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    most: u64,
}

impl Descriptors {
    /// At most `most` at once; `None`: as many as there are.
    pub fn new(most: Option<u64>) -> Self {
        Self { most: most.unwrap_or(u64::MAX) }
    }

    /// The limit itself.
    pub const fn most(self) -> u64 {
        self.most
    }

    /// How many may be in use while more clients are accepted. The last quarter is for
    /// those that are: their requests need connections to upstreams, and the admin listener
    /// and a reload need some too.
    pub const fn for_clients(self) -> u64 {
        self.most - self.most / 4
    }

    /// Whether a connection that was just accepted may be kept. The kernel gives each the
    /// lowest free number (POSIX, `open`), so as many as its number says are in use.
    pub(crate) fn has_room_for(self, accepted: &impl AsRawFd) -> bool {
        u64::try_from(accepted.as_raw_fd()).is_ok_and(|number| number < self.for_clients())
    }

    /// Returns how many would be enough for `clients` with a connection to an upstream
    /// each, if there are fewer.
    pub fn missing_for(self, clients: usize) -> Option<u64> {
        let enough = (clients as u64).saturating_mul(2).saturating_add(OWN);
        (self.most < enough).then_some(enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::RawFd;

    struct Numbered(RawFd);

    impl AsRawFd for Numbered {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }

    #[test]
    fn the_last_quarter_is_not_for_clients() {
        let descriptors = Descriptors::new(Some(80));
        assert!(descriptors.has_room_for(&Numbered(59)));
        assert!(!descriptors.has_room_for(&Numbered(60)));
        assert!(Descriptors::new(None).has_room_for(&Numbered(RawFd::MAX)));
    }

    #[test]
    fn a_client_needs_two() {
        assert_eq!(Descriptors::new(Some(20_000)).missing_for(100_000), Some(200_128));
        assert_eq!(Descriptors::new(Some(200_127)).missing_for(100_000), Some(200_128));
        assert_eq!(Descriptors::new(Some(200_128)).missing_for(100_000), None);
        assert_eq!(Descriptors::new(None).missing_for(usize::MAX), None);
    }
}
