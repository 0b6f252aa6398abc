//! Memory for headers, which the requests of one connection use one after the other.

use http::HeaderMap;
use std::sync::{Mutex, PoisonError};

/// How many maps are kept: one for a request's header, and one for its response's.
const KEPT: usize = 2;

/// The largest map that is kept, by its capacity in fields.
const KEPT_FIELDS: usize = 64;

/// Empty maps.
#[derive(Debug, Default)]
pub(crate) struct HeaderMaps(Mutex<Vec<HeaderMap>>);

impl HeaderMaps {
    /// Takes an empty map, which may have memory.
    pub(crate) fn take(&self) -> HeaderMap {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps the memory of `map`.
    pub(crate) fn give(&self, mut map: HeaderMap) {
        if map.capacity() > KEPT_FIELDS {
            return;
        }
        map.clear();
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if maps.len() < KEPT {
            maps.push(map);
        }
    }

    /// Gives all of it up.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }
}
