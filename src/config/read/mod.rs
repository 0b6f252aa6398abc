//! Files to text, and text to a tree of values with their spans.

pub(super) mod admin_text;
mod cause;
pub(super) mod comments;
pub(super) mod foreign;
pub(super) mod include;
pub(super) mod source;
mod spacing;
pub(super) mod syntax;
mod tree;
mod variables;
pub(super) mod yaml;

pub(super) use tree::{Content, Name, Node};
pub(super) use variables::Masked;
