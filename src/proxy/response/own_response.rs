//! Responses that the gateway gives itself.

use super::{
    cors,
    jitter::{jitter, later},
    response_body::ResponseBody,
};
use crate::proxy::{
    gateway_error::{GatewayError, HINT, whole_seconds},
    message::{
        Response, ResponseHead,
        grpc::{self, Code},
        validate::NO_HOST,
    },
    placeholders::{self, OfRejection},
    rate_limit_headers::{self, RateLimitFields},
    record::{Completion, Event},
    worker::BodyMemory,
};
use crate::{
    config::{Action, Body, RateLimitHeaders, Redirect, Reject, Respond, Route, RouteRule},
    flow::{Reason, Rejection, Verdict},
    meter,
};
use bytes::Bytes;
use core::time::Duration;
use http::{
    HeaderValue, Method, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER},
};
use serde::Serialize;
use smallvec::SmallVec;
use std::borrow::Cow;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The problem type of a used-up quota, as the rate limit header draft registers it.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Most bodies have fewer bytes.
const USUAL_BYTES: usize = 512;

/// The body of an error (RFC 9457).
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    violated: Option<&'a [&'a str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(rename = "retry-after-ms", skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'a> Problem<'a> {
    fn of(status: StatusCode, detail: &'a str) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("error"),
            status: status.as_u16(),
            detail,
            violated: None,
            reason: None,
            retry_after_ms: None,
        }
    }

    fn written(&self) -> Vec<u8> {
        let mut written = Vec::with_capacity(USUAL_BYTES);
        // Text and numbers can always be written.
        drop(serde_json::to_writer(&mut written, self));
        written
    }
}

/// Responds with a status, a `problem+json` body (RFC 9457), or what gRPC expects: `grpc` is the
/// content type of a call.
pub(crate) fn error_response(
    error: GatewayError,
    grpc: Option<HeaderValue>,
    mut completion: Box<Completion>,
) -> Response<ResponseBody> {
    let status = error.status();
    let code = match status {
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => Code::ResourceExhausted,
        StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
        _ if status.is_server_error() => Code::Unavailable,
        _ => Code::Internal,
    };

    let detail = error.detail();
    let head = completion.peer.spare_heads.response();
    let route = completion.route.as_ref();
    let own = route.and_then(|route| route.options.error_body(status));
    let (mut response, body) = match (grpc, own) {
        (Some(content_type), _) => (grpc_error(head, content_type, code, &detail), Bytes::new()),
        (None, Some(own)) => page(head, status, written(own, &completion, None)),
        (None, None) => explained(head, status, &detail),
    };

    error.write(response.headers_mut());
    completion.observers.note(Event::Error(detail));
    completion.closes |= error.closes();
    finish(response, body, completion)
}

/// A body that the file has.
struct Page {
    content_type: Option<HeaderValue>,
    body: Bytes,
}

/// Puts `body` into a server's error in place of its own, which `head` describes no more. A HEAD gets only the
/// length.
pub(crate) fn replace_body(
    response: &mut Response<()>,
    body: &Body,
    completion: &Completion,
) -> Bytes {
    let Page { content_type, body } = written(body, completion, None);
    let headers = response.headers_mut();
    headers.remove_names(describes_content);
    headers.extend(content_type.map(|value| (CONTENT_TYPE, value)));
    if completion.arrival.method != Method::HEAD {
        return body;
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Bytes::new()
}

/// Returns whether a field is about the body of its message, or how to keep it.
fn describes_content(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 11] = [
        b"accept-ranges",
        b"age",
        b"cache-control",
        b"digest",
        b"etag",
        b"expires",
        b"last-modified",
        b"pragma",
        b"repr-digest",
        b"trailer",
        b"transfer-encoding",
    ];
    name.starts_with(b"content-") && name != b"content-security-policy" || NAMES.contains(&name)
}

/// Returns a body that the file has, with the values of its placeholders.
fn written(body: &Body, completion: &Completion, of: Option<OfRejection<'_>>) -> Page {
    let values = completion.values.as_deref();
    let content_type = placeholders::header(&body.content_type, values);
    Page { content_type, body: placeholders::body(body, values, of) }
}

/// How a rule's rejection is answered.
pub(crate) struct ReplyOptions {
    pub(crate) headers: RateLimitHeaders,
    pub(crate) explain: bool,
}

