//! The words of HTTP: methods, fields, statuses and targets.

use super::{InvalidValue, invalid, is_switch, not};
use crate::{
    config::diagnostics::quoted,
    route::{canonical_host, folded_name},
};
use core::ops::RangeInclusive;
use http::{HeaderName, HeaderValue, Method, StatusCode, header, uri::PathAndQuery};

/// Reads an HTTP method, upper-case.
pub(in crate::config) fn method(text: &str) -> Result<Method, InvalidValue> {
    const HELP: &str = "write a method, as in `GET` or `POST`";
    if matches!(text, "*" | "any" | "all" | "ANY" | "ALL") {
        return not(text, "is not a method", "remove it: without `method`, each of them matches");
    }
    match Method::from_bytes(text.as_bytes()) {
        Ok(_) if text.bytes().any(|b| b.is_ascii_lowercase()) => {
            let help = format!("write `{}`", text.to_ascii_uppercase());
            not(text, "is not upper-case, as methods are", help)
        }
        Ok(method) => Ok(method),
        Err(_) => not(text, "is not a method", HELP),
    }
}

pub(in crate::config) fn header_name(text: &str) -> Result<HeaderName, InvalidValue> {
    text.parse().or_else(|_| {
        not(text, "is not the name of a header", "write letters, digits and `-`, as in `x-tenant`")
    })
}

pub(in crate::config) fn header_value(text: &str) -> Result<HeaderValue, InvalidValue> {
    text.parse().or_else(|_| {
        not(
            text,
            "is not allowed in a header",
            "write visible ASCII characters and spaces, on one line",
        )
    })
}

/// A status, or the end of the connection without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum StatusOrClose {
    Status(StatusCode),
    Close,
}

/// The word for the end of the connection without a response.
const CLOSE: &str = "close";

/// Reads the status of an answer that the gateway gives itself.
pub(in crate::config) fn status(text: &str) -> Result<StatusCode, InvalidValue> {
    let status = text.parse::<StatusCode>().ok();
    status.filter(|s| s.is_client_error() || s.is_server_error()).map_or_else(
        || {
            not(
                text,
                "is not the status of an error",
                "write a status from 400 to 599, as in `429`",
            )
        },
        Ok,
    )
}

/// Reads the status of a rejection, or `close`.
pub(in crate::config) fn reject_status(text: &str) -> Result<StatusOrClose, InvalidValue> {
    if text == CLOSE {
        return Ok(StatusOrClose::Close);
    }
    or_close(status(text))
}

/// Returns the status that was read. The help for a wrong one also names `close`.
fn or_close(read: Result<StatusCode, InvalidValue>) -> Result<StatusOrClose, InvalidValue> {
    read.map(StatusOrClose::Status).map_err(|invalid| InvalidValue {
        help: format!("{}, or `close` to end the connection without a response", invalid.help),
        ..invalid
    })
}

/// Reads the status of a redirect.
pub(in crate::config) fn redirect_status(text: &str) -> Result<StatusCode, InvalidValue> {
    let status = text.parse::<StatusCode>().ok();
    status.filter(|s| matches!(s.as_u16(), 301 | 302 | 303 | 307 | 308)).map_or_else(
        || not(text, "is not the status of a redirect", "write 301, 302, 303, 307 or 308"),
        Ok,
    )
}

/// Reads the status of a response, or `close`.
pub(in crate::config) fn answer_status(text: &str) -> Result<StatusOrClose, InvalidValue> {
    if text == CLOSE {
        return Ok(StatusOrClose::Close);
    }
    let status = text.parse::<StatusCode>().ok();
    or_close(status.filter(|s| (200..600).contains(&s.as_u16())).map_or_else(
        || not(text, "is not the status of a response", "write a status from 200 to 599"),
        Ok,
    ))
}

/// Reads where a redirect leads.
pub(in crate::config) fn location(text: &str) -> Result<String, InvalidValue> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
        if let Some((status, to)) = text.split_once(' ')
            && redirect_status(status).is_ok()
            && location(to.trim()).is_ok()
        {
            let help = format!("write `redirect: {{ to: {}, status: {status} }}`", to.trim());
            return not(text, "is a status and a URL", help);
        }
        let help = "write other characters as escapes, a space as `%20`";
        return not(text, "is not allowed in a URL", help);
    }
    Ok(text.to_owned())
}

/// Reads a host with or without a port, as it stands in `Host`.
pub(in crate::config) fn authority(text: &str) -> Result<HeaderValue, InvalidValue> {
    let host = canonical_host(text).ok();
    let value = host.and_then(|_| HeaderValue::try_from(text).ok());
    value.map_or_else(
        || not(text, "is not a host", "write a name or an address, as in `app.internal:8080`"),
        Ok,
    )
}

/// Reads the path of a health check.
pub(in crate::config) fn check_path(text: &str) -> Result<Box<str>, InvalidValue> {
    let is_path = text.starts_with('/') && text.parse::<PathAndQuery>().is_ok();
    if is_path && !text.contains('#') {
        return Ok(text.into());
    }
    let message = format!("{} is not a path", quoted(text));
    invalid(message, "write what the server is asked for, as in `/healthz`")
}

