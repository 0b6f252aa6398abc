//! The settings of the whole file.

use super::{
    access::{RealIp, listed},
    converted_config::Fields,
    files::Files,
    numbers::{size, sized},
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

    let proxies = RealIp::read(&scope, report);
    if !proxies.trusted.is_empty() {
        fields.set("trusted_proxies", listed(&proxies.trusted));
        if let Some(header) = proxies.header {
            fields.set("client_ip_header", header);
        }
    }

    if is_logged(http, report) {
        fields.set("access_log", "stdout");
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

/// Reports whether nginx logs requests. Notes that all of them are logged in one place here.
fn is_logged(http: &Directive, report: &mut ImportReport) -> bool {
    let mut all = Vec::new();
    let mut open = vec![http];
    while let Some(block) = open.pop() {
        all.extend(block.all("access_log"));
        open.extend(block.inner());
    }

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
            "its lines are JSON, and go to the standard output: write `access_log: FILE` for a file"
        };
        report.note(log, why);
    }
    true
}
