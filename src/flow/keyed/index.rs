//! Finds a client's state by its key, and grows without a pause.
//!
//! Linear hashing (W. Litwin, VLDB 1980): there is one bucket per entry, and each new entry splits
//! one bucket, so that no request pays for rehashing all. With `2^m ≤ buckets < 2^(m+1)`, a key's
//! bucket is its low `m + 1` bits, or its low `m` bits where that bucket does not exist yet.
//! Buckets are chains through the entries, one or two long if keys are evenly spread.
//!
//! Entries keep their number and their place in memory.

use core::iter;

/// Entries by key, numbered from zero without gaps.
#[derive(Debug)]
pub(super) struct Index<S> {
    /// Bucket to the first entry of its chain, or [`NONE`].
    heads: Vec<u32>,
    /// In pieces, so that growing moves none of them: each is as large as all before it, at most
    /// [`PIECE`] entries.
    pieces: Vec<Vec<Entry<S>>>,
    len: u32,
    /// The mark of entries that are up to date; [`Self::mark_stale`] inverts it.
    mark: bool,
}

#[derive(Debug)]
struct Entry<S> {
    fingerprint: Fingerprint,
    /// The next in the bucket's chain, or [`NONE`].
    next: u32,
    /// It takes the place of padding.
    mark: bool,
    state: S,
}

/// A key's fingerprint, in halves: a `u128` would need padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) struct Fingerprint {
    low: u64,
    high: u64,
}

/// The most entries.
pub(super) const MAX: u32 = NONE - 1;

/// No entry.
const NONE: u32 = u32::MAX;

/// Entries in the first piece and in the second: most tables stay small.
const FIRST: usize = 4;

/// Entries in a piece of a large table: 40 to 60 KB of the usual states.
const PIECE: usize = 1024;

/// The number of smaller pieces.
const SMALL: usize = (PIECE / FIRST).ilog2() as usize + 1;

/// Returns an entry's piece, and its position in it.
const fn position(at: u32) -> (usize, usize) {
    let at = at as usize;
    match (at / FIRST).checked_ilog2() {
        None => (0, at),
        Some(log) if at < PIECE => (log as usize + 1, at - (FIRST << log)),
        Some(_) => (at / PIECE + SMALL - 1, at % PIECE),
    }
}

/// Returns the most bytes of an entry, its bucket and its part of the piece list included: twice
/// four bytes, because buckets move to a larger allocation with up to two thirds of them in the old
/// one.
pub(super) const fn entry_bytes<S>() -> usize {
    size_of::<Entry<S>>() + 2 * size_of::<u32>()
}

impl Fingerprint {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of the key")]
    pub(super) const fn of(key: u128) -> Self {
        Self { low: key as u64, high: (key >> 64) as u64 }
    }

