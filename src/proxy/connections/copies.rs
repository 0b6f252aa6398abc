//! Bounds on the copies of requests for mirrors. A copy beyond them is dropped: nothing waits for a place.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The most copies of a worker at once, those whose bodies still come included. With the default timeout of
/// 10 s, a mirror that hangs gets 25 requests per second and worker.
const MOST_COPIES: usize = 256;

/// The most memory for the bodies of a worker's copies, in bytes. The head of a copy has at most
/// `limits.header_bytes` beside that.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// Places for the copies of a worker's requests.
#[derive(Clone, Debug, Default)]
pub struct CopyPlaces(Arc<Taken>);

#[derive(Debug, Default)]
struct Taken {
    copies: AtomicUsize,
    bytes: AtomicUsize,
}

/// A place for a copy with the memory of its body, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct CopyPlace {
    taken: Arc<Taken>,
    bytes: usize,
}

impl CopyPlaces {
    /// Returns a place, if one is free.
    pub(crate) fn take(&self) -> Option<CopyPlace> {
        let place = CopyPlace { taken: Arc::clone(&self.0), bytes: 0 };
        (self.0.copies.fetch_add(1, Relaxed) < MOST_COPIES).then_some(place)
    }
}

impl CopyPlace {
    /// Takes memory for `more` bytes of the body. Returns false if there is none left for them.
    pub(crate) fn hold(&mut self, more: usize) -> bool {
        self.bytes += more;
        self.taken.bytes.fetch_add(more, Relaxed) + more <= MOST_BYTES
    }
}

impl Drop for CopyPlace {
    fn drop(&mut self) {
        self.taken.copies.fetch_sub(1, Relaxed);
        self.taken.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_left_is_free_again_with_its_memory() {
        let places = CopyPlaces::default();
        let mut taken: Vec<_> = (0..MOST_COPIES).map_while(|_| places.take()).collect();
        assert_eq!(taken.len(), MOST_COPIES);
        assert!(places.take().is_none() && places.take().is_none());
        assert!(taken[0].hold(MOST_BYTES) && !taken[1].hold(1));
        taken.truncate(1);
        assert!(places.take().is_some_and(|mut place| !place.hold(1)), "the first holds all bytes");
        taken.clear();
        assert!(places.take().is_some_and(|mut place| place.hold(MOST_BYTES)));
    }
}
