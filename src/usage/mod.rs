//! Numbers in the bodies of responses, for costs that are known only after the response.
//!
//! A [`Reader`] gets the bytes of a body as they pass, in any pieces, and keeps the last number at
//! each path of its [`Queries`]. At the end it has the weighted sum for each query, or none. It keeps
//! no part of the body but the member name and the number that are being read.
//!
//! - A body is JSON, lines of JSON, or `text/event-stream`, by its `Content-Type`. A large array is
//!   JSON whose elements are visited.
//! - A document, line or event counts once it is complete. One that is malformed counts nothing.
//! - gzip is inflated, within bounds. No other encoding is read.
//!
//! No body is an error: without a number, [`Otherwise`] says what is charged.

mod document;
mod framing;
mod gzip;
mod number;
mod preset;
mod queries;
mod reader;
mod settle;
mod while_streaming;

pub use number::{Amount, Weight, weighted_sum};
pub use preset::Preset;
pub use queries::{Queries, Query, QueryError, Term, check_path};
pub use reader::{Encoding, Format, Reader, Reading};
pub use settle::{Otherwise, Passed, settled};
pub use while_streaming::{MAX_CHARGES, is_due};

/// The largest cost that a response can settle.
pub const MAX_COST: u64 = 1_000_000_000_000;
