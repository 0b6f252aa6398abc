//! The panel below the routes: the rules of the chosen route, the upstreams, the configuration, or the
//! worst paths.

use super::{
    super::{
        model::{Model, Panel},
        words::{meter, millis, plain, rate, seconds, short},
    },
    Look,
    head::certificate_words,
};
use crate::{
    admin::sample::{RouteRow, RuleRow, Sample, ServerRow, UpstreamList, UpstreamRow},
    config::Diagnostic,
    counted::counted,
    worst_paths::{ListedPath, SLOW},
};
use ratatui_core::{
    style::Style,
    text::{Line, Span},
};

/// The width of a bar that shows how full a rule is.
const METER: usize = 12;

/// The title of the rules that routes share.
pub(super) const BUDGETS_TITLE: &str = "limits that routes share";

/// The health of a server that has got no request.
const NOT_ASKED: &str = "not asked yet";

/// Returns the panel's title, with a rule to the right end.
pub(crate) fn title(model: &Model, width: usize, look: Look) -> Line<'static> {
    let words = match (model.panel, chosen(model)) {
        (Panel::Rules, Some(route)) => format!("rules of {}", plain(&route.name)),
        (Panel::Rules, None) => "rules".to_owned(),
        (Panel::Budgets, _) => BUDGETS_TITLE.to_owned(),
        (Panel::Upstreams, _) => match &model.sample {
            Some(Sample { upstreams: UpstreamList { out, failing, .. }, .. })
                if out + failing > 0 =>
            {
                format!("upstreams: ✕ {}", troubles(*out, *failing))
            }
            Some(_) | None => "upstreams".to_owned(),
        },
        (Panel::Configuration, _) => "configuration".to_owned(),
        (Panel::Paths, _) => PATHS_TITLE.to_owned(),
    };
    let order = match &model.sample {
        Some(sample) if sample.routes.found > sample.routes.rows.len() => {
            let routes = &sample.routes;
            format!(
                " {} of {} routes, {} ",
                routes.rows.len(),
                routes.found,
                model.query.sort.about()
            )
        }
        Some(_) | None => format!(" {} ", model.query.sort.about()),
    };
    let left = width.saturating_sub(words.chars().count() + order.chars().count() + 3);

    Line::from(vec![
        look.soft("─ ".to_owned()),
        Span::raw(words),
        look.soft(format!(" {}", "─".repeat(left))),
        look.soft(order),
    ])
}

/// Returns the panel's lines.
pub(crate) fn lines(model: &Model, width: usize, look: Look) -> Vec<Line<'static>> {
    match model.panel {
        Panel::Rules => chosen(model).map_or_else(Vec::new, |route| rules(route, look)),
        Panel::Budgets => budgets(model, look),
        Panel::Upstreams => upstreams(model, look),
        Panel::Configuration => configuration(model, width, look),
        Panel::Paths => paths(model, width, look),
    }
}

/// Returns the rules that routes share, each below its place in the file and the routes that meet it.
pub(crate) fn budgets(model: &Model, look: Look) -> Vec<Line<'static>> {
    let Some(Sample { budgets, .. }) = &model.sample else { return Vec::new() };
    if budgets.rows.is_empty() {
        let words =
            if budgets.total == 0 { "  routes share no limit" } else { "  none has these words" };
        return vec![Line::raw(words)];
    }

    let mut lines = Vec::new();
    for row in &budgets.rows {
        let parent = row.parent.as_ref();
        let parent = parent.map_or_else(String::new, |parent| format!(", counted in {parent} too"));
        let more = if row.more_routes > 0 { ", …" } else { "" };
        let of = format!("  {}{parent}: {}{more}", row.name, row.routes.join(", "));
        lines.push(Line::from(look.soft(plain(&of))));
        lines.extend(row.rules.iter().flat_map(|one| rule(one, look)));
    }
    let more = budgets.total.saturating_sub(budgets.rows.len());
    if more > 0 && model.query.filter.is_empty() {
        lines.push(Line::raw(format!("  and {more} more")));
    }
    lines
}