/// Responds to a request that a rule rejected. `grpc` is the content type of a call.
pub(crate) fn reject(
    rejection: &Rejection,
    route: &Route,
    options: &ReplyOptions,
    grpc: Option<HeaderValue>,
    completion: Box<Completion>,
) -> Response<ResponseBody> {
    if route.options.reject == Some(Reject::Close) {
        return close(completion);
    }

    let most = rule_of(route, rejection).and_then(|rule| rule.retry_after_jitter);
    let jitter = most.map(|most| jitter(most, completion.arrival.at, rejection.key));
    let later = jitter.map(|jitter| later(rejection, jitter));
    let rejection = later.as_ref().unwrap_or(rejection);

    let rule = route.rule_name(rejection.slot);
    let (standard, code, detail) = words(rejection, route);
    let head = completion.peer.spare_heads.response();
    let retry_after = retry_after(rejection.reason, jitter.unwrap_or_default());
    let (mut response, body) = if let Some(content_type) = grpc {
        (grpc_error(head, content_type, code, &detail), Bytes::new())
    } else {
        let custom = route.options.reject.as_ref();
        let status = custom.and_then(Reject::status).unwrap_or(standard);
        let own = custom.and_then(Reject::body);
        let own = own
            .or_else(|| route.options.error_body(status))
            .map(|body| written(body, &completion, Some(OfRejection { rule, retry_after })));
        if let Some(own) = own {
            page(head, status, own)
        } else {
            let memory = &completion.peer.worker.bodies;
            let body = rejected(rejection, route, standard, status, &detail, memory);
            (problem(head, status), body)
        }
    };

    let headers = response.headers_mut();
    if let Some(seconds) = retry_after {
        let mut digits = itoa::Buffer::new();
        headers.insert_changing(&RETRY_AFTER, &[digits.format(seconds).as_bytes()]);
    }
    if let Some(quota) = RateLimitFields::rejected(route, rejection, options.headers) {
        quota.write(headers, route);
    }
    if options.explain {
        rate_limit_headers::explain(headers, rule, rejection.reason.kind());
    }

    finish(response, body, completion)
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
fn words(rejection: &Rejection, route: &Route) -> (StatusCode, Code, Cow<'static, str>) {
    let quota = (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted);
    let overload = (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable);
    let needs = || {
        let rule = rule_of(route, rejection);
        rule.map(|rule| rule.key.needs()).unwrap_or_default()
    };
    let not_as_needed =
        |detail: String| (StatusCode::BAD_REQUEST, Code::InvalidArgument, detail.into());
    let ((status, code), detail) = match rejection.reason {
        Reason::Rate { .. } => (quota, "the rate limit is used up"),
        Reason::TooCostly { .. } => (quota, "this request costs more than the limit ever allows"),
        Reason::Banned { .. } => {
            (quota, "the limit was exceeded; the client is rejected for a while")
        }
        Reason::Closed => (quota, "the limit is 0: nothing is let pass"),
        Reason::MissingKey => return not_as_needed(format!("the request lacks {}", needs())),
        Reason::DuplicateKey => {
            return not_as_needed(format!("the request has {} more than once", needs()));
        }
        Reason::Undecided { .. } => (quota, "the limit cannot be decided at the moment"),
        Reason::Concurrency { .. } => (overload, "too many requests are in flight"),
        Reason::QueueFull { .. } => (overload, "the queue is full"),
        Reason::QueueWait { .. } => (overload, "the wait in the queue would be too long"),
        Reason::NoRoomToWait { .. } => (overload, "as many requests wait as may"),
        Reason::WaitedTooLong { .. } => {
            (overload, "the request has waited too long for a free place")
        }
        Reason::BreakerOpen { .. } => {
            (overload, "the service fails or is slow; the breaker is open")
        }
    };
    (status, code, Cow::Borrowed(detail))
}

/// Returns the rule that rejected.
fn rule_of<'r>(route: &'r Route, rejection: &Rejection) -> Option<&'r RouteRule> {
    route.rules.iter().find(|rule| rule.slot == rejection.slot)
}

/// Returns what `Retry-After` says, in seconds; `None` if the same request can never be admitted. An
/// exact time has the `jitter` already.
fn retry_after(reason: Reason, jitter: Duration) -> Option<u64> {
    match reason.retry_after() {
        Some(wait) => Some(whole_seconds(wait)),
        None => (!reason.is_lasting()).then_some(HINT + whole_seconds(jitter)),
    }
}

