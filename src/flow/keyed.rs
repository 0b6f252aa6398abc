//! A state for each client, in bounded memory.
//!
//! At most `max_keys` states are kept. A state is given to another client only
//! when it equals a fresh one, so nobody returns to a fuller budget than was left, and
//! has done so for a **grace period**, so that who comes now and then still has it when a
//! flood of new clients wants every place that nobody needs at the moment.
//! A hand goes round the states looking for such, a few at each new client. When
//! it finds none and all `max_keys` are taken, the new client shares one of a few
//! **overflow** states, chosen by its key, with others like it: each of them gets
//! at most what the rule promises one, and memory stays flat however many come.
//! Who gets a state of its own after that starts with the overflow state's use.
//!
//! Worst case: while the table is full, clients that are new share overflow states
//! and may be refused because of each other. The hand looks at [`SEARCH`] states
//! for each of them, so states that have become fresh may be found that much later.
//!
//! An edit of the numbers puts every client's own state out of date, and converts
//! none. A decision first converts what it looks at; the rest is converted a few at
//! a time ([`Table::catch_up`]), so that no request waits for all of them.

mod index;

use super::{exchange::Whose, time::Instant};
use core::time::Duration;
use index::{Index, Print};
use std::sync::Arc;

/// What tells a rule's clients apart, and how many it can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The text that names the key, as `client_ip/64`: its identity over an edit.
    pub by: Arc<str>,
    /// The most clients that have a state of their own.
    pub max_keys: u32,
}

/// Room for the states of clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    pub(super) keyed: &'a Keyed,
    /// How long a place is kept for a client whose state has become fresh.
    pub(super) grace: Duration,
}

/// The number of keys in a rule's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Clients with a state of their own, those included whose state has become
    /// fresh and waits to be given to another.
    pub live: u32,
    /// The most there may be.
    pub max: u32,
    /// Decisions about clients that shared an overflow state, since the rule had this
    /// table; a rule's [`Counts`](super::Counts) have all.
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

/// The states of a rule's clients.
#[derive(Debug)]
pub(super) struct Table<S> {
    own: Index<S>,
    max: u32,
    grace: Duration,
    /// Where the search for a fresh state goes on.
    hand: u32,
    /// States before this one are up to date.
    caught_up: u32,
    /// For requests without a key of their own.
    shared: S,
    /// What a client never seen has.
    fresh: S,
    /// Empty until the first is needed.
    overflow: Vec<S>,
    overflowed: u64,
}

/// States to look at for a new client when there is no room: at 2 to 3 ns each this
/// costs less than the rest of the decision.
pub(super) const SEARCH: u32 = 32;

/// States to look at while there is room: more than one, so that the table shrinks
/// towards what is live; few, since growing costs little.
const GLANCE: u32 = 4;

/// States that [`Table::catch_up`] converts at a time: 16 µs for the slowest.
const STEP: u32 = 32;

/// Overflow states. Enough that one busy client among those without room
/// disturbs few others; a matter of a few KB.
pub(super) const OVERFLOWS: u32 = 64;

/// Returns the memory that a client's state takes in a table, its bucket included.
pub(super) const fn entry_bytes<S>() -> usize {
    index::entry_bytes::<S>()
}

/// States of a rule's table beside those of `max_keys` clients.
pub const OTHERS: u32 = OVERFLOWS + 2;

impl<S: Clone> Table<S> {
    /// Returns an empty table, which grows as clients come.
    pub(super) fn new(fresh: S, max_keys: u32, grace: Duration) -> Self {
        Self {
            own: Index::new(),
            max: max_keys.min(index::MAX),
            grace,
            hand: 0,
            caught_up: 0,
            shared: fresh.clone(),
            fresh,
            overflow: Vec::new(),
            overflowed: 0,
        }
    }

    /// Returns the counts.
    pub(super) const fn keys(&self) -> Keys {
        Keys { live: self.own.len(), max: self.max, overflowed: self.overflowed }
    }

    /// Finds the state of `key`, or where it would lie, with what tells whether a state is
    /// fresh as of an instant.
    ///
    /// A client for whom an overflow state may be `holding` something back until
    /// it ends stays there, since what is held is released where it was charged.
    pub(super) fn find(
        &self,
        key: u128,
        holding: bool,
        now: Instant,
        is_fresh: impl Fn(&S, Instant) -> bool,
    ) -> Place {
        let print = Print::of(key);
        if let Some(at) = self.own.find(print) {
            return Place::At(Seat::Own(at));
        }
        let overflow = overflow_of(print);
        let is_used = |state: &S| !is_fresh(state, now);
        let heir_of =
            Some(overflow).filter(|&it| self.overflow.get(it as usize).is_some_and(is_used));
        if holding && heir_of.is_some() {
            return Place::At(Seat::Overflow(overflow));
        }
        // A state that nobody has touched since was fresh then, if it ever will be.
        let idle_since = now - self.grace;
        match self.room(|state| is_fresh(state, idle_since)) {
            Some(at) => Place::New { print, at, heir_of },
            None => Place::At(Seat::Overflow(overflow)),
        }
    }

