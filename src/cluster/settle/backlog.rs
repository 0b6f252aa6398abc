//! The settlements that the store has not confirmed.

use super::call::{Numbered, Places, Settlement, settled_key};
use crate::{cluster::decide::call::tag, flow::Instant};
use core::time::Duration;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::Notify;

/// The most settlements that wait: about 20 MB. What comes then is dropped.
const MOST: usize = 65_536;

/// The most settlements in a call: they take the store about 1 ms.
const BATCH: usize = 100;

/// The most settlements that a decision carries. The rest is sent by calls of their own.
const MOST_CARRIED: usize = 64;

/// The time after which a settlement that the store has not confirmed is dropped: windows of most
/// limits have ended by then.
const LATE: Duration = Duration::from_hours(12);

/// The same once it was sent: half as long as the store knows what it has settled.
const LATE_ONCE_SENT: Duration = Duration::from_hours(1);

/// The time between two searches for late settlements.
const SEARCH_PERIOD: Duration = Duration::from_secs(10);

/// The end of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum SettlementEnd {
    /// The store has applied it.
    Applied,
    /// Too many waited.
    Full,
    /// The store did not confirm it in time.
    Late,
    /// The store cannot apply it, because its key has another type or is no state.
    Rejected,
}

impl SettlementEnd {
    const ALL: [Self; 4] = [Self::Applied, Self::Full, Self::Late, Self::Rejected];

    const fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Full => "full",
            Self::Late => "late",
            Self::Rejected => "rejected",
        }
    }
}

/// The settlements of all workers that the store has not confirmed.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Backlog {
    table: Mutex<Table>,
    ends: [AtomicU64; SettlementEnd::ALL.len()],
    /// Notified when none waits any more.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    /// The numbers of the entries by their hash tag.
    tags: HashMap<String, Tag>,
    /// The latest number.
    latest: u64,
    /// The time of the latest search for late ones.
    searched: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    settlement: Arc<Settlement>,
    since: Instant,
    /// The first time at which it was sent.
    sent: Option<Instant>,
}

/// The settlements of one hash tag.
#[derive(Debug, Default)]
struct Tag {
    all: BTreeSet<u64>,
    /// Those that are to be sent.
    due: BTreeSet<u64>,
    /// All by the key of their state.
    keys: HashMap<String, BTreeSet<u64>>,
    /// The time before which none is sent again.
    not_before: Option<Instant>,
}

/// Settlements of one hash tag that one call sends. What is neither confirmed nor dropped is sent
/// again.
#[derive(Debug)]
pub(in crate::cluster) struct Batch {
    backlog: Arc<Backlog>,
    tag: String,
    low: u64,
    settlements: Vec<Numbered>,
    not_before: Option<Instant>,
}

/// The settlements that a decision carries.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Carried {
    /// Further keys of the call.
    pub(in crate::cluster) keys: Vec<String>,
    /// Further arguments.
    pub(in crate::cluster) lines: Vec<String>,
}

impl Table {
    fn remove(&mut self, number: u64) -> bool {
        let Some(Entry { settlement, .. }) = self.entries.remove(&number) else { return false };
        let key = settlement.key();
        let Some(of_tag) = self.tags.get_mut(tag(key)) else { return true };

        of_tag.all.remove(&number);
        of_tag.due.remove(&number);
        if let Some(of_key) = of_tag.keys.get_mut(key) {
            of_key.remove(&number);
            if of_key.is_empty() {
                of_tag.keys.remove(key);
            }
        }
        if of_tag.all.is_empty() {
            self.tags.remove(tag(key));
        }
        true
    }

    /// Returns settlements to send, and notes the time.
    fn send(&mut self, numbers: impl IntoIterator<Item = u64>, now: Instant) -> Vec<Numbered> {
        let mut numbered = Vec::new();
        for number in numbers {
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.sent.get_or_insert(now);
                let settlement = Arc::clone(&entry.settlement);
                numbered.push(Numbered { number, settlement });
            }
        }
        numbered
    }
}

