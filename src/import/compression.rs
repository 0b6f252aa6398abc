//! `gzip`: the compression of responses.

use super::{
    converted_config::Fields,
    numbers::{size, sized},
    report::ImportReport,
    tree::Scope,
};
use serde_json::{Value, json};

/// The least `Content-Length` that nginx compresses without `gzip_min_length`, in bytes.
const USUAL_LENGTH: u64 = 20;

/// Directives that have no effect without `gzip on`.
const DETAILS: [&str; 9] = [
    "gzip_types",
    "gzip_min_length",
    "gzip_vary",
    "gzip_proxied",
    "gzip_comp_level",
    "gzip_buffers",
    "gzip_http_version",
    "gzip_disable",
    "gzip_window",
];

/// Adds the compression of a route that passes requests on.
pub(super) fn compression(scope: &Scope<'_>, fields: &mut Fields, report: &mut ImportReport) {
    let is_on = scope.is_on("gzip", report);
    let Some(gzip) = scope.find("gzip").filter(|_| is_on) else { return };
    let details = DETAILS.map(|name| scope.take(name, report));
    let [types, least, vary, proxied, level, _, version, disabled, _] = details;

    let mut compress = Fields::default();
    compress.set("encodings", json!("gzip"));
    let mut listed: Vec<Value> = vec![json!("text/html")];
    for name in types.into_iter().flat_map(|types| &types.args) {
        let name = name.to_ascii_lowercase();
        if name == "*" {
            listed = vec![json!("*")];
            break;
        }
        if !listed.contains(&json!(name)) {
            listed.push(json!(name));
        }
    }
    compress.set("types", json!(listed));

    let length = least.map_or(Some(USUAL_LENGTH), |least| size(least.arg(0)));
    match (length, least) {
        (None, Some(least)) => report.note(least, "the length is not clear"),
        (length, _) => compress.set("min_size", json!(sized(length.unwrap_or(1).max(1)))),
    }
    fields.set("compress", compress);

    if vary.is_none_or(|vary| vary.arg(0) != "on") {
        report.note_once(gzip, "here and elsewhere, responses also get `Vary: Accept-Encoding`");
    }
    if proxied.is_none_or(|proxied| proxied.arg(0) != "any") {
        let why = "here and elsewhere, requests with `Via` also get compressed responses";
        report.note_once(proxied.unwrap_or(gzip), why);
    }
    if let Some(level) = level {
        report.note(level, "flowgate has one level for each encoding");
    }
    if let Some(version) = version.filter(|version| version.arg(0) != "1.1") {
        report.note(version, "clients of HTTP/1.0 get plain responses");
    }
    if let Some(disabled) = disabled {
        report.note(disabled, "every client that asks for gzip gets it");
    }
}