/// Counts the servers that get no requests, and those that fail most of theirs.
fn troubles(out: usize, failing: usize) -> String {
    let out = (out > 0).then(|| format!("{} out of order", counted(out, "server")));
    let failing = (failing > 0).then(|| format!("{} failing", counted(failing, "server")));
    let both: Vec<String> = [out, failing].into_iter().flatten().collect();
    both.join(", ")
}

fn chosen(model: &Model) -> Option<&RouteRow> {
    model.sample.as_ref()?.routes.rows.get(model.chosen())
}

/// Returns the rules of a route, below what it matches.
pub(crate) fn rules(route: &RouteRow, look: Look) -> Vec<Line<'static>> {
    let to = route.upstream.as_ref().or(route.answer.as_ref());
    let to = to.map_or_else(String::new, |to| format!(" → {to}"));
    let mut lines =
        vec![Line::from(look.soft(format!("  {}{}", plain(&route.matches), plain(&to))))];
    lines.extend(route.rules.iter().flat_map(|one| rule(one, look)));
    if route.rules.is_empty() {
        lines.push(Line::raw("  this route has no limit"));
    }
    if route.more_rules > 0 {
        lines.push(Line::raw(format!("  and {}", counted(route.more_rules, "more rule"))));
    }
    lines
}

/// Returns the line of a rule, and below it what a limit that finds itself has seen.
fn rule(rule: &RuleRow, look: Look) -> impl Iterator<Item = Line<'static>> {
    let auto = rule.auto.as_ref().map(|auto| {
        let words = format!("      auto: {auto}");
        Line::from(look.soft(plain(&words)))
    });
    core::iter::once(usage(rule, look)).chain(auto)
}

fn usage(rule: &RuleRow, look: Look) -> Line<'static> {
    let rejects = if rule.dry_run { rule.would_reject } else { rule.rejected };
    let mark = match (rejects > 0.0, rule.dry_run) {
        (true, false) => "✕ ",
        (true, true) => "~ ",
        (false, _) => "  ",
    };
    let mut spans = vec![Span::styled(mark, if rule.dry_run { look.odd() } else { look.bad() })];
    spans.push(Span::raw(format!("{:<16} ", plain(&rule.name))));
    spans.push(Span::raw(format!("{} ", fill(rule))));
    let quota = rule.quota.as_ref().map_or_else(String::new, |quota| format!(" {quota}"));
    let key = rule.key.as_ref().map_or_else(String::new, |key| format!(" each {key}"));
    let extra = [(rule.dry_run, " dry run"), (rule.shared, " shared")];
    let extra: String = extra.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
    let about = plain(&format!(" {}{quota}{key}{extra}", rule.algorithm));

    let passed = format!(" passed {}/s delayed {}/s", rate(rule.passed), rate(rule.delayed));
    spans.push(Span::raw(passed));
    let verb = if rule.dry_run { "would reject" } else { "rejected" };
    let reasons: Vec<&str> = rule.reasons.keys().map(AsRef::as_ref).collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let rejected = plain(&format!(" {verb} {}/s{reasons}", rate(rejects)));
    let style = match (rejects > 0.0, rule.dry_run) {
        (true, false) => look.bad(),
        (true, true) => look.odd(),
        (false, _) => Style::new(),
    };
    spans.push(Span::styled(rejected, style));
    spans.push(look.soft(about));
    Line::from(spans)
}

