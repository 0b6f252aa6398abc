//! Draws what the model has. A section is a function that makes lines; here they get their places.

mod alerts;
mod certificates;
mod head;
mod help;
mod look;
mod panel;
mod routes;
pub(super) mod text;

use super::model::Model;
use look::{Look, strong};
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The lines above and below the routes: three of the head, the table's head, the panel's title, and
/// the keys.
const FRAME: u16 = 6;

/// The most lines of the panel.
const MOST_PANEL: u16 = 14;

/// Where the parts of the screen are, by their heights.
struct Heights {
    /// Whether the gateway as a whole is shown.
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
        lines.extend(help::lines());
    } else {
        if has_head {
            lines.extend(head::lines(model, width, look));
        }
        let mut alerts = alerts::lines(model, look);
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
            Span::raw(super::words::plain(typed)),
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