impl Backlog {
    /// Adds a settlement at `now`. Returns false if too many wait, so that it is dropped.
    pub(in crate::cluster) fn add(&self, settlement: Settlement, now: Instant) -> bool {
        let mut table = self.lock();
        if table.entries.len() >= MOST {
            drop(table);
            self.count(SettlementEnd::Full, 1);
            return false;
        }

        table.latest += 1;
        let number = table.latest;
        let key = settlement.key();
        let of_tag = match table.tags.get_mut(tag(key)) {
            Some(of_tag) => of_tag,
            None => table.tags.entry(tag(key).to_owned()).or_default(),
        };
        of_tag.all.insert(number);
        of_tag.due.insert(number);
        of_tag.keys.entry(key.to_owned()).or_default().insert(number);

        let entry = Entry { settlement: Arc::new(settlement), since: now, sent: None };
        table.entries.insert(number, entry);
        true
    }

    /// Takes settlements to send at `now`, of a hash tag that can be reached.
    pub(in crate::cluster) fn take(
        self: &Arc<Self>,
        now: Instant,
        is_reached: impl Fn(&str) -> bool,
    ) -> Option<Batch> {
        let mut table = self.lock();
        let is_due = |tag: &str, of_tag: &Tag| {
            !of_tag.due.is_empty()
                && of_tag.not_before.is_none_or(|time| time <= now)
                && is_reached(tag)
        };
        let (tag, of_tag) = table.tags.iter_mut().find(|(tag, of_tag)| is_due(tag, of_tag))?;

        let low = of_tag.all.first().copied()?;
        let mut numbers = Vec::new();
        while numbers.len() < BATCH
            && let Some(number) = of_tag.due.pop_first()
        {
            numbers.push(number);
        }
        let tag = tag.clone();
        let settlements = table.send(numbers, now);
        Some(Batch { backlog: Arc::clone(self), tag, low, settlements, not_before: None })
    }

    /// Returns the settlements of the states under `keys` that the store may not have applied yet,
    /// for a decision at `now` about these states.
    pub(in crate::cluster) fn carry(
        &self,
        keys: &[String],
        prefix: &str,
        gateway: &str,
        now: Instant,
    ) -> Carried {
        let mut carried = Carried::default();
        let mut table = self.lock();
        if table.entries.is_empty() {
            return carried;
        }

        for (at, key) in keys.iter().enumerate() {
            let left = MOST_CARRIED.saturating_sub(carried.lines.len());
            let Some(of_tag) = table.tags.get(tag(key)) else { continue };
            let Some(low) = of_tag.all.first().copied() else { continue };
            let Some(of_key) = of_tag.keys.get(key) else { continue };
            let numbers: Vec<u64> = of_key.iter().copied().take(left).collect();

            let settled = settled_key(prefix, tag(key), gateway);
            let known = carried.keys.iter().position(|key| *key == settled);
            let settled_at = known.unwrap_or_else(|| {
                carried.keys.push(settled);
                carried.keys.len() - 1
            });
            let places = Places { low, settled: keys.len() + settled_at + 1, state: at + 1 };
            let settlements = table.send(numbers, now);
            carried.lines.extend(settlements.iter().map(|numbered| numbered.line(places, now)));
        }
        carried
    }

    /// Drops the settlements that were not confirmed in time, and returns how many. It searches once in
    /// ten seconds.
    pub(in crate::cluster) fn drop_late(&self, now: Instant) -> usize {
        let mut table = self.lock();
        if table.entries.is_empty()
            || table.searched.is_some_and(|last| now.since(last) < SEARCH_PERIOD)
        {
            return 0;
        }
        table.searched = Some(now);
        let is_late = |entry: &Entry| {
            now.since(entry.since) > LATE
                || entry.sent.is_some_and(|sent| now.since(sent) > LATE_ONCE_SENT)
        };
        let late = table.entries.iter().filter(|(_, entry)| is_late(entry));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in &late {
            table.remove(*number);
        }
        drop(table);
        self.count(SettlementEnd::Late, late.len());
        late.len()
    }

    /// Returns how many wait.
    pub(in crate::cluster) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Waits until none waits.
    pub(in crate::cluster) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Returns how many have ended, by the word of their end.
    pub(in crate::cluster) fn ends(&self) -> Vec<(&'static str, u64)> {
        let counts = self.ends.iter().map(|count| count.load(Relaxed));
        SettlementEnd::ALL.map(SettlementEnd::word).into_iter().zip(counts).collect()
    }

