//! What the keys and the signs mean.

use super::look::strong;
use ratatui_core::text::{Line, Span};

const KEYS: [(&str, &str); 12] = [
    ("↑ ↓  j k", "choose a route; its rules are below"),
    ("PgUp PgDn", "a screen up or down"),
    ("Home End", "the first route, the last one"),
    ("Tab", "the panel below: rules, upstreams, configuration, paths"),
    ("r  u  c  f", "one of them at once; f: the paths that fail or are slow"),
    ("/", "search routes by name, path, rule or upstream; Enter searches"),
    ("Esc", "ends the search"),
    ("s", "sort: rejected, requests, failed, latency, in flight, name, order"),
    ("p  Space", "pause, go on"),
    ("?  h", "this page; any key leaves it"),
    ("Ctrl-Z", "stop until the shell's `fg`"),
    ("q  Ctrl-C", "quit"),
];

const SIGNS: [(&str, &str); 4] = [
    (
        "✕",
        "requests are rejected or fail with 5xx, a server is out of order or fails, or an edit was rejected",
    ),
    ("~", "a rule in dry run would reject"),
    ("!", "a breaker is open or half open"),
    ("▁▄█", "requests of each second, as high as the busiest"),
];

/// Returns the page.
pub(super) fn lines() -> Vec<Line<'static>> {
    let line = |(sign, about): &(&'static str, &'static str)| {
        let pad = " ".repeat(12_usize.saturating_sub(sign.chars().count()));
        Line::from(vec![Span::raw("  "), strong(sign), Span::raw(pad), Span::raw(*about)])
    };
    let mut lines = vec![Line::from(strong("flowgate top")), Line::default()];
    lines.extend(KEYS.iter().map(line));
    lines.push(Line::default());
    lines.extend(SIGNS.iter().map(line));
    lines
}
