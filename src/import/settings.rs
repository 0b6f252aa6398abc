//! The settings of the whole file.

use super::{
    access::{RealIp, listed},
    converted_config::Fields,
    files::Files,
    numbers::{size, sized},
    places,
    report::ImportReport,
    routes::USUAL_BODY,
    single_keys::{SingleKey, TIMEOUTS},
    tree::{Directive, Scope},
};
use serde_json::json;

/// Returns the keys of the file beside its lists.
pub(super) fn settings(
    main: &[Directive],
    http: &Directive,
    files: &Files,
    report: &mut ImportReport,
) -> Fields {
    let mut fields = Fields::default();
    let scope = Scope(vec![http]);

    let written = scope.take("client_max_body_size", report);
    let body = written.map_or(Some(USUAL_BODY), |directive| size(directive.arg(0)));
    if let Some(directive) = written.filter(|_| body.is_none()) {
        report.note(directive, "the size is not clear");
    }
    let body = body.unwrap_or(USUAL_BODY);
    let body = if body == 0 { "1EiB".to_owned() } else { sized(body) };
    fields.set("limits", json!({ "body": body }));

    let timeouts = SingleKey::read_all(&TIMEOUTS, &scope, files, report);
    if !timeouts.is_empty() {
        fields.set("timeouts", timeouts);
    }

    let geo = places::files(http, files, report);
    if !geo.is_empty() {
        fields.set("geo", geo);
    }

    let proxies = RealIp::read(&scope, report);
    if !proxies.trusted.is_empty() {
        fields.set("trusted_proxies", listed(&proxies.trusted));
        if let Some(header) = proxies.header {
            fields.set("client_ip_header", header);
        }
    }

    if is_logged(http, report) {
        fields.set("access_log", "stdout");
        if is_combined(http, report) {
            fields.set("access_log_format", "combined");
        }
    }

    for directive in main {
        let workers = directive.arg(0).parse::<u64>().ok();
        if directive.name == "worker_processes"
            && let Some(workers @ 1..=1024) = workers
        {
            report.take(directive);
            fields.set("workers", json!(workers));
        }
    }
    fields
}

/// Returns the logs of all blocks.
fn logs(http: &Directive) -> Vec<&Directive> {
    let mut all = Vec::new();
    let mut open = vec![http];
    while let Some(block) = open.pop() {
        all.extend(block.all("access_log"));
        open.extend(block.inner());
    }
    all
}

/// Reports whether nginx logs requests. Notes that all of them are logged in one place here.
fn is_logged(http: &Directive, report: &mut ImportReport) -> bool {
    let all = logs(http);
    let is_off = |log: &Directive| matches!(log.arg(0), "off" | "/dev/null");
    if all.iter().all(|log| is_off(log)) {
        for log in all {
            report.take(log);
        }
        return false;
    }
    for log in all {
        let why = if is_off(log) {
            "the log has all requests"
        } else {
            "its lines have no query, and go to the standard output: write `access_log: FILE` for a file"
        };
        report.note(log, why);
    }
    true
}

/// Reports whether all logs are in the combined format, or in one that only adds to it.
fn is_combined(http: &Directive, report: &mut ImportReport) -> bool {
    const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                            $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

    let all = logs(http);
    let format_of = |name: &str| http.all("log_format").find(|format| format.arg(0) == name);
    let text = |format: &Directive| format.args.get(1..).unwrap_or_default().concat();
    let is_combined = |name: &str| {
        name == "combined"
            || format_of(name).is_some_and(|format| text(format).starts_with(COMBINED))
    };
    let is_name = |word: &&String| !word.contains('=') && word.as_str() != "gzip";
    let names: Vec<_> = all
        .iter()
        .filter(|log| !matches!(log.arg(0), "off" | "/dev/null"))
        .map(|log| log.args.get(1).filter(is_name).map_or("combined", String::as_str))
        .collect();
    if !names.iter().all(|name| is_combined(name)) {
        return false;
    }
    for format in names.iter().filter_map(|name| format_of(name)) {
        report.take(format);
        if text(format) != COMBINED {
            report.note(format, "lines have what the combined format has, and no more");
        }
    }
    true
}