    /// Returns the state at `place`.
    pub(super) fn get(&self, place: Place) -> &S {
        match place {
            Place::At(Seat::Shared) => &self.shared,
            Place::At(Seat::Own(at)) => self.own.get(at),
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
            Place::New { print, at, heir_of } => {
                if at == self.own.len() {
                    self.own.push(print, self.get(place).clone(), self.max);
                } else {
                    self.own.give(at, print);
                    if heir_of.is_some() {
                        *self.own.get_mut(at) = self.get(place).clone();
                    }
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
            Seat::Own(at) => self.own.get_mut(at),
            Seat::Overflow(at) => {
                if self.overflow.is_empty() {
                    self.overflow.resize(OVERFLOWS as usize, self.fresh.clone());
                }
                &mut self.overflow[at as usize]
            }
        }
    }

    /// Makes all states fresh.
    pub(super) fn forget(&mut self) {
        let overflowed = self.overflowed;
        *self = Self { overflowed, ..Self::new(self.fresh.clone(), self.max, self.grace) };
    }

    /// Returns the seat of this number, of all that may have been charged, and whose it is.
    pub(super) fn nth(&self, at: u32) -> Option<(Seat, Whose)> {
        let Some(at) = at.checked_sub(1) else { return Some((Seat::Shared, Whose::All)) };
        let overflows = if self.overflow.is_empty() { 0 } else { OVERFLOWS };
        match at.checked_sub(overflows) {
            None => Some((Seat::Overflow(at), Whose::Overflow(at))),
            Some(at) if at < self.own.len() => {
                Some((Seat::Own(at), Whose::Key(self.own.print(at).key())))
            }
            Some(_) => None,
        }
    }

    /// Takes over the bound of `wanted` and its grace, converts what clients share, and leaves their
    /// own states, which must all be up to date, to be converted.
    pub(super) fn retune(&mut self, wanted: &Self, convert: impl Fn(&mut S)) {
        (self.max, self.grace) = (wanted.max, wanted.grace);
        self.caught_up = 0;
        self.own.age();
        self.overflow.iter_mut().chain([&mut self.shared, &mut self.fresh]).for_each(convert);
    }

    /// Converts what a decision about `key` looks at, as far as it is out of date.
    pub(super) fn prepare(&mut self, key: u128, convert: impl Fn(&mut S)) {
        match self.own.find(Print::of(key)) {
            Some(at) => self.own.refresh(at, convert),
            None => self.looks().for_each(|at| self.own.refresh(at, &convert)),
        }
    }

    /// Converts the state at `seat`, if it is out of date.
    pub(super) fn prepare_seat(&mut self, seat: Seat, convert: impl Fn(&mut S)) {
        match seat {
            Seat::Own(at) => self.own.refresh(at, convert),
            Seat::Shared | Seat::Overflow(_) => {}
        }
    }

    /// Goes on with converting. Then clients over `max_keys` leave, as far as the last
    /// ones are fresh; the rest keep their states, which later go to other clients.
    /// Returns whether there may be more to do.
    pub(super) fn catch_up(
        &mut self,
        convert: impl Fn(&mut S),
        is_fresh: impl Fn(&S) -> bool,
    ) -> bool {
        if self.caught_up < self.own.len() {
            let to = self.own.len().min(self.caught_up.saturating_add(STEP));
            (self.caught_up..to).for_each(|at| self.own.refresh(at, &convert));
            self.caught_up = to;
            return true;
        }
        (0..STEP).all(|_| {
            let leaves = self.own.len() > self.max && is_fresh(self.own.get(self.own.len() - 1));
            if leaves {
                self.own.pop();
            }
            leaves
        })
    }

    fn on_overflow(&mut self) {
        self.overflowed += 1;
        self.hand = self.start().saturating_add(SEARCH);
    }

    /// Returns where the search starts: at the hand, unless that has gone round.
    const fn start(&self) -> u32 {
        if self.hand < self.own.len() { self.hand } else { 0 }
    }

    /// Returns whether a new client may get a state that nobody had.
    const fn grows(&self) -> bool {
        self.own.len() < self.max
    }

    /// Returns where a fresh state is looked for.
    fn looks(&self) -> impl Iterator<Item = u32> + use<S> {
        let (len, start) = (self.own.len(), self.start());
        let looks = len.min(if self.grows() { GLANCE } else { SEARCH });
        let at = move |step| if step < len - start { start + step } else { step - (len - start) };
        (0..looks).map(at)
    }

    /// Finds a place for a new client.
    fn room(&self, is_idle: impl Fn(&S) -> bool) -> Option<u32> {
        let idle = self.looks().find(|&at| is_idle(self.own.get(at)));
        idle.or_else(|| self.grows().then_some(self.own.len()))
    }
}

/// Returns the overflow state of a client for whom there is no room.
#[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
const fn overflow_of(print: Print) -> u32 {
    (print.high() % OVERFLOWS as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change,
        limiter::{concurrency, token_bucket},
        timeline::{Timeline, check, keyed, rate},
    };

    fn bucket(burst: u64) -> Algorithm {
        Algorithm::TokenBucket(token_bucket::Config { rate: rate(10, 1000), burst })
    }

    #[test]
    fn each_client_has_its_own_state() {
        check(
            &keyed(bucket(1), 10),
            "
            0 key=a pass
            0 key=b pass
            0 key=a block rate 100
            0       pass
            0       block rate 100
            0 key=0 block key
            ",
        );
    }

    #[test]
    fn only_a_fresh_state_is_given_to_another() {
        check(
            &keyed(bucket(2), 2),
            "
            0    key=a x2 pass
            0    key=b    pass
            99   key=c    pass
            99   key=a    block rate 1
            1000 key=a x2 pass
            1100 key=d    pass
            1101 key=a    pass
            1101 key=a    block rate 99
            ",
        );
    }

    #[test]
    fn a_place_is_kept_for_a_window_though_its_state_is_fresh() {
        let rules = keyed(bucket(2), 1);
        let overflowed = |text: &str| {
            let day = Timeline::new(&rules).check(text);
            day.gate.observe(Instant::EPOCH).rules[0].keys.expect("keys").overflowed
        };
        // The bucket of `a` is full from 100 ms on.
        assert_eq!(overflowed("0 key=a pass\n1099.999999 key=b pass\n1099.999999 key=a pass"), 1);
        assert_eq!(overflowed("0 key=a pass\n1100 key=b pass\n1100 key=a pass"), 1);
        assert_eq!(overflowed("0 key=a pass\n1100 key=b pass\n1100 key=c pass"), 1);
        assert_eq!(overflowed("0 key=a pass\n1100 key=b pass\n1200 key=b pass"), 0);
    }

    #[test]
    fn clients_without_room_get_no_more_than_one_is_promised() {
        check(
            &keyed(bucket(2), 1),
            "
            0   key=a x2 pass
            0   key=b x2 pass
            0   key=b    block rate 100
            150 key=b    pass
            150 key=b    block rate 50
            200 key=b    pass
            200 key=b    block rate 100
            200 key=a x2 pass
            ",
        );
    }

    #[test]
    fn what_is_held_for_want_of_room_is_given_back_there() {
        check(
            &keyed(Algorithm::Concurrency(concurrency::Config { limit: 2 }), 1),
            "
            0 key=a    pass
            0 key=b    pass
            1 done     1
            1 key=b    pass
            1 key=b    block concurrency 2
            2 done     1
            2 done     0
            2 key=b x2 pass
            2 key=b    block concurrency 2
            ",
        );
    }

    #[test]
    fn an_edit_converts_every_client() {
        Timeline::new(&keyed(bucket(2), 10))
            .check("0 key=a x2 pass")
            .check("0 key=b    pass")
            .edit(&keyed(bucket(4), 5), &[Change::Converted])
            .check("0 key=a block rate 100")
            .check("0 key=b x2 pass")
            .check("0 key=b block rate 100");
    }

    fn key(n: u32) -> u128 {
        u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }

    #[test]
    fn a_full_table_stays_as_large_as_it_is() {
        let mut table = Table::new(0_u32, 2_000, Duration::ZERO);
        for n in 1..=100_000 {
            let seat =
                table.seat(table.find(key(n), false, Instant::EPOCH, |state, _| *state == 0));
            *table.get_mut(seat) = n;
        }
        assert_eq!(table.keys(), Keys { live: 2_000, max: 2_000, overflowed: 98_000 });
        assert_eq!(table.overflow.len(), OVERFLOWS as usize);
    }

    #[test]
    fn clients_over_a_lowered_bound_leave_a_few_at_a_time() {
        let mut table = Table::new(0_u32, 100, Duration::ZERO);
        for n in 1..=100 {
            let seat = table.seat(table.find(key(n), false, Instant::EPOCH, |_, _| false));
            *table.get_mut(seat) = n;
        }
        table.retune(&Table::new(0, 10, Duration::ZERO), |_| {});
        let mut live = Vec::new();
        while table.catch_up(|_| {}, |state| *state > 20) {
            live.push(table.keys().live);
        }
        live.push(table.keys().live);
        // Four times 32 are converted first.
        assert_eq!(live, [100, 100, 100, 100, 68, 36, 20]);
    }

    #[test]
    fn the_hand_finds_the_one_fresh_state() {
        let mut table = Table::new(0_u32, 2_000, Duration::ZERO);
        for n in 1..=2_000 {
            let seat = table.seat(table.find(key(n), false, Instant::EPOCH, |_, _| false));
            *table.get_mut(seat) = n;
        }
        let refused = (2_001..9_999).find(|&n| {
            let place = table.find(key(n), false, Instant::EPOCH, |state, _| *state == 1_234);
            table.pass_over(place);
            matches!(place, Place::New { .. })
        });
        assert!(refused.is_some_and(|n| n - 2_001 <= 2_000 / SEARCH));
    }
}