/// Responds with a body of the route's own.
fn page(mut head: Box<ResponseHead>, status: StatusCode, page: Page) -> (Response<()>, Bytes) {
    head.status = status;
    head.headers.extend(page.content_type.map(|value| (CONTENT_TYPE, value)));
    (Response::from_parts(head, ()), page.body)
}

/// Returns the body that says which rules rejected a request, and why. `standard` is the status of
/// the reason.
fn rejected(
    rejection: &Rejection,
    route: &Route,
    standard: StatusCode,
    status: StatusCode,
    detail: &str,
    memory: &BodyMemory,
) -> Bytes {
    let reason = rejection.reason;
    let violated = violated(rejection, route);
    let is_quota = standard == StatusCode::TOO_MANY_REQUESTS;

    let body = Problem {
        kind: if is_quota { QUOTA_EXCEEDED } else { "about:blank" },
        violated: Some(&violated),
        reason: Some(reason.kind().word()),
        retry_after_ms: reason.retry_after().map(millis),
        ..Problem::of(status, detail)
    };
    match (reason, rule_of(route, rejection)) {
        // The response to a flood: only its end is another one each time.
        (Reason::Rate { retry_after }, Some(rule)) if violated.len() == 1 => {
            let begin = || Problem { retry_after_ms: None, ..body }.written().into_boxed_slice();
            let beginning = rule.problem.get_or_init(begin).strip_suffix(b"}").unwrap_or_default();
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(millis(retry_after)).as_bytes();
            memory.body(&[beginning, b",\"retry-after-ms\":", digits, b"}"])
        }
        _ => body.written().into(),
    }
}

