//! The report as text.

use super::{CalendarReport, ReplayReport, RouteReport, RuleReport, WorstReport};
use crate::{
    counted::counted,
    flow::Instant,
    replay::times::{Times, millis, short},
    terminal_text::printable,
};
use core::{fmt::Write, time::Duration};

pub(in crate::replay) fn write(report: &ReplayReport, times: &Times) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    _ = text(&mut out, report, times);
    out
}

fn text(out: &mut String, report: &ReplayReport, times: &Times) -> std::fmt::Result {
    writeln!(out, "{}", requests(report, times))?;
    for (reason, count) in &report.unreached {
        writeln!(out, "  {count} reached no rule: {reason}")?;
    }
    for route in report.routes.iter().filter(|route| route.offered > 0) {
        writeln!(out)?;
        write_route(out, route, times)?;
    }

    let unused: Vec<_> = report.routes.iter().filter(|route| route.offered == 0).collect();
    if !unused.is_empty() {
        let names: Vec<_> = unused.iter().take(10).map(|route| route.name.as_str()).collect();
        let more = if unused.len() > 10 { ", …" } else { "" };
        writeln!(out, "\nno requests: {}{more}", names.join(", "))?;
    }
    Ok(())
}

/// Describes the number of requests and their span.
pub(super) fn requests(report: &ReplayReport, times: &Times) -> String {
    let offered: u64 = report.routes.iter().map(|route| route.offered).sum();
    let unreached: u64 = report.unreached.iter().map(|(_, count)| count).sum();
    let span = report.span.map_or(Duration::ZERO, |(first, last)| last.since(first));
    let count = offered + unreached;

    let clock = report.span.and_then(|(first, last)| times.span(first, last));
    let clock = clock.map_or_else(String::new, |clock| format!(", {clock}"));
    format!("{} in {}{clock}", counted(count, "request"), short(span))
}

fn write_route(out: &mut String, route: &RouteReport, times: &Times) -> std::fmt::Result {
    writeln!(out, "{}", route.name)?;
    writeln!(out, "  {}", decisions(route))?;
    if route.delayed > 0 {
        writeln!(out, "  added wait of those that started: {}", waits(route))?;
    }

    let rows: Vec<[String; 6]> = route.rules.iter().map(|rule| row(rule, times)).collect();
    let head =
        ["rule", "decided", "passed", "delayed", "rejected", "busiest window"].map(str::to_owned);
    if !rows.is_empty() {
        write_table(out, &[vec![head], rows].concat())?;
    }

    for rule in route.rules.iter().filter(|rule| !rule.keys.top.is_empty()) {
        writeln!(out, "  most rejected by {}: {}", rule.name, most_rejected(rule, clean))?;
    }
    Ok(())
}

/// Describes the decisions about a route's requests: `received 4, passed 3 (75.0 %), …`.
pub(super) fn decisions(route: &RouteReport) -> String {
    let RouteReport { offered, passed, delayed, .. } = route;
    let [passed_share, delayed_share] = [*passed, *delayed].map(|count| percent(count, *offered));
    let rejected = rejected(route);
    format!(
        "received {offered}, passed {passed} ({passed_share}), delayed {delayed} ({delayed_share}), \
         {rejected}"
    )
}

/// Describes the waits of a route's requests that started.
pub(super) fn waits(route: &RouteReport) -> String {
    let [p50, p99, max] = [route.wait_p50, route.wait_p99, route.wait_max].map(millis);
    format!("p50 {p50}, p99 {p99}, max {max}")
}

/// Names the clients that a rule rejected most often; `shown` escapes their keys.
pub(super) fn most_rejected(rule: &RuleReport, shown: impl Fn(&str) -> String) -> String {
    let top = rule.keys.top.iter();
    let named: Vec<_> =
        top.map(|client| format!("{} {}", shown(&client.key), client.times())).collect();
    named.join(", ") + &rule.keys.more()
}

/// Describes rejections: `rejected 20 (16.7 %: rate 18, queue 2)`.
fn rejected(route: &RouteReport) -> String {
    let all = route.rejected.values().sum();
    let share = percent(all, route.offered);
    let each: Vec<_> =
        route.rejected.iter().map(|(word, count)| format!("{word} {count}")).collect();
    match all {
        0 => format!("rejected 0 ({share})"),
        _ => format!("rejected {all} ({share}: {})", each.join(", ")),
    }
}

fn row(rule: &RuleReport, times: &Times) -> [String; 6] {
    let numbers = [rule.asked, rule.passed, rule.delayed].map(|count| count.to_string());
    let [asked, passed, delayed] = numbers;
    [rule.name.clone(), asked, passed, delayed, rejections(rule), worst(rule, times)]
}

/// Describes the requests that a rule rejected, or would have rejected.
pub(super) fn rejections(rule: &RuleReport) -> String {
    match rule.dry_run {
        0 => rule.rejected.to_string(),
        would => format!("{} (dry run: {would})", rule.rejected),
    }
}

/// Describes the most that passed and what was promised.
pub(super) fn worst(rule: &RuleReport, times: &Times) -> String {
    let (used, limit) = rule.used;
    let most = |passed, window, promised, at: Instant, key: &Option<String>| {
        let at = times.at(at);
        let key = key.as_ref().map_or_else(String::new, |key| format!(", {}", clean(key)));
        format!("{passed} in {window}, at most {promised} promised; until {at}{key}")
    };
    match (&rule.worst, &rule.calendar) {
        (Some(worst), _) if worst.measured == 0 => {
            format!("nothing; at most {} in any {}", worst.promised, short(worst.window))
        }
        (Some(WorstReport { window, measured, promised, at, key, is_partial }), _) => {
            let partly = if *is_partial { " (not of all keys)" } else { "" };
            most(*measured, short(*window), *promised, *at, key) + partly
        }
        (None, Some(_)) if limit == 0 => "nothing".to_owned(),
        (None, Some(CalendarReport { window, at, key })) => {
            most(used, format!("a {window}"), limit, *at, key)
        }
        (None, None) if limit == 0 => String::new(),
        (None, None) => format!("{used} at once of {limit}"),
    }
}

fn write_table(out: &mut String, rows: &[[String; 6]]) -> std::fmt::Result {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = core::array::from_fn(width);
    for row in rows {
        write!(out, "  {:<1$}", row[0], widths[0])?;
        for (cell, width) in row.iter().zip(widths).take(5).skip(1) {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out, "  {}", row[5])?;
    }
    Ok(())
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".to_owned();
    }
    // Tenths of a percent, rounded.
    let part = u128::from(part);
    let whole = u128::from(whole);
    match (2000 * part + whole) / (2 * whole) {
        1000 => "100 %".to_owned(),
        share => format!("{}.{} %", share / 10, share % 10),
    }
}

/// Escapes a key, which clients choose.
fn clean(key: &str) -> String {
    const LONGEST: usize = 60;
    printable(key, LONGEST)
}