    pub(super) const fn key(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    /// Returns the half that does not select buckets.
    pub(super) const fn high(self) -> u64 {
        self.high
    }
}

impl<S> Index<S> {
    pub(super) const fn new() -> Self {
        Self { heads: Vec::new(), pieces: Vec::new(), len: 0, mark: false }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<u32> {
        let mut at = self.heads.get(self.bucket(fingerprint)).copied().unwrap_or(NONE);
        while at != NONE {
            let entry = self.entry(at);
            if entry.fingerprint == fingerprint {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// Returns an existing entry's fingerprint.
    pub(super) fn fingerprint(&self, at: u32) -> Fingerprint {
        self.entry(at).fingerprint
    }

    /// Returns an existing entry's state.
    pub(super) fn get(&self, at: u32) -> &S {
        &self.entry(at).state
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut S {
        &mut self.entry_mut(at).state
    }

    /// Marks all entries as out of date. All must be up to date.
    pub(super) const fn mark_stale(&mut self) {
        self.mark = !self.mark;
    }

    /// Converts an existing entry, unless it is up to date.
    pub(super) fn refresh(&mut self, at: u32, convert: impl FnOnce(&mut S)) {
        let mark = self.mark;
        let entry = self.entry_mut(at);
        if entry.mark != mark {
            entry.mark = mark;
            convert(&mut entry.state);
        }
    }

    /// Appends an entry for a new fingerprint. Reserves memory for at most `most` entries.
    pub(super) fn push(&mut self, fingerprint: Fingerprint, state: S, most: u32) {
        let len = self.len as usize;
        let (piece, offset) = position(self.len);
        let room = (most as usize).saturating_sub(len);

        if piece == self.pieces.len() {
            self.pieces.push(Vec::new());
        }
        if let Some(piece) = self.pieces.last_mut() {
            // If an edit has raised `most`, the piece's entries move once.
            if offset == piece.capacity() {
                let size = (len - offset).clamp(FIRST, PIECE);
                piece.reserve_exact((size - offset).min(room));
            }
            piece.push(Entry { fingerprint, next: NONE, mark: self.mark, state });
        }

        if len == self.heads.capacity() {
            // By doubling, but the last step is larger, because little has to move before it.
            let more = if room <= 2 * len { room } else { len.max(FIRST).min(room) };
            self.heads.reserve_exact(more);
        }

        self.len += 1;
        self.heads.push(NONE);
        self.split();
        self.link(self.len - 1);
    }

    /// Gives an existing entry with its state to a new fingerprint.
    pub(super) fn give(&mut self, at: u32, fingerprint: Fingerprint) {
        self.unlink(at);
        self.entry_mut(at).fingerprint = fingerprint;
        self.link(at);
    }

    /// Removes the last entry, if there is one.
    pub(super) fn pop(&mut self) {
        let Some(last) = self.len.checked_sub(1) else { return };
        self.unlink(last);
        self.len = last;
        if let Some(piece) = self.pieces.last_mut() {
            piece.pop();
        }
        self.pieces.pop_if(|piece| piece.is_empty());
        if let Some(chain) = self.heads.pop() {
            self.deal(chain);
        }
    }

    fn entry(&self, at: u32) -> &Entry<S> {
        let (piece, offset) = position(at);
        &self.pieces[piece][offset]
    }

    fn entry_mut(&mut self, at: u32) -> &mut Entry<S> {
        let (piece, offset) = position(at);
        &mut self.pieces[piece][offset]
    }

    #[expect(clippy::cast_possible_truncation, reason = "the mask leaves less than a u32")]
    fn bucket(&self, fingerprint: Fingerprint) -> usize {
        let mask = self.heads.len().next_power_of_two() - 1;
        let bucket = fingerprint.low as usize & mask;
        if bucket < self.heads.len() { bucket } else { bucket & (mask >> 1) }
    }

    fn chain(&self, bucket: usize) -> impl Iterator<Item = u32> {
        let exists = |at: &u32| *at != NONE;
        let head = self.heads.get(bucket).copied().filter(exists);
        iter::successors(head, move |&at| Some(self.entry(at).next).filter(exists))
    }

    fn link(&mut self, at: u32) {
        let bucket = self.bucket(self.entry(at).fingerprint);
        self.entry_mut(at).next = core::mem::replace(&mut self.heads[bucket], at);
    }

    fn unlink(&mut self, at: u32) {
        let Entry { fingerprint, next, .. } = *self.entry(at);
        let bucket = self.bucket(fingerprint);
        let before = self.chain(bucket).find(|&other| self.entry(other).next == at);
        if let Some(before) = before {
            self.entry_mut(before).next = next;
        } else {
            self.heads[bucket] = next;
        }
    }

    /// Moves entries of the new last bucket out of the bucket with the same low bits but the
    /// highest.
    fn split(&mut self) {
        let buckets = self.heads.len();
        let parent = (buckets - 1) & ((buckets.next_power_of_two() - 1) >> 1);
        let chain = core::mem::replace(&mut self.heads[parent], NONE);
        self.deal(chain);
    }

    /// Links a chain's entries into their buckets.
    fn deal(&mut self, mut at: u32) {
        while at != NONE {
            let next = self.entry(at).next;
            self.link(at);
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn pieces_follow_each_other_without_a_gap() {
        let mut expected = (0, 0);
        for (at, entry) in (0..4 * PIECE).zip(0..) {
            assert_eq!(position(entry), expected, "{at}");
            let size = (at - expected.1).clamp(FIRST, PIECE);
            let is_last = expected.1 + 1 == size;
            expected = if is_last { (expected.0 + 1, 0) } else { (expected.0, expected.1 + 1) };
        }
    }

    #[test]
    fn a_mark_takes_no_room() {
        let print_and_next = size_of::<Fingerprint>() + size_of::<u64>();
        assert_eq!(size_of::<Entry<u64>>(), print_and_next + size_of::<u64>());
        assert_eq!(size_of::<Entry<u128>>(), 48);
    }

    #[test]
    fn an_entry_is_converted_once_after_each_time_that_all_aged() {
        let mut index: Index<u64> = Index::new();
        index.push(Fingerprint::of(1), 10, MAX);
        index.mark_stale();
        index.push(Fingerprint::of(2), 20, MAX);
        for _ in 0..2 {
            (0..2).for_each(|at| index.refresh(at, |state| *state += 1));
            assert_eq!((*index.get(0), *index.get(1)), (11, 20));
        }
        index.mark_stale();
        (0..2).for_each(|at| index.refresh(at, |state| *state += 1));
        assert_eq!((*index.get(0), *index.get(1)), (12, 21));
    }

    /// Drives an index and a hash map through the same random day.
    #[test]
    fn an_index_finds_what_a_map_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut index: Index<u128> = Index::new();
        let mut map: HashMap<u128, u32> = HashMap::new();
        for _ in 0..40_000 {
            // From a few low bits, so that chains are long, too.
            let key = random.u128(0..5_000) * if random.u8(..) > 9 { 1 } else { 1 << 40 };
            let fingerprint = Fingerprint::of(key);
            assert_eq!(index.find(fingerprint), map.get(&key).copied());
            let len = index.len();
            match random.u8(0..10) {
                0..6 if !map.contains_key(&key) => {
                    index.push(fingerprint, key, MAX);
                    map.insert(key, len);
                }
                6..8 if !map.contains_key(&key) && len > 0 => {
                    let at = random.u32(0..len);
                    map.remove(index.get(at));
                    index.give(at, fingerprint);
                    *index.get_mut(at) = key;
                    map.insert(key, at);
                }
                8 if len > 0 => {
                    map.remove(index.get(len - 1));
                    index.pop();
                }
                _ => {}
            }
        }
        assert!(index.len() as usize > PIECE, "more than one piece was in play");
        assert_eq!(index.len() as usize, map.len());
    }
}
