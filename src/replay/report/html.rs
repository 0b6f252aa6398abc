//! A report as one page, which needs nothing beside itself.

use super::{
    Report, RouteReport, RuleReport,
    svg::{self, escaped},
    text::{millis, percent, short, worst},
};
use crate::flow::Instant;
use core::fmt::Write;

const PAGE: &str = "\
body{background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif;max-width:760px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.15rem;margin:2rem 0 .3rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6rem 0}\
td,th{padding:.15rem .7rem .15rem 0;text-align:right;border-bottom:1px solid color-mix(in srgb,var(--ink) 18%,transparent)}\
td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}\
svg{width:100%;height:auto}\
@media print{body{margin:0;max-width:none}section{break-inside:avoid}}";

/// Returns the page. `source` names the configuration and the inputs, `notes` are what a
/// reader should know; times are counted from `origin`.
pub(in crate::replay) fn page(
    report: &Report,
    source: &str,
    notes: &[String],
    origin: Instant,
) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    _ = write_page(&mut out, report, source, notes, origin);
    out
}

fn write_page(
    out: &mut String,
    report: &Report,
    source: &str,
    notes: &[String],
    origin: Instant,
) -> std::fmt::Result {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>flowgate replay</title><style>{}{PAGE}{}</style></head><body>\n<h1>flowgate replay</h1>\n",
        svg::COLOURS,
        svg::STYLE
    )?;
    writeln!(out, "<p>{}</p>", escaped(source))?;
    for note in notes {
        writeln!(out, "<p>{}</p>", escaped(note))?;
    }
    for (reason, count) in &report.unreached {
        writeln!(out, "<p>{count} arrivals reached no rule: {}</p>", escaped(reason))?;
    }
    for route in report.routes.iter().filter(|route| route.offered > 0) {
        write_route(out, route, origin)?;
    }
    out.write_str("</body></html>\n")
}

fn write_route(out: &mut String, route: &RouteReport, origin: Instant) -> std::fmt::Result {
    let share = |count| percent(count, route.offered);
    write!(out, "<section>\n<h2>{}</h2>\n<p>", escaped(&route.name))?;
    write!(out, "offered {}, passed {} ({})", route.offered, route.passed, share(route.passed))?;
    write!(out, ", delayed {} ({})", route.delayed, share(route.delayed))?;
    for (word, count) in &route.refused {
        write!(out, ", {word} {count} ({})", share(*count))?;
    }
    if route.delayed > 0 {
        let [p50, p99, max] = [route.wait_p50, route.wait_p99, route.wait_max].map(millis);
        write!(out, "; added wait p50 {p50}, p99 {p99}, max {max}")?;
    }
    let column = short(route.timeline.width());
    let title = format!("{}, columns of {column}", route.name);
    write!(out, "</p>\n{}", svg::draw(&route.timeline, &title, false))?;
    if !route.rules.is_empty() {
        out.write_str(
            "<table><tr><th>rule</th><th>asked</th><th>passed</th><th>delayed</th><th>refused</th>\
             <th>worst window</th></tr>\n",
        )?;
        route.rules.iter().try_for_each(|rule| write_rule(out, rule, origin))?;
        out.write_str("</table>\n")?;
    }
    for rule in route.rules.iter().filter(|rule| !rule.keys.is_empty()) {
        let keys = rule.keys.iter().map(|(key, count)| format!("{} ×{count}", escaped(key)));
        let keys: Vec<_> = keys.collect();
        writeln!(out, "<p>refused most by {}: {}</p>", escaped(&rule.name), keys.join(", "))?;
    }
    out.write_str("</section>\n")
}

fn write_rule(out: &mut String, rule: &RuleReport, origin: Instant) -> std::fmt::Result {
    let RuleReport { asked, passed, delayed, refused, .. } = rule;
    writeln!(
        out,
        "<tr><td>{}</td><td>{asked}</td><td>{passed}</td><td>{delayed}</td><td>{}</td><td>{}</td></tr>",
        escaped(&rule.name),
        match rule.dry_run {
            0 => refused.to_string(),
            would => format!("{refused} (dry run: {would})"),
        },
        escaped(&worst(rule, origin))
    )
}
