//! The usage of evicted clients, in bounded memory.
//!
//! A count-min sketch whose cells are usages (G. Cormode and S. Muthukrishnan, 2005; with the
//! conservative update of C. Estan and G. Varghese, 2002). A client has a cell in each of [`ROWS`]
//! rows, by bits of its fingerprint, which no client can aim without the secret. Its usage is
//! joined into the cells; the least of them is its recalled usage: never less than it used, and
//! more only where others share all of its cells.
//!
//! A cell never holds more than was charged to its clients together. If `J` was charged to evicted
//! clients, at most `J / N` of the `w` cells in a row are used up, and a new client finds all of
//! its cells used up with a chance of at most `(J / (N·w))^4`.

use super::{
    index::Fingerprint,
    usage::{PastUsage, Scale},
};

/// Rows of cells.
const ROWS: usize = 4;

/// Cells in a row per place in the table.
const PER_KEY: usize = 2;

/// The fewest cells in a row.
const LEAST: usize = 1024;

/// Cells that [`Summary::convert_some`] looks at, and the most it converts, per call.
const STEP: (usize, u32) = (1024, 32);

/// Takes no memory until its first use.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Row by row.
    cells: Box<[PastUsage]>,
    /// The cells of before the latest edit; the first `converted` are joined into `cells`. Or none.
    stale: Box<[PastUsage]>,
    converted: usize,
}

/// Returns the bytes of the summary of a table with this many places.
pub(super) fn bytes(max_keys: u32) -> usize {
    ROWS * width(max_keys) * size_of::<PastUsage>()
}

fn width(max_keys: u32) -> usize {
    (max_keys as usize).saturating_mul(PER_KEY).max(LEAST)
}

fn unused(cells: usize) -> Box<[PastUsage]> {
    vec![PastUsage::NONE; cells].into()
}

impl Summary {
    /// Remembers a client's usage. `max_keys` sizes a new summary.
    pub(super) fn record(
        &mut self,
        fingerprint: Fingerprint,
        usage: PastUsage,
        scale: Scale,
        max_keys: u32,
    ) {
        if self.cells.is_empty() {
            self.cells = unused(ROWS * width(max_keys));
        }
        for at in self.cells_of(fingerprint) {
            self.cells[at] = scale.join(self.cells[at], usage);
        }
    }

    /// Returns the most that a client may have used. `convert` converts a usage of before the
    /// latest edit.
    pub(super) fn recall(
        &self,
        fingerprint: Fingerprint,
        scale: Scale,
        convert: impl Fn(PastUsage) -> PastUsage,
    ) -> PastUsage {
        if self.cells.is_empty() {
            return PastUsage::NONE;
        }
        let cell = |at: usize| match self.stale.get(at).filter(|_| at >= self.converted) {
            Some(usage) => scale.join(self.cells[at], convert(*usage)),
            None => self.cells[at],
        };
        let [first, rest @ ..] = self.cells_of(fingerprint);
        rest.into_iter().fold(cell(first), |least, at| scale.meet(least, cell(at)))
    }

    /// Returns used cells from `from` on with their numbers, the number to continue from if there
    /// are more, and the number of all.
    pub(super) fn export(
        &self,
        from: usize,
        scale: Scale,
    ) -> (Vec<(u64, u64)>, Option<usize>, u64) {
        let to = self.cells.len().min(from.saturating_add(STEP.0));
        let cells = self.cells.iter().enumerate().take(to).skip(from);
        let used = cells.filter(|(_, usage)| scale.weight(**usage) > 0);
        let used = used.map(|(at, usage)| (at as u64, usage.bits())).collect();
        (used, Some(to).filter(|to| *to < self.cells.len()), self.cells.len() as u64)
    }

    /// Joins used cells of a summary of so many cells, with room for `max_keys`. Returns whether it
    /// has this one's size.
    pub(super) fn import(
        &mut self,
        cells: u64,
        used: &[(u64, u64)],
        scale: Scale,
        max_keys: u32,
    ) -> bool {
        if self.cells.is_empty() && cells == (ROWS * width(max_keys)) as u64 {
            self.cells = unused(ROWS * width(max_keys));
        }
        if cells != self.cells.len() as u64 {
            return used.is_empty();
        }
        for (at, usage) in used {
            let cell = usize::try_from(*at).ok().and_then(|at| self.cells.get_mut(at));
            let Some(cell) = cell else { return false };
            *cell = scale.join(*cell, PastUsage::of_bits(*usage));
        }
        true
    }

