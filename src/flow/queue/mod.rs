//! A place to wait in front of a limit on requests in flight.
//!
//! A request that finds no free place waits, if fewer than `max` do, for at most `max_wait` from its
//! arrival. When a request ends, the next one that waits for a place of the same state starts, in the
//! order of [`turns`]. No request overtakes: while others wait for places of its state, a request waits
//! even if it would fit.
//!
//! A full queue is shared too: a request of an earlier class, or of a sharer with fewer requests, takes the
//! room of another one: see `loads.rs`.
//!
//! The queue decides nothing by a clock: who waits asks again when the waker is called, or when
//! `max_wait` is over.
//!
//! Worst case: `max` waiting requests, in all states of the rule together. Each operation takes time
//! `O(log n)`.

mod loads;
mod turns;

use super::{
    decision::{Claim, Decision, Reason, SlotId},
    keyed::{KeySlot, Lookup},
    limiter::concurrency::QueueConfig,
    slot::{Charge, SlotAnswer},
    time::{Instant, nanos},
};
use core::{
    mem::{replace, take},
    task::Waker,
    time::Duration,
};
use loads::{Loads, Waiting};
use std::collections::BTreeMap;
pub use turns::Sharer;
use turns::{Entry, Settings, Turns};

/// The requests that wait for a place of one rule.
#[derive(Debug)]
pub(super) struct WaitQueue {
    config: QueueConfig,
    /// By ticket. Each stays until its request has seen the end of its wait.
    waiters: Vec<Option<Waiter>>,
    /// The tickets without a waiter.
    free: Vec<u32>,
    /// The number of requests that wait.
    waiting: u32,
    serial: u64,
    /// Those that wait for places of one state; never an empty one.
    lines: BTreeMap<KeySlot, Line>,
    /// The requests that wait, by sharer, if those share the room.
    loads: Option<Box<Loads>>,
}

#[derive(Debug)]
struct Line {
    turns: Turns,
    pace: Pace,
}

#[derive(Debug)]
struct Waiter {
    claim: Claim,
    entry: Entry,
    key_slot: KeySlot,
    deadline: Instant,
    /// The end of its wait, once it is known.
    end: Option<End>,
    waker: Waker,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
enum End {
    Started(Start),
    Rejected(Reason),
}

/// The progress of a request in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Progress {
    /// It waits, at most until then.
    Waiting { until: Instant },
    /// It has its place.
    Started(Start),
    /// It does not get one.
    Rejected(Reason),
}

/// The place of a request that has waited for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) at: Instant,
    /// The slot that has the charge. An edit may have reset it since then.
    pub(super) slot: SlotId,
    pub(super) charge: Charge,
}

/// The decision about a request in front of which there is a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueDecision {
    /// It is as without the queue.
    As(Decision),
    /// The request has to wait.
    Wait,
}

/// A request that begins to wait.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    pub(super) claim: &'a Claim,
    pub(super) sharer: Sharer,
    pub(super) at: Instant,
    pub(super) waker: &'a Waker,
}

impl WaitQueue {
    pub(super) fn new(config: QueueConfig) -> Self {
        Self {
            loads: loads(&config),
            config,
            waiters: Vec::new(),
            free: Vec::new(),
            waiting: 0,
            serial: 0,
            lines: BTreeMap::new(),
        }
    }

    /// Returns the number of requests that wait.
    pub(super) const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns whether it has no request at all, also none that has not seen the end of its wait.
    pub(super) const fn is_unused(&self) -> bool {
        self.waiters.len() == self.free.len()
    }

    /// Decides about a request at `now` after the limiter.
    pub(super) fn decide(&self, answer: SlotAnswer, cost: u64, now: Instant) -> QueueDecision {
        let SlotAnswer { decision, lookup } = answer;
        let key_slot = match lookup {
            Lookup::At(key_slot) if cost > 0 => key_slot,
            // A new client has room.
            Lookup::At(_) | Lookup::New { .. } => return QueueDecision::As(decision),
        };

        let has_to_wait = match decision {
            Decision::Reject(Reason::Concurrency { .. }) => true,
            Decision::Pass => self.has_line(key_slot),
            Decision::Reject(_) | Decision::Delay(_) => false,
        };
        if !has_to_wait {
            QueueDecision::As(decision)
        } else if self.waiting < self.config.max || self.loads.is_some() {
            // If it is full, the request's share decides when it begins to wait.
            QueueDecision::Wait
        } else {
            let retry_after = self.estimate(key_slot, now);
            QueueDecision::As(Decision::Reject(Reason::NoRoomToWait { retry_after }))
        }
    }

