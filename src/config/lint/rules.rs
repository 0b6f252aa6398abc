//! Rules that have no effect, or another one than their words suggest.

use super::{Findings, never_rejects::idle_rules};
use crate::{
    config::{
        diagnostics::{Lint, Problem, SourceSpan},
        plan::{Auth, Plan, RoutePlan, RulePlan},
        report::bucket_numbers,
        spec::leaf::short,
    },
    route::Matcher,
};
use http::header;
use std::time::Duration;

/// Warns of rules beside which a stricter one always rejects first.
pub(super) fn never_reject(plan: &Plan, findings: &mut Findings) {
    for route in &plan.routes {
        for (idle, busy) in idle_rules(&route.flow.flow, &route.rules) {
            let idle = &route.rules[idle];
            let busy = &route.rules[busy];
            let message = format!("the rule `{}` can never reject anything", idle.name);
            findings.add(
                Problem::warning(Lint::NeverRejects, idle.span, message)
                    .label("allows what the other one rejects first")
                    .also(busy.span, format!("`{}` is as strict or stricter", busy.name))
                    .help("remove it, or write a lower limit"),
            );
        }
    }
}

/// Warns of routes that ask their upstream for responses in which their rules cannot find numbers.
pub(super) fn unreadable_responses(plan: &Plan, findings: &mut Findings) {
    let reads = |rule: &&RulePlan| rule.cost.settle.as_deref().is_some_and(|s| s.query().is_some());
    for route in &plan.routes {
        let met = route.groups.iter().flat_map(|met| &plan.groups[met.index].rules);
        let Some(rule) = route.rules.iter().chain(met).find(reads) else { continue };
        if route.options.request_headers.names(&header::ACCEPT_ENCODING) {
            continue;
        }
        let message = format!(
            "the rule `{}` reads responses, and clients of the route `{}` may ask for encodings that flowgate cannot read",
            rule.name, route.name
        );
        findings.add(
            Problem::warning(Lint::UnreadableEncoding, rule.span, message).help(
                "write `request_headers: { set: { accept-encoding: gzip } }`, or `remove: accept-encoding`, in the route",
            ),
        );
    }
}

/// Warns of budgets that count by a key beside routes whose requests have none.
pub(super) fn budgets_without_key(plan: &Plan, findings: &mut Findings) {
    const SHOWN: usize = 5;

    for (index, group) in plan.groups.iter().enumerate() {
        let Some(rule) = group.rules.iter().find(|rule| rule.when.is_none()) else { continue };
        let lacks = |(at, route): &(usize, &RoutePlan)| {
            let meets = route.groups.iter().any(|met| met.index == index);
            meets && !knows_key(route, plan.table.matcher(*at), rule)
        };
        let without = plan.routes.iter().enumerate().filter(lacks);
        let names: Vec<_> = without.map(|(_, route)| format!("`{}`", route.name)).collect();
        if names.is_empty() {
            continue;
        }

        let message = format!("`{}` counts by `{}`", rule.name, rule.key);
        let shown = names[..names.len().min(SHOWN)].join(", ");
        let more = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        findings.add(
            Problem::warning(Lint::BudgetWithoutKey, rule.span, message)
                .label(format!("requests of {shown}{more} have no such key"))
                .help(
                    "write `auth`, or the segment into the path, at these routes; or say by `on_missing_key` how they count",
                ),
        );
    }
}

/// Returns whether a route's requests may have the key of a rule.
fn knows_key(route: &RoutePlan, matcher: Option<&Matcher>, rule: &RulePlan) -> bool {
    let paths = matcher.map_or(&[][..], |matcher| &matcher.paths);
    let key = rule.key.clone().of_paths(paths);
    let unknown = key.segments().find(|segment| !segment.is_known());
    let auth = route.options.auth.as_ref();
    let has_claims = auth.is_some_and(|auth| auth.jwt.is_some());
    unknown.is_none()
        && (rule.key.claims().next().is_none() || has_claims)
        && (!rule.key.needs_user() || auth.is_some_and(Auth::is_own))
        && rule.key.auth_fields().all(|name| {
            let forward = auth.and_then(|auth| auth.forward.as_ref());
            forward.is_some_and(|forward| forward.copies(name))
        })
}

/// Notes a file that does not say where it ends.
pub(super) fn end_is_missing(plan: &Plan, findings: &mut Findings) {
    let source = plan.source();
    let Some(file) = source.files.iter().find(|file| file.end.is_none()) else { return };
    let note = Problem::note(Lint::MissingEnd, "the file does not end with `end: true`").help(
        "add the line `end: true` at the end: then flowgate never accepts a part of the file; \
         `end: false` says that you do not want that",
    );
    let end = file.range.start + source.text_of(file).trim_end().len();
    findings.add(if file.range.start == 0 { note } else { note.at(SourceSpan::of(end..end)) });
}

/// Notes, once for the file, how to get a hard cap where a bucket admits twice its limit in a window
/// that is long enough for a user to expect otherwise.
pub(super) fn bucket_doubles_limit(plan: &Plan, findings: &mut Findings) {
    const LONG: Duration = Duration::from_mins(1);
    const DAY: Duration = Duration::from_hours(24);

    let mut doubled = plan.each_rule().filter_map(|(rule, plan)| {
        let (rate, burst) = bucket_numbers(&rule.algorithm)?;
        (rate.window() >= LONG && burst >= rate.count()).then_some((plan, rate, burst))
    });
    let Some((rule, rate, burst)) = doubled.next() else { return };

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

    findings.add(Problem::note(Lint::BurstDoublesLimit, message).at(rule.span).help(help));
}
