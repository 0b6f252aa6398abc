//! `proxy_pass`: the upstream of a location, and what it is asked for.

use super::{
    converted_config::Fields,
    headers,
    numbers::{spelled, time},
    report::ImportReport,
    scope::Scope,
    template::ServerVariables,
    tree::Directive,
    upstreams::{ProxyTarget, Upstreams},
};
use core::time::Duration;
use serde_json::json;
use std::path::Path;

/// A location that passes requests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocationContext<'a, 's> {
    pub scope: &'s Scope<'a>,
    pub variables: &'s ServerVariables<'a>,
    /// The beginning of its paths; `None` for a regular expression.
    pub prefix: Option<&'a str>,
    /// It takes this path only.
    pub is_exact: bool,
    pub folder: &'s Path,
}

/// Returns what a route does that is this location.
///
/// # Errors
/// Why no upstream is asked for the same.
pub(super) fn proxied<'a>(
    pass: &'a Directive,
    context: LocationContext<'a, '_>,
    upstreams: &mut Upstreams<'_>,
    report: &mut ImportReport,
) -> Result<Fields, String> {
    let text = pass.arg(0);
    if text.contains('$') {
        return Err("a route has one upstream, and no variable".into());
    }
    let (scheme, rest) = text.split_once("://").ok_or("the address is invalid")?;
    if !matches!(scheme, "http" | "https") {
        return Err("only http and https are passed to".into());
    }
    let (authority, path) = parted(rest);
    let target = ProxyTarget { scheme, authority };
    let mut fields = Fields::default();
    let mut rewrite = rewritten(context, path)?;
    let own = idiom(context, pass, report);
    if !own.is_empty() {
        rewrite = own;
    }
    let upstream = upstreams.name(target, context.scope, context.folder, report)?;
    fields.set("upstream", json!(upstream));
    let usual = authority.strip_suffix(if scheme == "https" { ":443" } else { ":80" });
    let usual = usual.unwrap_or(authority);
    let usual = if usual.starts_with("unix:") { "localhost" } else { usual };
    let passed = headers::to_upstream(context.scope, usual, context.variables, &mut fields, report);
    note_redirects(context.scope, pass, passed.host.is_some() || !rewrite.is_empty(), report);
    if let Some(host) = passed.host {
        rewrite.set("host", json!(host));
    }
    if !rewrite.is_empty() {
        fields.set("rewrite", rewrite);
    }
    if !passed.upgrades {
        fields.set("upgrades", json!([]));
    }
    timeouts(context.scope, &mut fields, report);
    always(context.scope, report);
    Ok(fields)
}

