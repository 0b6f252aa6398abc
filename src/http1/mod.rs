//! HTTP/1.1 as bytes: reads and writes messages. No IO, no clock, no task.
//!
//! ```text
//!    bytes ──▶ head ──▶ fields     the content of a request or response, as places in the buffer
//!               │
//!               ▼
//!            framing ──▶ body      where the body ends; chunked decodes one
//!               │
//!               ▼                  list: the fields, and what a proxy changes of them
//!             write ──▶ bytes      the head for the next neighbour, without what was for this one
//! ```
//!
//! The caller owns the buffer and reads into it. [`RequestHead::parse`] and
//! [`ResponseHead::parse`] say when a head is whole and where its body begins; [`BodyDecoder`] has
//! the body's data; [`HeadWriter`] writes heads and [`chunked::encode`] chunks. A connection that
//! uses one head again and again allocates nothing for messages without trailers.
//!
//! Ambiguous messages are rejected where they are read, with a [`HeadError`] or [`BodyError`] as the
//! reason. `docs/http1-codec.md` lists what is rejected beyond the grammar.

mod alike;
mod body;
pub mod chunked;
mod error;
mod field_set;
mod fields;
pub mod framing;
mod head;
mod list;
mod write;

pub use alike::{are_alike, folded_name, folds_to};
pub use body::{BodyDecoder, BodyError};
pub use chunked::{Decoded, Trailers};
pub use error::HeadError;
pub use field_set::{FieldKind, FieldSet};
pub use fields::{Field, FieldSpan, Fields, Lines, text};
pub use framing::{BodyLength, Framing, FramingError, LengthField, RequestKind};
pub use head::{
    Head, HeadLimits, MAX_EMPTY_LINES, MAX_TARGET, RequestHead, RequestLine, ResponseHead,
    StatusLine,
};
pub use list::FieldList;
pub use write::{HeadWriter, trailers as write_trailers};
