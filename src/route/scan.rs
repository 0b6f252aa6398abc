//! Questions about the bytes of a text, of which eight are looked at together.
//!
//! The arithmetic is that of "Determine if a word has a byte ..." in Sean Anderson's Bit Twiddling Hacks,
//! in the form without carries between bytes.

/// One in each byte.
const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGH_BITS: u64 = 0x80 * ONES;
const LOW_BITS: u64 = 0x7f * ONES;
/// What stands for bytes behind the end of a text.
const LETTERS: u64 = u64::from_le_bytes([b'a'; 8]);

/// Eight bytes of a text. Each question returns the high bit of each byte that it is true of.
#[derive(Clone, Copy, Debug)]
pub struct Word(u64);

impl Word {
    /// Returns the bytes from `place` on, with letters behind the end of the text.
    #[inline]
    fn at(text: &[u8], place: usize) -> Self {
        let text = text.get(place..).unwrap_or_default();
        Self(text.first_chunk().map_or_else(
            || text.iter().rev().fold(LETTERS, |word, byte| word << 8 | u64::from(*byte)),
            |whole| u64::from_le_bytes(*whole),
        ))
    }

    /// Which bytes are `byte`.
    #[inline]
    pub fn equal(self, byte: u8) -> u64 {
        let differences = self.0 ^ (u64::from(byte) * ONES);
        !(((differences & LOW_BITS) + LOW_BITS) | differences) & HIGH_BITS
    }

    /// Which bytes are less than `byte`, which is at most 128.
    #[inline]
    pub(super) fn below(self, byte: u8) -> u64 {
        !(((self.0 & LOW_BITS) + u64::from(0x80 - byte) * ONES) | self.0) & HIGH_BITS
    }

    /// Which bytes are greater than `byte`, which is less than 128.
    #[inline]
    pub(super) fn above(self, byte: u8) -> u64 {
        (((self.0 & LOW_BITS) + u64::from(0x7f - byte) * ONES) | self.0) & HIGH_BITS
    }
}

/// Returns whether any byte is `sought`. Letters are not.
#[inline]
pub fn any_byte(text: &[u8], sought: impl Fn(Word) -> u64) -> bool {
    any_word(text.len(), |place| sought(Word::at(text, place)) != 0)
}

/// Returns whether any byte is `sought` beside the one behind it. Letters are not.
#[inline]
pub(super) fn any_pair(text: &[u8], sought: impl Fn(Word, Word) -> u64) -> bool {
    let pairs = text.len().saturating_sub(1);
    any_word(pairs, |place| sought(Word::at(text, place), Word::at(text, place + 1)) != 0)
}

/// Returns whether any word of those from 0 to `length` is `found` by its place. The last one may have
/// bytes of the one before.
#[inline]
fn any_word(length: usize, found: impl Fn(usize) -> bool) -> bool {
    let rest = length % 8;
    (0..length - rest).step_by(8).any(&found) || (rest > 0 && found(length.saturating_sub(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_compares_each_byte_by_itself() {
        for byte in 0..=u8::MAX {
            for other in [b'a', 0, 0x80, 0xff] {
                for place in 0..8 {
                    let mut bytes = [other; 8];
                    bytes[place] = byte;
                    let word = Word::at(&bytes, 0);
                    for limit in [1, 0x20, 0x21, b'/', 0x7e, 0x7f] {
                        let expected = |is: fn(&u8, &u8) -> bool| {
                            bytes.map(|byte| if is(&byte, &limit) { 0x80 } else { 0 })
                        };
                        assert_eq!(word.equal(limit).to_le_bytes(), expected(u8::eq));
                        assert_eq!(word.below(limit).to_le_bytes(), expected(u8::lt));
                        assert_eq!(word.above(limit).to_le_bytes(), expected(u8::gt));
                    }
                }
            }
        }
    }

    #[test]
    fn a_byte_is_found_wherever_it_is() {
        for length in 0..40 {
            let mut text = vec![b'a'; length];
            assert!(!any_byte(&text, |word| word.equal(b'/')));
            for place in 0..length {
                text[place] = b'/';
                assert!(any_byte(&text, |word| word.equal(b'/')), "{place} of {length}");
                text[place] = b'a';
            }
        }
    }

    #[test]
    fn a_pair_is_found_wherever_it_is_and_only_in_its_order() {
        let is_pair = |one: Word, next: Word| one.equal(b'/') & next.equal(b'.');
        for length in 2..40 {
            let mut text = vec![b'a'; length];
            assert!(!any_pair(&text, is_pair) && !any_pair(&text[..1], is_pair));
            for place in 1..length {
                text[place - 1..=place].copy_from_slice(b"/.");
                assert!(any_pair(&text, is_pair), "{place} of {length}");
                text[place - 1..=place].copy_from_slice(b"./");
                assert!(!any_pair(&text, is_pair), "{place} of {length}");
                text[place - 1..=place].copy_from_slice(b"aa");
            }
        }
        assert!(!any_pair(b"", is_pair));
    }
}