    /// Returns the end of the wait of a request that arrived at `arrival`.
    pub(super) fn deadline(&self, arrival: Instant) -> Instant {
        arrival + self.config.max_wait
    }

    /// Makes room for a request of this sharer, if it is full. Another request may have to go for it.
    ///
    /// # Errors
    ///
    /// The rejection of the request, if there is no room for it.
    pub(super) fn make_room(
        &mut self,
        key_slot: KeySlot,
        sharer: Sharer,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) -> Result<(), Reason> {
        if self.waiting < self.config.max {
            return Ok(());
        }

        let reason = Reason::NoRoomToWait { retry_after: self.estimate(key_slot, now) };
        let victim = self.loads.as_ref().and_then(|loads| loads.victim(key_slot, sharer));
        let Some(Waiting { class, key_slot, key }) = victim else { return Err(reason) };
        let line = self.lines.get(&key_slot);
        let Some(last) = line.and_then(|line| line.turns.last_of(class, key, now)) else {
            return Err(reason);
        };
        let retry_after = self.estimate(key_slot, now);
        self.reject(last.ticket, Reason::NoRoomToWait { retry_after }, woken);
        Ok(())
    }

    /// Adds a request that waits for a place of this state. Returns its ticket.
    pub(super) fn push(&mut self, arrival: &Arrival<'_>, key_slot: KeySlot, now: Instant) -> u32 {
        let &Arrival { claim, sharer, at, waker } = arrival;
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.waiters.push(None);
            u32::try_from(self.waiters.len() - 1).unwrap_or(u32::MAX)
        });

        self.serial += 1;
        let serial = self.serial;
        let entry = Entry { sharer, cost: claim.cost, serial, arrival: at, ticket };
        let waiter = Waiter {
            claim: *claim,
            entry,
            key_slot,
            deadline: self.deadline(at),
            end: None,
            waker: waker.clone(),
        };

        if let Some(place) = self.waiters.get_mut(ticket as usize) {
            *place = Some(waiter);
        }
        self.line_up(key_slot, entry, now);
        ticket
    }

    fn line_up(&mut self, key_slot: KeySlot, entry: Entry, now: Instant) {
        let settings = settings(&self.config);
        let new = || Line { turns: Turns::new(settings), pace: Pace::new(now) };
        self.lines.entry(key_slot).or_insert_with(new).turns.push(entry);
        if let Some(loads) = &mut self.loads {
            loads.add(key_slot, entry.sharer);
        }
        self.waiting += 1;
    }

    /// Notes that a request has left its line.
    fn count_left(&mut self, key_slot: KeySlot, sharer: Sharer) {
        if let Some(loads) = &mut self.loads {
            loads.remove(key_slot, sharer);
        }
        self.waiting -= 1;
    }

    /// Returns the ticket of the request that is next for a place of this state. Those whose wait is
    /// over by `now` are late.
    pub(super) fn next(
        &mut self,
        key_slot: KeySlot,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) -> Option<u32> {
        loop {
            let ticket = self.lines.get(&key_slot)?.turns.next(now)?.ticket;
            let waiter = self.waiters.get(ticket as usize)?.as_ref()?;
            if now < waiter.deadline {
                return Some(ticket);
            }
            let reason = self.late(key_slot, now);
            self.reject(ticket, reason, woken);
        }
    }

    /// Returns the claim of a request.
    pub(super) fn claim(&self, ticket: u32) -> Option<Claim> {
        Some(self.waiters.get(ticket as usize)?.as_ref()?.claim)
    }

    /// Gives a waiting request its place.
    pub(super) fn start(&mut self, ticket: u32, start: Start, woken: &mut Vec<Waker>) {
        let Some((entry, key_slot)) = self.end(ticket, End::Started(start), woken) else { return };
        if let Some(line) = self.lines.get_mut(&key_slot)
            && line.turns.start(&entry)
        {
            line.pace.on_start(start.at);
            self.count_left(key_slot, entry.sharer);
        }
        self.drop_empty(key_slot);
    }

    /// Ends the wait of a request without a place.
    pub(super) fn reject(&mut self, ticket: u32, reason: Reason, woken: &mut Vec<Waker>) {
        if let Some((entry, key_slot)) = self.end(ticket, End::Rejected(reason), woken) {
            self.leave_line(key_slot, &entry);
        }
    }

    /// Notes the end of a wait, for the request to see. Returns its entry, and the state whose line that
    /// is still in.
    fn end(&mut self, ticket: u32, end: End, woken: &mut Vec<Waker>) -> Option<(Entry, KeySlot)> {
        let waiter = self.waiters.get_mut(ticket as usize)?.as_mut()?;
        waiter.end = Some(end);
        woken.push(replace(&mut waiter.waker, Waker::noop().clone()));
        Some((waiter.entry, waiter.key_slot))
    }

    /// Returns the progress of a request at `now`, which calls `waker` when that changes. A request
    /// that does not wait any more is forgotten.
    pub(super) fn poll(&mut self, ticket: u32, now: Instant, waker: &Waker) -> Option<Progress> {
        let waiter = self.waiters.get_mut(ticket as usize)?.as_mut()?;
        let until = waiter.deadline;
        let key_slot = waiter.key_slot;
        let progress = match waiter.end {
            None if now < until => {
                waiter.waker.clone_from(waker);
                return Some(Progress::Waiting { until });
            }
            None => Progress::Rejected(self.late(key_slot, now)),
            Some(End::Started(start)) => Progress::Started(start),
            Some(End::Rejected(reason)) => Progress::Rejected(reason),
        };
        self.forget(ticket);
        Some(progress)
    }

    /// Removes a request. Returns the place that it has, if it has one.
    pub(super) fn forget(&mut self, ticket: u32) -> Option<Start> {
        let waiter = self.waiters.get_mut(ticket as usize)?.take()?;
        self.free.push(ticket);
        if self.is_unused() && self.waiters.len() > KEPT_ROOM {
            self.waiters = Vec::new();
            self.free = Vec::new();
        }
        match waiter.end {
            None => {
                self.leave_line(waiter.key_slot, &waiter.entry);
                None
            }
            Some(End::Started(start)) => Some(start),
            Some(End::Rejected(_)) => None,
        }
    }

    /// Returns the state for whose places a request waits.
    pub(super) fn line_of(&self, ticket: u32) -> Option<KeySlot> {
        Some(self.waiters.get(ticket as usize)?.as_ref()?.key_slot)
    }

    /// Returns the states for which requests wait.
    pub(super) fn key_slots(&self) -> Vec<KeySlot> {
        self.lines.keys().copied().collect()
    }

    /// Returns whether requests wait for places of this state.
    pub(super) fn has_line(&self, key_slot: KeySlot) -> bool {
        self.lines.contains_key(&key_slot)
    }

    fn leave_line(&mut self, key_slot: KeySlot, entry: &Entry) {
        if let Some(line) = self.lines.get_mut(&key_slot)
            && line.turns.remove(entry)
        {
            self.count_left(key_slot, entry.sharer);
        }
        self.drop_empty(key_slot);
    }

    fn drop_empty(&mut self, key_slot: KeySlot) {
        if self.lines.get(&key_slot).is_some_and(|line| line.turns.is_empty()) {
            self.lines.remove(&key_slot);
        }
    }

    /// Returns the rejection of a request that has waited for too long for a place of this state.
    pub(super) fn late(&self, key_slot: KeySlot, now: Instant) -> Reason {
        Reason::WaitedTooLong { retry_after: self.estimate(key_slot, now) }
    }

    /// Estimates when those have started that wait for a place of this state.
    fn estimate(&self, key_slot: KeySlot, now: Instant) -> Duration {
        let interval = self.lines.get(&key_slot).and_then(|line| line.pace.interval(now));
        interval.map_or(self.config.max_wait, |interval| {
            interval.saturating_mul(self.waiting.max(1)).min(LONGEST_ESTIMATE)
        })
    }
}

