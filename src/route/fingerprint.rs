//! Fingerprints of client keys.
//!
//! SipHash-2-4 (Aumasson and Bernstein, 2012) with 128 bits, a keyed function that resists forgery:
//! a client that could make a key with another client's fingerprint would use up that client's
//! quota. `ahash` only protects maps from floods.

use core::{fmt, hash::Hasher};
use siphasher::sip128::{Hasher128, SipHasher24};

/// The secret of all fingerprints, made once per process.
#[derive(Clone, Copy)]
pub struct Seed([u64; 2]);

impl Seed {
    /// Returns the seed of this secret, which determines all fingerprints.
    pub const fn new(secret: [u64; 2]) -> Self {
        Self(secret)
    }

    /// Returns a seed from the operating system's random numbers.
    pub fn random() -> Self {
        use std::hash::{BuildHasher, RandomState};
        // The standard library keys its maps with random numbers of the system, which this hash
        // depends on.
        Self::new([(); 2].map(|()| RandomState::new().hash_one(())))
    }
}

impl Seed {
    /// Returns the secret, for the process that takes this one's state over.
    pub const fn secret(&self) -> [u64; 2] {
        self.0
    }

    /// Returns the fingerprint of a whole key.
    pub fn fingerprint(&self, key: &[u8]) -> u128 {
        let mut fingerprint = FingerprintHasher::new(self);
        fingerprint.add(key);
        fingerprint.finish()
    }

    /// Returns 64 bits of the fingerprint of a whole key.
    pub fn hash(&self, key: &[u8]) -> u64 {
        low_bits(self.fingerprint(key))
    }
}

/// Returns 64 bits of a fingerprint.
#[expect(clippy::cast_possible_truncation, reason = "half of the bits are wanted")]
pub const fn low_bits(fingerprint: u128) -> u64 {
    fingerprint as u64
}

/// Hides the secret.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// An incremental fingerprint.
pub(super) struct FingerprintHasher(SipHasher24);

impl FingerprintHasher {
    pub(super) fn new(seed: &Seed) -> Self {
        Self(SipHasher24::new_with_keys(seed.0[0], seed.0[1]))
    }

    /// Adds a value with its length: lists of values stay distinct.
    pub(super) fn add(&mut self, value: &[u8]) {
        self.0.write_u64(value.len() as u64);
        self.0.write(value);
    }

    pub(super) fn finish(&self) -> u128 {
        self.0.finish128().as_u128()
    }
}
