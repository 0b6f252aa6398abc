//! Memory for fields, which the requests of one connection use one after the other.

use crate::http1::FieldList;
use std::sync::{Mutex, PoisonError};

/// How many lists are kept: one for a request's fields, and one for its response's.
const KEPT: usize = 2;

/// The largest list that is kept, by its capacity in fields.
const KEPT_FIELDS: usize = 64;

/// Empty lists.
#[derive(Debug, Default)]
pub(crate) struct FieldLists(Mutex<Vec<FieldList>>);

impl FieldLists {
    /// Takes an empty list, which may have memory.
    pub(crate) fn take(&self) -> FieldList {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps the memory of `list`.
    pub(crate) fn give(&self, mut list: FieldList) {
        if list.capacity() > KEPT_FIELDS {
            return;
        }
        list.clear();
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() < KEPT {
            lists.push(list);
        }
    }

    /// Gives all of it up.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }
}
