//! Memory for values of fields that the gateway writes, which the responses of one connection use
//! one after the other.

use bytes::BytesMut;
use http::HeaderValue;
use std::sync::{Mutex, PoisonError};

/// How many bytes are reserved at once, for several values. They are used again when the last of
/// these is dropped.
const ROOM: usize = 256;

/// Values of fields in a common buffer.
#[derive(Debug, Default)]
pub(crate) struct FieldTexts(Mutex<BytesMut>);

impl FieldTexts {
    /// Returns the value that consists of `parts`, or `None` if no field can have it.
    pub(crate) fn value(&self, parts: &[&str]) -> Option<HeaderValue> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let length = parts.iter().map(|part| part.len()).sum();
        if buffer.capacity() < length {
            buffer.reserve(length.max(ROOM));
        }
        for part in parts {
            buffer.extend_from_slice(part.as_bytes());
        }
        HeaderValue::from_maybe_shared(buffer.split().freeze()).ok()
    }

    /// Gives the memory up.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_dropped_leave_their_memory_to_others() {
        let texts = FieldTexts::default();
        let first = texts.value(&["first"]).unwrap();
        let begin = first.as_bytes().as_ptr();
        drop(first);
        let places = (0..1000).map(|number: u32| {
            let number = number.to_string();
            let value = texts.value(&["\"a\";r=", &number]).unwrap();
            assert_eq!(value.to_str().unwrap(), format!("\"a\";r={number}"));
            value.as_bytes().as_ptr().addr().wrapping_sub(begin.addr())
        });
        assert!(places.max() < Some(ROOM));
    }

    #[test]
    fn values_that_are_kept_stay_as_they_are() {
        let texts = FieldTexts::default();
        let long = "x".repeat(2 * ROOM);
        let kept = [long.as_str(), "short", "", &long, "last"].map(|text| {
            let value = texts.value(&[text]).unwrap();
            texts.forget();
            (text, value, texts.value(&[text, text]).unwrap())
        });
        for (text, value, twice) in kept {
            assert_eq!(value, text);
            assert_eq!(twice, text.repeat(2));
        }
        assert_eq!(texts.value(&["a\n"]), None);
    }
}
