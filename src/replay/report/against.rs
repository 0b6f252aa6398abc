//! Compares the decisions of two configurations.

use super::{ReplayReport, text::waits};
use crate::{
    access_log::DecisionKind,
    counted::{counted, inflected},
    replay::{
        engine::{ArrivalResult, ResultOf},
        event::Arrival,
        times::Times,
    },
    terminal_text::printable,
};
use core::{cmp::Reverse, fmt::Write};
use std::collections::BTreeMap;

/// Examples per kind of change.
const MOST_EXAMPLES: usize = 3;

/// Reported kinds of change.
const MOST_KINDS: usize = 40;

#[derive(Debug, Default)]
pub(in crate::replay) struct Comparison {
    arrivals: u64,
    /// Arrivals that start later there.
    longer: u64,
    shorter: u64,
    /// By the results here and there: a count, and examples.
    kinds: BTreeMap<(String, String), (u64, Vec<String>)>,
}

/// The other configuration's results.
pub(in crate::replay) struct Against {
    /// Its file.
    pub(in crate::replay) config: String,
    pub(in crate::replay) report: ReplayReport,
    pub(in crate::replay) comparison: Comparison,
}

/// Arrivals with these results here and there.
pub(in crate::replay) struct ChangeKind<'a> {
    pub(in crate::replay) here: &'a str,
    pub(in crate::replay) there: &'a str,
    pub(in crate::replay) count: u64,
    pub(in crate::replay) examples: &'a [String],
}

impl Against {
    /// Returns the comparison as text: differing decisions, and waits per route that differ from
    /// `here`.
    pub(in crate::replay) fn write(&self, here: &ReplayReport) -> String {
        let mut out = self.comparison.write(&self.config);
        for route in &here.routes {
            let there = self.report.routes.iter().find(|there| there.name == route.name);
            let here = waits(route);
            let there = there.map(waits);
            if let Some(there) = there.filter(|there| *there != here) {
                // Writing to a String cannot fail.
                _ = writeln!(out, "  added wait at {}: {here} → {there}", route.name);
            }
        }
        out
    }
}

impl Comparison {
    /// Compares the results of arrival `number`.
    pub(in crate::replay) fn note(
        &mut self,
        number: u64,
        times: &Times,
        arrival: &Arrival,
        here: ResultOf<'_>,
        there: ResultOf<'_>,
    ) {
        self.arrivals += 1;
        if let (Some(here), Some(there)) = (here.result.start, there.result.start) {
            self.longer += u64::from(there > here);
            self.shorter += u64::from(there < here);
        }
        if decision(here.result) == decision(there.result) && route(here) == route(there) {
            return;
        }

        let kind = (in_words(here), in_words(there));
        let (count, examples) = self.kinds.entry(kind).or_default();
        *count += 1;
        if examples.len() < MOST_EXAMPLES {
            examples.push(example(number, times, arrival));
        }
    }

    /// Returns a summary: how many decisions differ, and how many waits.
    pub(in crate::replay) fn summary(&self, other: &str) -> String {
        let changed = self.kinds.values().map(|(count, _)| count).sum::<u64>();
        let Self { arrivals, longer, shorter, .. } = self;
        let mut out = format!(
            "{changed} of {} {} decided differently by {other}",
            counted(*arrivals, "request"),
            inflected(changed, "is", "are")
        );
        if longer + shorter > 0 {
            let wait = inflected(*longer, "waits", "wait");
            // Writing to a String cannot fail.
            _ = write!(
                out,
                "; of those that both admit, {longer} {wait} longer with it and {shorter} shorter"
            );
        }
        out
    }

    /// Returns the most frequent kinds of change, and how many are left out.
    pub(in crate::replay) fn kinds(&self) -> (Vec<ChangeKind<'_>>, usize) {
        let kinds = self.kinds.iter();
        let mut kinds: Vec<_> = kinds
            .map(|((here, there), (count, examples))| ChangeKind {
                here,
                there,
                count: *count,
                examples,
            })
            .collect();
        kinds.sort_by_key(|kind| Reverse(kind.count));
        let more = kinds.len().saturating_sub(MOST_KINDS);
        kinds.truncate(MOST_KINDS);
        (kinds, more)
    }

    fn write(&self, other: &str) -> String {
        let mut out = self.summary(other) + "\n";
        let (kinds, more) = self.kinds();
        for ChangeKind { here, there, count, examples } in kinds {
            // Writing to a String cannot fail.
            _ = writeln!(out, "  {count}  {here} → {there}");
            _ = writeln!(out, "      e.g. {}", examples.join("; "));
        }
        if more > 0 {
            _ = writeln!(out, "  … and {more} more {} of change", inflected(more, "kind", "kinds"));
        }
        out
    }
}

fn decision(result: &ArrivalResult) -> Option<DecisionKind> {
    result.decided.map(|decided| decided.decision)
}

fn route(of: ResultOf<'_>) -> Option<&str> {
    of.result.route.ok().map(|index| &*of.engine.snapshot().routes[index].name)
}

/// Describes a result: `checkout: rejected by per-client (rate)`.
fn in_words(of: ResultOf<'_>) -> String {
    let ResultOf { engine, result } = of;
    let route = match result.route {
        Ok(index) => &engine.snapshot().routes[index],
        Err(reason) => return reason.words().to_owned(),
    };
    let name = &route.name;
    let by = result.rule().map_or("", |rule| route.rule_name(rule));
    match decision(result) {
        None | Some(DecisionKind::Passed) => format!("{name}: passed"),
        Some(DecisionKind::Delayed) => format!("{name}: delayed by {by}"),
        Some(DecisionKind::Rejected(kind)) => format!("{name}: rejected by {by} ({})", kind.word()),
    }
}

fn example(number: u64, times: &Times, arrival: &Arrival) -> String {
    let request = &arrival.request;
    let mut text = format!("#{number} at {}, {}", times.exact(arrival.at), request.method);
    let path = request.path.as_deref().unwrap_or("/");
    let shown = printable(path, 40);
    _ = write!(text, " {shown}");
    if let Some(client) = request.client {
        _ = write!(text, " from {client}");
    }
    text
}
