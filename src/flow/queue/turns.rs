//! The order in which waiting requests start.
//!
//! Three rules decide, in this order:
//!
//! - **Classes.** A class starts before all later ones. The last class has a floor: while it waits, at
//!   least this share of what starts is its.
//! - **Sharers.** The sharers of a class take turns by their weights: self-clocked fair queueing. The
//!   class has a virtual time `V`. When a request of cost `c` becomes the first of a sharer with weight
//!   `w`, it is to finish at
//!
//!   ```text
//!   F = V + c / w
//!   ```
//!
//!   The sharer with the least `F` is next, of equal ones the one whose request became its first
//!   earlier; then `V = F`. So a sharer that comes, or comes back, begins behind those that are there,
//!   and has saved nothing.
//! - **Requests** of one sharer start in the order of their arrival; or the newest first, once the
//!   oldest has waited for longer than a bound.
//!
//! Worst case: between two starts of a sharer that waits, no other of its weight starts more than twice,
//! if all requests cost the same. Each operation takes time `O(log n)`. Memory: only for what waits.
//!
//! Source: S. J. Golestani, "A self-clocked fair queueing scheme for broadband applications", INFOCOM 1994.

use crate::flow::time::Instant;
use core::{num::NonZeroU32, time::Duration};
use std::collections::{BTreeMap, BTreeSet};

/// A request of cost 1 and weight 1 takes so much virtual time. Weights divide it.
const UNIT: u128 = 1 << 32;

/// The denominator of the last class's floor.
pub(super) const WHOLE: u64 = 10_000;

/// The part that a request has in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// Tells the sharers of a class apart.
    pub key: u64,
    /// Its share beside those of others.
    pub weight: NonZeroU32,
    /// Its class, counted from 0; beyond the last one it is of the last.
    pub class: u8,
}

impl Default for Sharer {
    fn default() -> Self {
        Self { key: 0, weight: NonZeroU32::MIN, class: u8::MAX }
    }
}

/// A waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) sharer: Sharer,
    pub(super) cost: u64,
    /// Increases with each request.
    pub(super) serial: u64,
    pub(super) arrival: Instant,
    /// The ticket by which the queue finds it.
    pub(super) ticket: u32,
}

impl Entry {
    /// Returns the virtual time that it takes.
    fn length(&self) -> u128 {
        u128::from(self.cost) * UNIT / u128::from(self.sharer.weight.get())
    }
}

/// The settings of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// The number of classes, at least 1.
    pub(super) classes: u8,
    /// The last class's share of [`WHOLE`].
    pub(super) floor: u64,
    /// The newest request of a sharer is next once its oldest has waited for longer; `None`: never.
    pub(super) late: Option<Duration>,
}

/// Waiting requests in their order.
#[derive(Debug)]
pub(super) struct Turns {
    settings: Settings,
    /// The first ones first; at least one.
    classes: Vec<Class>,
    /// The part of [`WHOLE`], times a cost, that the last class is to start.
    owed: u128,
    /// Counts the requests that became the first of their sharer.
    firsts: u64,
}

/// The waiting requests of a class.
#[derive(Debug, Default)]
struct Class {
    /// The virtual time.
    time: u128,
    heads: BTreeSet<Head>,
    lines: BTreeMap<u64, Line>,
}

/// A sharer's place among those of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    finish: u128,
    /// The number of the request as the first of its sharer.
    first: u64,
    key: u64,
}

/// The waiting requests of a sharer.
#[derive(Debug)]
struct Line {
    head: Head,
    /// The virtual time of the request that `head` stands for.
    length: u128,
    /// By their serial numbers.
    waiting: BTreeMap<u64, Entry>,
}

impl Turns {
    pub(super) fn new(settings: Settings) -> Self {
        let classes = (0..settings.classes.max(1)).map(|_| Class::default()).collect();
        Self { settings, classes, owed: 0, firsts: 0 }
    }