/// Says how full a rule is.
fn fill(rule: &RuleRow) -> String {
    if let Some(breaker) = &rule.breaker {
        let state = plain(&breaker.state);
        return format!(
            "{state}: {} failed, {} slow of {}",
            short(breaker.failed),
            short(breaker.slow),
            short(breaker.answers)
        );
    }
    let debt = if rule.debt > 0 { format!(", debt {}", short(rule.debt)) } else { String::new() };
    if let Some(keys) = rule.keys {
        return format!(
            "limit {} each, {} of {} keys{debt}",
            short(rule.limit),
            short(keys.live),
            short(keys.max)
        );
    }
    let full = if rule.used >= rule.limit { " full" } else { "" };

    format!(
        "{} {} of {}{full}{debt}",
        meter(rule.used, rule.limit, METER),
        short(rule.used),
        short(rule.limit)
    )
}

/// Returns a line for each server, below the store if there is one.
pub(crate) fn upstreams(model: &Model, look: Look) -> Vec<Line<'static>> {
    let Some(sample) = &model.sample else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(store) = &sample.store {
        let gateways =
            format!("  {}, {}", counted(store.gateways, "gateway"), counted(store.errors, "error"));
        let state = if store.up { "  store reached" } else { "✕ store not reached" };
        let style = if store.up { look.good() } else { look.bad() };
        lines.push(Line::from(vec![Span::styled(state, style), Span::raw(gateways)]));
        if let Some(failure) = &store.failure {
            lines.push(Line::raw(format!("  {}", plain(failure))));
        }
    }
    for upstream in &sample.upstreams.rows {
        lines.extend(upstream.servers.iter().map(|one| server(upstream, one, look)));
        let more = upstream.servers_total.saturating_sub(upstream.servers.len());
        if more > 0 {
            lines.push(Line::raw(format!(
                "  {}: {}",
                plain(&upstream.name),
                counted(more, "more server")
            )));
        }
    }

    let more = sample.upstreams.total.saturating_sub(sample.upstreams.rows.len());
    if sample.upstreams.total == 0 {
        lines.push(Line::raw("  there are no upstreams"));
    } else if more > 0 {
        lines.push(Line::raw(format!("  and {}", counted(more, "more upstream"))));
    }

    lines
}

fn server(upstream: &UpstreamRow, server: &ServerRow, look: Look) -> Line<'static> {
    let is_unknown = server.health == NOT_ASKED;
    let failing = server.failing.filter(|_| server.health == "healthy");
    let is_healthy = (server.health == "healthy" && failing.is_none()) || is_unknown;
    let health = match failing {
        Some(share) => format!("failing {share:.0} %", share = share * 100.0),
        None => plain(&server.health),
    };
    let name = server.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let address = plain(&format!("{}{name}", server.address));
    let style = match (is_unknown, is_healthy) {
        (true, _) => Style::new(),
        (false, true) => look.good(),
        (false, false) => look.bad(),
    };

    Line::from(vec![
        Span::styled(if is_healthy { "  " } else { "✕ " }, look.bad()),
        Span::raw(format!("{:<16} {address:<24} ", plain(&upstream.name))),
        Span::styled(format!("{health:<13}"), style),
        Span::raw(format!(
            " in flight {}  requests {}/s  failed {}/s  5xx {}/s",
            short(server.in_flight),
            short(server.requests),
            short(server.failures),
            short(server.bad_statuses)
        )),
    ])
}

/// The title of the worst paths.
pub(crate) const PATHS_TITLE: &str = "paths that fail or are slow, in the last two minutes";

/// Returns a line for each of the worst paths.
pub(crate) fn paths(model: &Model, width: usize, look: Look) -> Vec<Line<'static>> {
    let Some(sample) = &model.sample else { return Vec::new() };
    let list = &sample.failing.paths;
    let failed = list.failed.iter().map(|listed| {
        let about = format!("{} failed, latest {}", number(listed), listed.status);
        path(listed, &about, width, look.bad())
    });
    let slow = list.slow.iter().map(|listed| {
        let about = format!("{} slow, up to {}", number(listed), longest(listed));
        path(listed, &about, width, look.odd())
    });
    let mut lines: Vec<Line<'static>> = failed.chain(slow).collect();
    if lines.is_empty() {
        lines.push(Line::raw(format!("  no request failed or took {} s", SLOW.as_secs())));
    }
    lines
}

