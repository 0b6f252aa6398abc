//! Memory for heads, which the requests of one connection use one after the other.

use super::{request::RequestHead, response::ResponseHead};
use crate::http1::FieldList;
use http::{Method, Uri};
use std::sync::{Mutex, PoisonError};

/// The largest list of fields that is kept, by the bytes of its memory.
const KEPT_BYTES: usize = 4 * 1024;

/// Empty heads: of a request and of its response.
#[derive(Debug, Default)]
pub(crate) struct SpareHeads {
    request: Spare<RequestHead>,
    response: Spare<ResponseHead>,
}

impl SpareHeads {
    /// Takes a head without fields, which may have memory for them.
    pub(crate) fn request(&self) -> Box<RequestHead> {
        self.request.take().unwrap_or_else(|| {
            let headers = FieldList::with_spare();
            Box::new(RequestHead { headers, ..RequestHead::default() })
        })
    }

    /// The same for a response.
    pub(crate) fn response(&self) -> Box<ResponseHead> {
        self.response.take().unwrap_or_else(|| {
            let headers = FieldList::with_spare();
            Box::new(ResponseHead { headers, ..ResponseHead::default() })
        })
    }

    /// Keeps the memory of `head`.
    pub(crate) fn give_request(&self, mut head: Box<RequestHead>) {
        if head.headers.capacity() <= KEPT_BYTES {
            head.headers.clear();
            // It may be long.
            head.method = Method::default();
            // It shares the buffer that it was read into.
            head.uri = Uri::default();
            head.extended = None;
            head.trace = None;
            self.request.give(head);
        }
    }

    /// The same for a response.
    pub(crate) fn give_response(&self, mut head: Box<ResponseHead>) {
        if head.headers.capacity() <= KEPT_BYTES {
            head.headers.clear();
            head.reason = None;
            self.response.give(head);
        }
    }

    /// Gives all of it up.
    pub(crate) fn forget(&self) {
        self.request.forget();
        self.response.forget();
    }
}

/// A head, or none.
#[derive(Debug)]
struct Spare<T>(Mutex<Option<Box<T>>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Spare<T> {
    fn take(&self) -> Option<Box<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn give(&self, head: Box<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{COOKIE, HeaderValue};

    #[test]
    fn a_kept_head_has_nothing_of_its_message() {
        let spare = SpareHeads::default();
        let mut head = spare.request();
        head.method = Method::from_bytes(&[b'M'; 5000]).unwrap();
        head.uri = "/a?b".parse().unwrap();
        head.headers.append(COOKIE, HeaderValue::from_static("c=d"));
        spare.give_request(head);
        let head = spare.request();
        assert_eq!((&head.method, head.uri.path(), head.uri.query()), (&Method::GET, "/", None));
        assert!(head.headers.is_empty() && head.headers.capacity() > 0);
        let mut head = spare.response();
        head.headers.append(COOKIE, HeaderValue::from_static("c=d"));
        spare.give_response(head);
        assert!(spare.response().headers.is_empty());
    }
}
