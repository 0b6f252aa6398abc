//! The head of a request, to be sent again if need be.

use crate::proxy::body::request_body::RequestBody;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

/// A copy of a request's head. A list is copied in half the time of a map, and hardly ever needed.
pub(crate) struct Copied {
    method: Method,
    uri: Uri,
    version: Version,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Copied {
    pub(crate) fn of(request: &Request<RequestBody>) -> Self {
        let mut headers = Vec::with_capacity(request.headers().len());
        for (name, value) in request.headers() {
            headers.push((name.clone(), value.clone()));
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Self { method, uri, version: request.version(), headers }
    }

    /// Returns the request with `body`.
    pub(crate) fn restore(&self, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        request.method_mut().clone_from(&self.method);
        request.uri_mut().clone_from(&self.uri);
        *request.version_mut() = self.version;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        request
    }
}
