//! Draws what the model has. A section is a function that makes lines; here they get their places.

mod head;
mod panel;
mod routes;

use super::{model::Model, words::plain};
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

/// The lines above and below the routes: three of the head, the table's head, the panel's title, and
/// the keys.
const FRAME: u16 = 6;

/// The most lines of the panel.
const MOST_PANEL: u16 = 14;

/// Where the parts of the screen are, by their heights.
struct Heights {
    /// True if the gateway as a whole is shown.
    has_head: bool,
    routes: u16,
    /// Without its title.
    panel: u16,
}

/// Draws everything into `area`.
pub(super) fn draw(model: &Model, has_colours: bool, area: Rect, buffer: &mut Buffer) {
    let look = Look { has_colours };
    let width = usize::from(area.width);
    let Heights { has_head, routes: rows, panel } = heights(area.height);
    let mut lines = Vec::new();

    if model.has_help {
        lines.extend(help());
    } else {
        if has_head {
            lines.extend(head::lines(model, width, look));
        }
        let mut alerts = head::alerts(model, look);
        // One is shown on the smallest terminal, too.
        alerts.truncate(usize::from(rows).saturating_sub(1).max(1));
        let rows = usize::from(rows).saturating_sub(alerts.len());
        lines.extend(alerts);
        lines.push(routes::head(width, look));
        let shown = routes::lines(model, width, rows, look);
        let missing = rows - shown.len().min(rows);
        lines.extend(shown);
        lines.extend(vec![Line::default(); missing]);
        if panel > 0 {
            lines.push(panel::title(model, width, look));
            lines.extend(panel::lines(model, width, look).into_iter().take(panel.into()));
        }
    }

    let last = area.height.saturating_sub(1);
    for (y, line) in (0..last).zip(&lines) {
        buffer.set_line(area.x, area.y + y, line, area.width);
    }

    if area.height > 0 {
        buffer.set_line(area.x, area.y + last, &footer(model, width, look), area.width);
    }
}

/// Returns how many routes fit on a screen of this height.
pub(super) fn routes_shown(height: u16) -> usize {
    heights(height).routes.into()
}

fn heights(height: u16) -> Heights {
    let Some(inside) = height.checked_sub(FRAME).filter(|inside| *inside >= 4) else {
        // The table's head and the keys stay.
        return Heights { has_head: false, routes: height.saturating_sub(2), panel: 0 };
    };
    let panel = (inside / 2).min(MOST_PANEL);
    Heights { has_head: true, routes: inside - panel, panel }
}

/// Returns the last line: the search while it is typed, else the keys.
fn footer(model: &Model, width: usize, look: Look) -> Line<'static> {
    if let Some(typed) = &model.typed {
        return Line::from(vec![
            strong("search routes: "),
            Span::raw(plain(typed)),
            strong("█"),
            look.soft("  Enter, Esc".to_owned()),
        ]);
    }

    let keys = [
        ("q", "quit"),
        ("?", "help"),
        ("↑↓", "route"),
        ("Tab", "panel"),
        ("/", "search"),
        ("s", "sort"),
        ("p", "pause"),
    ];
    let mut spans = Vec::new();
    let mut used = 0;

    for (key, about) in keys {
        used += key.chars().count() + about.len() + 3;
        if used > width {
            break;
        }
        spans.extend([strong(key), look.soft(format!(" {about}  "))]);
    }
    Line::from(spans)
}

/// The width of the plain text.
const WIDTH: usize = 110;

/// Returns everything that a sample has as plain text, for scripts and where there is no terminal.
pub(crate) fn page(model: &Model) -> String {
    let look = Look { has_colours: false };
    let mut lines = Vec::new();
    lines.extend(head::lines(model, WIDTH, look));
    lines.extend(head::alerts(model, look));
    lines.push(Line::default());
    lines.push(routes::head(WIDTH, look));
    lines.extend(routes::lines(model, WIDTH, usize::MAX, look));
    let rows = model.sample.iter().flat_map(|sample| &sample.routes.rows);
    for route in rows.filter(|route| !route.rules.is_empty()) {
        lines.push(Line::default());
        lines.push(Line::raw(format!("rules of {}", plain(&route.name))));
        lines.extend(panel::rules(route, look));
    }
    if model.sample.iter().any(|sample| sample.budgets.total > 0) {
        lines.extend([Line::default(), Line::raw(panel::BUDGETS_TITLE)]);
        lines.extend(panel::budgets(model, look));
    }
    lines.extend([Line::default(), Line::raw("upstreams")]);
    lines.extend(panel::upstreams(model, look));
    lines.extend([Line::default(), Line::raw(panel::PATHS_TITLE)]);
    lines.extend(panel::paths(model, WIDTH, look));
    lines.extend([Line::default(), Line::raw("configuration")]);
    lines.extend(panel::configuration(model, WIDTH, look));
    let text = lines.iter().map(|line| format!("{}\n", line.to_string().trim_end()));
    text.collect()
}

/// The keys and what they do.
const KEYS: [(&str, &str); 12] = [
    ("↑ ↓  j k", "choose a route; its rules are below"),
    ("PgUp PgDn", "a screen up or down"),
    ("Home End", "the first route, the last one"),
    ("Tab", "the panel below: rules, shared limits, upstreams, configuration, paths"),
    (
        "r b u c f",
        "one of them at once; b: limits that routes share, f: paths that fail or are slow",
    ),
    ("/", "search routes by name, path, rule or upstream; Enter searches"),
    ("Esc", "ends the search"),
    ("s", "sort: rejected, requests, failed, latency, in flight, name, order"),
    ("p  Space", "pause, go on"),
    ("?  h", "this page; any key leaves it"),
    ("Ctrl-Z", "stop until the shell's `fg`"),
    ("q  Ctrl-C", "quit"),
];

/// The signs and what they mean.
const SIGNS: [(&str, &str); 4] = [
    (
        "✕",
        "requests are rejected or fail with 5xx, a server is out of order or fails, or an edit was rejected",
    ),
    ("~", "a rule in dry run would reject"),
    ("!", "a breaker is open or half open"),
    ("▁▄█", "requests of each second, as high as the busiest"),
];

/// Returns the page that explains the keys and the signs.
fn help() -> Vec<Line<'static>> {
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

/// The styles of texts. No meaning is in a colour alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub has_colours: bool,
}

impl Look {
    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(super) fn odd(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn chart(self) -> Style {
        self.coloured(Color::Cyan)
    }

    /// The style of minor texts. Without colours they look like all others: many terminals dim by a colour.
    pub(super) fn soft(self, text: String) -> Span<'static> {
        let style = Style::new();
        Span::styled(text, if self.has_colours { style.add_modifier(Modifier::DIM) } else { style })
    }

    pub(super) fn bad_line(self, text: String) -> Line<'static> {
        Line::styled(text, self.bad())
    }
}

/// Returns what is a key or a name.
pub(super) fn strong(text: &'static str) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}
