//! The leases that requests in flight hold of shared concurrency limits.
//!
//! The gateway chooses the name of a lease before the decision, so that it can give the lease back
//! even if the answer is lost. It renews a lease while the request is in flight. The leases of a
//! gateway that was killed run out.

use super::decide::call::tag;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Notify;

/// The most leases that wait to be given back, and the most that are kept for a node that fails.
/// Others run out.
const MOST_ENDED: usize = 100_000;

/// The most leases that a decision gives back. A request needs one, if each cost as much as it does.
const MOST_CARRIED: usize = 64;

/// Where a lease is kept, and under which name and for which cost.
pub(super) type Lease = (String, String);

/// The leases of all workers. The first worker to reach the store renews all of them: the store
/// would grant a place again whose lease has run out.
#[derive(Debug, Default)]
pub(super) struct AllLeases(Mutex<Vec<Weak<Leases>>>);

impl AllLeases {
    /// Adds a worker's, whose names begin with `owner`.
    pub(super) fn add(&self, owner: String) -> Arc<Leases> {
        let leases = Arc::new(Leases::of(owner));
        let mut all = self.lock();
        all.retain(|leases| leases.strong_count() > 0);
        all.push(Arc::downgrade(&leases));
        leases
    }

    /// Takes the names of some leases at `key` whose requests have ended, and of whose end the
    /// store may not know: the decision about the next request gives them back first. Their worker
    /// gives them back once more.
    pub(super) fn carry(&self, key: &str) -> Vec<String> {
        let mut names = Vec::new();
        for leases in self.lock().iter().filter_map(Weak::upgrade) {
            leases.carry(key, &mut names);
        }
        names
    }

