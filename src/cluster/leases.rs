//! What requests in flight hold of the concurrency limits that gateways share.
//!
//! A lease is taken by the decision, under a name that the gateway chose before, so that it can
//! be given back whether or not the answer came. Once granted it is renewed while its request is
//! in flight; a gateway that is gone renews nothing, and its leases run out.

use super::slots::tag;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Notify;

/// The most leases that wait to be given back, and the most that are kept as that is in vain. Others
/// run out by themselves.
const MOST_ENDED: usize = 100_000;

/// Where a lease is kept, and under which name and for which cost.
pub(super) type Lease = (String, String);

/// The leases of all workers. Whoever reaches the store first renews what all of them hold: a
/// lease that has run out while the store was away is a place that it would grant anew.
#[derive(Debug, Default)]
pub(super) struct AllLeases(Mutex<Vec<Weak<Leases>>>);

impl AllLeases {
    /// Adds a worker's, whose names begin with `owner`.
    pub(super) fn add(&self, owner: String) -> Arc<Leases> {
        let leases = Arc::new(Leases::of(owner));
        let mut all = self.lock();
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(&leases));
        leases
    }

    /// Returns what all of them hold.
    pub(super) fn held(&self) -> Vec<Lease> {
        self.lock().iter().filter_map(Weak::upgrade).flat_map(|it| it.held()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Leases>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's leases.
#[derive(Debug)]
pub(super) struct Leases {
    /// What the names begin with, which no other worker's of any gateway do.
    owner: String,
    inner: Mutex<Inner>,
    /// Rings when some are to be given back.
    pub(super) ended: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Those that were granted, by their number.
    held: HashMap<u64, Lease>,
    ended: Vec<Lease>,
    /// By their hash tag.
    kept: HashMap<String, Vec<Lease>>,
    next: u64,
}

/// Leases of one request, given back when dropped.
#[derive(Debug)]
pub struct Held {
    leases: Arc<Leases>,
    /// What the store was asked for. Nobody renews it: that would take what the store refuses.
    asked: Vec<Lease>,
    numbers: Vec<u64>,
}

impl Leases {
    /// Returns leases whose names begin with `owner`.
    pub(super) fn of(owner: String) -> Self {
        Self { owner, inner: Mutex::default(), ended: Notify::new() }
    }

    /// Returns a name that no other lease has.
    pub(super) fn name(&self) -> String {
        let mut inner = self.lock();
        inner.next += 1;
        format!("{}-{}", self.owner, inner.next)
    }

    /// Notes leases that the store is about to grant.
    pub(super) fn ask(self: &Arc<Self>, leases: impl Iterator<Item = Lease>) -> Held {
        Held { leases: Arc::clone(self), asked: leases.collect(), numbers: Vec::new() }
    }

    /// Returns all that are held.
    pub(super) fn held(&self) -> Vec<Lease> {
        self.lock().held.values().cloned().collect()
    }

    /// Takes what is to be given back.
    pub(super) fn take_ended(&self) -> Vec<Lease> {
        std::mem::take(&mut self.lock().ended)
    }

    /// Has what could not be given back be given back later: twice does no harm.
    pub(super) fn put_back(&self, leases: impl IntoIterator<Item = Lease>) {
        let mut inner = self.lock();
        let room = MOST_ENDED.saturating_sub(inner.ended.len());
        inner.ended.extend(leases.into_iter().take(room));
        drop(inner);
        self.ended.notify_one();
    }

    /// Keeps leases of one hash tag that cannot be given back for now, apart: whoever gives others
    /// back has not to look at them. However long that is: a node that hung takes what it was asked
    /// for only when it goes on.
    pub(super) fn keep(&self, leases: impl IntoIterator<Item = Lease>) {
        let mut leases = leases.into_iter().peekable();
        let Some(tag) = leases.peek().map(|(key, _)| tag(key).to_owned()) else { return };
        let mut inner = self.lock();
        let known: usize = inner.kept.values().map(Vec::len).sum();
        let room = MOST_ENDED.saturating_sub(known);
        inner.kept.entry(tag).or_default().extend(leases.take(room));
    }

    /// Takes what was kept of the hash tags that are reached now.
    pub(super) fn take_kept(&self, is_reached: impl Fn(&str) -> bool) -> Vec<Lease> {
        let mut inner = self.lock();
        inner.kept.extract_if(|tag, _| is_reached(tag)).flat_map(|(_, leases)| leases).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Notes whether the store granted them.
    pub(super) fn decided(mut self, is_granted: bool) -> Self {
        let asked = std::mem::take(&mut self.asked);
        if is_granted && !asked.is_empty() {
            let mut inner = self.leases.lock();
            for lease in asked {
                inner.next += 1;
                let number = inner.next;
                inner.held.insert(number, lease);
                self.numbers.push(number);
            }
        }
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.numbers.is_empty()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut self.asked);
        let mut inner = self.leases.lock();
        ended.extend(self.numbers.iter().filter_map(|number| inner.held.remove(number)));
        drop(inner);
        self.leases.put_back(ended);
    }
}

/// Returns leases by their hash tag, in groups that one call may name: not too many.
pub(super) fn by_tag(leases: Vec<Lease>) -> impl Iterator<Item = Vec<Vec<Lease>>> {
    /// A call of so many takes the store about a millisecond.
    const MOST: usize = 500;
    let mut groups: HashMap<String, Vec<Vec<Lease>>> = HashMap::new();
    for lease in leases {
        let tag = tag(&lease.0).to_owned();
        let of_tag = groups.entry(tag).or_default();
        match of_tag.last_mut().filter(|group| group.len() < MOST) {
            Some(group) => group.push(lease),
            None => of_tag.push(vec![lease]),
        }
    }
    groups.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(key: &str) -> Lease {
        (key.to_owned(), "a-1:1".to_owned())
    }

    #[test]
    fn a_lease_is_given_back_once_unless_the_store_refused_it() {
        let leases = Arc::new(Leases::of("a".to_owned()));
        let granted = leases.ask([lease("a"), lease("b")].into_iter()).decided(true);
        let refused = leases.ask([lease("c")].into_iter()).decided(false);
        let lost = leases.ask([lease("d")].into_iter());
        assert_eq!(leases.held().len(), 2, "what nobody knows to be granted is not renewed");
        assert!(refused.is_empty() && !granted.is_empty() && !lost.is_empty());
        drop(refused);
        assert_eq!(leases.take_ended(), []);
        drop(lost);
        assert_eq!(leases.take_ended(), [lease("d")], "its answer may have been lost");
        drop(granted);
        assert_eq!((leases.held(), leases.take_ended().len()), (vec![], 2));
        assert_eq!(leases.take_ended(), []);
    }

    #[test]
    fn what_all_workers_hold_is_known_as_long_as_they_last() {
        let all = AllLeases::default();
        let (one, other) = (all.add("a-1".to_owned()), all.add("a-2".to_owned()));
        let held = one.ask([lease("a")].into_iter()).decided(true);
        let more = other.ask([lease("b")].into_iter()).decided(true);
        assert_eq!(all.held(), [lease("a"), lease("b")]);
        drop((held, one));
        assert_eq!(all.held(), [lease("b")]);
        drop(more);
        assert_eq!(other.take_ended(), [lease("b")]);
        other.put_back([lease("b")]);
        assert_eq!(other.take_ended(), [lease("b")], "the store did not hear of it");
    }

    #[test]
    fn what_cannot_be_given_back_is_left_alone_until_its_node_is_reached() {
        let leases = Leases::of("a".to_owned());
        for key in ["{a}:x", "{b}:x", "{a}:y"] {
            leases.keep([lease(key)]);
        }
        assert_eq!(leases.take_ended(), [], "another one that ends takes none of them along");
        assert_eq!(leases.take_kept(|_| false), []);
        assert_eq!(leases.take_kept(|tag| tag == "b"), [lease("{b}:x")]);
        assert_eq!(leases.take_kept(|_| true), [lease("{a}:x"), lease("{a}:y")]);
        assert_eq!(leases.take_kept(|_| true), []);
        for _ in 0..2 {
            leases.keep(vec![lease("{a}:x"); MOST_ENDED]);
        }
        assert_eq!(leases.take_kept(|_| true).len(), MOST_ENDED);
    }

    #[test]
    fn no_two_leases_have_one_name() {
        let [one, other] = ["a-1", "a-2"].map(|owner| Leases::of(owner.to_owned()));
        let names = [one.name(), one.name(), other.name(), other.name()];
        let apart: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(apart.len(), names.len(), "{names:?}");
    }

    #[test]
    fn one_call_names_keys_of_one_tag() {
        let keys = ["p:{a}:x", "p:{b}:x", "p:{a}:y", "none"];
        let key = |(key, _)| key;
        let mut tags: Vec<Vec<String>> = by_tag(keys.into_iter().map(lease).collect())
            .map(|groups| groups.into_iter().flatten().map(key).collect())
            .collect();
        tags.sort();
        assert_eq!(tags, [vec!["none"], vec!["p:{a}:x", "p:{a}:y"], vec!["p:{b}:x"]]);
        let sizes = |groups: Vec<Vec<Lease>>| groups.iter().map(Vec::len).collect::<Vec<_>>();
        let many: Vec<_> = by_tag(vec![lease("{a}"); 1_001]).map(sizes).collect();
        assert_eq!(many, [[500, 500, 1]]);
    }
}
