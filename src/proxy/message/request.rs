//! A request on its way through, whichever version of HTTP its neighbours speak.

use crate::{
    http1::FieldList, proxy::body::extended_connect::ExtendedConnect, traces::TraceContext,
};
use http::{Method, Uri, Version};

/// A request with a body. Its head is in a box because it is large, and moved often.
#[derive(Debug)]
pub(crate) struct Request<B> {
    head: Box<RequestHead>,
    body: B,
}

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: FieldList,
    /// The client's side of a tunnel over HTTP/2.
    pub(crate) extended: Option<ExtendedConnect>,
    /// The trace that its server is to receive, which is not among the headers.
    pub(crate) trace: Option<TraceContext>,
}

impl<B> Request<B> {
    pub(crate) fn from_parts(head: Box<RequestHead>, body: B) -> Self {
        Self { head, body }
    }

    pub(crate) fn into_parts(self) -> (Box<RequestHead>, B) {
        (self.head, self.body)
    }

    pub(crate) fn head(&self) -> &RequestHead {
        &self.head
    }

    pub(crate) fn head_mut(&mut self) -> &mut RequestHead {
        &mut self.head
    }

    pub(crate) fn method(&self) -> &Method {
        &self.head.method
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.head.uri
    }

    pub(crate) fn version(&self) -> Version {
        self.head.version
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

    pub(crate) fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    pub(crate) fn map<C>(self, change: impl FnOnce(B) -> C) -> Request<C> {
        Request { head: self.head, body: change(self.body) }
    }
}

impl<B> From<http::Request<B>> for Request<B> {
    fn from(request: http::Request<B>) -> Self {
        let (mut head, body) = request.into_parts();
        let extended = head.extensions.remove();
        let method = head.method;
        let uri = head.uri;
        let version = head.version;
        let headers = head.headers.into();
        let head = RequestHead { method, uri, version, headers, extended, trace: None };
        Self { head: Box::new(head), body }
    }
}