    fn count(&self, end: SettlementEnd, count: usize) {
        self.ends[end as usize].fetch_add(count as u64, Relaxed);
        if self.len() == 0 {
            self.emptied.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    /// Returns the keys of the call.
    pub(in crate::cluster) fn keys(&self, prefix: &str, gateway: &str) -> Vec<String> {
        let states = self.settlements.iter().map(|numbered| numbered.settlement.key().to_owned());
        [settled_key(prefix, &self.tag, gateway)].into_iter().chain(states).collect()
    }

    /// Returns its settlements in the words of the script.
    pub(in crate::cluster) fn lines(&self, now: Instant) -> impl Iterator<Item = String> {
        let low = self.low;
        self.settlements.iter().enumerate().map(move |(at, numbered)| {
            numbered.line(Places { low, settled: 1, state: at + 2 }, now)
        })
    }

    /// Notes that the store has applied all but those with the `rejected` numbers, which are dropped.
    pub(in crate::cluster) fn done(mut self, rejected: &[u64]) {
        let settlements = core::mem::take(&mut self.settlements);
        let mut ended = [0; 2];
        let mut table = self.backlog.lock();
        for Numbered { number, .. } in settlements {
            let is_rejected = rejected.contains(&number);
            if table.remove(number) {
                ended[usize::from(is_rejected)] += 1;
            }
        }
        drop(table);
        self.backlog.count(SettlementEnd::Applied, ended[0]);
        self.backlog.count(SettlementEnd::Rejected, ended[1]);
    }

    /// Has it sent again, not before this time.
    pub(in crate::cluster) fn later(mut self, not_before: Instant) {
        self.not_before = Some(not_before);
    }
}

impl Drop for Batch {
    /// Has the settlements sent again whose call was not answered.
    fn drop(&mut self) {
        let mut table = self.backlog.lock();
        let table = &mut *table;
        let Some(of_tag) = table.tags.get_mut(&self.tag) else { return };
        let numbers = self.settlements.iter().map(|numbered| numbered.number);
        of_tag.due.extend(numbers.filter(|number| table.entries.contains_key(number)));
        of_tag.not_before = of_tag.not_before.max(self.not_before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::settle::call::StoreReserve,
        flow::{Algorithm, Rate, Stored, limiter::token_bucket},
    };

    fn rule() -> Arc<Stored> {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        let bucket = Algorithm::TokenBucket(token_bucket::Config { rate, burst: 10 });
        Arc::new(Stored::new(&bucket).expect("a bucket"))
    }

    fn settlement(rule: &Arc<Stored>, key: &str) -> Settlement {
        let reserve = StoreReserve::new(key.to_owned(), Arc::clone(rule), 1, Instant::EPOCH);
        reserve.settlement(3).expect("a difference")
    }

    fn seconds(count: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(count)
    }

    fn numbers(batch: &Batch) -> Vec<u64> {
        batch.settlements.iter().map(|numbered| numbered.number).collect()
    }

    fn end(backlog: &Backlog, word: &str) -> u64 {
        backlog.ends().into_iter().find(|(end, _)| *end == word).expect("an end").1
    }

    #[test]
    fn what_is_not_confirmed_is_sent_again_under_its_number() {
        let backlog = Arc::new(Backlog::default());
        let rule = rule();
        for key in ["{a}:r", "{a}:s", "{a}:r"] {
            assert!(backlog.add(settlement(&rule, key), seconds(0)));
        }
        let take = |now| backlog.take(seconds(now), |_| true);
        let batch = take(0).expect("all");
        assert_eq!((numbers(&batch), batch.low), (vec![1, 2, 3], 1));
        assert_eq!(batch.keys("p:", "g"), ["p:{a}:settled:g", "{a}:r", "{a}:s", "{a}:r"]);
        assert!(take(0).is_none(), "they are on the way");
        drop(batch);
        let batch = take(0).expect("all again");
        assert_eq!(numbers(&batch), [1, 2, 3]);
        batch.later(seconds(2));
        assert!(take(1).is_none(), "after a pause");
        let batch = take(2).expect("all again");
        batch.done(&[2]);
        assert_eq!((backlog.len(), end(&backlog, "applied"), end(&backlog, "rejected")), (0, 2, 1));
        assert!(take(9).is_none());
        backlog.add(settlement(&rule, "{a}:r"), seconds(9));
        assert_eq!(take(9).expect("one").low, 4, "all before are confirmed");
    }

    #[test]
    fn a_decision_carries_what_waits_for_its_states_and_confirms_nothing() {
        let backlog = Arc::new(Backlog::default());
        let rule = rule();
        for key in ["{a}:r", "{a}:s", "{b}:t", "{a}:r"] {
            backlog.add(settlement(&rule, key), seconds(0));
        }
        let keys = ["{a}:r", "{b}:t", "{c}:u"].map(str::to_owned);
        let carried = backlog.carry(&keys, "", "g", seconds(1));
        assert_eq!(carried.keys, ["{a}:settled:g", "{b}:settled:g"]);
        let places: Vec<String> = carried
            .lines
            .iter()
            .map(|line| line.split(' ').take(5).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(places, ["settle 1 1 4 1", "settle 4 1 4 1", "settle 3 3 5 2"]);
        assert_eq!(backlog.len(), 4);

        for _ in 0..2 * MOST_CARRIED {
            backlog.add(settlement(&rule, "{a}:r"), seconds(0));
        }
        let carried = backlog.carry(&keys, "", "g", seconds(1));
        assert_eq!(carried.lines.len(), MOST_CARRIED);
        let nothing = Backlog::default().carry(&keys, "", "g", seconds(1));
        assert!(nothing.keys.is_empty() && nothing.lines.is_empty());
    }

    #[test]
    fn tags_that_cannot_be_reached_keep_no_other_waiting() {
        let backlog = Arc::new(Backlog::default());
        let rule = rule();
        backlog.add(settlement(&rule, "{a}:r"), seconds(0));
        backlog.add(settlement(&rule, "{b}:r"), seconds(0));
        let batch = backlog.take(seconds(0), |tag| tag == "b").expect("one");
        assert_eq!(numbers(&batch), [2]);
        assert!(backlog.take(seconds(0), |tag| tag == "b").is_none());
        batch.done(&[]);
        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn what_comes_when_too_many_wait_is_dropped_and_counted() {
        let backlog = Arc::new(Backlog::default());
        let rule = rule();
        for at in 0..MOST {
            assert!(backlog.add(settlement(&rule, &format!("{{{}}}:r", at % 7)), seconds(0)));
        }
        assert!(!backlog.add(settlement(&rule, "{0}:r"), seconds(0)));
        assert_eq!((backlog.len(), end(&backlog, "full")), (MOST, 1));
        let batch = backlog.take(seconds(0), |_| true).expect("some");
        assert_eq!(batch.settlements.len(), BATCH);
        batch.done(&[]);
        assert!(backlog.add(settlement(&rule, "{0}:r"), seconds(0)), "there is room again");
    }

    #[test]
    fn what_was_not_confirmed_in_time_is_dropped_sooner_if_it_was_sent() {
        let backlog = Arc::new(Backlog::default());
        let rule = rule();
        backlog.add(settlement(&rule, "{a}:r"), seconds(0));
        drop(backlog.take(seconds(60), |_| true));
        backlog.add(settlement(&rule, "{a}:r"), seconds(0));
        let sent = seconds(60) + LATE_ONCE_SENT;
        assert_eq!(backlog.drop_late(sent), 0);
        assert_eq!(backlog.drop_late(sent + Duration::from_nanos(1)), 0, "searched just now");
        assert_eq!(backlog.drop_late(sent + SEARCH_PERIOD), 1);
        assert_eq!(backlog.drop_late(seconds(0) + LATE), 0);
        assert_eq!(backlog.drop_late(seconds(0) + LATE + SEARCH_PERIOD), 1);
        assert_eq!((backlog.len(), end(&backlog, "late")), (0, 2));
    }

    #[tokio::test]
    async fn the_end_of_the_last_one_is_noticed() {
        let backlog = Arc::new(Backlog::default());
        backlog.emptied().await;
        backlog.add(settlement(&rule(), "{a}:r"), seconds(0));
        let batch = backlog.take(seconds(0), |_| true).expect("one");
        let (emptied, ()) = tokio::join!(
            async {
                backlog.emptied().await;
                backlog.len()
            },
            async { batch.done(&[]) }
        );
        assert_eq!(emptied, 0);
    }
}
