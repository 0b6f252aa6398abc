//! The gateway as a whole: its version and state, the requests of all routes, and the alerts: a lost
//! connection, a rejected edit, failing routes, and certificates that end.

use super::{
    super::{
        model::{ConnectionState, Model},
        words::{bars, millis, plain, rate, seconds, short},
    },
    Look, panel, strong,
};
use crate::{admin::sample::Failing, config::ShownCertificate};
use ratatui_core::text::{Line, Span};

/// Returns three lines.
pub(crate) fn lines(model: &Model, width: usize, look: Look) -> Vec<Line<'static>> {
    vec![title(model, look), totals(model, look), chart(model, width, look)]
}

fn title(model: &Model, look: Look) -> Line<'static> {
    let config = &model.config;
    let mut spans = vec![strong("flowgate ")];
    spans.push(Span::raw(format!("{}  ", plain(&config.flowgate))));
    spans.push(match &model.connection {
        ConnectionState::Live if model.is_paused => Span::styled("‖ paused", look.odd()),
        ConnectionState::Live => Span::styled("● live", look.good()),
        ConnectionState::Connecting => Span::raw("○ connecting"),
        ConnectionState::Lost(_) => Span::styled("✕ no connection", look.bad()),
    });
    if let Some(sample) = &model.sample {
        let ready = if sample.ready { "ready" } else { "not ready" };
        let up = seconds(sample.uptime);
        spans.push(Span::raw(format!("  {ready}, up {up}  configuration {}", config.version)));
    }
    Line::from(spans)
}

fn totals(model: &Model, look: Look) -> Line<'static> {
    let Some(sample) = &model.sample else { return Line::raw("no sample yet") };
    let all = &sample.all;
    let rejected = format!("rejected {}/s", short(all.rejected));
    let rejected = match all.rejected {
        0 => Span::raw(rejected),
        _ => Span::styled(format!("✕ {rejected}"), look.bad()),
    };
    let failed = format!("failed {}/s", short(all.failed));
    let failed = match all.failed {
        0 => Span::raw(failed),
        _ => Span::styled(format!("✕ {failed}"), look.bad()),
    };
    Line::from(vec![
        Span::raw(format!("passed {}/s  ", short(all.passed))),
        failed,
        Span::raw("  "),
        Span::raw(format!("delayed {}/s  ", short(all.delayed))),
        rejected,
        Span::raw(format!("  p50 {}  p99 {}", millis(all.p50), millis(all.p99))),
        Span::raw(format!("  in flight {}", short(all.in_flight))),
        Span::raw(format!("  waiting {}", short(all.waiting))),
    ])
}

fn chart(model: &Model, width: usize, look: Look) -> Line<'static> {
    const LABEL: &str = "requests ";
    let seconds: Vec<u64> = model.all.latest(width.saturating_sub(LABEL.len())).collect();
    let bars = bars(seconds.into_iter());
    Line::from(vec![look.soft(LABEL.to_owned()), Span::styled(bars, look.chart())])
}

/// The number of failing routes that are named.
const MOST_ROUTES: usize = 3;

/// Returns a line for each.
pub(super) fn alerts(model: &Model, look: Look) -> Vec<Line<'static>> {
    let texts = [connection(model), failing(model), edit(model), certificate(model)];
    texts.into_iter().flatten().map(|text| look.bad_line(format!("✕ {text}"))).collect()
}

fn connection(model: &Model) -> Option<String> {
    match &model.connection {
        ConnectionState::Lost(why) => Some(format!("no connection, trying again: {}", plain(why))),
        ConnectionState::Connecting | ConnectionState::Live => None,
    }
}

/// Says how many requests fail, and of which routes.
fn failing(model: &Model) -> Option<String> {
    let Failing { share, per_second, many, routes, .. } = &model.sample.as_ref()?.failing;
    if !many {
        return None;
    }
    let named = routes.iter().take(MOST_ROUTES);
    let named = named.map(|one| format!("{} {}", plain(&one.route), percent(one.share)));
    let named: Vec<String> = named.collect();
    let more = if routes.len() > MOST_ROUTES { ", …" } else { "" };
    Some(format!(
        "{} of the admitted requests fail with 5xx, {}/s: {}{more}",
        percent(*share),
        rate(*per_second),
        named.join(", ")
    ))
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 1.0 { "under 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// Says what is wrong with the last edit.
fn edit(model: &Model) -> Option<String> {
    if !model.config.is_behind {
        return None;
    }
    let rejected = model.config.rejected.as_ref()?;
    let first = rejected.problems.first().map(panel::place_and_message).unwrap_or_default();
    Some(format!("the last edit is not in force: {first}"))
}

/// Says which certificate ends first, if it does in two weeks.
fn certificate(model: &Model) -> Option<String> {
    let first = model.config.certificates.first()?;
    let left = first.not_after.checked_sub(model.sample.as_ref()?.at);
    if left.is_some_and(|left| left > 14 * DAY) {
        return None;
    }
    Some(certificate_words(first, left))
}

/// A day in seconds.
pub(super) const DAY: u64 = 24 * 60 * 60;

/// Says how long a certificate is valid.
pub(super) fn certificate_words(certificate: &ShownCertificate, left: Option<u64>) -> String {
    let ShownCertificate { used_by, file, valid_until, .. } = certificate;
    let left = match left {
        None => "EXPIRED".to_owned(),
        Some(left) if left < DAY => "less than a day left".to_owned(),
        Some(left) if left < 2 * DAY => "1 day left".to_owned(),
        Some(left) => format!("{} days left", left / DAY),
    };
    plain(&format!("certificate {file} ({used_by}): valid until {valid_until}, {left}"))
}
