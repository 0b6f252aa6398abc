//! `mirror`: copies of the requests of a location for another upstream.

use super::{
    auth_request::location_at,
    converted_config::Fields,
    files::Files,
    numbers::{size, sized, spelled, time},
    proxied::{Address, Uri},
    report::ImportReport,
    tree::{Directive, Scope},
    upstreams::Upstreams,
};
use serde_json::json;
use std::collections::BTreeMap;

/// Directives of the location that gets the copies which change nothing that it gets.
const HARMLESS: [&str; 11] = [
    "access_log",
    "client_max_body_size",
    "internal",
    "log_subrequest",
    "mirror",
    "proxy_connect_timeout",
    "proxy_http_version",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "proxy_set_header",
];

/// The longest body that nginx takes without `client_max_body_size`, and that flowgate copies without
/// `body_limit`.
const USUAL_BODY: u64 = 1 << 20;

/// The longest body that flowgate copies at all.
const LONGEST_BODY: u64 = 16 << 20;

/// Adds the mirror of a route that passes requests on. `fields` has its upstream and its rewrite.
pub(super) fn mirror(
    scope: &Scope<'_>,
    files: &Files,
    upstreams: &mut Upstreams<'_>,
    fields: &mut Fields,
    report: &mut ImportReport,
) {
    let mirrors = scope.all(&["mirror"]);
    let Some((first, others)) = mirrors.split_first() else { return };
    report.take(first);
    if first.arg(0) == "off" {
        return;
    }
    for other in others {
        report.note(other, "a route has one mirror");
    }
    match converted(first, scope, files, upstreams, report) {
        Ok(mirror) => {
            if fields.0.contains_key("rewrite") {
                let why = "copies have the path and the host that the route's server gets";
                report.note(first, why);
            }
            fields.set("mirror", mirror);
        }
        Err(why) => report.note(first, format!("{why}. Nothing is copied")),
    }
}

/// Returns the mirror of a route.
///
/// # Errors
/// The copies would be others than in nginx; the text says why.
fn converted(
    directive: &Directive,
    scope: &Scope<'_>,
    files: &Files,
    upstreams: &mut Upstreams<'_>,
    report: &mut ImportReport,
) -> Result<Fields, String> {
    let location = location_at(scope, directive.arg(0))?;
    let other = location.inner().iter().find(|inner| !HARMLESS.contains(&inner.name.as_str()));
    if let Some(other) = other {
        return Err(format!("`{}` of the location that gets the copies", other.name));
    }
    let pass = location.all("proxy_pass").last();
    let pass = pass.ok_or("the location that gets the copies has no `proxy_pass`")?;
    let address = Address::read(pass, &BTreeMap::new())?;
    if address.uri != Uri::Same || !pass.arg(0).contains('$') {
        return Err("the copies have another path than the request, without `$request_uri`".into());
    }

    let blocks: Vec<_> = scope.0.iter().take(2).copied().collect();
    let within = Scope(blocks).within(location);
    let upstream = upstreams.name(address.target()?, &within, files, report)?;
    let mut mirror = Fields::default();
    mirror.set("upstream", upstream);
    body(directive, scope, &mut mirror, report);
    if let Some(limit) = within.find("proxy_read_timeout").and_then(|limit| time(limit.arg(0))) {
        mirror.set("timeout", json!(spelled(limit)));
    }

    for inner in location.inner() {
        report.take(inner);
    }
    for header in location.all("proxy_set_header") {
        let own = scope.all(&["proxy_set_header"]);
        if !own.iter().any(|own| own.args == header.args) {
            report.note(header, "copies have the header that the route's server gets");
        }
    }
    Ok(mirror)
}

/// Adds the longest body that is copied.
fn body(directive: &Directive, scope: &Scope<'_>, mirror: &mut Fields, report: &mut ImportReport) {
    if let Some(switch) = scope.find("mirror_request_body").filter(|body| body.arg(0) == "off") {
        report.note(switch, "requests with bodies are not copied");
        mirror.set("body_limit", json!("0B"));
        return;
    }
    if let Some(on) = scope.find("mirror_request_body") {
        report.take(on);
    }
    let most = scope.find("client_max_body_size").and_then(|limit| size(limit.arg(0)));
    let most = most.map_or(USUAL_BODY, |most| if most == 0 { u64::MAX } else { most });
    if most > LONGEST_BODY {
        report.note(directive, "requests with bodies of more than 16 MiB are not copied");
    }
    if most > USUAL_BODY {
        mirror.set("body_limit", json!(sized(most.min(LONGEST_BODY))));
    }
}
