//! An endpoint as the router sees it: its path and methods, the clients that may request it, and its
//! answer. It need not be a page of its own.

use super::{context::Admin, reply::Reply};
use crate::small_http::Stopping;
use bytes::Bytes;
use http::request::Parts;
use std::{borrow::Cow, pin::Pin, sync::Arc};
use tokio_util::sync::CancellationToken;

/// One path of the admin listener.
pub(super) struct Endpoint {
    pub path: &'static str,
    /// For the `Allow` header: `GET, HEAD` or `POST`, as they are written there.
    pub methods: &'static str,
    /// Its description in the index.
    pub about: &'static str,
    pub access: Access,
    /// The longest body that a request may have, in bytes.
    pub most_body: usize,
    pub answer: Answer,
}

/// The clients that may request a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Every client that reaches the listener. For health checks and for files that reveal nothing.
    Everyone,
    /// The same, unless the request has a query, which asks for more.
    EveryoneWithoutQuery,
    /// Clients with an operator's credentials, if the listener requires credentials.
    Operators,
}

/// The way in which a page answers.
pub(super) enum Answer {
    /// At once, on the control thread: in a few milliseconds at most.
    Now(fn(&Admin, &Ask) -> Reply),
    /// After it has waited for something.
    Later(fn(Arc<Admin>, Ask) -> Pending),
}

/// An answer to come.
pub(super) type Pending = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A request that may be answered.
pub(super) struct Ask {
    pub head: Parts,
    /// The whole body.
    pub body: Bytes,
}

impl Endpoint {
    /// Returns a page to read, for operators.
    pub(super) const fn get(
        path: &'static str,
        about: &'static str,
        answer: fn(&Admin, &Ask) -> Reply,
    ) -> Self {
        let answer = Answer::Now(answer);
        let methods = "GET, HEAD";
        Self { path, methods, about, access: Access::Operators, most_body: 0, answer }
    }

    /// Returns a page that changes something.
    pub(super) const fn post(
        path: &'static str,
        about: &'static str,
        answer: fn(&Admin, &Ask) -> Reply,
    ) -> Self {
        let answer = Answer::Now(answer);
        Self { path, methods: "POST", about, access: Access::Operators, most_body: 0, answer }
    }

    /// Returns it for others than operators.
    pub(super) const fn for_(self, access: Access) -> Self {
        Self { access, ..self }
    }
}

impl Ask {
    /// Returns what is cancelled when the listener closes.
    pub(super) fn stopping(&self) -> CancellationToken {
        self.head.extensions.get().map(|Stopping(token)| token.clone()).unwrap_or_default()
    }

    /// Returns the values of a query field, decoded.
    pub(super) fn query<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        let fields = self.head.uri.query().unwrap_or_default().split('&');
        fields.filter_map(move |field| {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            (decoded(key) == name).then(|| decoded(value))
        })
    }
}

/// Decodes `%40` and `+`. Bytes that are no UTF-8 become replacement characters.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let pair = digit(after.first()).zip(digit(after.get(1)));
        match (first, pair) {
            (b'+', _) => bytes.push(b' '),
            (b'%', Some((high, low))) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = &after[2..];
            }
            (byte, _) => bytes.push(*byte),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_fields_are_decoded() {
        let request = http::Request::get("/x?a=1&b=x%20y+z&a=%zz&c&%61=2").body(()).unwrap();
        let ask = Ask { head: request.into_parts().0, body: Bytes::new() };
        let of = |name: &str| ask.query(name).map(Cow::into_owned).collect::<Vec<_>>();
        assert_eq!(of("a"), ["1", "%zz", "2"]);
        assert_eq!(
            (of("b"), of("c"), of("d")),
            (vec!["x y z".to_owned()], vec![String::new()], vec![])
        );
    }
}
