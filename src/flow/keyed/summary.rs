//! What clients without a place have used, in bounded memory.
//!
//! A count-min sketch whose cells are usages (G. Cormode and S. Muthukrishnan, 2005; with the
//! conservative update of C. Estan and G. Varghese, 2002). A client has a cell in each of
//! [`ROWS`] rows, by the bits of its fingerprint, which no client can aim without the secret. What
//! it had used is joined into them, and what it is taken to have used is what all of them hold
//! at least: never less than it did, and more only where others fell into all of its cells.
//!
//! A cell never holds more than was charged to its clients together, so that of `w` cells in a row
//! at most `J / N` are used up, if `J` was charged to clients that lost their places. A client
//! that was never seen is taken for one that used up all with a chance of `(J / (N·w))^4` at most.

use super::{
    index::Fingerprint,
    usage::{PastUsage, Scale},
};

/// Rows of cells.
const ROWS: usize = 4;

/// Cells in a row for each place in the table.
const PER_KEY: usize = 2;

/// Cells in a row at least.
const LEAST: usize = 1024;

/// Cells that [`Summary::convert_some`] looks at, and how many of them it converts, at a time.
const STEP: (usize, u32) = (1024, 32);

/// Takes no memory before something is noted.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// One row after the other.
    cells: Box<[PastUsage]>,
    /// As many, from before the latest edit, of which the first ones were converted and joined
    /// into `cells`; or none.
    aside: Box<[PastUsage]>,
    converted: usize,
}

/// Returns the memory that the summary of a table with so many places takes.
pub(super) fn bytes(max_keys: u32) -> usize {
    ROWS * width(max_keys) * size_of::<PastUsage>()
}

fn width(max_keys: u32) -> usize {
    (max_keys as usize).saturating_mul(PER_KEY).max(LEAST)
}

/// Returns unused cells.
fn unused(cells: usize) -> Box<[PastUsage]> {
    vec![PastUsage::NONE; cells].into()
}

impl Summary {
    /// Remembers what a client has used. `max_keys` sizes a new summary.
    pub(super) fn note(
        &mut self,
        print: Fingerprint,
        usage: PastUsage,
        scale: Scale,
        max_keys: u32,
    ) {
        if self.cells.is_empty() {
            self.cells = unused(ROWS * width(max_keys));
        }
        for at in self.places(print) {
            self.cells[at] = scale.join(self.cells[at], usage);
        }
    }

    /// Returns the most that a client may have used. `convert` makes a usage of before the latest
    /// edit one of now.
    pub(super) fn recall(
        &self,
        print: Fingerprint,
        scale: Scale,
        convert: impl Fn(PastUsage) -> PastUsage,
    ) -> PastUsage {
        if self.cells.is_empty() {
            return PastUsage::NONE;
        }
        let cell = |at: usize| match self.aside.get(at).filter(|_| at >= self.converted) {
            Some(aside) => scale.join(self.cells[at], convert(*aside)),
            None => self.cells[at],
        };
        let [first, rest @ ..] = self.places(print);
        rest.into_iter().fold(cell(first), |least, at| scale.meet(least, cell(at)))
    }

    /// Leaves all that is noted to be converted. Nothing may be left from an edit before.
    pub(super) fn age(&mut self) {
        let fresh = unused(self.cells.len());
        self.aside = core::mem::replace(&mut self.cells, fresh);
        self.converted = 0;
    }

    /// Goes on with converting. Returns whether there may be more to do.
    pub(super) fn convert_some(
        &mut self,
        scale: Scale,
        convert: impl Fn(PastUsage) -> PastUsage,
    ) -> bool {
        let (looks, mut left) = STEP;
        let some = self.aside.iter().enumerate().skip(self.converted).take(looks);
        for (at, usage) in some {
            let usage = convert(*usage);
            self.cells[at] = scale.join(self.cells[at], usage);
            self.converted = at + 1;
            left -= u32::from(usage != PastUsage::NONE);
            if left == 0 {
                break;
            }
        }
        if self.converted == self.aside.len() {
            (self.aside, self.converted) = (Box::default(), 0);
        }
        !self.aside.is_empty()
    }

    /// Returns where the cells of a client lie, by four parts of its fingerprint.
    #[expect(clippy::cast_possible_truncation, reason = "less than the width")]
    fn places(&self, print: Fingerprint) -> [usize; ROWS] {
        let width = self.cells.len() / ROWS;
        let key = print.key();
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

    fn print(random: &mut Rng) -> Fingerprint {
        Fingerprint::of(random.u128(..))
    }

    #[test]
    fn nobody_is_taken_to_have_used_less_than_he_did() {
        let mut random = Rng::with_seed(3);
        let (mut summary, mut used) = (Summary::default(), HashMap::new());
        let clients: Vec<_> = (0..20_000).map(|_| print(&mut random)).collect();
        for _ in 0..60_000 {
            let client = random.choice(&clients).copied().expect("some");
            // Who comes back goes on from what he is taken to have used.
            let [before, _] = summary.recall(client, scale(1), |it| it).counts(1);
            let exact: &mut u64 = used.entry(client.key()).or_default();
            assert!(before >= *exact);
            *exact += 1;
            summary.note(client, PastUsage::counted(1, [before + 1, 0]), scale(1), MAX_KEYS);
        }
    }

    #[test]
    fn who_never_came_is_rarely_taken_for_another() {
        let mut random = Rng::with_seed(4);
        let mut summary = Summary::default();
        // One and a half times as many as there are places, each of which used all of five.
        for _ in 0..MAX_KEYS * 3 / 2 {
            let client = print(&mut random);
            summary.note(client, PastUsage::counted(1, [5, 0]), scale(1), MAX_KEYS);
        }
        let is_used_up = |generation: u64, random: &mut Rng| {
            let usage = summary.recall(print(random), scale(generation), |it| it);
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
        let clients: Vec<_> = (0..500).map(|_| print(&mut random)).collect();
        for client in &clients {
            summary.note(*client, PastUsage::counted(1, [1, 0]), scale(1), MAX_KEYS);
        }
        let double = |usage: PastUsage| PastUsage::counted(1, usage.counts(1).map(|it| 2 * it));
        summary.age();
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
        assert!(summary.aside.is_empty());
        for client in &clients {
            assert_eq!(summary.recall(*client, scale(1), |it| it).counts(1), [2, 0]);
        }
    }
}
