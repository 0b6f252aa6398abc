//! What an operator should look at: the connection, the last edit, failing routes, and certificates
//! that end.

use super::{
    super::{
        model::{ConnectionState, Model},
        sample::Failing,
        words::{plain, rate},
    },
    certificates::{DAY, certificate_words},
    look::Look,
    panel,
};
use ratatui_core::text::Line;

/// How many failing routes are named.
const MOST_ROUTES: usize = 3;

/// Returns a line for each.
pub(super) fn lines(model: &Model, look: Look) -> Vec<Line<'static>> {
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
