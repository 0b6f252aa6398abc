//! HTTP/1.1 as bytes: what a message says, and how it is written. No IO, no clock, no task.
//!
//! ```text
//!    bytes ──▶ head ──▶ fields     what a request or response says, as places in the buffer
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
//! What is ambiguous is rejected where it is read, with a [`HeadError`] or [`BodyError`] that says
//! why. `docs/http1-codec.md` lists what is rejected beyond the grammar.

mod body;
pub mod chunked;
mod error;
mod field_kind;
mod field_set;
mod fields;
mod first_line;
pub mod framing;
mod head;
mod list;
mod pieces;
mod spans;
mod write;

pub use body::{BodyDecoder, BodyError};
pub use chunked::{Decoded, Trailers};
pub use error::HeadError;
pub use field_kind::FieldKind;
pub use field_set::FieldSet;
pub use fields::{Field, FieldSpan, Fields, Lines, text};
pub use first_line::{MAX_TARGET, RequestLine, StatusLine};
pub use framing::{BodyLength, Framing, FramingError, LengthField, RequestKind};
pub use head::{Head, HeadLimits, RequestHead, ResponseHead};
pub use list::FieldList;
pub use pieces::MAX_EMPTY_LINES;
pub use write::{HeadWriter, trailers as write_trailers};