/// Reads a status or a range of them.
pub(in crate::config) fn statuses(text: &str) -> Result<RangeInclusive<u16>, InvalidValue> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let status = |text: &str| {
        let status = text.trim().parse::<u16>().ok();
        status.filter(|status| text.trim().len() == 3 && (100..600).contains(status))
    };
    match (status(first), status(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => invalid(
            format!("{} is not a status or a range of them", quoted(text)),
            "write statuses from 100 to 599, as in `200` or `200-399`",
        ),
    }
}

/// Why a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum RetryOn {
    Connect,
    Reset,
    Timeout,
    Status(u16),
}

/// Reads why a request is sent again.
pub(in crate::config) fn retry_on(text: &str) -> Result<RetryOn, InvalidValue> {
    match text {
        "connect" => return Ok(RetryOn::Connect),
        "reset" => return Ok(RetryOn::Reset),
        "timeout" => return Ok(RetryOn::Timeout),
        _ => {}
    }
    match text.parse::<u16>() {
        Ok(status) if text.len() == 3 && (400..600).contains(&status) => {
            Ok(RetryOn::Status(status))
        }
        _ => not(
            text,
            "is not a failure that requests are sent again after",
            "write `connect`, `reset`, `timeout`, or a status from 400 to 599, as in `503`",
        ),
    }
}

/// Reads the name of a protocol, perhaps with its version (RFC 9110, 7.8), lower-case.
pub(in crate::config) fn upgrade(text: &str) -> Result<String, InvalidValue> {
    let protocol = text.to_ascii_lowercase();
    let name = protocol.split('/').next().unwrap_or_default();
    if matches!(name, "h2c" | "h2" | "h3" | "tls" | "http") {
        return invalid(
            format!("an upgrade to {} would bypass the rules", quoted(text)),
            "write a protocol that is not HTTP, as in `websocket`",
        );
    }
    let has_tokens = protocol.splitn(2, '/').all(|token| header_name(token).is_ok());
    if is_switch(name) || !has_tokens {
        return not(
            text,
            "is not the name of a protocol",
            "write `websocket`, or `upgrades: []` for none",
        );
    }
    Ok(protocol)
}

/// The names under `x-forwarded-` that say who a client is, and nothing about the way of its request.
const FORWARDED_IDENTITY: [&str; 5] = [
    "x-forwarded-access-token",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-user",
];

/// Reads the name of a field that an upstream receives as an auth service has written it.
pub(in crate::config) fn copied(text: &str) -> Result<HeaderName, InvalidValue> {
    const OF_CONNECTION: &[&str] = &[
        "connection",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    const OF_GATEWAY: &[&str] = &["forwarded", "traceparent", "tracestate", "via", "x-request-id"];

    let name = header_name(text)?;
    let folded = folded_name(name.as_str());
    let is_identity = FORWARDED_IDENTITY.contains(&&*folded);
    let why = if OF_CONNECTION.contains(&&*folded) {
        "it is about the connection"
    } else if folded.starts_with("content-") {
        "it is about the body of the request, which the auth service does not get"
    } else if OF_GATEWAY.contains(&&*folded) || (folded.starts_with("x-forwarded-") && !is_identity)
    {
        "flowgate writes this field itself"
    } else if folded == "set-cookie" {
        return not(
            text,
            "cannot be copied to the upstream",
            "remove it: the client gets the `Set-Cookie` of the auth service without it",
        );
    } else {
        return Ok(name);
    };
    let help = format!("remove it: {why}; copy fields such as `remote-user`");
    not(text, "cannot be copied from the auth service", help)
}

/// Reads the name of the field in which trusted proxies name the client.
pub(in crate::config) fn client_ip_header(text: &str) -> Result<HeaderName, InvalidValue> {
    const OTHERS: &[&str] = &[
        "authorization",
        "connection",
        "cookie",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-request-id",
    ];
    const HELP: &str = "write the field that your proxy sets to the client's address, as in \
                        `cf-connecting-ip` or `x-real-ip`";

    if text.eq_ignore_ascii_case("proxy_protocol") {
        return not(text, "is not a header", "write `proxy_protocol: true` at the listener");
    }
    let name = header_name(text)?;
    let folded = folded_name(name.as_str());
    if folded == "forwarded" {
        return not(
            text,
            "is a field that flowgate does not read",
            "let the proxy write `X-Forwarded-For`, which is read without this key",
        );
    }
    if OTHERS.contains(&&*folded) || folded.starts_with("content-") {
        return not(text, "is not a field with the client's address", HELP);
    }
    Ok(name)
}

/// Reads the name of a header that a route may change: not those that frame the message or name
/// its authority, which the gateway writes itself.
pub(in crate::config) fn editable(text: &str) -> Result<HeaderName, InvalidValue> {
    const OWN: &[HeaderName] = &[
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let name = header_name(text)?;
    if OWN.contains(&name) || matches!(name.as_str(), "keep-alive" | "proxy-connection") {
        let help = if name == header::HOST {
            "write `rewrite: { host: … }` at the route: it changes the host for the upstream"
        } else {
            "remove it: it frames the message"
        };
        return invalid(format!("`{name}` belongs to the gateway itself"), help);
    }
    Ok(name)
}
