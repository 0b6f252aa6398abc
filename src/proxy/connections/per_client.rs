//! How many connections each client has open.

use crate::route::client_network;
use ahash::AHashMap;
use core::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
