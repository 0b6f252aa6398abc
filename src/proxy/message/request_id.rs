//! `x-request-id`: the id by which logs of several programs name one request.

use crate::config::RequestIds;
use crate::http1::{FieldList, Fields};
use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderName, HeaderValue};
use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is passed on, in bytes.
const LONGEST: usize = 128;

/// Digits of an id that is made here.
const DIGITS: usize = 32;

/// Ids that are made at once, in one piece of memory: a request that lasts keeps all of it.
const BATCH: usize = 16;

/// Makes the ids of one worker.
#[derive(Debug)]
pub struct RequestIdMaker {
    made: Mutex<Made>,
}

#[derive(Debug)]
struct Made {
    /// Of 64 bits each.
    halves: [Rng; 2],
    /// Ids that no request has yet, one after the other.
    unused: Bytes,
}

impl Default for RequestIdMaker {
    fn default() -> Self {
        // The standard library keys its maps with random numbers of the system.
        Self::seeded([(); 2].map(|()| RandomState::new().hash_one(())))
    }
}

impl RequestIdMaker {
    /// Makes the ids that follow from these seeds.
    pub(crate) fn seeded(seeds: [u64; 2]) -> Self {
        let halves = seeds.map(Rng::with_seed);
        Self { made: Mutex::new(Made { halves, unused: Bytes::new() }) }
    }

    /// Returns the id of a request with these headers: the client's if it may choose one, or a new
    /// one. `None` if ids are off.
    pub(crate) fn identify(
        &self,
        headers: &FieldList,
        setting: RequestIds,
        is_trusted: impl FnOnce() -> bool,
    ) -> Option<HeaderValue> {
        if setting == RequestIds::Off {
            return None;
        }
        let id = of_client(headers)
            .filter(|_| setting == RequestIds::On || is_trusted())
            // A copy: the field itself would keep the buffer that it was read into.
            .and_then(|id| HeaderValue::from_bytes(id).ok());
        let mut id = id.unwrap_or_else(|| self.make());
        // No other message has it: HTTP/2 is to keep the room of its table for other fields.
        id.set_sensitive(true);
        Some(id)
    }

    /// Makes an id: 128 random bits as hexadecimal digits.
    fn make(&self) -> HeaderValue {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.unused.is_empty() {
            let mut ids = Vec::with_capacity(BATCH * DIGITS);
            for _ in 0..BATCH {
                let [high, low] = made.halves.each_mut().map(|half| half.u64(..));
                ids.extend_from_slice(&hex(high));
                ids.extend_from_slice(&hex(low));
            }
            made.unused = Bytes::from(ids);
        }
        let id = made.unused.split_to(DIGITS);
        HeaderValue::from_maybe_shared(id).unwrap_or(HeaderValue::from_static("0"))
    }
}

/// Returns an id as a number, if it is one as they are made here.
pub(crate) fn number(id: &HeaderValue) -> Option<u128> {
    let is_number = id.len() == DIGITS
        && id.as_bytes().iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    id.to_str().ok().filter(|_| is_number).and_then(|id| u128::from_str_radix(id, 16).ok())
}

/// Returns the id that a client sent, if there is one and it is harmless in logs and headers.
fn of_client(headers: &FieldList) -> Option<&[u8]> {
    let id = Fields::from(headers).get_only(X_REQUEST_ID.as_str())?;
    let is_valid = (1..=LONGEST).contains(&id.len()) && id.iter().all(|byte| is_plain(*byte));
    is_valid.then_some(id)
}

/// Letters and digits, and what UUIDs, Base64 and the ids of other proxies have beside.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'_' | b'.' | b'~' | b':' | b'/' | b'+' | b'=' | b'@' | b',')
}

fn hex(bits: u64) -> [u8; DIGITS / 2] {
    const WORDS: &[u8; 16] = b"0123456789abcdef";
    let bytes = bits.to_be_bytes();
    core::array::from_fn(|at| {
        let byte = bytes[at / 2];
        WORDS[usize::from(if at % 2 == 0 { byte >> 4 } else { byte & 15 })]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn id(sent: &[&[u8]], setting: RequestIds, is_trusted: bool) -> Option<Vec<u8>> {
        let mut headers = FieldList::default();
        for value in sent {
            headers.append(X_REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
        }
        let id = RequestIdMaker::default().identify(&headers, setting, || is_trusted);
        id.map(|id| id.as_bytes().to_vec())
    }

    #[test]
    fn one_valid_id_is_passed_on_from_those_who_may_choose_it() {
        use RequestIds::{Off, On, Trusted};
        let longest = [b'x'; LONGEST];
        for kept in [&b"a"[..], b"0b4f-A_.~:/+=@,", &longest] {
            assert_eq!(id(&[kept], On, false).as_deref(), Some(kept));
            assert_eq!(id(&[kept], Trusted, true).as_deref(), Some(kept));
            assert_ne!(id(&[kept], Trusted, false).as_deref(), Some(kept));
            assert_eq!(id(&[kept], Off, true), None);
        }
        let too_long = [b'x'; LONGEST + 1];
        let invalid: [&[&[u8]]; 7] =
            [&[], &[b""], &[b"a b"], &[b"a\"b"], &[b"\xff"], &[&too_long], &[b"a", b"a"]];
        for sent in invalid {
            let made = id(sent, On, true).unwrap();
            assert!(made.len() == 32 && made.iter().all(u8::is_ascii_hexdigit), "{made:?}");
        }
    }

    #[test]
    fn no_two_ids_are_the_same() {
        let makers = [(); 4].map(|()| RequestIdMaker::default());
        let ids = (0..4000).map(|at| makers[at % 4].make());
        let ids: HashSet<_> = ids.map(|id| number(&id).unwrap()).collect();
        assert_eq!(ids.len(), 4000);
        let number = |id| number(&HeaderValue::from_static(id));
        assert_eq!(number("000000000000000000000000000000ff"), Some(255));
        for id in ["000000000000000000000000000000FF", "+00000000000000000000000000000ff", "ff"] {
            assert_eq!(number(id), None);
        }
        assert_eq!(&hex(0x0123_4567_89ab_cdef), b"0123456789abcdef");
    }
}
