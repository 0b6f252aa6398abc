//! A state for each client, in bounded memory.
//!
//! At most `max_keys` states are kept. A state is given to another client only
//! when it equals a fresh one, so nobody returns to a fuller budget than was left.
//! A hand goes round the states looking for such, a few at each new client. When
//! it finds none and all `max_keys` are taken, the new client shares one of a few
//! **overflow** states, chosen by its key, with others like it: each of them gets
//! at most what the rule promises one, and memory stays flat however many come.
//! Who gets a state of its own after that starts with the overflow state's use.
//!
//! Clients are found by linear hashing (W. Litwin, VLDB 1980): the table grows by
//! one bucket for each client, so that no request pays for rehashing all of them.
//! Buckets are chains through the states; there is one bucket a state, so a chain
//! holds one or two. Keys are evenly spread fingerprints; see [`Key::Of`].
//!
//! Worst case: while the table is full, clients that are new share overflow states
//! and may be refused because of each other. The hand looks at [`SEARCH`] states
//! for each of them, so states that have become fresh may be found that much later.
//!
//! [`Key::Of`]: super::Key::Of

use std::sync::Arc;

/// What tells a rule's clients apart, and how many it can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The text that names the key, as `client_ip/64`: its identity over an edit.
    pub by: Arc<str>,
    /// The most clients that have a state of their own.
    pub max_keys: u32,
}

/// The number of keys in a rule's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Clients with a state of their own, those included whose state has become
    /// fresh and waits to be given to another.
    pub live: u32,
    /// The most there may be.
    pub max: u32,
    /// Decisions about clients that shared an overflow state.
    pub overflowed: u64,
}

/// Where a charged state lies. It stays there as long as it is not fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// The state that all share, or all without a key of their own.
    Shared,
    /// A client's own.
    Own(u32),
    /// One that several share for want of room.
    Overflow(u32),
}

/// Where the state lies that a decision rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There.
    At(Seat),
    /// Nowhere yet: the client is new.
    New {
        print: Print,
        /// Where its state will lie: a fresh one's place, or one past the last.
        at: u32,
        /// The overflow state whose use it begins with.
        heir_of: Option<u32>,
    },
}

/// A key's fingerprint, in halves that serve different ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    low: u64,
    high: u64,
}

/// The states of a rule's clients.
#[derive(Debug)]
pub(super) struct Table<S> {
    /// Bucket to the first state of its chain; as many as there are states.
    heads: Vec<u32>,
    /// In pieces, so that growing moves none of them.
    pieces: Vec<Vec<Entry<S>>>,
    live: u32,
    max: u32,
    /// Where the search for a fresh state goes on.
    hand: u32,
    /// For requests without a key of their own.
    shared: S,
    /// What a client never seen has.
    fresh: S,
    /// Empty until the first is needed.
    overflow: Vec<S>,
    overflowed: u64,
}

#[derive(Debug)]
struct Entry<S> {
    print: Print,
    /// The next in the bucket's chain, or [`NONE`].
    next: u32,
    state: S,
}

/// No entry.
const NONE: u32 = u32::MAX;

/// Entries in a piece: 40 to 60 KB of the usual states.
const PIECE: usize = 1024;

/// States to look at for a new client when there is no room: at 2 to 3 ns each this
/// costs less than the rest of the decision.
pub(super) const SEARCH: u32 = 32;

/// States to look at while there is room: more than one, so that the table shrinks
/// towards what is live; few, since growing costs little.
const GLANCE: u32 = 4;

/// Overflow states. Enough that one busy client among those without room
/// disturbs few others; a matter of a few KB.
const OVERFLOWS: u32 = 64;

/// Returns the memory that a client's state takes in a table, its bucket included.
pub(super) const fn entry_bytes<S>() -> usize {
    size_of::<Entry<S>>() + size_of::<u32>()
}

