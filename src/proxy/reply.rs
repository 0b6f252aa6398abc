//! Answers that the gateway gives itself.

use super::{
    body::ResponseBody,
    exchange::Failure,
    grpc::{self, Code, is_grpc},
    placeholders::{self, OfRejection},
    quota::{self, Told},
    request::Invalid,
    tail::Tail,
};
use crate::{
    config::{Auth, RateLimitHeaders, Route},
    flow::{Reason, Rejection, Verdict},
    meter,
};
use bytes::Bytes;
use core::time::Duration;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use smallvec::SmallVec;
use std::borrow::Cow;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The problem type of a used-up quota, as the rate limit header draft registers it.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// What `Retry-After` says where no clock knows when the requests under way end, in seconds. A
/// hint: without the field many clients would be back at once.
const HINT: u64 = 1;

/// What clients read whose address a route does not allow.
pub(super) const DENIED: &str = "this route does not allow the client's address";

/// What a client must send that did not, or did not well enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    why: &'static str,
    has_basic: bool,
    bearer: Option<&'static str>,
}

impl Challenge {
    /// Asks for what a route wants, as the request has something wrong or nothing, perhaps
    /// a token.
    pub(super) fn of(auth: &Auth, why: &'static str, has_token: bool) -> Self {
        let bearer = if has_token { "Bearer error=\"invalid_token\"" } else { "Bearer" };
        Self { why, has_basic: auth.basic.is_some(), bearer: auth.jwt.as_ref().map(|_| bearer) }
    }
}

/// The realm is the same for all routes: names of routes are not for clients.
const BASIC: HeaderValue =
    HeaderValue::from_static("Basic realm=\"restricted\", charset=\"UTF-8\"");

/// Why the gateway answers a request itself, other than a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request is not one that can be served, whatever the routes say.
    Invalid(Invalid),
    /// No route matches.
    NoRoute,
    /// The connection's certificate is not the host's.
    Misdirected,
    /// The client's address may not use the route.
    Denied,
    /// The client has not proved who it is.
    Unauthenticated(Challenge),
    /// The client has tried too many passwords. It has to wait so long.
    Guessing(Duration),
    /// Too many passwords wait for their check.
    TooManyChecks,
    /// The request's body is longer than the route takes.
    TooLong,
    /// The upstream has not answered as it should.
    Upstream(Failure),
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Self::Invalid(invalid) if invalid.kind == meter::Refusal::Method => {
                StatusCode::METHOD_NOT_ALLOWED
            }
            Self::Invalid(invalid) if invalid.kind == meter::Refusal::TooLarge => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::Invalid(_) | Self::Upstream(Failure::ClientBroken) => StatusCode::BAD_REQUEST,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Guessing(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyChecks => StatusCode::SERVICE_UNAVAILABLE,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::TooLong | Self::Upstream(Failure::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Upstream(Failure::ClientStalled) => StatusCode::REQUEST_TIMEOUT,
            Self::Upstream(Failure::Timeout) => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(Failure::Unreachable | Failure::Broken | Failure::HeadTooLarge) => {
                StatusCode::BAD_GATEWAY
            }
        }
    }

    /// Says what was refused, and which setting changes it.
    pub(super) fn detail(self) -> Cow<'static, str> {
        let detail = match self {
            Self::Invalid(invalid) => return invalid.detail(),
            Self::NoRoute => "no route matches this request",
            Self::Denied => DENIED,
            Self::Unauthenticated(challenge) => challenge.why,
            Self::Guessing(_) => "too many wrong passwords came from this address",
            Self::TooManyChecks => "too many passwords wait for their check",
            Self::Misdirected => "this host is not served on this connection; open another",
            Self::TooLong | Self::Upstream(Failure::TooLong) => {
                "the request body is longer than `body_limit` of this route allows"
            }
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
    fn write(self, headers: &mut HeaderMap) {
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
            Self::Invalid(_)
            | Self::NoRoute
            | Self::Misdirected
            | Self::Denied
            | Self::TooLong
            | Self::Upstream(_) => return,
        };
        headers.insert(name, value);
    }

    /// Whether what follows on the connection could be taken for something else.
    pub(super) fn closes(self) -> bool {
        matches!(
            self,
            Self::Invalid(_)
                | Self::TooLong
                | Self::Upstream(Failure::TooLong | Failure::ClientStalled | Failure::ClientBroken)
        )
    }
}

