//! What requests in flight hold of the concurrency limits that gateways share.
//!
//! A lease is taken by the decision, under a name that the gateway chose before, so that it can
//! be given back whether or not the answer came. While its request is in flight it is renewed;
//! a gateway that is gone renews nothing, and its leases run out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// The most leases that wait to be given back. Others run out by themselves.
const MOST_ENDED: usize = 100_000;

/// A worker's leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    inner: Mutex<Inner>,
    /// Rings when some are to be given back.
    pub(super) ended: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// By their number: where each is kept, and under which name.
    held: HashMap<u64, (String, String)>,
    ended: Vec<(String, String)>,
    next: u64,
}

/// Leases of one request, given back when dropped.
#[derive(Debug)]
pub struct Held {
    leases: Arc<Leases>,
    numbers: Vec<u64>,
}

impl Leases {
    /// Returns a number that no other lease has.
    pub(super) fn number(&self) -> u64 {
        let mut inner = self.lock();
        inner.next += 1;
        inner.next
    }

    /// Holds leases that the store is about to grant.
    pub(super) fn hold(self: &Arc<Self>, leases: impl Iterator<Item = (String, String)>) -> Held {
        let mut inner = self.lock();
        let mut numbers = Vec::new();
        for lease in leases {
            inner.next += 1;
            let number = inner.next;
            inner.held.insert(number, lease);
            numbers.push(number);
        }
        Held { leases: Arc::clone(self), numbers }
    }

    /// Returns all that are held.
    pub(super) fn held(&self) -> Vec<(String, String)> {
        self.lock().held.values().cloned().collect()
    }

    /// Takes what is to be given back.
    pub(super) fn take_ended(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.lock().ended)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Forgets leases that were not granted.
    pub(super) fn forget(mut self) {
        let mut inner = self.leases.lock();
        for number in self.numbers.drain(..) {
            inner.held.remove(&number);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.numbers.is_empty() {
            return;
        }
        let mut inner = self.leases.lock();
        for number in &self.numbers {
            let lease = inner.held.remove(number);
            if inner.ended.len() < MOST_ENDED {
                inner.ended.extend(lease);
            }
        }
        drop(inner);
        self.leases.ended.notify_one();
    }
}

/// Returns leases in groups that one call may name: of one hash tag each, and not too many.
pub(super) fn by_tag(leases: Vec<(String, String)>) -> Vec<Vec<(String, String)>> {
    /// A call of so many takes the store about a millisecond.
    const MOST: usize = 500;
    let mut groups: HashMap<String, Vec<Vec<(String, String)>>> = HashMap::new();
    for lease in leases {
        let tag = tag(&lease.0).to_owned();
        let of_tag = groups.entry(tag).or_default();
        match of_tag.last_mut().filter(|group| group.len() < MOST) {
            Some(group) => group.push(lease),
            None => of_tag.push(vec![lease]),
        }
    }
    groups.into_values().flatten().collect()
}

/// Returns the part of a key that decides which node of a cluster has it.
fn tag(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.map_or(key, |(tag, _)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(key: &str) -> (String, String) {
        (key.to_owned(), "a-1:1".to_owned())
    }

    #[test]
    fn a_lease_is_given_back_once_and_only_if_it_was_granted() {
        let leases = Arc::new(Leases::default());
        let granted = leases.hold([lease("a"), lease("b")].into_iter());
        let refused = leases.hold([lease("c")].into_iter());
        assert_eq!(leases.held().len(), 3);
        refused.forget();
        assert_eq!((leases.held().len(), leases.take_ended()), (2, vec![]));
        drop(granted);
        assert_eq!((leases.held(), leases.take_ended().len()), (vec![], 2));
        assert_eq!(leases.take_ended(), []);
    }

    #[test]
    fn one_call_names_keys_of_one_tag() {
        let keys = ["p:{a}:x", "p:{b}:x", "p:{a}:y", "none"];
        let mut groups: Vec<Vec<String>> = by_tag(keys.into_iter().map(lease).collect())
            .into_iter()
            .map(|group| group.into_iter().map(|(key, _)| key).collect())
            .collect();
        groups.sort();
        assert_eq!(groups, [vec!["none"], vec!["p:{a}:x", "p:{a}:y"], vec!["p:{b}:x"]]);
        assert_eq!(by_tag(vec![lease("{a}"); 1_001]).len(), 3);
    }
}
