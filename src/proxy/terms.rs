//! What connections to servers have in common, whatever they speak.

use super::{body::RequestBody, connect::cause};
use crate::config::{AnswerLimits, Server, Upstream, UpstreamProtocol, UpstreamTls};
use core::fmt;
use http::Request;
use hyper::client::conn::TrySendError;
use std::sync::Arc;

/// What a connection was opened for.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) limits: AnswerLimits,
    pub(super) protocol: UpstreamProtocol,
    /// `None`: cleartext.
    pub(super) tls: Option<Arc<UpstreamTls>>,
}

impl Terms {
    pub(super) fn of(server: &Server, upstream: &Upstream) -> Self {
        let (limits, protocol) = (upstream.options.limits, upstream.options.protocol);
        Self { limits, protocol, tls: upstream.tls_of(server).cloned() }
    }

    /// Whether a connection would be opened in the same way today.
    pub(super) fn fit(&self, server: &Server, upstream: &Upstream) -> bool {
        let is_secured_so = match (&self.tls, upstream.tls_of(server)) {
            (None, None) => true,
            (Some(own), Some(wanted)) => Arc::ptr_eq(own, wanted),
            (None, Some(_)) | (Some(_), None) => false,
        };
        is_secured_so
            && self.limits == upstream.options.limits
            && self.protocol == upstream.options.protocol
    }
}

/// A request without an answer.
pub(super) struct Unanswered {
    pub(super) why: Why,
    /// The request, if the server has not processed it.
    pub(super) request: Option<Request<RequestBody>>,
}

/// Why there is no answer.
pub(super) enum Why {
    Broken(hyper::Error),
    /// The header of the answer is larger than the upstream's limits allow.
    TooLarge,
    /// The request has no form in HTTP/2.
    Unsendable,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => f.write_str(&cause(error)),
            Self::TooLarge => f.write_str("the header of the answer is too large"),
            Self::Unsendable => f.write_str("the request has no form in HTTP/2"),
        }
    }
}

impl From<TrySendError<Request<RequestBody>>> for Unanswered {
    fn from(mut error: TrySendError<Request<RequestBody>>) -> Self {
        let request = error.take_message();
        let error = error.into_error();
        let why = if error.is_parse_too_large() { Why::TooLarge } else { Why::Broken(error) };
        Self { why, request }
    }
}
