//! The directives that convert alone: their argument becomes the value of one key, or is what flowgate does
//! in any case.

use super::{
    converted_config::Fields,
    files::Files,
    numbers::{spelled, time},
    report::ImportReport,
    tree::{Directive, Scope},
};
use serde_json::{Value, json};

/// A directive whose first argument becomes the value of one key.
#[derive(Debug)]
pub(super) struct SingleKey {
    directive: &'static str,
    reader: Reader,
    key: &'static str,
}

/// The kind of the argument.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Time,
    File,
}

const fn row(directive: &'static str, reader: Reader, key: &'static str) -> SingleKey {
    SingleKey { directive, reader, key }
}

/// The `timeouts` of the whole file.
pub(super) const TIMEOUTS: [SingleKey; 3] = [
    row("client_header_timeout", Reader::Time, "header_read"),
    row("keepalive_timeout", Reader::Time, "keep_alive"),
    row("send_timeout", Reader::Time, "write"),
];

/// The `tls` of an upstream.
pub(super) const UPSTREAM_TLS: [SingleKey; 3] = [
    row("proxy_ssl_trusted_certificate", Reader::File, "ca"),
    row("proxy_ssl_certificate", Reader::File, "cert"),
    row("proxy_ssl_certificate_key", Reader::File, "key"),
];

/// Directives of which one value is what flowgate does in any case.
const ALWAYS: [(&str, &str); 18] = [
    ("server_tokens", "off"),
    // A route asks a service only if its location has one.
    ("auth_request", "off"),
    ("underscores_in_headers", "on"),
    ("access_log", "off"),
    ("worker_processes", "auto"),
    ("daemon", "off"),
    ("http2", "on"),
    ("merge_slashes", "on"),
    ("tcp_nodelay", "on"),
    ("ignore_invalid_headers", "on"),
    ("chunked_transfer_encoding", "on"),
    ("gzip", "off"),
    ("proxy_http_version", "1.1"),
    ("proxy_buffering", "off"),
    ("proxy_request_buffering", "off"),
    ("proxy_pass_request_headers", "on"),
    ("proxy_pass_request_body", "on"),
    ("proxy_cache", "off"),
];

impl SingleKey {
    /// Returns the keys of `rows` whose directives hold in a scope.
    pub(super) fn read_all(
        rows: &[Self],
        scope: &Scope<'_>,
        files: &Files,
        report: &mut ImportReport,
    ) -> Fields {
        let mut fields = Fields::default();
        for row in rows {
            let Some(directive) = scope.take(row.directive, report) else { continue };
            match row.value(directive.arg(0), files) {
                Ok(value) => fields.set(row.key, value),
                Err(why) => report.note(directive, why),
            }
        }
        fields
    }

    fn value(&self, argument: &str, files: &Files) -> Result<Value, &'static str> {
        match self.reader {
            Reader::Time => match time(argument) {
                Some(time) => Ok(json!(spelled(time))),
                None => Err("the time is not one that can be waited for"),
            },
            Reader::File => Ok(json!(files.named(argument))),
        }
    }
}

/// Takes everywhere what flowgate does in any case.
pub(super) fn take_usual(all: &[Directive], report: &mut ImportReport) {
    for directive in all {
        let is_usual = ALWAYS.contains(&(directive.name.as_str(), directive.arg(0)));
        if is_usual || directive.name == "events" {
            report.take(directive);
        }
        take_usual(directive.inner(), report);
    }
}
