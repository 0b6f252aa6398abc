//! `x-request-id`: the id by which logs of several programs name one request.

use crate::{
    config::RequestIds,
    hex,
    http1::{FieldList, Fields},
};
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

/// The id of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestId {
    /// It was made here: a number, as hexadecimal digits.
    Made(u128, [u8; DIGITS]),
    /// The client chose it.
    Given(HeaderValue),
}

impl RequestId {
    fn made(number: u128) -> Self {
        Self::Made(number, hex::digits_of_128(number))
    }

    /// Returns it as text.
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Made(_, digits) => digits,
            Self::Given(text) => text.as_bytes(),
        }
    }

    /// Returns it as a number, if it is one as they are made here.
    pub(crate) fn number(&self) -> Option<u128> {
        match self {
            Self::Made(number, _) => Some(*number),
            Self::Given(text) => {
                let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                let is_number = text.len() == DIGITS && text.as_bytes().iter().all(is_digit);
                let text = text.to_str().ok().filter(|_| is_number)?;
                u128::from_str_radix(text, 16).ok()
            }
        }
    }

    /// Writes it into the header of a request, in place of all that servers read alike.
    pub(crate) fn write_to_upstream(&self, headers: &mut FieldList) {
        headers.remove_alike(&X_REQUEST_ID, &[]);
        self.write(headers);
    }

    /// Writes it into a header.
    pub(crate) fn write(&self, headers: &mut FieldList) {
        headers.insert_changing(&X_REQUEST_ID, &[self.as_bytes()]);
    }
}

/// Makes the ids of one worker.
#[derive(Debug)]
pub struct RequestIdMaker {
    /// Of 64 bits each.
    halves: Mutex<[Rng; 2]>,
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
        Self { halves: Mutex::new(seeds.map(Rng::with_seed)) }
    }

    /// Returns the id of a request with these headers: the client's if it may choose one, or a new
    /// one. `None` if ids are off.
    pub(crate) fn identify(
        &self,
        headers: &FieldList,
        setting: RequestIds,
        is_trusted: impl FnOnce() -> bool,
    ) -> Option<RequestId> {
        if setting == RequestIds::Off {
            return None;
        }
        let id = of_client(headers)
            .filter(|_| setting == RequestIds::On || is_trusted())
            // A copy: the field itself would keep the buffer that it was read into.
            .and_then(|id| HeaderValue::from_bytes(id).ok());
        Some(id.map_or_else(|| self.make(), RequestId::Given))
    }

    /// Makes an id of 128 random bits.
    fn make(&self) -> RequestId {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let [high, low] = halves.each_mut().map(|half| u128::from(half.u64(..)));
        RequestId::made(high << 64 | low)
    }
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
        id.map(|id| id.as_str().as_bytes().to_vec())
    }

    #[test]
    fn one_valid_id_is_passed_on_from_clients_that_may_choose_it() {
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
        let ids: HashSet<_> = ids.map(|id| id.number().unwrap()).collect();
        assert_eq!(ids.len(), 4000);
    }

    #[test]
    fn an_id_is_a_number_if_it_has_the_digits_of_one_that_is_made_here() {
        for number in [255, 0, u128::MAX, 0x0123_4567_89ab_cdef_00ff_0a90_5f00_3c01] {
            let made = RequestId::made(number);
            assert_eq!(made.as_str(), format!("{number:032x}"));
            let given = RequestId::Given(HeaderValue::from_str(made.as_str()).unwrap());
            assert_eq!([made.number(), given.number()], [Some(number); 2]);
        }
        for id in ["000000000000000000000000000000FF", "+00000000000000000000000000000ff", "ff"] {
            assert_eq!(RequestId::Given(HeaderValue::from_static(id)).number(), None);
        }
    }
}
