//! A copy of a request's body, made while the body passes.

use crate::proxy::connections::copies::CopyPlace;
use bytes::Bytes;
use tokio::sync::oneshot;

/// The least memory that a copy takes once it has a byte.
const LEAST_CAPACITY: usize = 4 * 1024;

/// The copy of a body that still comes. Dropped before its end, it tells its receiver that there is none.
#[derive(Debug)]
pub(crate) struct BodyCopy {
    bytes: Vec<u8>,
    /// The most bytes that are copied.
    limit: usize,
    place: CopyPlace,
    receiver: oneshot::Sender<Result<CopiedBody, NotCopied>>,
}

/// A whole body with its place.
#[derive(Debug)]
pub(crate) struct CopiedBody {
    pub(crate) bytes: Bytes,
    pub(crate) place: CopyPlace,
}

/// The reason for which a body is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCopied {
    TooLong,
    /// All copies together take too much memory.
    NoRoom,
}

impl BodyCopy {
    /// Returns an empty copy with its receiver, which gets an error without a reason if the body does not
    /// come to its end.
    pub(crate) fn new(
        limit: usize,
        place: CopyPlace,
    ) -> (Self, oneshot::Receiver<Result<CopiedBody, NotCopied>>) {
        let (receiver, copied) = oneshot::channel();
        (Self { bytes: Vec::new(), limit, place, receiver }, copied)
    }

    /// Adds a part. Returns nothing if the body cannot be copied.
    pub(super) fn add(mut self: Box<Self>, part: &[u8]) -> Option<Box<Self>> {
        let why = match self.reserve(part.len()) {
            Ok(()) => {
                self.bytes.extend_from_slice(part);
                return Some(self);
            }
            Err(why) => why,
        };
        let Self { receiver, bytes, place, .. } = *self;
        drop(bytes);
        drop(place);
        // The receiver is gone when the worker ends.
        drop(receiver.send(Err(why)));
        None
    }

    /// Takes memory for `more` bytes: at least twice as much as before, so that a byte is moved once on
    /// average.
    fn reserve(&mut self, more: usize) -> Result<(), NotCopied> {
        let length = self.bytes.len() + more;
        if length > self.limit {
            return Err(NotCopied::TooLong);
        }
        let capacity = self.bytes.capacity();
        if length > capacity {
            let wanted = length.max((capacity * 2).max(LEAST_CAPACITY).min(self.limit));
            if !self.place.hold(wanted - capacity) {
                return Err(NotCopied::NoRoom);
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        Ok(())
    }

    /// Hands the copy over: the body has ended.
    pub(super) fn finish(self) {
        let Self { bytes, place, receiver, .. } = self;
        let copied = CopiedBody { bytes: bytes.into(), place };
        drop(receiver.send(Ok(copied)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::connections::copies::CopyPlaces;
    use proptest::prelude::*;
    use tokio::sync::oneshot::error::TryRecvError;

    proptest! {
        #[test]
        fn a_copy_is_the_whole_body_or_none(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9000), 0..6),
            limit in 0_usize..20_000,
        ) {
            let whole = parts.concat();
            let place = CopyPlaces::default().take().expect("one is free");
            let (copy, mut copied) = BodyCopy::new(limit, place);
            let mut copy = Some(Box::new(copy));
            for part in &parts {
                copy = copy.and_then(|copy| copy.add(part));
            }
            prop_assert_eq!(copy.is_some(), whole.len() <= limit);
            if let Some(copy) = &copy {
                prop_assert!(copy.bytes.capacity() <= limit.max(whole.len()));
            }
            if let Some(copy) = copy {
                copy.finish();
            }
            match copied.try_recv() {
                Ok(Ok(copied)) => prop_assert_eq!(&copied.bytes[..], &whole[..]),
                Ok(Err(why)) => {
                    prop_assert!(why == NotCopied::TooLong && whole.len() > limit);
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }

    #[test]
    fn a_copy_without_its_end_is_none() {
        let place = CopyPlaces::default().take().expect("one is free");
        let (copy, mut copied) = BodyCopy::new(10, place);
        let copy = Box::new(copy).add(b"abc");
        assert!(copied.try_recv().is_err_and(|error| error == TryRecvError::Empty));
        drop(copy);
        assert!(copied.try_recv().is_err_and(|error| error == TryRecvError::Closed));
    }
}
