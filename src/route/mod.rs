//! Finds the route of a request, and the client key that it counts under.
//!
//! No IO, clock or lock. A [`Table`] is built once from the [`Matcher`]s of a configuration. The
//! best match wins:
//!
//! 0. the request's listener named, then any;
//! 1. host: exact, then the longest wildcard at the beginning, then at the end, then any;
//! 2. path: exact, then the template with the most literal segments, then the
//!    longest prefix (of two of one length, that with more literal segments), then regular expressions in file order, then any, which the prefix `/` is;
//! 3. a method given, then not; then more headers; then more query parameters;
//! 4. the order of the file.
//!
//! If no route of the best listener and host matches, the routes of less specific ones are tried.

pub mod client;
pub mod header;
pub mod host;
pub mod key;
pub mod matcher;
pub mod members;
pub mod path;
pub mod rewrite;
pub mod table;

mod duplicates;
mod fingerprint;
mod key_text;
mod networks;
mod pattern;
mod rank;
mod regexes;
mod spelling;
mod tree;

pub use crate::http1::{folded_name, folds_to};
use crate::{geo::Located, http1::Fields};
pub use client::{
    ClaimValue, ClientCertificate, FoundClient, Identity, IdentityPattern, NO_ADDRESS, Nat64,
    Proxies, Unread, WholePrefix, client_network,
};
pub use duplicates::{NoKey, OnDuplicate};
pub use fingerprint::{Seed, low_bits};
pub use header::FieldPattern;
pub use host::{BadHost, HostPattern, canonical_host};
pub use key::{KeyPart, KeySpec, cookie};
pub(crate) use key_text::meant_key;
pub use key_text::{fingerprint_hint, fingerprint_text, key_words};
pub use matcher::{Matcher, QueryPattern, Repeated, parse_method};
pub use members::{BodyMembers, MemberPath, MemberPaths, MemberValue, Scanner, json_body};
pub use networks::{FoundNetwork, NO_NETWORKS, NetworkFile, NetworkList, NetworkSet};
pub use path::{NamedSegment, PathPattern};
pub use pattern::{FoundGroups, PathGroup, PathGroups};
pub use rank::Advantage;
pub use rewrite::Rewrite;
pub use spelling::{
    Word, any_byte, dangerous_path, has_encoded_slash, literal_path, normal_path, sent_path,
    without_parameters,
};
pub use table::Table;

/// A request as routing sees it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name of the listener that it came by, if that is known.
    pub listener: Option<&'a str>,
    /// As [`canonical_host`] returns it.
    pub host: &'a str,
    /// In its [`normal_path`] form.
    pub path: &'a str,
    /// The part behind the `?`, as received.
    pub query: Option<&'a str>,
    /// The method.
    pub method: &'a http::Method,
    /// All header lines.
    pub headers: Fields<'a>,
    /// The client's certificate, if it has shown one.
    pub certificate: Option<&'a ClientCertificate>,
    /// The place of the client's address.
    pub place: Located<'a>,
    /// Who the client has proved to be, if its route asks for that.
    pub identity: Option<&'a Identity>,
    /// The members of its JSON body that the rules of its route look at, if it has one.
    pub body: Option<&'a BodyMembers>,
}

/// Why a pattern, a key or a method cannot be used, for the configuration's diagnostics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// The mistake.
    pub message: String,
    /// The text to write instead.
    pub help: String,
}

impl ParseError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}
