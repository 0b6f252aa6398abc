//! Memory for the bodies of rejections, which come in floods.

use bytes::{Bytes, BytesMut};
use std::sync::{Mutex, PoisonError};

/// How much memory is taken at once, in bytes. A body has fewer, unless names are long.
const SIZE: usize = 512;

/// Memory that is used again once nothing needs the bodies in it. Each worker has its own, so that
/// none waits for the lock.
#[derive(Debug, Default)]
pub struct BodyMemory(Mutex<BytesMut>);

impl BodyMemory {
    /// Returns a body with these parts.
    pub(crate) fn body(&self, parts: &[&[u8]]) -> Bytes {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.reserve(SIZE);
        for part in parts {
            memory.extend_from_slice(part);
        }
        memory.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_gets_the_memory_of_one_that_is_gone() {
        let memory = BodyMemory::default();
        let gone = memory.body(&[b"the first"]).as_ptr();
        let kept = memory.body(&[b"the", b" second"]);
        assert_eq!(kept.as_ptr(), gone);
        let other = memory.body(&[&[b'x'; 2 * SIZE]]);
        assert_eq!((&kept[..], other.len()), (&b"the second"[..], 2 * SIZE));
    }
}
