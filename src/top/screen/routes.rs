//! The table of routes. Narrow terminals have fewer columns.

use super::{
    super::{
        model::Model,
        words::{bars, millis, plain, short},
    },
    Look,
};
use crate::admin::sample::{Point, RouteRow};
use core::fmt::Write;
use ratatui_core::{
    style::{Modifier, Style},
    text::{Line, Span},
};

/// The least width of a name, and the most.
const NAME: usize = 14;
const LONGEST_NAME: usize = 40;

/// The least width of a chart.
const CHART: usize = 12;

/// A column of numbers.
struct Column {
    title: &'static str,
    width: usize,
    /// The place in the order in which narrow terminals get columns.
    rank: usize,
    show: fn(&Point) -> String,
}

const COLUMNS: [Column; 8] = [
    Column { title: "passed/s", width: 9, rank: 1, show: |now| short(now.passed) },
    Column { title: "delayed/s", width: 10, rank: 5, show: |now| short(now.delayed) },
    Column { title: "rejected/s", width: 11, rank: 0, show: |now| marked(now.rejected) },
    Column { title: "failed/s", width: 9, rank: 2, show: |now| marked(now.failed) },
    Column { title: "p50", width: 8, rank: 6, show: |now| millis(now.p50) },
    Column { title: "p99", width: 8, rank: 3, show: |now| millis(now.p99) },
    Column { title: "in flight", width: 10, rank: 4, show: |now| short(now.in_flight) },
    Column { title: "waiting", width: 8, rank: 7, show: |now| short(now.waiting) },
];

/// The widths of a table.
struct Widths {
    name: usize,
    columns: Vec<&'static Column>,
    chart: usize,
}

fn marked(count: u64) -> String {
    if count == 0 { "0".to_owned() } else { format!("✕ {}", short(count)) }
}

fn widths(width: usize) -> Widths {
    let mut left = width.saturating_sub(2 + NAME);
    let mut ranked: Vec<&Column> = COLUMNS.iter().collect();
    ranked.sort_by_key(|column| column.rank);
    let mut most = COLUMNS.len();
    for column in ranked {
        let Some(rest) = left.checked_sub(column.width) else {
            most = column.rank;
            break;
        };
        left = rest;
    }
    let columns = COLUMNS.iter().filter(|column| column.rank < most).collect();
    let has_chart = left > CHART;
    let for_name = if has_chart { (left - CHART) / 2 } else { left };
    let name = (NAME + for_name).min(LONGEST_NAME);
    let chart = if has_chart { (left + NAME - name).saturating_sub(1) } else { 0 };
    Widths { name, columns, chart }
}

/// Returns the titles of the columns.
pub(crate) fn head(width: usize, look: Look) -> Line<'static> {
    let Widths { name, columns, chart } = widths(width);
    let mut text = format!("  {:<name$}", "route");
    for Column { title, width, .. } in columns {
        // Writing to a String cannot fail.
        _ = write!(text, "{title:>width$}");
    }
    if chart > 0 {
        text += " requests";
    }
    Line::from(look.soft(text))
}

/// Returns at most `rows` routes, the chosen one among them.
pub(crate) fn lines(model: &Model, width: usize, rows: usize, look: Look) -> Vec<Line<'static>> {
    let Some(sample) = &model.sample else { return Vec::new() };
    let routes = &sample.routes;
    if routes.rows.is_empty() {
        let words = if routes.total == 0 { "  no routes" } else { "  no route has these words" };
        return vec![Line::raw(words)];
    }
    let chosen = model.chosen();
    let first = (chosen + 1).saturating_sub(rows);
    let widths = widths(width);
    let shown = routes.rows.iter().enumerate().skip(first).take(rows);
    shown
        .map(|(at, route)| {
            let line = line(model, route, &widths, look);
            if at == chosen {
                line.style(Style::new().add_modifier(Modifier::REVERSED))
            } else {
                line
            }
        })
        .collect()
}

fn line(model: &Model, route: &RouteRow, widths: &Widths, look: Look) -> Line<'static> {
    let is_open = route.breaker.as_ref().is_some_and(|state| state != "closed");
    let is_bad = route.now.rejected > 0 || route.now.failed > 0;
    let would = route.rules.iter().any(|rule| rule.would_reject > 0.0);
    let mark = match (is_open, is_bad, would) {
        (true, _, _) => "! ",
        (false, true, _) => "✕ ",
        (false, false, true) => "~ ",
        (false, false, false) => "  ",
    };
    let name = plain(&route.name);
    let cut: String = name.chars().take(widths.name).collect();
    let pad = widths.name;
    let mut spans = vec![
        Span::styled(mark, if is_open || is_bad { look.bad() } else { look.odd() }),
        Span::raw(format!("{cut:<pad$}")),
    ];

    for column in &widths.columns {
        let width = column.width;
        let text = format!("{:>width$}", (column.show)(&route.now));
        let is_marked = text.contains('✕');
        spans.push(if is_marked { Span::styled(text, look.bad()) } else { Span::raw(text) });
    }
    if let Some(series) = model.series(&route.name).filter(|_| widths.chart > 0) {
        let seconds: Vec<u64> = series.latest(widths.chart).collect();
        let bars = bars(seconds.into_iter());
        spans.push(Span::styled(format!(" {bars}"), look.chart()));
    }
    Line::from(spans)
}
