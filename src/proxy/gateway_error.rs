//! Errors that the gateway reports to clients itself, other than rejections by rules.

use crate::proxy::message::validate::Invalid;
use crate::{config::Auth, http1::FieldList, meter};
use core::time::Duration;
use http::{
    HeaderValue, StatusCode,
    header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE},
};
use std::borrow::Cow;

/// What `Retry-After` says where no clock knows when the requests under way end, in seconds. A
/// hint: without the field many clients would be back at once.
pub(crate) const HINT: u64 = 1;

/// The methods that are served.
const METHODS: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// What clients read whose address a route does not allow.
pub(crate) const DENIED: &str = "this route does not allow the client's address";

/// What a client must send that did not, or did not well enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) why: &'static str,
    has_basic: bool,
    bearer: Option<&'static str>,
}

impl Challenge {
    /// Asks for what a route wants, as the request has something wrong or nothing, perhaps
    /// a token.
    pub(crate) fn of(auth: &Auth, why: &'static str, has_token: bool) -> Self {
        let bearer = if has_token { "Bearer error=\"invalid_token\"" } else { "Bearer" };
        Self { why, has_basic: auth.basic.is_some(), bearer: auth.jwt.as_ref().map(|_| bearer) }
    }
}

/// The realm is the same for all routes: names of routes are not for clients.
const BASIC: HeaderValue =
    HeaderValue::from_static("Basic realm=\"restricted\", charset=\"UTF-8\"");

/// Why the gateway responds itself, other than by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayError {
    /// The request is not one that can be served, whatever the routes say.
    Invalid(Invalid),
    /// No route matches.
    NoRoute,
    /// The connection's certificate is not the host's.
    Misdirected,
    /// The client's address may not use the route.
    Denied,
    /// A script of this origin may not use the route.
    ForeignOrigin,
    /// The client is not authenticated.
    Unauthenticated(Challenge),
    /// The client has tried too many passwords. It has to wait so long.
    Guessing(Duration),
    /// Too many passwords wait for their check.
    TooManyChecks,
    /// The request's body is longer than the route takes.
    TooLong,
    /// The upstream has not answered as it should.
    Upstream(Failure),
    /// The route's auth service has not let the request pass.
    AuthService(Failure),
}

impl GatewayError {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Invalid(invalid) if invalid.kind == meter::HttpRejection::Method => {
                StatusCode::METHOD_NOT_ALLOWED
            }
            Self::Invalid(invalid) if invalid.kind == meter::HttpRejection::TooLarge => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::Invalid(_) | Self::Upstream(Failure::ClientBroken) => StatusCode::BAD_REQUEST,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Denied | Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Guessing(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyChecks => StatusCode::SERVICE_UNAVAILABLE,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::TooLong | Self::Upstream(Failure::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Upstream(Failure::ClientStalled) => StatusCode::REQUEST_TIMEOUT,
            Self::Upstream(Failure::Timeout) | Self::AuthService(Failure::Timeout) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Upstream(Failure::Unreachable | Failure::Broken | Failure::HeadTooLarge)
            | Self::AuthService(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Says what was rejected, and which setting changes it.
    pub(crate) fn detail(self) -> Cow<'static, str> {
        let detail = match self {
            Self::Invalid(invalid) => return invalid.detail(),
            Self::NoRoute => "no route matches this request",
            Self::Denied => DENIED,
            Self::ForeignOrigin => "`cors` of this route does not allow the origin",
            Self::Unauthenticated(challenge) => challenge.why,
            Self::Guessing(_) => "too many wrong passwords came from this address",
            Self::TooManyChecks => "too many passwords wait for their check",
            Self::Misdirected => "this host is not served on this connection; open another",
            Self::TooLong | Self::Upstream(Failure::TooLong) => {
                "the request body is longer than this route accepts"
            }
            Self::AuthService(Failure::Timeout) => "the auth service did not respond in time",
            Self::AuthService(Failure::Unreachable) => "the auth service cannot be reached",
            Self::AuthService(Failure::HeadTooLarge) => {
                "the header of the auth service's response is too large"
            }
            Self::AuthService(_) => "the auth service gave no valid response",
            Self::Upstream(Failure::Timeout) => "the upstream did not answer in time",
            Self::Upstream(Failure::Unreachable) => "the upstream cannot be reached",
            Self::Upstream(Failure::Broken) => "the upstream broke off",
            Self::Upstream(Failure::HeadTooLarge) => {
                "the header of the upstream's answer is larger, or has more fields, than `limits` of the upstream allows"
            }
            Self::Upstream(Failure::ClientStalled) => "the request body did not arrive in time",
            Self::Upstream(Failure::ClientBroken) => "the request body is malformed or broke off",
        };
        Cow::Borrowed(detail)
    }

    /// Adds what the client needs to do better.
    pub(crate) fn write(self, headers: &mut FieldList) {
        let (name, value) = match self {
            Self::Unauthenticated(challenge) => {
                let bearer = challenge.bearer.map(HeaderValue::from_static);
                let basic = challenge.has_basic.then_some(BASIC);
                for value in basic.into_iter().chain(bearer) {
                    headers.append(WWW_AUTHENTICATE, value);
                }
                return;
            }
            Self::Guessing(wait) => (RETRY_AFTER, HeaderValue::from(whole_seconds(wait))),
            Self::TooManyChecks => (RETRY_AFTER, HeaderValue::from(HINT)),
            // A 405 must name methods (RFC 9110, 15.5.6).
            Self::Invalid(invalid) if invalid.kind == meter::HttpRejection::Method => {
                (ALLOW, METHODS)
            }
            Self::Invalid(_)
            | Self::NoRoute
            | Self::Misdirected
            | Self::Denied
            | Self::ForeignOrigin
            | Self::TooLong
            | Self::AuthService(_)
            | Self::Upstream(_) => return,
        };
        headers.insert(name, value);
    }

    /// Returns whether what follows on the connection could be taken for something else.
    pub(crate) fn closes(self) -> bool {
        matches!(
            self,
            Self::Invalid(_)
                | Self::TooLong
                | Self::Upstream(Failure::TooLong | Failure::ClientStalled | Failure::ClientBroken)
        )
    }
}

/// Rounds up: never earlier than true.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No server could be reached.
    Unreachable,
    /// The server did not respond in time.
    Timeout,
    /// The server's response was not HTTP, or the connection broke.
    Broken,
    /// The header of the server's response is larger than the upstream's limits allow.
    HeadTooLarge,
    /// The request's body is longer than the route allows.
    TooLong,
    /// The client stopped sending its body, or sent no valid one.
    ClientStalled,
    /// The client's body broke off or was malformed.
    ClientBroken,
}

impl Failure {
    /// Returns whether it was the client's doing, and says nothing of the server.
    pub(crate) const fn is_of_client(self) -> bool {
        match self {
            Self::TooLong | Self::ClientStalled | Self::ClientBroken => true,
            Self::Unreachable | Self::Timeout | Self::Broken | Self::HeadTooLarge => false,
        }
    }
}
