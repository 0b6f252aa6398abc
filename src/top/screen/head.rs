//! The gateway as a whole: what it is, whether samples come, and the requests of all routes.

use super::{
    super::{
        model::{ConnectionState, Model},
        words::{bars, millis, plain, seconds, short},
    },
    look::{Look, strong},
};
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
