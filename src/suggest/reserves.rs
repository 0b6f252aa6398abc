//! The reserves of rules that settle their costs, from the costs that a log has.
//!
//! A reserve covers 95 % of the costs, as one that is learned does. Where costs grow with the request's
//! body, the part of each byte is reserved besides a smaller number.

use crate::{
    config::{RouteRule, Snapshot},
    counted::counted,
    replay::Arrival,
    terminal_text::printable,
};
use core::fmt::{self, Write};
use std::collections::BTreeMap;

/// The fewest costs from which a reserve can be suggested.
const LEAST_COSTS: usize = 100;

/// The most costs that are kept, all rules together. Each takes 16 bytes.
const MOST_COSTS: usize = 2_000_000;

/// The largest cost and length of which a slope is made: [`MOST_COSTS`] of them do not overflow.
const MOST_FITTED: u64 = 1 << 36;

/// The share of the costs that a reserve covers, in percent.
const COVERED: usize = 95;

/// The largest weight of a byte, in thousandths.
const MOST_WEIGHT: u64 = 1_000_000;

/// The longest name that is shown.
const LONGEST: usize = 200;

/// A settled cost, and the length of its request's body in bytes.
#[derive(Clone, Copy, Debug)]
struct Settled {
    cost: u64,
    request_bytes: Option<u64>,
}

/// The settled costs of a log, by rule.
#[derive(Debug, Default)]
pub(super) struct SettledCosts {
    /// By `route/rule`, or by the name of a budget.
    rules: BTreeMap<String, Vec<Settled>>,
    kept: usize,
    /// Costs beyond [`MOST_COSTS`].
    beyond: u64,
}

/// A reserve that covers most costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserve {
    /// The weight of each byte of the request's body, in thousandths.
    request_bytes: u64,
    plus: u64,
    /// The mean of what it holds beyond the cost.
    too_much: u64,
}

impl SettledCosts {
    /// Adds the costs of a request. A budget of `snapshot` is one rule, whatever the route.
    pub(super) fn add(&mut self, arrival: &Arrival, route: usize, snapshot: &Snapshot) {
        let Some(recorded) = &arrival.recorded else { return };
        for cost in &recorded.costs {
            let Some(settled) = cost.settled else { continue };
            if self.kept == MOST_COSTS {
                self.beyond += 1;
                continue;
            }

            let known = snapshot.routes.get(route);
            let is_it = |rule: &&RouteRule| *rule.identity == *cost.rule;
            let rule = known.and_then(|known| known.rules.iter().find(is_it));
            let is_shared = rule.is_some_and(|rule| rule.group.is_some());
            let name = match &recorded.route {
                Some(route) if !is_shared => format!("{route}/{}", cost.rule),
                _ => cost.rule.to_string(),
            };

            let request_bytes = recorded.settling.request_bytes;
            self.rules.entry(name).or_default().push(Settled { cost: settled, request_bytes });
            self.kept += 1;
        }
    }

    /// Returns whether a reserve can be suggested.
    pub(super) fn has_proposals(&self) -> bool {
        self.rules.values().any(|costs| costs.len() >= LEAST_COSTS)
    }

    /// Writes the costs and a reserve for each rule, as comments. Without costs it writes nothing.
    pub(super) fn write(&self, out: &mut String) -> fmt::Result {
        if self.rules.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n# Costs that were settled after the response:")?;
        for (name, costs) in &self.rules {
            write_rule(out, name, costs)?;
        }
        if self.beyond > 0 {
            writeln!(out, "#   left out: {} beyond the first {MOST_COSTS}", self.beyond)?;
        }
        Ok(())
    }
}

/// Writes what is known of one rule's costs, and its reserve.
fn write_rule(out: &mut String, name: &str, settled: &[Settled]) -> fmt::Result {
    let mut costs: Vec<u64> = settled.iter().map(|settled| settled.cost).collect();
    costs.sort_unstable();
    let name = printable(name, LONGEST);
    let count = counted(costs.len(), "cost");
    if costs.len() < LEAST_COSTS {
        return writeln!(out, "#   {name}: {count}; {LEAST_COSTS} are needed for a reserve");
    }

    let [median, most_of_them, highest] = [50, COVERED, 100].map(|share| covering(&costs, share));
    writeln!(
        out,
        "#   {name}: {count}, median {median}, {COVERED} % {most_of_them}, highest {highest}"
    )?;
    let number = Reserve::of(settled, 0);
    match weight(settled).map(|weight| Reserve::of(settled, weight)) {
        Some(by_length) if by_length.too_much < number.too_much / 10 * 9 => {
            let Reserve { request_bytes, plus, too_much } = by_length;
            let weight = thousandths(request_bytes);
            writeln!(
                out,
                "#     reserve: {{ request_bytes: {weight}, plus: {plus} }} covers {COVERED} % of them, and holds {too_much} too much on average;"
            )?;
            let Reserve { plus, too_much, .. } = number;
            writeln!(out, "#     reserve: {plus} covers as many, and holds {too_much} too much")
        }
        _ => {
            let Reserve { plus, too_much, .. } = number;
            writeln!(
                out,
                "#     reserve: {plus} covers {COVERED} % of them, and holds {too_much} too much on average"
            )
        }
    }
}

