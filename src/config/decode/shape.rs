//! A value as the tree has it, by which serde is answered.

use crate::config::read::{Content, Name, Node};
use serde::de::Unexpected;

#[derive(Clone, Copy)]
pub(super) enum Shape<'n, 's> {
    /// The key is not written, and has no default.
    Missing,
    Empty,
    /// See [`Content::Unset`].
    Unset,
    Scalar(&'n str),
    List(&'n [Node<'s>]),
    Map(&'n [(Name<'s>, Node<'s>)]),
}

impl<'n, 's> Shape<'n, 's> {
    pub(super) fn of(node: &'n Node<'s>) -> Self {
        match &node.content {
            Content::Empty => Self::Empty,
            Content::Unset => Self::Unset,
            Content::Scalar(text) => Self::Scalar(text),
            Content::List(items) => Self::List(items),
            Content::Map(entries) => Self::Map(entries),
        }
    }

    pub(super) fn unexpected(self) -> Unexpected<'n> {
        match self {
            Self::Missing | Self::Empty | Self::Unset => Unexpected::Unit,
            Self::Scalar(text) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        }
    }
}
