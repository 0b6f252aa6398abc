//! Answers that a route gives in place of an upstream.

use super::{
    gateway_error::GatewayError,
    reply::{close, error_response, finish},
    response_body::ResponseBody,
};
use crate::config::{Action, Redirect, Respond, Route};
use crate::proxy::message::response::Response;
use crate::proxy::{completion::Completion, message::validate::NO_HOST, placeholders};
use bytes::Bytes;
use http::{HeaderValue, header};

/// Answers an admitted request as `route` says.
pub(crate) fn answer(route: &Route, completion: Box<Completion>) -> Response<ResponseBody> {
    let made = match &route.action {
        Action::Forward(_) => None,
        Action::Redirect(redirect) => redirected(redirect, &completion),
        Action::Respond(respond) => Some(responded(respond, &completion)),
        Action::Close => return close(completion),
    };
    let Some((mut response, body)) = made else {
        return error_response(GatewayError::Invalid(NO_HOST), None, completion);
    };
    if let Some(quota) = &completion.quota {
        quota.write(response.headers_mut(), route);
    }
    finish(response, body, completion)
}

/// Returns `None` if the redirect needs a host, and the request has none.
fn redirected(redirect: &Redirect, completion: &Completion) -> Option<(Response<()>, Bytes)> {
    let location: HeaderValue = completion.values.as_ref()?.location(redirect)?;
    let mut response = Response::from_parts(completion.peer.spare_heads.response(), ());
    *response.status_mut() = redirect.status;
    response.headers_mut().insert(header::LOCATION, location);
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
        headers.insert(header::CONTENT_TYPE, value);
    }
    (response, placeholders::body(body, values, None))
}
