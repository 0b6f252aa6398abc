//! A response on its way through, whichever version of HTTP its neighbours speak.

use crate::http1::FieldList;
use http::StatusCode;
use hyper::ext::ReasonPhrase;

/// A response with a body. Its head is in a box because it is large, and moved often.
#[derive(Debug)]
pub(crate) struct Response<B> {
    head: Box<ResponseHead>,
    body: B,
}

/// The head of a response.
#[derive(Debug, Default)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    /// Another than the usual one.
    pub(crate) reason: Option<ReasonPhrase>,
    pub(crate) headers: FieldList,
}

impl<B> Response<B> {
    pub(crate) fn from_parts(head: Box<ResponseHead>, body: B) -> Self {
        Self { head, body }
    }

    pub(crate) fn into_parts(self) -> (Box<ResponseHead>, B) {
        (self.head, self.body)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    pub(crate) fn status_mut(&mut self) -> &mut StatusCode {
        &mut self.head.status
    }

    pub(crate) fn headers(&self) -> &FieldList {
        &self.head.headers
    }

    pub(crate) fn headers_mut(&mut self) -> &mut FieldList {
        &mut self.head.headers
    }

    pub(crate) fn body(&self) -> &B {
        &self.body
    }

    pub(crate) fn map<C>(self, change: impl FnOnce(B) -> C) -> Response<C> {
        Response { head: self.head, body: change(self.body) }
    }

    /// Returns the response as HTTP/2 has it.
    pub(crate) fn into_http(self) -> http::Response<B> {
        let mut response = http::Response::new(self.body);
        *response.status_mut() = self.head.status;
        *response.headers_mut() = self.head.headers.into_map();
        response
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (head, body) = response.into_parts();
        let headers = head.headers.into();
        let head = ResponseHead { status: head.status, reason: None, headers };
        Self { head: Box::new(head), body }
    }
}