/// Responds with the words of an error. Its head uses the memory of `head`, which has no fields.
pub(crate) fn explained(
    head: Box<ResponseHead>,
    status: StatusCode,
    detail: &str,
) -> (Response<()>, Bytes) {
    (problem(head, status), Problem::of(status, detail).written().into())
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn problem(mut head: Box<ResponseHead>, status: StatusCode) -> Response<()> {
    head.status = status;
    head.headers.insert(CONTENT_TYPE, PROBLEM);
    Response::from_parts(head, ())
}

/// A gRPC client reads its status from a field of a 200 without a body.
fn grpc_error(
    mut head: Box<ResponseHead>,
    content_type: HeaderValue,
    code: Code,
    message: &str,
) -> Response<()> {
    head.status = StatusCode::OK;
    let headers = &mut head.headers;
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(grpc::STATUS, HeaderValue::from(code as u16));
    headers.extend(grpc::encoded(message).map(|message| (grpc::MESSAGE, message)));
    Response::from_parts(head, ())
}

/// Adds what the route sets in all responses, and the body, of which a HEAD gets only the length, and
/// says whether the connection ends.
pub(crate) fn finish(
    mut response: Response<()>,
    mut body: Bytes,
    mut completion: Box<Completion>,
) -> Response<ResponseBody> {
    let status = response.status();
    completion.begin_response(status);
    completion.write_id(response.headers_mut());
    if let Some(route) = &completion.route {
        let headers = response.headers_mut();
        let is_error = status.as_u16() >= 400 || headers.contains_key(&grpc::STATUS);
        let edits = &route.options.response_headers;
        placeholders::add_to_own(is_error, headers, edits, completion.values.as_deref());
        cors::write(&route.options, completion.origin.as_deref(), headers);
    }
    if completion.arrival.method == Method::HEAD && !body.is_empty() {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        body.clear();
    }
    response.map(|()| ResponseBody::own(body, completion))
}

/// Ends the connection, or the stream of HTTP/2, without a response.
#[cold]
pub(crate) fn close(completion: Box<Completion>) -> Response<ResponseBody> {
    let head = completion.peer.spare_heads.response();
    Response::from_parts(head, ResponseBody::none(completion))
}

/// Responds to an admitted request as `route` says. `grpc` is the content type of a call.
pub(crate) fn respond_as_configured(
    route: &Route,
    grpc: Option<HeaderValue>,
    completion: Box<Completion>,
) -> Response<ResponseBody> {
    let made = match &route.action {
        Action::Forward(_) => None,
        Action::Redirect(redirect) => redirected(redirect, &completion),
        Action::Respond(respond) => Some(responded(respond, &completion)),
        Action::Close => return close(completion),
        Action::NoRoute => return not_found(route, grpc, completion),
    };
    let Some((mut response, body)) = made else {
        return error_response(GatewayError::Invalid(NO_HOST), None, completion);
    };
    if let Some(quota) = &completion.decision.quota {
        quota.write(response.headers_mut(), route);
    }
    finish(response, body, completion)
}

/// Responds to an admitted request that no route of the file matches.
fn not_found(
    route: &Route,
    grpc: Option<HeaderValue>,
    mut completion: Box<Completion>,
) -> Response<ResponseBody> {
    completion.peer.worker.counters.count_rejection(meter::HttpRejection::NoRoute);
    let quota = completion.decision.quota.take();
    let mut response = error_response(GatewayError::NoRoute, grpc, completion);
    if let Some(quota) = quota {
        quota.write(response.headers_mut(), route);
    }
    response
}

/// Returns `None` if the redirect needs a host, and the request has none.
fn redirected(redirect: &Redirect, completion: &Completion) -> Option<(Response<()>, Bytes)> {
    let location: HeaderValue = completion.values.as_ref()?.location(redirect)?;
    let mut response = Response::from_parts(completion.peer.spare_heads.response(), ());
    *response.status_mut() = redirect.status;
    response.headers_mut().insert(LOCATION, location);
    Some((response, Bytes::new()))
}

fn responded(respond: &Respond, completion: &Completion) -> (Response<()>, Bytes) {
    let values = completion.values.as_deref();
    let mut response = Response::from_parts(completion.peer.spare_heads.response(), ());
    *response.status_mut() = respond.status;
    let headers = response.headers_mut();
    for (name, text) in &respond.headers {
        if let Some(value) = placeholders::header(text, values) {
            headers.insert(name, value);
        }
    }
    let Some(body) = &respond.body else { return (response, Bytes::new()) };
    if let Some(value) = placeholders::header(&body.content_type, values) {
        headers.insert(CONTENT_TYPE, value);
    }
    (response, placeholders::body(body, values, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Instant, ReasonKind};
    use crate::proxy::rate_limit_headers::tests::{claim, route};
    use serde_json::{Value, json};

    #[test]
    fn a_rejection_says_when_to_come_back_unless_it_is_for_ever() {
        let wait = Duration::from_millis(1_001);
        let retry_after = |reason| retry_after(reason, Duration::ZERO);
        assert_eq!(retry_after(Reason::Rate { retry_after: wait }), Some(2));
        assert_eq!(retry_after(Reason::BreakerOpen { retry_after: Some(wait) }), Some(2));
        assert_eq!(retry_after(Reason::Concurrency { limit: 1 }), Some(HINT));
        assert_eq!(retry_after(Reason::BreakerOpen { retry_after: None }), Some(HINT));
        assert_eq!(retry_after(Reason::TooCostly { limit: 1, kind: ReasonKind::Rate }), None);
        assert_eq!(retry_after(Reason::Closed), None);
        assert_eq!(retry_after(Reason::MissingKey), None);
        assert_eq!(retry_after(Reason::DuplicateKey), None);
    }

    #[test]
    fn a_rejection_is_explained_alike_whether_it_is_the_first_of_its_rule() {
        let route = route("{ name: a, limit: 1/1h }, { name: c, limit: 1/1d }");
        let body = |now, places: &[usize]| -> Value {
            let claims: Vec<_> = places.iter().map(|place| claim(&route, *place)).collect();
            let rejection = route.gate.enter(now, &claims).expect_err("it is used up");
            let quota = StatusCode::TOO_MANY_REQUESTS;
            let memory = BodyMemory::default();
            let written = rejected(&rejection, &route, quota, quota, "used up", &memory);
            serde_json::from_slice(&written).unwrap()
        };
        let expected = |violated: Value, wait: u64| {
            json!({
                "type": QUOTA_EXCEEDED,
                "title": "Too Many Requests",
                "status": 429,
                "detail": "used up",
                "violated-policies": violated,
                "reason": "rate",
                "retry-after-ms": wait,
            })
        };
        let start = Instant::EPOCH;
        drop(route.gate.enter(start, &[claim(&route, 0), claim(&route, 1)]).unwrap());
        let hour = 3_600_000;
        assert_eq!(body(start, &[0]), expected(json!(["a"]), hour));
        let half = start + Duration::from_mins(30);
        assert_eq!(body(half, &[0]), expected(json!(["a"]), hour / 2));
        assert_eq!(body(half, &[0, 1]), expected(json!(["c", "a"]), 24 * hour - hour / 2));
        assert_eq!(body(half, &[1]), expected(json!(["c"]), 24 * hour - hour / 2));
    }
}
