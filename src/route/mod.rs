//! Which route a request belongs to, and which client key it counts under.
//!
//! Values in, values out: no IO, no clock, no lock. A [`Table`] is built once from
//! the [`Matcher`]s of a configuration and then only read. Within the best host
//! that has a matching route, the best match wins:
//!
//! 1. host: exact, then the longest wildcard, then any;
//! 2. path: exact, then the template with the most literal segments, then the
//!    longest prefix, then regular expressions in file order, then any, which the prefix `/` is;
//! 3. a method given, then not; then more headers; then more query parameters;
//! 4. the order of the file.
//!
//! If no route of the best host matches the rest of a request, the routes of less
//! specific hosts are tried.

pub mod client;
pub mod header;
pub mod host;
pub mod key;
pub mod matcher;
pub mod method;
pub mod path;
pub mod table;

mod escape;
mod fingerprint;
mod names;
mod pattern;
mod query;
mod rank;
mod regexes;
mod sites;
mod spelling;
mod tree;

pub use client::client_ip;
pub use fingerprint::Seed;
pub use header::{FieldPattern, folded_name};
pub use host::{BadHost, HostPattern, canonical_host};
pub use key::{KeySpec, NoKey, OnDuplicate, Part};
pub use matcher::{Matcher, Repeated};
pub use path::PathPattern;
pub use spelling::{
    dangerous_path, has_encoded_slash, literal_path, normal_path, without_dot_segments,
};
pub use table::Table;

/// What routing looks at in a request.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// As [`canonical_host`] returns it: lower-case, no port, no trailing dot.
    pub host: &'a str,
    /// In its [`normal_path`] form.
    pub path: &'a str,
    /// What follows the `?`, as received.
    pub query: Option<&'a str>,
    /// The method.
    pub method: &'a http::Method,
    /// All header lines.
    pub headers: &'a http::HeaderMap,
}

/// Why a pattern cannot be used, in words for the configuration's diagnostics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// What is wrong.
    pub message: String,
    /// What to write.
    pub help: String,
}

impl Invalid {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}