/// Edits.
impl WaitQueue {
    /// Takes over other settings. Of more than `max` requests that wait, the newest are rejected.
    /// Those that wait keep the end of their wait.
    pub(super) fn set(&mut self, config: QueueConfig, now: Instant, woken: &mut Vec<Waker>) {
        self.config = config;
        let settings = settings(&self.config);
        self.lines.values_mut().for_each(|line| line.turns.set(settings));
        self.count_loads();

        let excess = self.waiting.saturating_sub(self.config.max) as usize;
        if excess > 0 {
            let tickets = self.waiting_tickets();
            for &ticket in tickets.iter().rev().take(excess) {
                let waiter = self.waiters.get(ticket as usize).and_then(Option::as_ref);
                let key_slot = waiter.map_or(KeySlot::Shared, |waiter| waiter.key_slot);
                let retry_after = self.estimate(key_slot, now);
                self.reject(ticket, Reason::NoRoomToWait { retry_after }, woken);
            }
        }
    }

    /// Lets no further request wait. Those that do go on.
    pub(super) fn close(&mut self) {
        self.config.max = 0;
        self.loads = None;
    }

    /// Counts the requests that wait by other settings.
    fn count_loads(&mut self) {
        self.loads = loads(&self.config);
        let Some(loads) = &mut self.loads else { return };
        for waiter in self.waiters.iter().flatten().filter(|waiter| waiter.end.is_none()) {
            loads.add(waiter.key_slot, waiter.entry.sharer);
        }
    }

