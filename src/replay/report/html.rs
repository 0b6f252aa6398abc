//! The report as a self-contained HTML page.

use super::{
    ReplayReport, RouteReport, RuleReport,
    against::{Against, ChangeKind},
    chart::{self, escaped},
    text::{decisions, most_rejected, rejections, requests, waits, worst},
};
use crate::{
    counted::inflected,
    replay::times::{Times, short},
};
use core::fmt::Write;

const PAGE: &str = "\
:root{--ink:#222;--paper:#fff}\
@media screen and (prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#161616}}\
body{background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif;max-width:760px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.15rem;margin:2rem 0 .3rem}h3{font-size:1rem;margin:1rem 0 0}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6rem 0}\
td,th{padding:.15rem .7rem .15rem 0;text-align:right;border-bottom:1px solid color-mix(in srgb,var(--ink) 18%,transparent)}\
td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}\
.words td,.words th{text-align:left;vertical-align:top}\
svg{width:100%;height:auto}\
@media print{body{margin:0;max-width:none}svg,tr{break-inside:avoid}h2,h3{break-after:avoid}}";

/// The content of a page.
pub(in crate::replay) struct HtmlReport<'a> {
    /// The configuration file.
    pub(in crate::replay) config: &'a str,
    /// The input files.
    pub(in crate::replay) inputs: &'a str,
    pub(in crate::replay) report: &'a ReplayReport,
    /// The other configuration's results.
    pub(in crate::replay) against: Option<&'a Against>,
    /// Notes for the reader.
    pub(in crate::replay) notes: &'a [String],
    /// The format of times.
    pub(in crate::replay) times: &'a Times,
}

impl HtmlReport<'_> {
    pub(in crate::replay) fn write(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        _ = self.write_to(&mut out);
        out
    }

    fn write_to(&self, out: &mut String) -> std::fmt::Result {
        write!(
            out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
             <title>flowgate replay</title><style>{PAGE}{}</style></head><body>\n<h1>flowgate replay</h1>\n",
            chart::STYLE
        )?;

        writeln!(out, "<p>{} on {}</p>", escaped(self.config), escaped(self.inputs))?;
        writeln!(out, "<p>{}</p>", escaped(&requests(self.report, self.times)))?;
        for note in self.notes {
            writeln!(out, "<p>{}</p>", escaped(note))?;
        }
        write_unreached(out, self.report, "")?;

        let Some(against) = self.against else {
            used(self.report).try_for_each(|route| self.write_section(out, Some(route), None))?;
            return out.write_str("</body></html>\n");
        };

        write_unreached(out, &against.report, &format!("in {}, ", against.config))?;
        self.write_differences(out, against)?;

        let there = |name: &str| used(&against.report).find(|route| route.name == name);
        for route in used(self.report) {
            self.write_section(out, Some(route), there(&route.name))?;
        }
        let is_here = |name: &str| used(self.report).any(|route| route.name == name);
        for route in used(&against.report).filter(|route| !is_here(&route.name)) {
            self.write_section(out, None, Some(route))?;
        }
        out.write_str("</body></html>\n")
    }

    fn write_differences(&self, out: &mut String, against: &Against) -> std::fmt::Result {
        let Against { config, comparison, .. } = against;
        writeln!(out, "<p>{}</p>", escaped(&comparison.summary(config)))?;

        let (kinds, more) = comparison.kinds();
        if !kinds.is_empty() {
            let [here, there] = [self.config, config].map(escaped);
            write!(
                out,
                "<table class=\"words\"><tr><th>requests</th><th>{here}</th><th>{there}</th>"
            )?;
            out.write_str("<th>such as</th></tr>\n")?;

            for ChangeKind { here, there, count, examples } in kinds {
                let [here, there] = [here, there].map(escaped);
                let examples: Vec<_> = examples.iter().map(|example| escaped(example)).collect();
                let examples = examples.join("<br>");
                writeln!(
                    out,
                    "<tr><td>{count}</td><td>{here}</td><td>{there}</td><td>{examples}</td></tr>"
                )?;
            }
            out.write_str("</table>\n")?;
        }

        if more > 0 {
            let kinds = inflected(more, "kind", "kinds");
            writeln!(out, "<p>… and {more} more {kinds} of change</p>")?;
        }
        Ok(())
    }

    /// Writes a route's results, also of the other configuration.
    fn write_section(
        &self,
        out: &mut String,
        here: Option<&RouteReport>,
        there: Option<&RouteReport>,
    ) -> std::fmt::Result {
        let name = here.or(there).map_or("", |route| &route.name);
        writeln!(out, "<section>\n<h2>{}</h2>", escaped(name))?;
        let Some(against) = self.against else {
            here.map_or(Ok(()), |route| write_route(out, route, self.times))?;
            return out.write_str("</section>\n");
        };
        for (config, route) in [(self.config, here), (&against.config, there)] {
            writeln!(out, "<h3>{}</h3>", escaped(config))?;
            match route {
                Some(route) => write_route(out, route, self.times)?,
                None => out.write_str("<p>no requests</p>\n")?,
            }
        }
        out.write_str("</section>\n")
    }
}

/// Returns the routes with arrivals.
fn used(report: &ReplayReport) -> impl Iterator<Item = &RouteReport> {
    report.routes.iter().filter(|route| route.offered > 0)
}

fn write_unreached(out: &mut String, report: &ReplayReport, place: &str) -> std::fmt::Result {
    report.unreached.iter().try_for_each(|(reason, count)| {
        let place = escaped(place);
        let reason = escaped(reason);
        writeln!(out, "<p>{place}{count} reached no rule: {reason}</p>")
    })
}

fn write_route(out: &mut String, route: &RouteReport, times: &Times) -> std::fmt::Result {
    write!(out, "<p>{}", decisions(route))?;
    if route.delayed > 0 {
        write!(out, "; added wait {}", waits(route))?;
    }

    let column = short(route.timeline.width());
    let title = format!("{}, columns of {column}", route.name);
    write!(out, "</p>\n{}", chart::draw(&route.timeline, &title, times, false))?;

    if !route.rules.is_empty() {
        out.write_str(
            "<table><tr><th>rule</th><th>decided</th><th>passed</th><th>delayed</th><th>rejected</th>\
             <th>busiest window</th></tr>\n",
        )?;
        route.rules.iter().try_for_each(|rule| write_rule(out, rule, times))?;
        out.write_str("</table>\n")?;
    }

    for rule in route.rules.iter().filter(|rule| !rule.keys.top.is_empty()) {
        let named = most_rejected(rule, escaped);
        writeln!(out, "<p>most rejected by {}: {named}</p>", escaped(&rule.name))?;
    }
    Ok(())
}

fn write_rule(out: &mut String, rule: &RuleReport, times: &Times) -> std::fmt::Result {
    let RuleReport { asked, passed, delayed, .. } = rule;
    writeln!(
        out,
        "<tr><td>{}</td><td>{asked}</td><td>{passed}</td><td>{delayed}</td><td>{}</td><td>{}</td></tr>",
        escaped(&rule.name),
        rejections(rule),
        escaped(&worst(rule, times))
    )
}
