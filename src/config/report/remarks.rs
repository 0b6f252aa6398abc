//! Possible improvements of a file that can be used: `flowgate check` prints it.

use super::promise::bucket_numbers;
use crate::config::spec::leaf::short;
use crate::{
    config::{
        diagnostics::{Diagnostics, Lint, Problem, SourceSpan},
        plan::Plan,
    },
    flow::Instant,
};
use std::time::Duration;

impl Plan {
    /// Returns the warnings as of `now`, and notes on what could be better.
    pub fn remarks_at(&self, now: Instant) -> Diagnostics {
        let notes = end_note(self).into_iter().chain(bucket_note(self));
        self.warnings_at(now).and(notes.chain(self.notes.iter().cloned()))
    }
}

fn end_note(plan: &Plan) -> Option<Problem> {
    let file = plan.source().files.iter().find(|file| file.end.is_none())?;
    let note = Problem::note(Lint::MissingEnd, "the file does not end with `end: true`").help(
        "add the line `end: true` at the end: then flowgate never accepts a part of the file; \
         `end: false` says that you do not want that",
    );
    let end = file.range.start + plan.source().text_of(file).trim_end().len();
    Some(if file.range.start == 0 { note } else { note.at(SourceSpan::of(end..end)) })
}

/// Says, once for the file, how to get a hard cap where a bucket admits twice its limit in a window
/// that is long enough for a user to expect otherwise.
fn bucket_note(plan: &Plan) -> Option<Problem> {
    const LONG: Duration = Duration::from_mins(1);
    const DAY: Duration = Duration::from_hours(24);

    let mut doubled = plan.each_rule().filter_map(|(rule, plan)| {
        let (rate, burst) = bucket_numbers(&rule.algorithm)?;
        (rate.window() >= LONG && burst >= rate.count()).then_some((plan, rate, burst))
    });
    let (rule, rate, burst) = doubled.next()?;

    let limit = rate.count();
    let window = short(rate.window());
    let others = match doubled.count() {
        0 => String::new(),
        1 => " (as may one more rule)".to_owned(),
        others => format!(" (as may {others} more rules)"),
    };

    let most = burst.saturating_add(limit);
    let message = format!(
        "`{}` may pass {most} in {window}{others}, because its bucket refills while it empties",
        rule.name
    );

    let calendar = match rate.window() {
        window if window == DAY => Some("day"),
        window if window == 7 * DAY => Some("week"),
        _ => None,
    };
    let calendar = calendar.map_or_else(String::new, |unit| {
        format!(", or `algorithm: fixed_window` and `limit: {limit}/{unit}` for each {unit} of the calendar")
    });
    let help = format!(
        "for a hard cap of {limit} write `algorithm: sliding_window` and `strict: true`{calendar}"
    );

    Some(Problem::note(Lint::BurstDoublesLimit, message).at(rule.span).help(help))
}