    /// Returns what all of them hold.
    pub(super) fn held(&self) -> Vec<Renewal> {
        self.lock().iter().filter_map(Weak::upgrade).flat_map(|leases| leases.held()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Leases>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's leases.
#[derive(Debug)]
pub(super) struct Leases {
    /// The prefix of the names, which no other worker of any gateway uses.
    owner: String,
    table: Mutex<LeaseTable>,
    /// Notified when some are to be given back.
    pub(super) ended: Notify,
    /// Notified when none is.
    given: Notify,
}

#[derive(Debug, Default)]
struct LeaseTable {
    /// Granted leases, by their number.
    held: HashMap<u64, Lease>,
    /// Leases to be given back.
    ended: Tags,
    /// The number of leases that are being given back.
    leaving: usize,
    /// Leases that cannot be given back for now.
    kept: Tags,
    /// The names of ended leases of whose end the store may not know yet, by their keys: some of
    /// `ended`, and of those that are being given back.
    unheard: HashMap<String, HashSet<String>>,
    /// The names whose renewal has not ended, each with the number of its renewals.
    renewing: HashMap<String, usize>,
    next: u64,
}

impl LeaseTable {
    /// Marks leases to be given back.
    fn end(&mut self, leases: impl IntoIterator<Item = Lease>) {
        for lease in leases.into_iter().take(MOST_ENDED.saturating_sub(self.ended.len)) {
            let (key, name) = &lease;
            match self.unheard.get_mut(key) {
                Some(names) => drop(names.insert(name.clone())),
                None => drop(self.unheard.insert(key.clone(), [name.clone()].into())),
            }
            self.ended.extend([lease]);
        }
    }

    /// Forgets leases whose end the store knows, or cannot learn for now. A renewal that has not ended may
    /// reach the store later, and would take the lease again.
    fn forget(&mut self, leases: &[Lease]) {
        for (key, name) in leases.iter().filter(|(_, name)| !self.renewing.contains_key(name)) {
            let Some(names) = self.unheard.get_mut(key) else { continue };
            names.remove(name);
            if names.is_empty() {
                self.unheard.remove(key);
            }
        }
    }
}

/// Leases by their hash tag, [`MOST_ENDED`] at most.
#[derive(Debug, Default)]
struct Tags {
    tags: HashMap<String, Vec<Lease>>,
    len: usize,
}

impl Tags {
    fn extend(&mut self, leases: impl IntoIterator<Item = Lease>) {
        for lease in leases.into_iter().take(MOST_ENDED.saturating_sub(self.len)) {
            self.len += 1;
            match self.tags.get_mut(tag(&lease.0)) {
                Some(of_tag) => of_tag.push(lease),
                None => drop(self.tags.insert(tag(&lease.0).to_owned(), vec![lease])),
            }
        }
    }

    /// Takes out those of some tags.
    fn take(&mut self, is_wanted: impl Fn(&str) -> bool) -> Vec<Lease> {
        let taken = self.tags.extract_if(|tag, _| is_wanted(tag)).flat_map(|(_, leases)| leases);
        let taken: Vec<Lease> = taken.collect();
        self.len -= taken.len();
        taken
    }
}

/// Leases of one request, given back when dropped.
#[derive(Debug)]
pub struct Held {
    leases: Arc<Leases>,
    /// The leases before the store's decision. They are not renewed, because a renewal would take a
    /// lease that the store rejects.
    asked: Vec<Lease>,
    numbers: Vec<u64>,
}

/// A lease that is to be renewed.
#[derive(Debug)]
pub(super) struct Renewal {
    leases: Arc<Leases>,
    number: u64,
    pub(super) lease: Lease,
}

impl Renewal {
    /// Returns whether its request is in flight.
    pub(super) fn is_held(&self) -> bool {
        self.leases.lock().held.contains_key(&self.number)
    }

    /// Notes that the renewal has ended.
    pub(super) fn renewed(self) {
        drop(self);
    }
}

impl Drop for Renewal {
    /// Gives the lease back again if its request has ended: the store may have renewed it after it was
    /// given back.
    fn drop(&mut self) {
        let mut table = self.leases.lock();
        let name = &self.lease.1;
        if let Some(renewals) = table.renewing.get_mut(name) {
            *renewals -= 1;
            if *renewals == 0 {
                table.renewing.remove(name);
            }
        }

        if !table.held.contains_key(&self.number) {
            table.end([self.lease.clone()]);
            drop(table);
            self.leases.ended.notify_one();
        }
    }
}

impl Leases {
    /// Returns leases whose names begin with `owner`.
    pub(super) fn of(owner: String) -> Self {
        Self { owner, table: Mutex::default(), ended: Notify::new(), given: Notify::new() }
    }

    /// Returns a name that no other lease has.
    pub(super) fn name(&self) -> String {
        let mut table = self.lock();
        table.next += 1;
        format!("{}-{}", self.owner, table.next)
    }

    /// Notes leases that the store will be asked for.
    pub(super) fn ask(self: &Arc<Self>, leases: impl Iterator<Item = Lease>) -> Held {
        Held { leases: Arc::clone(self), asked: leases.collect(), numbers: Vec::new() }
    }

    /// Returns a renewal of each lease that is held.
    pub(super) fn held(self: &Arc<Self>) -> Vec<Renewal> {
        let renewal = |(&number, lease): (&u64, &Lease)| Renewal {
            leases: Arc::clone(self),
            number,
            lease: lease.clone(),
        };
        let mut table = self.lock();
        let renewals: Vec<Renewal> = table.held.iter().map(renewal).collect();
        for renewal in &renewals {
            *table.renewing.entry(renewal.lease.1.clone()).or_default() += 1;
        }
        renewals
    }

    /// Takes the ended leases of some hash tags. [`Self::given_back`] must follow.
    pub(super) fn take_ended(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Lease> {
        let mut table = self.lock();
        let taken = table.ended.take(is_wanted);
        table.leaving += taken.len();
        taken
    }

    /// Notes that the store knows the end of leases.
    pub(super) fn heard(&self, leases: &[Lease]) {
        self.lock().forget(leases);
    }

    /// Adds the names of leases at `key` for [`AllLeases::carry`].
    fn carry(&self, key: &str, names: &mut Vec<String>) {
        let mut table = self.lock();
        let LeaseTable { unheard, renewing, .. } = &mut *table;
        let Some(of_key) = unheard.get_mut(key) else { return };
        let room = |names: &Vec<String>| MOST_CARRIED.saturating_sub(names.len());

        // Later decisions carry them too, as the store may take them again meanwhile.
        let renewed = of_key.iter().filter(|name| renewing.contains_key(*name));
        names.extend(renewed.take(room(names)).cloned());

        let left = room(names);
        names.extend(of_key.extract_if(|name| !renewing.contains_key(name)).take(left));
        if of_key.is_empty() {
            unheard.remove(key);
        }
    }

    /// Notes the end of giving back so many leases, of which some may have been [put
    /// back](Self::put_back) or [kept](Self::keep).
    pub(super) fn given_back(&self, count: usize) {
        let mut table = self.lock();
        table.leaving -= count;
        if table.leaving + table.ended.len == 0 {
            self.given.notify_one();
        }
    }

    /// Waits until all leases are given back, except those that are kept.
    pub(super) async fn all_given_back(&self) {
        while {
            let table = self.lock();
            table.leaving + table.ended.len > 0
        } {
            self.given.notified().await;
        }
    }

    /// Marks leases to be given back. It does no harm to do so twice.
    pub(super) fn put_back(&self, leases: impl IntoIterator<Item = Lease>) {
        self.lock().end(leases);
        self.ended.notify_one();
    }

    /// Keeps leases that cannot be given back now, however long: a node that hangs grants them only
    /// when it goes on. They are kept apart, so that giving others back takes no longer.
    pub(super) fn keep(&self, leases: Vec<Lease>) {
        let mut table = self.lock();
        table.forget(&leases);
        table.kept.extend(leases);
    }

    /// Marks the kept leases to be given back whose hash tags can be reached now.
    pub(super) fn put_back_kept(&self, is_reached: impl Fn(&str) -> bool) {
        let kept = self.lock().kept.take(is_reached);
        if !kept.is_empty() {
            self.put_back(kept);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Notes which of them the store granted, in the order in which it was asked; none of those
    /// beyond.
    pub(super) fn decided(mut self, granted: impl IntoIterator<Item = bool>) -> Self {
        let asked = std::mem::take(&mut self.asked);
        let granted = asked.into_iter().zip(granted).filter(|(_, granted)| *granted);
        let mut granted = granted.map(|(lease, _)| lease).peekable();
        if granted.peek().is_some() {
            let mut table = self.leases.lock();
            for lease in granted {
                table.next += 1;
                let number = table.next;
                table.held.insert(number, lease);
                self.numbers.push(number);
            }
        }
        self
    }

    /// Returns whether there are none.
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
        let mut table = self.leases.lock();
        ended.extend(self.numbers.iter().filter_map(|number| table.held.remove(number)));
        // Under the same lock: a request that comes now finds a lease in one of the two.
        table.end(ended);
        drop(table);
        self.leases.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(key: &str) -> Lease {
        (key.to_owned(), "a-1:1".to_owned())
    }

    fn take_ended(leases: &Leases) -> Vec<Lease> {
        leases.take_ended(|_| true)
    }

    fn sorted(mut leases: Vec<Lease>) -> Vec<Lease> {
        leases.sort();
        leases
    }

    fn held(renewals: &[Renewal]) -> Vec<Lease> {
        sorted(renewals.iter().map(|renewal| renewal.lease.clone()).collect())
    }

    #[test]
    fn a_lease_is_given_back_once_unless_the_store_rejected_it() {
        let leases = Arc::new(Leases::of("a".to_owned()));
        let granted = leases.ask([lease("a"), lease("b")].into_iter()).decided([true; 2]);
        let rejected = leases.ask([lease("c")].into_iter()).decided([false]);
        let unasked = leases.ask([lease("c")].into_iter()).decided([]);
        let lost = leases.ask([lease("d")].into_iter());
        assert_eq!(leases.held().len(), 2, "a lease that may not be granted is not renewed");
        assert!(rejected.is_empty() && unasked.is_empty());
        assert!(!granted.is_empty() && !lost.is_empty());
        drop((rejected, unasked));
        assert_eq!(take_ended(&leases), []);
        drop(lost);
        assert_eq!(take_ended(&leases), [lease("d")], "its answer may have been lost");
        drop(granted);
        assert_eq!((leases.held().len(), take_ended(&leases).len()), (0, 2));
        assert_eq!(take_ended(&leases), []);
    }

    #[test]
    fn what_one_rule_of_several_has_not_taken_is_neither_held_nor_given_back() {
        let leases = Arc::new(Leases::of("a".to_owned()));
        let asked = ["a", "b", "c"].map(lease);
        let granted = leases.ask(asked.into_iter()).decided([true, false, true]);
        assert_eq!(held(&leases.held()), [lease("a"), lease("c")]);
        drop(granted);
        assert_eq!(sorted(take_ended(&leases)), [lease("a"), lease("c")]);
    }

    #[test]
    fn what_all_workers_hold_is_known_as_long_as_they_last() {
        let all = AllLeases::default();
        let one = all.add("a-1".to_owned());
        let other = all.add("a-2".to_owned());
        let of_one = one.ask([lease("a")].into_iter()).decided([true]);
        let of_other = other.ask([lease("b")].into_iter()).decided([true]);
        assert_eq!(held(&all.held()), [lease("a"), lease("b")]);
        drop((of_one, one));
        assert_eq!(held(&all.held()), [lease("b")]);
        drop(of_other);
        assert_eq!(take_ended(&other), [lease("b")]);
        other.put_back([lease("b")]);
        assert_eq!(take_ended(&other), [lease("b")], "the store did not hear of it");
    }

    #[test]
    fn what_was_renewed_when_its_request_had_ended_is_given_back_again() {
        let leases = Arc::new(Leases::of("a".to_owned()));
        let [ends, stays] = ["a", "b"].map(|key| leases.ask([lease(key)].into_iter()));
        let ends = ends.decided([true]);
        let stays = stays.decided([true]);
        let renewals = leases.held();
        assert!(renewals.iter().all(Renewal::is_held));
        drop(ends);
        assert_eq!(take_ended(&leases), [lease("a")], "the store may hear that before");
        renewals.into_iter().for_each(Renewal::renewed);
        assert_eq!(take_ended(&leases), [lease("a")]);
        drop(stays);
    }

    #[test]
    fn what_lies_where_nobody_gives_back_now_stays() {
        let leases = Leases::of("a".to_owned());
        leases.put_back(["{a}:x", "{b}:x", "{a}:y"].map(lease));
        assert_eq!(leases.take_ended(|tag| tag == "b"), [lease("{b}:x")]);
        assert_eq!(take_ended(&leases), ["{a}:x", "{a}:y"].map(lease));
        for _ in 0..2 {
            leases.put_back(vec![lease("{a}:x"); MOST_ENDED]);
        }
        assert_eq!(take_ended(&leases).len(), MOST_ENDED);
    }

    #[test]
    fn what_cannot_be_given_back_is_left_alone_until_its_node_is_reached() {
        let leases = Leases::of("a".to_owned());
        leases.keep(["{a}:x", "{b}:x", "{a}:y"].map(lease).to_vec());
        assert_eq!(take_ended(&leases), [], "another one that ends takes none of them along");
        leases.put_back_kept(|_| false);
        assert_eq!(take_ended(&leases), []);
        leases.put_back_kept(|tag| tag == "b");
        assert_eq!(take_ended(&leases), [lease("{b}:x")]);
        leases.put_back_kept(|_| true);
        assert_eq!(take_ended(&leases), ["{a}:x", "{a}:y"].map(lease));
    }

    #[test]
    fn a_decision_carries_what_has_ended_at_its_key_until_the_store_has_heard_of_it() {
        let all = AllLeases::default();
        let [one, other] = ["a-1", "a-2"].map(|owner| all.add(owner.to_owned()));
        let named = |key: &str, name: &str| (key.to_owned(), name.to_owned());
        let held = [(&one, "k", "a-1:1"), (&other, "k", "a-2:1"), (&one, "l", "a-1:2")];
        let held = held
            .map(|(leases, key, name)| leases.ask([named(key, name)].into_iter()).decided([true]));
        assert!(all.carry("k").is_empty(), "their requests are in flight");
        drop(held);
        let mut carried = all.carry("k");
        carried.sort();
        assert_eq!(carried, ["a-1:1", "a-2:1"], "of all workers");
        assert!(all.carry("k").is_empty(), "one decision is enough");
        assert_eq!(take_ended(&other), [named("k", "a-2:1")], "it is given back in any case");
        let being_given = take_ended(&one);
        assert_eq!(all.carry("l"), ["a-1:2"], "the store may not have heard of it yet");
        one.put_back(being_given);
        one.heard(&take_ended(&one));
        one.put_back([named("l", "a-1:3")]);
        one.keep(take_ended(&one));
        assert!(all.carry("l").is_empty(), "its node cannot be reached");
        one.put_back_kept(|_| true);
        assert_eq!(all.carry("l"), ["a-1:3"]);
    }

    #[test]
    fn decisions_carry_an_ended_lease_until_its_renewal_has_ended() {
        let all = AllLeases::default();
        let leases = all.add("a-1".to_owned());
        let named = ("k".to_owned(), "a-1-1:1".to_owned());
        let request = leases.ask([named.clone()].into_iter()).decided([true]);
        let renewals = leases.held();
        drop(request);
        leases.heard(&take_ended(&leases));
        for _ in 0..2 {
            assert_eq!(all.carry("k"), ["a-1-1:1"], "the renewal may take it again");
        }

        renewals.into_iter().for_each(Renewal::renewed);
        assert_eq!(all.carry("k"), ["a-1-1:1"], "the renewal has taken it again");
        assert!(all.carry("k").is_empty(), "one decision is enough");
        leases.heard(&take_ended(&leases));
        assert!(leases.lock().renewing.is_empty());
    }

    #[test]
    fn a_decision_carries_no_more_than_it_may() {
        let all = AllLeases::default();
        let leases = all.add("a-1".to_owned());
        let names = (0..=MOST_CARRIED).map(|number| ("k".to_owned(), format!("a-1-{number}:1")));
        leases.put_back(names);
        let [first, second, third] = [(); 3].map(|()| all.carry("k"));
        assert_eq!([first.len(), second.len(), third.len()], [MOST_CARRIED, 1, 0]);
        assert!(!first.contains(&second[0]));
    }

    #[tokio::test]
    async fn all_is_given_back_when_what_was_taken_has_been() {
        let leases = Leases::of("a".to_owned());
        leases.all_given_back().await;
        leases.put_back([lease("a")]);
        let mut all = core::pin::pin!(leases.all_given_back());
        let mut is_done =
            async || tokio::select! { biased; () = &mut all => true, () = async {} => false };
        assert!(!is_done().await);
        assert_eq!(take_ended(&leases), [lease("a")]);
        assert!(!is_done().await, "the store has not heard of it");
        leases.given_back(1);
        assert!(is_done().await);
    }

    #[test]
    fn no_two_leases_have_one_name() {
        let [one, other] = ["a-1", "a-2"].map(|owner| Leases::of(owner.to_owned()));
        let names = [one.name(), one.name(), other.name(), other.name()];
        let apart: HashSet<_> = names.iter().collect();
        assert_eq!(apart.len(), names.len(), "{names:?}");
    }
}
