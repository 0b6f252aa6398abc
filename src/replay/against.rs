//! The same traffic through two configurations: whose verdict differs.

use super::{
    decimal::Millis,
    engine::{Engine, Ruling},
    event::{Arrival, Request},
};
use crate::flow::time::nanos;
use core::{cmp::Reverse, fmt::Write, time::Duration};
use std::collections::BTreeMap;

/// Examples of each kind of change.
const MOST_EXAMPLES: usize = 3;

/// Kinds of change that are told.
const MOST_KINDS: usize = 40;

/// Compares verdicts, one by one.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    arrivals: u64,
    /// How it fared here and there, with examples.
    kinds: BTreeMap<(String, String), (u64, Vec<String>)>,
}

impl Comparison {
    /// Compares what became of the arrival `number`, which came at `t`.
    pub(super) fn note(
        &mut self,
        number: u64,
        t: Duration,
        arrival: &Arrival,
        [here, there]: [(&Engine, &Ruling); 2],
    ) {
        self.arrivals += 1;
        if verdict(here.1) == verdict(there.1) && route(here) == route(there) {
            return;
        }
        let kind = (in_words(here), in_words(there));
        let (count, examples) = self.kinds.entry(kind).or_default();
        *count += 1;
        if examples.len() < MOST_EXAMPLES {
            examples.push(example(number, t, &arrival.request));
        }
    }

    /// Returns how many arrivals fared differently.
    pub(super) fn changed(&self) -> u64 {
        self.kinds.values().map(|(count, _)| count).sum()
    }

    /// Returns the differences in words.
    pub(super) fn write(&self, other: &str) -> String {
        let mut out = format!(
            "against {other}: {} of {} arrivals fare differently there\n",
            self.changed(),
            self.arrivals
        );
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(_, (count, _))| Reverse(*count));
        for ((here, there), (count, examples)) in kinds.iter().take(MOST_KINDS) {
            // Writing to a String cannot fail.
            _ = writeln!(out, "  {count}  {here} → {there}");
            _ = writeln!(out, "      e.g. {}", examples.join("; "));
        }
        if kinds.len() > MOST_KINDS {
            _ = writeln!(out, "  … and {} more kinds of change", kinds.len() - MOST_KINDS);
        }
        out
    }
}

fn verdict(ruling: &Ruling) -> Option<&'static str> {
    ruling.route.ok()?;
    Some(ruling.decided.map_or("passed", |decided| decided.verdict))
}

fn route<'a>((engine, ruling): (&'a Engine, &Ruling)) -> Option<&'a str> {
    ruling.route.ok().map(|index| &*engine.snapshot().routes[index].name)
}

/// Says how an arrival fared: `checkout: rejected by per-client`.
fn in_words((engine, ruling): (&Engine, &Ruling)) -> String {
    let route = match ruling.route {
        Ok(index) => &engine.snapshot().routes[index],
        Err(reason) => return reason.words().to_owned(),
    };
    match ruling.decided {
        Some(decided) if decided.verdict != "passed" => {
            format!(
                "{}: {} by {}",
                route.name,
                decided.verdict,
                route.rule_name(decided.quota.slot)
            )
        }
        _ => format!("{}: passed", route.name),
    }
}

fn example(number: u64, t: Duration, request: &Request) -> String {
    let mut text = format!("#{number} at {} ms, {}", Millis(nanos(t)), request.method);
    let path = request.path.as_deref().unwrap_or("/");
    let shown: String = path.chars().take(40).flat_map(char::escape_debug).collect();
    _ = write!(text, " {shown}");
    if let Some(client) = request.client {
        _ = write!(text, " from {client}");
    }
    text
}