/// Answers with a status, a `problem+json` body (RFC 9457), or what gRPC expects.
pub(super) fn refuse(
    refusal: Refusal,
    request: &HeaderMap,
    mut tail: Box<Tail>,
) -> Response<ResponseBody> {
    let status = refusal.status();
    let code = match status {
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
        _ if status.is_server_error() => Code::Unavailable,
        _ => Code::Internal,
    };
    let detail = refusal.detail();
    let (mut response, body) = match grpc_error(request, code, &detail) {
        Some(response) => (response, Bytes::new()),
        None => explained(status, &detail),
    };
    refusal.write(response.headers_mut());
    if let Some(entry) = &mut tail.entry {
        entry.error = Some(detail);
    }
    tail.closes |= refusal.closes();
    finish(response, body, tail)
}

/// How a rule's rejection is answered.
pub(super) struct Manner {
    pub(super) headers: RateLimitHeaders,
    pub(super) explain: bool,
}

/// Answers a request that a rule rejected.
pub(super) fn reject(
    rejection: &Rejection,
    route: &Route,
    manner: &Manner,
    request: &HeaderMap,
    tail: Box<Tail>,
) -> Response<ResponseBody> {
    let rule = route.rule_name(rejection.slot);
    let (standard, code, detail) = words(rejection.reason);
    let (mut response, body) = if let Some(response) = grpc_error(request, code, detail) {
        (response, Bytes::new())
    } else {
        let violated = violated(rejection, route);
        let custom = route.options.reject.as_ref();
        let retry_after = retry_after(rejection.reason);
        let own = custom.and_then(|custom| custom.body.as_ref()).map(|body| {
            let values = tail.values.as_deref();
            let of = OfRejection { rule, retry_after };
            (
                placeholders::header(&body.content_type, values),
                placeholders::body(body, values, Some(of)),
            )
        });
        let status = custom.and_then(|custom| custom.status);
        page((standard, status), &violated, detail, rejection.reason, own)
    };
    let headers = response.headers_mut();
    if let Some(seconds) = retry_after(rejection.reason) {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(told) = Told::rejected(route, rejection, manner.headers) {
        told.write(headers, route);
    }
    if manner.explain {
        quota::explain(headers, rule, rejection.reason.kind());
    }
    finish(response, body, tail)
}

/// Returns the rules that rejected, first the one that decided.
fn violated<'a>(rejection: &Rejection, route: &'a Route) -> SmallVec<[&'a str; 4]> {
    let quotas = rejection.report.quotas.iter();
    let others = quotas
        .filter(|quota| {
            matches!(quota.verdict, Verdict::Rejected(_)) && quota.slot != rejection.slot
        })
        .map(|quota| quota.slot);
    core::iter::once(rejection.slot).chain(others).map(|slot| route.rule_name(slot)).collect()
}

/// Status, gRPC status and words of a reason. A client's own quota is 429; what
/// protects the service is 503; what no wait helps against, as the request is not as the rule
/// needs it, is 400.
fn words(reason: Reason) -> (StatusCode, Code, &'static str) {
    let quota = (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted);
    let overload = (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable);
    let malformed = (StatusCode::BAD_REQUEST, Code::InvalidArgument);
    let ((status, code), detail) = match reason {
        Reason::Rate { .. } => (quota, "the rate limit is used up"),
        Reason::TooCostly { .. } => (quota, "this request costs more than the limit ever allows"),
        Reason::MissingKey => (malformed, "the request lacks what the limit is counted by"),
        Reason::DuplicateKey => {
            (malformed, "the request has what the limit is counted by more than once")
        }
        Reason::Undecided { .. } => (quota, "the limit cannot be decided at the moment"),
        Reason::Concurrency { .. } => (overload, "as many requests as may be are in flight"),
        Reason::QueueFull { .. } => (overload, "the queue is full"),
        Reason::QueueWait { .. } => (overload, "the wait in the queue would be too long"),
        Reason::BreakerOpen { .. } => {
            (overload, "the service fails or is slow; the breaker is open")
        }
    };
    (status, code, detail)
}

