//! What becomes of requests that the rules let pass.

use super::template::{Piece, Placeholder, Template, Text};
use crate::route::PathGroups;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use std::fmt;

/// The action of a route for a request that may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<U> {
    /// Sends it to an upstream.
    Forward(U),
    /// Sends the client elsewhere.
    Redirect(Redirect),
    /// Answers it.
    Respond(Respond),
    /// Ends its connection, or its stream, without a response.
    Close,
    /// Says that no route matches it.
    NoRoute,
}

/// An answer that sends the client elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// Where to, without the request's query.
    pub to: Template,
    /// The same as the file has it.
    pub words: Box<str>,
    /// True if the query follows.
    pub keeps_query: bool,
    /// Where the groups that it names come from, if it names any.
    pub groups: Option<PathGroups>,
}

/// An answer of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// 200 to 599.
    pub status: StatusCode,
    /// Its header fields, but for the type of its body.
    pub headers: Vec<(HeaderName, HeaderText)>,
    /// `None`: it has none.
    pub body: Option<Body>,
}

/// A header field's value.
pub type HeaderText = Text<HeaderValue>;

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The kind of value.
    pub text: Text<Bytes>,
    /// Its type.
    pub content_type: HeaderText,
    /// The way in which values are written into it.
    pub syntax: Syntax,
}

/// The escapes of values in a body, so that they end nothing that they stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// As they are.
    Plain,
    /// As within a string of JSON.
    Json,
    /// As text of HTML or XML.
    Markup,
}

impl Syntax {
    /// Returns the syntax of bodies of a type.
    pub fn of(content_type: &str) -> Self {
        let content_type = content_type.to_ascii_lowercase();
        let has = |word| content_type.contains(word);
        match () {
            () if has("json") || has("javascript") => Self::Json,
            () if has("html") || has("xml") => Self::Markup,
            () => Self::Plain,
        }
    }
}

impl<U> Action<U> {
    /// Returns the upstream, if there is one.
    pub const fn upstream(&self) -> Option<&U> {
        match self {
            Self::Forward(upstream) => Some(upstream),
            Self::Redirect(_) | Self::Respond(_) | Self::Close | Self::NoRoute => None,
        }
    }

    /// Returns the answer, if it is one.
    pub const fn respond(&self) -> Option<&Respond> {
        match self {
            Self::Respond(respond) => Some(respond),
            Self::Forward(_) | Self::Redirect(_) | Self::Close | Self::NoRoute => None,
        }
    }

    /// Returns the same with another kind of upstream.
    pub fn map<V>(self, upstream: impl FnOnce(U) -> V) -> Action<V> {
        match self {
            Self::Forward(of) => Action::Forward(upstream(of)),
            Self::Redirect(redirect) => Action::Redirect(redirect),
            Self::Respond(respond) => Action::Respond(respond),
            Self::Close => Action::Close,
            Self::NoRoute => Action::NoRoute,
        }
    }

    /// Returns in words what the gateway answers itself: `redirect 308 https://{host}{path}`.
    pub fn own_words(&self) -> Option<String> {
        match self {
            Self::Forward(_) => None,
            Self::Redirect(redirect) => Some(redirect.to_string()),
            Self::Respond(respond) => Some(format!("respond {}", respond.status.as_u16())),
            Self::Close => Some("respond close".to_owned()),
            Self::NoRoute => Some("respond 404".to_owned()),
        }
    }

    /// Returns whether it needs to know of the request.
    pub fn has_placeholders(&self) -> bool {
        match self {
            Self::Forward(_) | Self::Close | Self::NoRoute => false,
            Self::Redirect(_) => true,
            Self::Respond(Respond { headers, body, .. }) => {
                headers.iter().any(|(_, text)| text.is_template())
                    || body.as_ref().is_some_and(Body::has_placeholders)
            }
        }
    }
}

impl Redirect {
    /// Returns whether it sends a request by https to where it came from.
    pub fn is_to_https_alone(&self) -> bool {
        let to = self.to.0.iter();
        to.eq(&[
            Piece::Text("https://".into()),
            Piece::Value(Placeholder::Host),
            Piece::Value(Placeholder::Path),
        ])
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redirect {} {}", self.status.as_u16(), self.words)
    }
}

impl Body {
    /// Returns whether it needs to know of the request.
    pub const fn has_placeholders(&self) -> bool {
        self.text.is_template() || self.content_type.is_template()
    }
}