impl Reserve {
    /// Returns the reserve with this weight of a byte, in thousandths, that covers most costs.
    fn of(settled: &[Settled], request_bytes: u64) -> Self {
        let by_length = |settled: &Settled| {
            (settled.request_bytes.unwrap_or(0).saturating_mul(request_bytes)).div_ceil(1000)
        };
        let mut rest: Vec<u64> =
            settled.iter().map(|settled| settled.cost.saturating_sub(by_length(settled))).collect();
        rest.sort_unstable();
        // A reserve is never below 1.
        let plus = covering(&rest, COVERED).max(u64::from(request_bytes == 0));

        let held = |settled: &Settled| {
            u128::from(by_length(settled).saturating_add(plus).saturating_sub(settled.cost))
        };
        let count = settled.len().max(1) as u128;
        let sum = settled.iter().map(held).sum::<u128>();
        let too_much = u64::try_from((sum + count / 2) / count).unwrap_or(u64::MAX);
        Self { request_bytes, plus, too_much }
    }
}

/// Returns the smallest of sorted numbers that this percentage of them does not exceed.
fn covering(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Returns by how much costs grow with each byte of the request's body, in thousandths: the slope by
/// least squares. `None` if they do not grow, or lengths are not known.
fn weight(settled: &[Settled]) -> Option<u64> {
    let count = settled.len() as i128;
    let mut sums = Sums::default();
    for Settled { cost, request_bytes } in settled {
        sums.add((*request_bytes)?.min(MOST_FITTED).into(), (*cost).min(MOST_FITTED).into());
    }

    let together = count * sums.products - sums.bytes * sums.costs;
    // Zero if all are of one length.
    let spread = count * sums.squares - sums.bytes * sums.bytes;
    let thousandths = u64::try_from((together * 1000).checked_div(spread)?).ok()?;
    (thousandths > 0).then(|| thousandths.min(MOST_WEIGHT))
}

/// The sums over requests that a slope by least squares needs.
#[derive(Default)]
struct Sums {
    bytes: i128,
    costs: i128,
    squares: i128,
    products: i128,
}

impl Sums {
    fn add(&mut self, bytes: i128, cost: i128) {
        self.bytes += bytes;
        self.costs += cost;
        self.squares += bytes * bytes;
        self.products += bytes * cost;
    }
}

/// Writes thousandths as a decimal number, as in `0.25`.
fn thousandths(number: u64) -> String {
    let text = format!("{}.{:03}", number / 1000, number % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(of: impl Fn(u64) -> (u64, u64), count: u64) -> Vec<Settled> {
        let settled = |(cost, bytes)| Settled { cost, request_bytes: Some(bytes) };
        (0..count).map(|number| settled(of(number))).collect()
    }

    fn written(settled: &[Settled]) -> String {
        let mut out = String::new();
        write_rule(&mut out, "chat/tokens", settled).unwrap();
        out
    }

    #[test]
    fn a_number_covers_95_of_100_costs() {
        let text = written(&costs(|number| (number + 1, 10), 100));
        assert_eq!(
            text,
            "#   chat/tokens: 100 costs, median 50, 95 % 95, highest 100\n\
             #     reserve: 95 covers 95 % of them, and holds 45 too much on average\n"
        );
    }

    #[test]
    fn the_length_of_the_request_counts_where_costs_grow_with_it() {
        let text = written(&costs(|number| (1000 * number / 4 + number % 20, 1000 * number), 200));
        assert!(
            text.contains(
                "reserve: { request_bytes: 0.25, plus: 18 } covers 95 % of them, and holds 9 too much"
            ),
            "{text}"
        );
        assert!(text.contains("reserve: 47259 covers as many"), "{text}");
    }

    #[test]
    fn few_costs_say_nothing_and_free_ones_reserve_1() {
        assert_eq!(
            written(&costs(|_| (3, 3), 99)),
            "#   chat/tokens: 99 costs; 100 are needed for a reserve\n"
        );
        assert!(written(&costs(|_| (0, 3), 100)).contains("reserve: 1 covers"));
        let unknown = [Settled { cost: 7, request_bytes: None }; 100];
        assert!(written(&unknown).contains("reserve: 7 covers 95 % of them, and holds 0 too much"));
    }

    #[test]
    fn numbers_of_a_hostile_log_do_not_overflow() {
        let text = written(&costs(|number| (u64::MAX - number, u64::MAX / (number + 1)), 100));
        assert!(text.contains("95 % 18446744073709551610"), "{text}");
    }

    #[test]
    fn thousandths_are_written_short() {
        assert_eq!([1, 250, 1000, 1500].map(thousandths), ["0.001", "0.25", "1", "1.5"]);
    }
}