/// Splits an address before its path. That of a socket ends with a colon.
fn parted(rest: &str) -> (&str, Option<&str>) {
    if let Some(socket) = rest.strip_prefix("unix:") {
        let end = socket.find(':').map_or(rest.len(), |at| at + 6);
        return (&rest[..end], Some(&rest[end..]).filter(|path| !path.is_empty()));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    (&rest[..end], Some(&rest[end..]).filter(|path| !path.is_empty()))
}

/// Returns how the path changes if `proxy_pass` has one.
fn rewritten(context: LocationContext<'_, '_>, path: Option<&str>) -> Result<Fields, String> {
    let mut rewrite = Fields::default();
    let Some(path) = path else { return Ok(rewrite) };
    if path.contains(['?', '#']) || !path.starts_with('/') {
        return Err("the upstream's path has a query".into());
    }
    let Some(prefix) = context.prefix else {
        return Err("nginx does not take a path behind a regular expression".into());
    };
    if prefix == path {
        return Ok(rewrite);
    }
    if context.is_exact {
        let replace = path.replace('$', "$$");
        rewrite.set("path_regex", json!({ "match": "^.*$", "replace": replace }));
        return Ok(rewrite);
    }
    let (Some(old), Some(new)) = (prefix.strip_suffix('/'), path.strip_suffix('/')) else {
        return Err("write the location and the upstream's path both with a `/` at the end".into());
    };
    if !old.is_empty() {
        rewrite.set("strip_prefix", json!(old));
    }
    if !new.is_empty() {
        rewrite.set("add_prefix", json!(new));
    }
    Ok(rewrite)
}

/// Converts `rewrite ^/api/(.*)$ /v1/$1 break;` in a location whose paths all begin with `/api/`.
fn idiom(context: LocationContext<'_, '_>, pass: &Directive, report: &mut ImportReport) -> Fields {
    let mut fields = Fields::default();
    let Some(location) = context.scope.0.last() else { return fields };
    let rewrites: Vec<_> = location.all("rewrite").collect();
    let has_path = pass.arg(0).splitn(4, '/').nth(3).is_some();
    let ([rewrite], Some(prefix), false) = (&rewrites[..], context.prefix, has_path) else {
        return fields;
    };
    let pattern = rewrite.arg(0).strip_prefix('^');
    let old = pattern.and_then(|pattern| {
        pattern.strip_suffix("/(.*)$").or_else(|| pattern.strip_suffix("/(.*)"))
    });
    let new = rewrite.arg(1).strip_suffix("/$1");
    let is_plain = |text: &str| {
        text.is_empty()
            || (text.starts_with('/')
                && text.chars().all(|sign| sign.is_ascii_alphanumeric() || "/-_".contains(sign)))
    };
    let (Some(old), Some(new), "break") = (old, new, rewrite.arg(2)) else { return fields };
    if !is_plain(old) || !is_plain(new) || !prefix.starts_with(&format!("{old}/")) {
        return fields;
    }
    report.take(rewrite);
    if !old.is_empty() {
        fields.set("strip_prefix", json!(old));
    }
    if !new.is_empty() {
        fields.set("add_prefix", json!(new));
    }
    fields
}

/// Notes, once for all locations, that nginx changes the redirects of an upstream that does not know
/// its public name.
fn note_redirects(
    scope: &Scope<'_>,
    pass: &Directive,
    is_renamed: bool,
    report: &mut ImportReport,
) {
    let written = scope.find("proxy_redirect");
    if let Some(off) = written.filter(|redirect| redirect.arg(0) == "off") {
        report.take(off);
    } else if written.is_none() && is_renamed {
        report.note_once(
            pass,
            "here and elsewhere, nginx also changes `Location` fields that name the upstream (proxy_redirect), flowgate does not",
        );
    }
}

fn timeouts(scope: &Scope<'_>, fields: &mut Fields, report: &mut ImportReport) {
    const USUAL: Duration = Duration::from_mins(1);
    let mut limit = |name: &str| {
        let directive = scope.take(name, report)?;
        let limit = time(directive.arg(0));
        if limit.is_none() {
            report.note(directive, "the time is not clear");
        }
        limit
    };
    let read = limit("proxy_read_timeout");
    let send = limit("proxy_send_timeout");
    if send.unwrap_or(USUAL) != read.unwrap_or(USUAL)
        && let Some(directive) =
            scope.find("proxy_send_timeout").or_else(|| scope.find("proxy_read_timeout"))
    {
        report.note(
            directive,
            "`timeouts.idle` is one limit for both directions: here that of proxy_read_timeout",
        );
    }
    if let Some(read) = read {
        let read = spelled(read);
        let all = json!({ "first_byte": read, "idle": read, "event_stream": read, "tunnel": read });
        fields.set("timeouts", all);
    }
}

/// Takes what flowgate always does.
fn always(scope: &Scope<'_>, report: &mut ImportReport) {
    let ways = [
        ("proxy_http_version", "1.1"),
        ("proxy_buffering", "off"),
        ("proxy_request_buffering", "off"),
        ("proxy_pass_request_headers", "on"),
        ("proxy_pass_request_body", "on"),
        ("proxy_cache", "off"),
        ("proxy_intercept_errors", "off"),
    ];
    for (name, value) in ways {
        if let Some(directive) = scope.find(name).filter(|directive| directive.arg(0) == value) {
            report.take(directive);
        }
    }
}
