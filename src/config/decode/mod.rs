//! From the tree to the types of `spec`, by serde, without stopping at an error.
//!
//! A value that cannot be read is reported with its span, its [`Key`] is left empty, and the rest
//! is read: all problems of a file come in one run.

mod access;
mod deserializer;
mod error;
mod keys;
mod value;

pub(super) use deserializer::MAX_VALUES;
pub(super) use error::{InvalidValue, Wrong};
pub(super) use keys::{
    At, Either, Entries, Key, List, Many, MarkedMap, MarkedOr, Printed, Several, read_text,
};

use crate::config::{
    diagnostics::{Problems, Source},
    read::Node,
    vocabulary::{DescribedMap, Vocabulary},
};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use value::{Reader, Shape, Value};

/// The part of a file that could be read.
#[derive(Debug)]
pub(super) struct Decoded<T> {
    /// `None` if the file is no map.
    pub value: Option<T>,
    pub problems: Problems,
    /// The keys that were reported as missing.
    pub missing: Vec<String>,
}

/// Reads the tree of the file `source` as a `T`, with all that is wrong with it.
pub(super) fn read<T: DeserializeOwned + DescribedMap>(
    root: &Node<'_>,
    source: &Source,
) -> Decoded<T> {
    let reader = Reader {
        text: &source.text,
        substitutions: &source.substitutions,
        vocabulary: &Vocabulary::of::<T>(),
        problems: RefCell::default(),
        missing: RefCell::default(),
    };
    let root = Value {
        shape: Shape::of(root),
        span: root.span,
        key_span: Some(root.span),
        key: None,
        stands_for_list: false,
        reader: &reader,
    };
    let value = T::deserialize(root).map_err(|stop| root.report(stop)).ok();
    let missing = reader.missing.into_inner();
    Decoded { value, problems: reader.problems.into_inner(), missing }
}