    /// Takes all that wait out of their lines. Returns their tickets in the order of their arrival.
    pub(super) fn take_lines(&mut self) -> Vec<u32> {
        let tickets = self.waiting_tickets();
        self.lines.clear();
        self.loads = loads(&self.config);
        self.waiting = 0;
        tickets
    }

    /// Has a request that was taken out wait for a place of this state.
    pub(super) fn put_back(&mut self, ticket: u32, key_slot: KeySlot, now: Instant) {
        let Some(waiter) = self.waiters.get_mut(ticket as usize).and_then(Option::as_mut) else {
            return;
        };
        waiter.key_slot = key_slot;
        let entry = waiter.entry;
        self.line_up(key_slot, entry, now);
    }

    /// Wakes all that wait, because their rule is gone.
    pub(super) fn dissolve(mut self, woken: &mut Vec<Waker>) {
        let waiters = take(&mut self.waiters).into_iter().flatten();
        let waiting = waiters.filter(|waiter| waiter.end.is_none());
        woken.extend(waiting.map(|waiter| waiter.waker));
    }

    /// Returns the tickets of those that wait, in the order of their arrival.
    fn waiting_tickets(&self) -> Vec<u32> {
        let waiting = self.waiters.iter().flatten();
        let waiting = waiting.filter(|waiter| waiter.end.is_none());
        let mut entries: Vec<Entry> = waiting.map(|waiter| waiter.entry).collect();
        entries.sort_by_key(|entry| entry.serial);
        entries.into_iter().map(|entry| entry.ticket).collect()
    }
}

/// Returns the loads of an empty queue whose room is shared.
fn loads(config: &QueueConfig) -> Option<Box<Loads>> {
    let &QueueConfig { classes, floor, max, shares, .. } = config;
    shares.then(|| Box::new(Loads::new(classes.get(), floor, max)))
}

/// Returns the settings of the order.
fn settings(config: &QueueConfig) -> Settings {
    Settings {
        classes: config.classes.get(),
        floor: u64::from(config.floor),
        late: config.newest_when_late.then(|| config.max_wait / 2),
    }
}

/// Waiters to keep memory for while none waits.
const KEPT_ROOM: usize = 1024;

/// The longest estimate that a rejected client gets: a longer one would be a guess about other times.
const LONGEST_ESTIMATE: Duration = Duration::from_mins(1);

/// The rate of starts while requests wait.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The latest start, or the first wait before that.
    last: Instant,
    /// The mean time between two starts, which forgets 1/8 with each; 0 before the first.
    mean: u64,
}

impl Pace {
    const fn new(now: Instant) -> Self {
        Self { last: now, mean: 0 }
    }

    fn on_start(&mut self, now: Instant) {
        let gap = nanos(now.since(self.last));
        self.last = now;
        self.mean = if self.mean == 0 { gap } else { self.mean - self.mean / 8 + gap / 8 };
    }

    /// Returns the mean time between two starts, if there was one. It is longer if the latest is longer
    /// ago.
    fn interval(self, now: Instant) -> Option<Duration> {
        let mean = Duration::from_nanos(self.mean);
        (self.mean > 0).then(|| mean.max(now.since(self.last)))
    }
}