/// Returns the number of requests, with a sign if it may be too high.
fn number(listed: &ListedPath) -> String {
    let most = if listed.overcount > 0 { "at most " } else { "" };
    format!("{most}{}", short(listed.count))
}

#[expect(clippy::cast_precision_loss, reason = "seconds are read, not counted with")]
fn longest(listed: &ListedPath) -> String {
    millis(Some(listed.longest_ms as f64))
}

fn path(listed: &ListedPath, about: &str, width: usize, style: Style) -> Line<'static> {
    let route = plain(&listed.route);
    let path = plain(&listed.path);
    // The numbers stay on a narrow terminal; the path is cut.
    let used = 2 + about.chars().count() + 2 + route.chars().count() + 2;
    let room = width.saturating_sub(used).max(8);
    let shown: String = if path.chars().count() > room {
        path.chars().take(room - 1).chain(['…']).collect()
    } else {
        path
    };
    Line::from(vec![
        Span::styled(format!("  {about}  "), style),
        Span::raw(format!("{route}  {shown}")),
    ])
}

/// Returns what is in force, and the last rejected edit.
pub(crate) fn configuration(model: &Model, width: usize, look: Look) -> Vec<Line<'static>> {
    let config = &model.config;
    let now = model.sample.as_ref().map_or(0, |sample| sample.at);
    let ago = |at: u64| seconds(now.saturating_sub(at));
    let changes = if config.changes.is_empty() { "none since the start" } else { &config.changes };
    let mut lines = vec![
        Line::raw(format!(
            "  version {}, hash {}, in force for {}",
            config.version,
            plain(&config.hash),
            ago(config.applied)
        )),
        Line::raw(format!(
            "  {}, {}",
            counted(config.routes, "route"),
            counted(config.upstreams, "upstream")
        )),
    ];
    lines.extend(wrapped(&format!("last change: {changes}"), width).into_iter().map(Line::raw));
    lines.push(Line::raw(format!("  listens: {}", plain(&config.listeners.join(", ")))));

    for certificate in &config.certificates {
        let left = certificate.not_after.checked_sub(now);
        let words = certificate_words(certificate, left);
        lines.extend(wrapped(&words, width).into_iter().map(|text| match left {
            Some(_) => Line::raw(text),
            None => look.bad_line(text),
        }));
    }
    if config.more_certificates > 0 {
        lines.push(Line::raw(format!("  and {} more certificates", config.more_certificates)));
    }
    let Some(rejected) = &config.rejected else { return lines };
    let state = if config.is_behind { "✕ not fixed yet" } else { "  fixed since" };
    let style = if config.is_behind { look.bad() } else { look.good() };
    let count = counted(rejected.count, "problem");
    let words = format!("; an edit was rejected {} ago, with {count}:", ago(rejected.at));
    lines.push(Line::from(vec![Span::styled(state, style), Span::raw(words)]));

    for problem in &rejected.problems {
        lines.extend(wrapped(&place_and_message(problem), width).into_iter().map(Line::raw));
        if !problem.help.is_empty() {
            let help = wrapped(&format!("help: {}", problem.help), width);
            lines.extend(help.into_iter().map(|line| Line::from(look.soft(line))));
        }
    }

    lines
}

/// Returns `gateway.yaml:3:7: message`.
pub(super) fn place_and_message(problem: &Diagnostic) -> String {
    let Diagnostic { file, line, column, message, .. } = problem;
    let text = match line {
        0 => message.clone(),
        _ => format!("{}:{line}:{column}: {message}", file.display()),
    };
    plain(&text)
}

/// Breaks a text into lines that begin with two spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let room = width.saturating_sub(2).max(10);
    let mut lines = vec![String::new()];
    let text = plain(text);
    for word in text.split(' ') {
        let used = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if used == 0 => line.push_str(word),
            Some(line) if used + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| format!("  {line}")).collect()
}