/// Returns what `Retry-After` says, in seconds; `None` if the same request can never be admitted.
fn retry_after(reason: Reason) -> Option<u64> {
    match reason.retry_after() {
        Some(wait) => Some(whole_seconds(wait)),
        None => (!reason.is_lasting()).then_some(HINT),
    }
}

/// Rounds up: never earlier than true.
pub(super) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

fn page(
    (standard, status): (StatusCode, Option<StatusCode>),
    violated: &[&str],
    detail: &str,
    reason: Reason,
    own: Option<(Option<HeaderValue>, Bytes)>,
) -> (Response<()>, Bytes) {
    let status = status.unwrap_or(standard);
    let mut response = problem(status);
    if let Some((content_type, body)) = own {
        response.headers_mut().remove(CONTENT_TYPE);
        response.headers_mut().extend(content_type.map(|value| (CONTENT_TYPE, value)));
        return (response, body);
    }
    let quota = standard == StatusCode::TOO_MANY_REQUESTS;
    let mut body = serde_json::json!({
        "type": if quota { QUOTA_EXCEEDED } else { "about:blank" },
        "title": status.canonical_reason().unwrap_or("error"),
        "status": status.as_u16(),
        "detail": detail,
        "violated-policies": violated,
        "reason": reason.kind().word(),
    });
    if let (Some(wait), Some(fields)) = (reason.retry_after(), body.as_object_mut()) {
        fields.insert("retry-after-ms".into(), millis(wait).into());
    }
    (response, Bytes::from(body.to_string()))
}

pub(super) fn explained(status: StatusCode, detail: &str) -> (Response<()>, Bytes) {
    let mut response = problem(status);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(
            ALLOW,
            HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        );
    }
    let title = status.canonical_reason().unwrap_or("error");
    let body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
    });
    (response, Bytes::from(body.to_string()))
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn problem(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response
}

/// A gRPC client reads its status from a field of a 200 without a body.
fn grpc_error(request: &HeaderMap, code: Code, message: &str) -> Option<Response<()>> {
    let content_type = request.get(CONTENT_TYPE).filter(|value| is_grpc(value))?;
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(grpc::STATUS, HeaderValue::from(code as u16));
    if let Ok(message) = HeaderValue::from_str(message) {
        headers.insert(grpc::MESSAGE, message);
    }
    Some(response)
}

/// Adds what the route sets in all answers, and the body, of which a HEAD gets only the length, and
/// says whether the connection ends.
pub(super) fn finish(
    mut response: Response<()>,
    mut body: Bytes,
    mut tail: Box<Tail>,
) -> Response<ResponseBody> {
    let status = response.status();
    tail.answered(status);
    tail.write_id(response.headers_mut());
    if let Some(route) = &tail.route {
        let headers = response.headers_mut();
        let is_error = status.as_u16() >= 400 || headers.contains_key(grpc::STATUS);
        let edits = &route.options.response_headers;
        placeholders::add_to_own(is_error, headers, edits, tail.values.as_deref());
    }
    if tail.method == Method::HEAD && !body.is_empty() {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        body.clear();
    }
    response.map(|()| ResponseBody::own(body, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::ReasonKind;

    #[test]
    fn a_rejection_says_when_to_come_back_unless_it_is_for_ever() {
        let wait = Duration::from_millis(1_001);
        assert_eq!(retry_after(Reason::Rate { retry_after: wait }), Some(2));
        assert_eq!(retry_after(Reason::BreakerOpen { retry_after: Some(wait) }), Some(2));
        assert_eq!(retry_after(Reason::Concurrency { limit: 1 }), Some(HINT));
        assert_eq!(retry_after(Reason::BreakerOpen { retry_after: None }), Some(HINT));
        assert_eq!(retry_after(Reason::TooCostly { limit: 1, kind: ReasonKind::Rate }), None);
        assert_eq!(retry_after(Reason::MissingKey), None);
        assert_eq!(retry_after(Reason::DuplicateKey), None);
    }
}