impl Print {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of the key")]
    const fn of(key: u128) -> Self {
        Self { low: key as u64, high: (key >> 64) as u64 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
    const fn overflow(self) -> u32 {
        (self.high % OVERFLOWS as u64) as u32
    }
}

impl<S: Clone> Table<S> {
    /// Returns an empty table, which grows as clients come.
    pub(super) fn new(fresh: S, max_keys: u32) -> Self {
        Self {
            heads: Vec::new(),
            pieces: Vec::new(),
            live: 0,
            max: max_keys.min(NONE - 1),
            hand: 0,
            shared: fresh.clone(),
            fresh,
            overflow: Vec::new(),
            overflowed: 0,
        }
    }

    /// Returns the most clients that have a state of their own.
    pub(super) const fn max_keys(&self) -> u32 {
        self.max
    }

    /// Returns the counts.
    pub(super) const fn keys(&self) -> Keys {
        Keys { live: self.live, max: self.max, overflowed: self.overflowed }
    }

    /// Finds the state of `key`, or where it would lie.
    ///
    /// A client for whom an overflow state may be `holding` something back until
    /// it ends stays there, since what is held is released where it was charged.
    pub(super) fn find(&self, key: u128, holding: bool, is_fresh: impl Fn(&S) -> bool) -> Place {
        let print = Print::of(key);
        if let Some(at) = self.chain(print).find(|&at| self.entry(at).print == print) {
            return Place::At(Seat::Own(at));
        }
        let overflow = print.overflow();
        let heir_of = Some(overflow)
            .filter(|&it| self.overflow.get(it as usize).is_some_and(|state| !is_fresh(state)));
        if holding && heir_of.is_some() {
            return Place::At(Seat::Overflow(overflow));
        }
        match self.room(is_fresh) {
            Some(at) => Place::New { print, at, heir_of },
            None => Place::At(Seat::Overflow(overflow)),
        }
    }

    /// Returns the state at `place`.
    pub(super) fn get(&self, place: Place) -> &S {
        match place {
            Place::At(Seat::Shared) => &self.shared,
            Place::At(Seat::Own(at)) => &self.entry(at).state,
            Place::At(Seat::Overflow(at)) | Place::New { heir_of: Some(at), .. } => {
                self.overflow.get(at as usize).unwrap_or(&self.fresh)
            }
            Place::New { heir_of: None, .. } => &self.fresh,
        }
    }

    /// Makes `place`, as found just before, the client's own.
    pub(super) fn seat(&mut self, place: Place) -> Seat {
        match place {
            Place::At(seat) => {
                if let Seat::Overflow(_) = seat {
                    self.on_overflow();
                }
                seat
            }
            Place::New { print, at, .. } => {
                let state = self.get(place).clone();
                if at < self.live {
                    self.unlink(at);
                    *self.entry_mut(at) = Entry { print, next: NONE, state };
                    self.link(at);
                } else {
                    self.push(Entry { print, next: NONE, state });
                }
                self.hand = at + 1;
                Seat::Own(at)
            }
        }
    }

    /// Notes that a request was refused that would have been charged at `place`.
    pub(super) fn pass_over(&mut self, place: Place) {
        if let Place::At(Seat::Overflow(_)) = place {
            self.on_overflow();
        }
    }

    /// Returns the state at `seat`, to be changed.
    pub(super) fn get_mut(&mut self, seat: Seat) -> &mut S {
        match seat {
            Seat::Shared => &mut self.shared,
            Seat::Own(at) => &mut self.entry_mut(at).state,
            Seat::Overflow(at) => {
                if self.overflow.is_empty() {
                    self.overflow.resize(OVERFLOWS as usize, self.fresh.clone());
                }
                &mut self.overflow[at as usize]
            }
        }
    }

    /// Converts every state.
    pub(super) fn convert(&mut self, convert: impl Fn(&mut S)) {
        let own = self.pieces.iter_mut().flatten().map(|entry| &mut entry.state);
        let others = [&mut self.shared, &mut self.fresh];
        own.chain(&mut self.overflow).chain(others).for_each(convert);
    }

    /// Allows for `max_keys` clients. Those over it leave as far as the last ones
    /// are fresh; the rest keep their states, which then go to other clients.
    pub(super) fn resize(&mut self, max_keys: u32, is_fresh: impl Fn(&S) -> bool) {
        self.max = max_keys.min(NONE - 1);
        while self.live > self.max && is_fresh(&self.entry(self.live - 1).state) {
            self.pop();
        }
    }

    fn on_overflow(&mut self) {
        self.overflowed += 1;
        self.hand = self.start().saturating_add(SEARCH);
    }

    /// Returns where the search starts: at the hand, unless that has gone round.
    const fn start(&self) -> u32 {
        if self.hand < self.live { self.hand } else { 0 }
    }

    /// Finds a place for a new client.
    fn room(&self, is_fresh: impl Fn(&S) -> bool) -> Option<u32> {
        let grows = self.live < self.max;
        let looks = self.live.min(if grows { GLANCE } else { SEARCH });
        let from = self.start();
        (0..looks)
            .map(|step| if step < self.live - from { from + step } else { from + step - self.live })
            .find(|&at| is_fresh(&self.entry(at).state))
            .or_else(|| grows.then_some(self.live))
    }

    fn entry(&self, at: u32) -> &Entry<S> {
        &self.pieces[at as usize / PIECE][at as usize % PIECE]
    }

    fn entry_mut(&mut self, at: u32) -> &mut Entry<S> {
        &mut self.pieces[at as usize / PIECE][at as usize % PIECE]
    }

    /// Returns the bucket of `print`: its low bits, as many as number the buckets;
    /// one less where that bucket does not exist yet.
    #[expect(clippy::cast_possible_truncation, reason = "the mask leaves less than a u32")]
    fn bucket(&self, print: Print) -> usize {
        let mask = self.heads.len().next_power_of_two() - 1;
        let bucket = print.low as usize & mask;
        if bucket < self.heads.len() { bucket } else { bucket & (mask >> 1) }
    }

    fn chain(&self, print: Print) -> impl Iterator<Item = u32> {
        let head = self.heads.get(self.bucket(print)).copied();
        let exists = |at: &u32| *at != NONE;
        core::iter::successors(head.filter(exists), move |&at| {
            Some(self.entry(at).next).filter(exists)
        })
    }

    fn link(&mut self, at: u32) {
        let bucket = self.bucket(self.entry(at).print);
        let next = core::mem::replace(&mut self.heads[bucket], at);
        self.entry_mut(at).next = next;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { print, next, .. } = *self.entry(at);
        let before = self.chain(print).find(|&it| self.entry(it).next == at);
        if let Some(before) = before {
            self.entry_mut(before).next = next;
        } else {
            let bucket = self.bucket(print);
            self.heads[bucket] = next;
        }
    }

    fn push(&mut self, entry: Entry<S>) {
        if (self.live as usize).is_multiple_of(PIECE) {
            // The first grows like any vector: most tables stay small.
            self.pieces.push(Vec::with_capacity(if self.live == 0 { 0 } else { PIECE }));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(entry);
        }
        self.live += 1;
        self.heads.push(NONE);
        self.split();
        self.link(self.live - 1);
    }

    fn pop(&mut self) {
        self.unlink(self.live - 1);
        self.live -= 1;
        if let Some(piece) = self.pieces.last_mut() {
            piece.pop();
        }
        self.pieces.pop_if(|piece| piece.is_empty());
        if let Some(chain) = self.heads.pop() {
            self.link_all(chain);
        }
    }

    /// Gives the last bucket, which is new, what has been in another for it: in the
    /// bucket of the same low bits but the highest.
    fn split(&mut self) {
        let buckets = self.heads.len();
        let parent = (buckets - 1) & ((buckets.next_power_of_two() - 1) >> 1);
        let chain = core::mem::replace(&mut self.heads[parent], NONE);
        self.link_all(chain);
    }

    /// Deals out a chain to the buckets where its states belong.
    fn link_all(&mut self, mut at: u32) {
        while at != NONE {
            let next = self.entry(at).next;
            self.link(at);
            at = next;
        }
    }
}
