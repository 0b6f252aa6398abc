//! The effect of proposed limits on a log: all of it goes through the gateway's own rules.

use super::traffic::Traffic;
use crate::{
    config::{Diagnostics, Text},
    flow::Instant,
    replay::{Arrival, Ending, Engine, Id, Request},
};
use core::{fmt::Write, time::Duration};
use std::{collections::HashMap, path::Path, sync::Arc};

/// The results of a route's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tried {
    /// In the first half of the log, and in the second.
    pub offered: [u64; 2],
    pub rejected: [u64; 2],
    /// Rejections by key.
    pub keys: HashMap<u32, u64>,
}

/// A window and how many may pass in it, by route; `None`: all.
pub(super) type Limits = Vec<Option<(Duration, u64)>>;

/// Sends the log through a rule for each route.
///
/// # Errors
/// A limit cannot be, as of a window that rules do not take.
pub(super) fn run(
    traffic: &Traffic,
    limits: &Limits,
    middle: Instant,
) -> Result<Vec<Tried>, Diagnostics> {
    let text = file(limits, traffic.keys.len());
    let plan = Text::new(Path::new("suggested.yaml"), &text).rules()?;
    let mut engine = Engine::new(plan, Instant::EPOCH, None);
    let names: Vec<Arc<str>> = (0..limits.len()).map(|index| name(index).into()).collect();

    let mut tried = vec![Tried::default(); limits.len()];
    for (number, request) in (0..).zip(&traffic.requests) {
        let group = request.group as usize;
        let half = usize::from(request.at >= middle);
        tried[group].offered[half] += 1;
        if limits[group].is_none() {
            continue;
        }

        let arrival = Arrival {
            at: request.at,
            id: Id { input: 0, number },
            request: Request::default(),
            listener: None,
            identity: None,
            route: Some(Arc::clone(&names[group])),
            key: Some(Arc::clone(&traffic.keys[request.key as usize])),
            cost: None,
            priority: false,
            takes: Some(Duration::ZERO),
            ending: Ending::Responded(Some(200)),
            recorded: None,
        };

        // The rules here have no queue.
        if engine.arrive(&arrival).is_some_and(|result| result.start.is_none()) {
            tried[group].rejected[half] += 1;
            *tried[group].keys.entry(request.key).or_default() += 1;
        }
    }
    Ok(tried)
}

fn name(index: usize) -> String {
    format!("r{index}")
}

/// Returns a configuration with a route for each.
fn file(limits: &Limits, keys: usize) -> String {
    let mut text = String::from("listeners: [{ name: web, listen: 127.0.0.1:0 }]\nroutes:\n");
    let keys = keys.max(1);
    for (index, limit) in limits.iter().enumerate() {
        let name = name(index);
        // Writing to a String cannot fail.
        _ = writeln!(
            text,
            "  - name: {name}\n    match: {{ path: /{name} }}\n    respond: {{ status: 204 }}"
        );
        if let Some((window, limit)) = limit {
            let rate = rate(*limit, *window);
            _ = writeln!(
                text,
                "    flow: [{{ name: limit, algorithm: sliding_window, strict: true, limit: {rate}, \
                 key: client_ip, max_keys: {keys} }}]"
            );
        }
    }
    text + "end: true\n"
}

/// Writes a limit as the file has it: `93/1m`.
pub(super) fn rate(limit: u64, window: Duration) -> String {
    format!("{limit}/{}", words(window))
}

/// Writes a window: `1m`, `90s`, `250ms`.
pub(super) fn words(window: Duration) -> String {
    const UNITS: [(u128, &str); 6] = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1000, "us"),
        (1, "ns"),
    ];
    let nanos = window.as_nanos();
    let whole = UNITS.iter().find(|(unit, _)| nanos > 0 && nanos.is_multiple_of(*unit));
    whole.map_or_else(|| "0s".to_owned(), |(unit, word)| format!("{}{word}", nanos / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_written_in_the_largest_whole_unit() {
        for (window, expected) in [
            (Duration::from_mins(1), "1m"),
            (Duration::from_secs(90), "90s"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_hours(2), "2h"),
        ] {
            assert_eq!(words(window), expected);
        }
    }
}