    /// Marks all usages to be converted. None may be left from an earlier edit.
    pub(super) fn mark_stale(&mut self) {
        let fresh = unused(self.cells.len());
        self.stale = core::mem::replace(&mut self.cells, fresh);
        self.converted = 0;
    }

    /// Continues the conversion. Returns whether there may be more to do.
    pub(super) fn convert_some(
        &mut self,
        scale: Scale,
        convert: impl Fn(PastUsage) -> PastUsage,
    ) -> bool {
        let (looks, mut left) = STEP;
        let some = self.stale.iter().enumerate().skip(self.converted).take(looks);
        for (at, usage) in some {
            let usage = convert(*usage);
            self.cells[at] = scale.join(self.cells[at], usage);
            self.converted = at + 1;
            left -= u32::from(usage != PastUsage::NONE);
            if left == 0 {
                break;
            }
        }
        if self.converted == self.stale.len() {
            self.stale = Box::default();
            self.converted = 0;
        }
        !self.stale.is_empty()
    }

    /// Returns a client's cells, by four parts of its fingerprint.
    #[expect(clippy::cast_possible_truncation, reason = "less than the width")]
    fn cells_of(&self, fingerprint: Fingerprint) -> [usize; ROWS] {
        let width = self.cells.len() / ROWS;
        let key = fingerprint.key();
        [0, 1, 2, 3].map(|row| {
            let part = (key >> (32 * row)) as u32;
            row * width + ((u64::from(part) * width as u64) >> 32) as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use std::collections::HashMap;

    const MAX_KEYS: u32 = 2_000;

    fn scale(generation: u64) -> Scale {
        Scale::Counts(generation)
    }

    fn fingerprint(random: &mut Rng) -> Fingerprint {
        Fingerprint::of(random.u128(..))
    }

    #[test]
    fn no_usage_is_recalled_too_low() {
        let mut random = Rng::with_seed(3);
        let mut summary = Summary::default();
        let mut used = HashMap::new();
        let clients: Vec<_> = (0..20_000).map(|_| fingerprint(&mut random)).collect();
        for _ in 0..60_000 {
            let client = random.choice(&clients).copied().expect("some");
            // A returning client continues from its recalled usage.
            let [before, _] = summary.recall(client, scale(1), |usage| usage).counts(1);
            let exact: &mut u64 = used.entry(client.key()).or_default();
            assert!(before >= *exact);
            *exact += 1;
            summary.record(client, PastUsage::counted(1, [before + 1, 0]), scale(1), MAX_KEYS);
        }
    }

    #[test]
    fn a_new_client_is_rarely_taken_for_another() {
        let mut random = Rng::with_seed(4);
        let mut summary = Summary::default();
        // One and a half times as many as there are places, each of which used all of five.
        for _ in 0..MAX_KEYS * 3 / 2 {
            let client = fingerprint(&mut random);
            summary.record(client, PastUsage::counted(1, [5, 0]), scale(1), MAX_KEYS);
        }
        let is_used_up = |generation: u64, random: &mut Rng| {
            let usage = summary.recall(fingerprint(random), scale(generation), |usage| usage);
            scale(generation).weight(usage) >= 5
        };
        let mistaken = (0..10_000).filter(|_| is_used_up(1, &mut random)).count();
        // (1 − e^−¾)^4 is 7.7 %, the bound (¾)^4.
        assert!((500..1_000).contains(&mistaken), "{mistaken}");
        assert!((0..10_000).any(|_| is_used_up(2, &mut random)));
        assert!(!(0..10_000).any(|_| is_used_up(3, &mut random)));
    }

    #[test]
    fn an_edit_converts_a_few_at_a_time_and_recalls_the_rest_as_converted() {
        let mut random = Rng::with_seed(5);
        let mut summary = Summary::default();
        let clients: Vec<_> = (0..500).map(|_| fingerprint(&mut random)).collect();
        for client in &clients {
            summary.record(*client, PastUsage::counted(1, [1, 0]), scale(1), MAX_KEYS);
        }
        let double =
            |usage: PastUsage| PastUsage::counted(1, usage.counts(1).map(|count| 2 * count));
        summary.mark_stale();
        let mut steps = 0;
        loop {
            for client in &clients {
                assert_eq!(summary.recall(*client, scale(1), double).counts(1), [2, 0]);
            }
            steps += 1;
            if !summary.convert_some(scale(1), double) {
                break;
            }
        }
        // Some 480 cells of a row are used.
        assert!((50..80).contains(&steps), "{steps}");
        assert!(summary.stale.is_empty());
        for client in &clients {
            assert_eq!(summary.recall(*client, scale(1), |usage| usage).counts(1), [2, 0]);
        }
    }
}