    /// Takes over other settings. Requests of classes that are gone are of the last one.
    pub(super) fn set(&mut self, settings: Settings) {
        self.settings = settings;
        let wanted = usize::from(settings.classes.max(1));
        let mut left: Vec<Class> = Vec::new();
        // The last class also has the requests of classes that did not exist.
        if self.classes.len() < wanted
            && let Some(last) = self.classes.pop()
        {
            left.push(last);
            self.owed = 0;
        }
        while self.classes.len() < wanted {
            self.classes.push(Class::default());
        }
        left.extend(self.classes.drain(wanted..));

        let lines = left.into_iter().flat_map(|class| class.lines.into_values());
        let mut moved: Vec<Entry> = lines.flat_map(|line| line.waiting.into_values()).collect();
        moved.sort_by_key(|entry| entry.serial);
        for entry in moved {
            self.push(entry);
        }
    }

    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.heads.is_empty())
    }

    /// Adds a request.
    pub(super) fn push(&mut self, entry: Entry) {
        self.firsts += 1;
        let first = self.firsts;
        let class = self.class_of(&entry);
        self.classes[class].push(entry, first);
    }

    /// Returns the request that is next.
    pub(super) fn next(&self, now: Instant) -> Option<Entry> {
        let late = self.settings.late;
        let last = self.classes.last()?.next(now, late);
        if let Some(entry) = last.filter(|entry| self.is_owed(entry)) {
            return Some(entry);
        }
        self.classes.iter().find_map(|class| class.next(now, late))
    }

    /// Returns the request of this sharer of this class that would start last.
    pub(super) fn last_of(&self, class: u8, key: u64, now: Instant) -> Option<Entry> {
        let class = self.classes.get(usize::from(class))?;
        class.last_of(key, now, self.settings.late)
    }

    /// Removes a request that starts. Returns whether it was there.
    pub(super) fn start(&mut self, entry: &Entry) -> bool {
        let class = self.class_of(entry);
        let last = self.classes.len() - 1;
        if !self.classes[class].has(entry) {
            return false;
        }

        if !self.classes[last].heads.is_empty() {
            let cost = u128::from(entry.cost);
            self.owed += cost * u128::from(self.settings.floor);
            if class == last {
                self.owed = self.owed.saturating_sub(cost * u128::from(WHOLE));
            }
        }

        self.firsts += 1;
        self.classes[class].start(entry, self.firsts);
        self.forget_debt();
        true
    }

    /// Removes a request that does not start. Returns whether it was there.
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        let class = self.class_of(entry);
        if !self.classes[class].has(entry) {
            return false;
        }
        self.classes[class].remove(entry);
        self.forget_debt();
        true
    }

    /// Returns whether the floor of the last class has this request of it start next.
    fn is_owed(&self, entry: &Entry) -> bool {
        let floor = u128::from(self.settings.floor);
        let cost = u128::from(entry.cost);
        floor > 0 && self.owed + cost * floor >= cost * u128::from(WHOLE)
    }

    /// A class that does not wait saves up nothing.
    fn forget_debt(&mut self) {
        if self.classes.last().is_none_or(|class| class.heads.is_empty()) {
            self.owed = 0;
        }
    }

    fn class_of(&self, entry: &Entry) -> usize {
        usize::from(entry.sharer.class).min(self.classes.len() - 1)
    }
}

impl Line {
    fn oldest(&self) -> Option<&Entry> {
        self.waiting.first_key_value().map(|(_, entry)| entry)
    }

    fn newest(&self) -> Option<&Entry> {
        self.waiting.last_key_value().map(|(_, entry)| entry)
    }

    /// Returns whether its oldest request has waited for longer than `late`.
    fn is_late(&self, now: Instant, late: Option<Duration>) -> bool {
        late.zip(self.oldest()).is_some_and(|(late, oldest)| now.since(oldest.arrival) > late)
    }
}

impl Class {
    fn push(&mut self, entry: Entry, first: u64) {
        let Self { time, heads, lines } = self;
        let key = entry.sharer.key;
        let line = lines.entry(key).or_insert_with(|| {
            let length = entry.length();
            let head = Head { finish: *time + length, first, key };
            heads.insert(head);
            Line { head, length, waiting: BTreeMap::new() }
        });
        line.waiting.insert(entry.serial, entry);
    }

    fn has(&self, entry: &Entry) -> bool {
        let line = self.lines.get(&entry.sharer.key);
        line.is_some_and(|line| line.waiting.contains_key(&entry.serial))
    }

    fn next(&self, now: Instant, late: Option<Duration>) -> Option<Entry> {
        let line = self.lines.get(&self.heads.first()?.key)?;
        let next = if line.is_late(now, late) { line.newest() } else { line.oldest() };
        next.copied()
    }

    fn last_of(&self, key: u64, now: Instant, late: Option<Duration>) -> Option<Entry> {
        let line = self.lines.get(&key)?;
        let last = if line.is_late(now, late) { line.oldest() } else { line.newest() };
        last.copied()
    }

    fn start(&mut self, entry: &Entry, first: u64) {
        let Self { time, heads, lines } = self;
        let Some(line) = lines.get_mut(&entry.sharer.key) else { return };
        line.waiting.remove(&entry.serial);
        heads.remove(&line.head);

        // The head may stand for another request, if the newest one starts.
        let finish = line.head.finish - line.length + entry.length();
        *time = finish.max(*time);
        match line.waiting.first_key_value() {
            None => {
                lines.remove(&entry.sharer.key);
            }
            Some((_, next)) => {
                line.length = next.length();
                line.head = Head { finish: finish + line.length, first, ..line.head };
                heads.insert(line.head);
            }
        }
        self.rest();
    }

    fn remove(&mut self, entry: &Entry) {
        let Self { heads, lines, .. } = self;
        let Some(line) = lines.get_mut(&entry.sharer.key) else { return };
        line.waiting.remove(&entry.serial);

        match line.waiting.first_key_value() {
            None => {
                heads.remove(&line.head);
                lines.remove(&entry.sharer.key);
            }
            Some((_, next)) if next.length() != line.length => {
                heads.remove(&line.head);
                let begin = line.head.finish - line.length;
                line.length = next.length();
                line.head.finish = begin + line.length;
                heads.insert(line.head);
            }
            Some(_) => {}
        }
        self.rest();
    }

    /// Begins anew if nothing waits, so that numbers stay small.
    fn rest(&mut self) {
        if self.heads.is_empty() {
            self.time = 0;
        }
    }
}

#[cfg(test)]
mod tests;
