//! The same as plain text.

use super::{
    super::{model::Model, words::plain},
    alerts, head,
    look::Look,
    panel, routes,
};
use ratatui_core::text::Line;

/// The width of the text.
const WIDTH: usize = 110;

/// Returns everything that a sample has.
pub(crate) fn page(model: &Model) -> String {
    let look = Look { has_colours: false };
    let mut lines = Vec::new();
    lines.extend(head::lines(model, WIDTH, look));
    lines.extend(alerts::lines(model, look));
    lines.push(Line::default());
    lines.push(routes::head(WIDTH, look));
    lines.extend(routes::lines(model, WIDTH, usize::MAX, look));
    let rows = model.sample.iter().flat_map(|sample| &sample.routes.rows);
    for route in rows.filter(|route| !route.rules.is_empty()) {
        lines.push(Line::default());
        lines.push(Line::raw(format!("rules of {}", plain(&route.name))));
        lines.extend(panel::rules(route, look));
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
