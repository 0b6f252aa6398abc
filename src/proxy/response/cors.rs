//! The fields by which browsers let scripts of other origins read a response (Fetch, 3.2).

use super::{
    own_response::{error_response, finish},
    response_body::ResponseBody,
};
use crate::{
    config::{Cors, RouteOptions},
    http1::FieldList,
    proxy::{
        gateway_error::GatewayError,
        message::{RequestHead, Response},
        record::Completion,
    },
};
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
        ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
        ORIGIN, VARY,
    },
};

const ANY: HeaderValue = HeaderValue::from_static("*");
const TRUE: HeaderValue = HeaderValue::from_static("true");

/// Returns the origin of the script that has sent a request with these fields, if `cors` allows it.
#[inline(never)]
pub(crate) fn allowed_origin(cors: &Cors, headers: &FieldList) -> Option<Box<HeaderValue>> {
    let mut origins = headers.get_all(&ORIGIN);
    let origin = origins.next().filter(|_| origins.next().is_none())?;
    let value = cors.allows(origin).then(|| HeaderValue::from_bytes(origin))?;
    value.ok().map(Box::new)
}

/// Returns whether a browser asks by this request whether a script may send another one.
pub(crate) fn is_preflight(head: &RequestHead) -> bool {
    let is_one = |name: &HeaderName| head.headers.get_all(name).count() == 1;
    head.method == Method::OPTIONS && is_one(&ORIGIN) && is_one(&ACCESS_CONTROL_REQUEST_METHOD)
}

/// Writes the fields of a route with these options into a response for the script of `origin`, which is
/// allowed. They replace those of the upstream.
#[inline]
pub(crate) fn write(options: &RouteOptions, origin: Option<&HeaderValue>, headers: &mut FieldList) {
    if let Some(cors) = &options.cors {
        write_fields(cors, origin, headers);
    }
}

#[inline(never)]
fn write_fields(cors: &Cors, origin: Option<&HeaderValue>, headers: &mut FieldList) {
    headers.remove_names(|name| name.starts_with(b"access-control-"));
    let allows_any = cors.allows_any();
    if !allows_any {
        add_vary(headers, &[ORIGIN]);
    }

    let Some(origin) = origin else { return };
    let origin = if allows_any { &ANY } else { origin };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if cors.credentials {
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
    }
    if let Some(names) = &cors.expose {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
}

/// Has caches keep a response for requests with the same values of `names` only.
pub(crate) fn add_vary(headers: &mut FieldList, names: &[HeaderName]) {
    for name in names {
        let is_listed = |list: &[u8]| {
            let mut listed = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            listed.any(|one| one == b"*" || one.eq_ignore_ascii_case(name.as_str().as_bytes()))
        };
        if !headers.get_all(&VARY).any(is_listed) {
            headers.append(VARY, title(name));
        }
    }
}

/// Returns the name as `Vary` usually has it.
fn title(name: &HeaderName) -> HeaderValue {
    let mut text = name.as_str().as_bytes().to_vec();
    for at in 0..text.len() {
        if at == 0 || text[at - 1] == b'-' {
            text[at].make_ascii_uppercase();
        }
    }
    HeaderValue::try_from(text).unwrap_or(ANY)
}

/// The question of a preflight.
#[derive(Debug)]
pub(crate) struct Asks {
    method: Option<HeaderValue>,
    headers: Option<HeaderValue>,
}

impl Asks {
    /// Returns the question in these fields.
    pub(crate) fn of(headers: &FieldList) -> Self {
        Self {
            method: headers.value(&ACCESS_CONTROL_REQUEST_METHOD),
            headers: headers.value(&ACCESS_CONTROL_REQUEST_HEADERS),
        }
    }
}

/// Responds to a preflight as `cors` of its route says.
pub(crate) fn respond_to_preflight(
    asked: Asks,
    completion: Box<Completion>,
) -> Response<ResponseBody> {
    let cors = completion.route.as_ref().and_then(|route| route.options.cors.clone());
    let Some(cors) = cors.filter(|_| completion.origin.is_some()) else {
        return error_response(GatewayError::ForeignOrigin, None, completion);
    };

    let mut head = completion.peer.spare_heads.response();
    head.status = StatusCode::NO_CONTENT;
    let mut response = finish(Response::from_parts(head, ()), bytes::Bytes::new(), completion);
    let headers = response.headers_mut();
    let Asks { method, headers: fields } = asked;
    let methods = cors.methods.or(method);
    let fields = cors.headers.or_else(|| {
        add_vary(headers, &[ACCESS_CONTROL_REQUEST_HEADERS]);
        fields
    });

    let fields = fields.filter(|fields| !fields.is_empty());
    let written = [
        (ACCESS_CONTROL_ALLOW_METHODS, methods),
        (ACCESS_CONTROL_ALLOW_HEADERS, fields),
        (ACCESS_CONTROL_MAX_AGE, cors.max_age),
    ];
    headers.extend(written.into_iter().filter_map(|(name, value)| Some((name, value?))));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vary_gets_a_name_once() {
        for (before, after) in [
            (None, vec!["Access-Control-Request-Headers"]),
            (Some("Accept-Encoding"), vec!["Accept-Encoding", "Access-Control-Request-Headers"]),
            (
                Some("accept , ACCESS-control-request-headers"),
                vec!["accept , ACCESS-control-request-headers"],
            ),
            (Some("*"), vec!["*"]),
        ] {
            let mut headers = FieldList::default();
            if let Some(before) = before {
                headers.append(VARY, HeaderValue::from_static(before));
            }
            add_vary(&mut headers, &[ACCESS_CONTROL_REQUEST_HEADERS]);
            let found: Vec<_> = headers.get_all(&VARY).map(<[u8]>::to_vec).collect();
            assert_eq!(found, after.iter().map(|text| text.as_bytes()).collect::<Vec<_>>());
        }
    }
}
