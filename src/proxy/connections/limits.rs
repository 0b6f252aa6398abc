//! Bounds on the number of open connections: of the process, and of each client.

use crate::route::client_network;
use ahash::AHashMap;
use core::net::IpAddr;
use std::{
    os::fd::AsRawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The descriptors that the process needs beside the connections of clients and to upstreams: for
/// listeners, logs and timers. A gateway with eight workers and two listeners needs fewer.
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

    /// Returns the number that may be in use while more clients are accepted. The last quarter is for
    /// the accepted ones: their requests need connections to upstreams. The admin listener and a reload
    /// need some too.
    pub const fn for_clients(self) -> u64 {
        self.most - self.most / 4
    }

    /// True if a connection that was just accepted may be kept. The kernel gives each the lowest free
    /// number (POSIX, `open`), so this number is the count of those in use.
    pub(crate) fn has_room_for(self, accepted: &impl AsRawFd) -> bool {
        u64::try_from(accepted.as_raw_fd()).is_ok_and(|number| number < self.for_clients())
    }

    /// Returns the number that would be enough for `clients` with a connection to an upstream each, if
    /// there are fewer.
    pub fn missing_for(self, clients: usize) -> Option<u64> {
        let enough = (clients as u64).saturating_mul(2).saturating_add(OWN);
        (self.most < enough).then_some(enough)
    }
}

/// The open connections of all workers by client: an IPv4 address, or the first 64 bits of an IPv6
/// address. There are no more entries than connections.
#[derive(Debug, Default)]
pub struct ClientConnections(Mutex<AHashMap<u128, usize>>);

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    client: u128,
    all: Arc<ClientConnections>,
}

impl ClientConnections {
    /// Counts a connection of `client`. `None` if it has `limit` of them.
    pub(crate) fn open(self: &Arc<Self>, client: IpAddr, limit: usize) -> Option<ClientConnection> {
        let client = client_network(client);
        let mut all = self.lock();
        let count = all.entry(client).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(all);
        Some(ClientConnection { client, all: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, AHashMap<u128, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.client);
            }
        }
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

    #[test]
    fn each_client_has_its_own_limit_and_nothing_stays_of_one_that_left() {
        let all = Arc::<ClientConnections>::default();
        let open = |client: &str| all.open(client.parse().unwrap(), 2);
        let first = open("2001:db8::1");
        let second = open("2001:db8::2");
        assert!(first.is_some() && second.is_some());
        assert!(open("2001:db8::3").is_none());
        let other = open("2001:db8:0:1::1");
        let mapped = (open("::ffff:192.0.2.1"), open("192.0.2.1"));
        assert!(other.is_some() && mapped.0.is_some() && mapped.1.is_some());
        assert!(open("192.0.2.1").is_none());
        drop(first);
        let third = open("2001:db8::3");
        assert!(third.is_some());
        drop((second, third, other, mapped));
        assert!(all.lock().is_empty());
    }
}
