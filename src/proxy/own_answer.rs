//! Answers that a route gives in place of an upstream.

use super::{
    placeholders,
    quota::Told,
    refusal::Refusal,
    reply::{finish, refuse},
    request::NO_HOST,
    response_body::ResponseBody,
    tail::Tail,
};
use crate::config::{Action, Redirect, Respond, Route};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};

/// Answers an admitted request as `route` says, with what is `told` of the client's quotas.
pub(super) fn answer(route: &Route, told: Option<Told>, tail: Box<Tail>) -> Response<ResponseBody> {
    let made = match &route.action {
        Action::Forward(_) => None,
        Action::Redirect(redirect) => redirected(redirect, &tail),
        Action::Respond(respond) => Some(responded(respond, &tail)),
    };
    let Some((mut response, body)) = made else {
        return refuse(Refusal::Invalid(NO_HOST), &HeaderMap::new(), tail);
    };
    if let Some(told) = told {
        told.write(response.headers_mut(), route);
    }
    finish(response, body, tail)
}

/// Returns `None` if the redirect needs a host, and the request has none.
fn redirected(redirect: &Redirect, tail: &Tail) -> Option<(Response<()>, Bytes)> {
    let location: HeaderValue = tail.values.as_ref()?.location(redirect)?;
    let mut response = Response::new(());
    *response.status_mut() = redirect.status;
    response.headers_mut().insert(header::LOCATION, location);
    Some((response, Bytes::new()))
}

fn responded(respond: &Respond, tail: &Tail) -> (Response<()>, Bytes) {
    let values = tail.values.as_deref();
    let mut response = Response::new(());
    *response.status_mut() = respond.status;
    let headers = response.headers_mut();
    for (name, text) in &respond.headers {
        if let Some(value) = placeholders::header(text, values) {
            headers.insert(name, value);
        }
    }
    let Some(body) = &respond.body else { return (response, Bytes::new()) };
    if let Some(value) = placeholders::header(&body.content_type, values) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    (response, placeholders::body(body, values, None))
}
