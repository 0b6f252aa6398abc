//! Fingerprints of client keys.
//!
//! A fingerprint is SipHash-2-4 (Aumasson and Bernstein, 2012) with 128 bits, a keyed
//! function made to withstand forgery: a client who could make a key with another
//! client's fingerprint would spend that client's quota. `ahash`, be it twice, promises
//! only maps without floods.

use core::{fmt, hash::Hasher};
use siphasher::sip128::{Hasher128, SipHasher24};

/// The secret of all fingerprints, made once per process.
#[derive(Clone, Copy)]
pub struct Seed([u64; 2]);

impl Seed {
    /// Returns the seed with this secret; the same secret gives the same fingerprints.
    pub const fn new(secret: [u64; 2]) -> Self {
        Self(secret)
    }

    /// Returns a seed from the operating system's random numbers.
    pub fn random() -> Self {
        use std::hash::{BuildHasher, RandomState};
        // The standard library keys its maps with random numbers of the system; what
        // they make of nothing is as hard to guess.
        Self::new([(); 2].map(|()| RandomState::new().hash_one(())))
    }
}

impl Seed {
    /// Returns the fingerprint of a key that is known as a whole.
    pub fn fingerprint(&self, key: &[u8]) -> u128 {
        let mut fingerprint = Fingerprint::new(self);
        fingerprint.add(key);
        fingerprint.finish()
    }
}

/// Hides the secret.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// A fingerprint in the making.
pub(super) struct Fingerprint(SipHasher24);

impl Fingerprint {
    pub(super) fn new(seed: &Seed) -> Self {
        Self(SipHasher24::new_with_keys(seed.0[0], seed.0[1]))
    }

    /// Adds a value with its length, so that no two lists of values read the same.
    pub(super) fn add(&mut self, value: &[u8]) {
        self.0.write_u64(value.len() as u64);
        self.0.write(value);
    }

    pub(super) fn finish(&self) -> u128 {
        self.0.finish128().as_u128()
    }
}
