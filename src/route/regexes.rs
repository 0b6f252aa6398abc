//! Several regular expressions over one path.

use super::{pattern::Pattern, rank::Search};
use regex::bytes::{RegexSet, RegexSetBuilder};

/// The most bytes of a compiled set; a larger one is split.
const MAX_COMPILED: usize = 8 << 20;

/// Expressions with their routes' ranks, best first.
#[derive(Debug, Default)]
pub(super) struct Regexes(Vec<Chunk>);

#[derive(Debug)]
enum Chunk {
    One(Pattern, [usize; 1]),
    Many(RegexSet, Vec<usize>),
}

impl Regexes {
    /// Compiles `patterns`, in the order of ranks.
    pub(super) fn new(patterns: &[(usize, &Pattern)]) -> Self {
        let mut chunks = Vec::new();
        compile(patterns, &mut chunks);
        Self(chunks)
    }

    /// Offers the ranks of matching expressions, best first.
    pub(super) fn search(&self, path: &str, search: &mut Search<'_>) {
        let path = path.as_bytes();
        for chunk in &self.0 {
            match chunk {
                Chunk::One(pattern, rank) if pattern.is_match(path) => search.offer(rank),
                // `matches` allocates, `is_match` does not.
                Chunk::Many(set, ranks) if set.is_match(path) => {
                    for index in &set.matches(path) {
                        search.offer(&ranks[index..=index]);
                    }
                }
                Chunk::One(..) | Chunk::Many(..) => {}
            }
        }
    }
}

fn compile(patterns: &[(usize, &Pattern)], chunks: &mut Vec<Chunk>) {
    match patterns {
        [] => {}
        [(rank, pattern)] => chunks.push(Chunk::One((*pattern).clone(), [*rank])),
        several => {
            let set = RegexSetBuilder::new(several.iter().map(|(_, pattern)| pattern.anchored()))
                .unicode(false)
                .size_limit(MAX_COMPILED)
                .dfa_size_limit(MAX_COMPILED)
                .build();
            if let Ok(set) = set {
                chunks.push(Chunk::Many(set, several.iter().map(|(rank, _)| *rank).collect()));
            } else {
                // Each compiles alone, so together they are only too large.
                let (left, right) = several.split_at(several.len() / 2);
                compile(left, chunks);
                compile(right, chunks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_too_large_is_split_and_loses_nothing() {
        let patterns: Vec<Pattern> = (0..300)
            .map(|n| Pattern::new(&format!("/{n}/([0-9a-f]{{40}}-){{40}}")).unwrap())
            .collect();
        let ranked: Vec<(usize, &Pattern)> = patterns.iter().enumerate().collect();
        let regexes = Regexes::new(&ranked);
        assert!(regexes.0.len() > 1);
        let ranks = regexes.0.iter().flat_map(|chunk| match chunk {
            Chunk::One(_, rank) => &rank[..],
            Chunk::Many(_, ranks) => &ranks[..],
        });
        assert!(ranks.copied().eq(0..300));
    }
}
