//! The result: YAML to paste, with comments that say why.

use super::{
    proposal::{Basis, Percent, Proposal},
    traffic::{Group, MOST_KEYS, Peaks, Traffic},
    trial::{Tried, rate, words},
};
use crate::{
    counted::{counted, inflected},
    terminal_text::printable,
};
use core::{cmp::Reverse, fmt::Write};

/// The most clients that are named.
const MOST_NAMED: usize = 3;

/// The keys that a rule holds apart if it does not say how many.
const USUAL_KEYS: usize = 100_000;

/// The result for one route.
#[derive(Debug)]
pub(super) struct RouteResult {
    pub group: Group,
    pub requests: usize,
    /// Keys of these requests.
    pub clients: usize,
    pub without_key: u64,
    /// By window, the shortest first.
    pub peaks: Vec<Peaks>,
    /// A limit, or why there is none.
    pub proposal: Result<(Proposal, Tried), String>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct SuggestedConfig<'a> {
    /// The names of the inputs.
    pub inputs: String,
    /// The kind of the inputs: a `log` or a `recording`.
    pub source: &'static str,
    /// From the first request to the last, in words.
    pub span: String,
    pub key: &'a str,
    pub traffic: &'a Traffic,
    pub notes: &'a [String],
    pub routes: Vec<RouteResult>,
    /// Routes are those of a configuration, which has listeners and upstreams already.
    pub is_for_file: bool,
    /// One limit is for all routes.
    pub is_shared: bool,
}

impl SuggestedConfig<'_> {
    pub(super) fn write(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        _ = self.write_head(&mut out);
        if self.routes.is_empty() {
            return out + "# No request reached a route, so there is no limit to suggest.\n";
        }
        _ = self.traffic.costs.write(&mut out);
        if !self.is_for_file {
            out += "\nlisteners: [{ name: web, listen: 127.0.0.1:8080 }]\n\
                    upstreams: [{ name: app, servers: [{ url: http://127.0.0.1:9000 }] }] # your service\n";
        }
        if self.is_shared {
            _ = self.write_budget(&mut out);
            return out;
        }
        out += "\nroutes:\n";
        for route in &self.routes {
            _ = self.write_route(&mut out, route);
        }
        if self.routes.iter().all(|route| route.proposal.is_err()) && self.is_for_file {
            out += "  []\n";
        }
        if !self.is_for_file {
            out += "end: true\n";
        }
        out
    }

    fn write_head(&self, out: &mut String) -> core::fmt::Result {
        let Self { inputs, source, span, traffic, key, .. } = self;
        let count = counted(traffic.requests.len(), "request");
        if traffic.requests.is_empty() {
            writeln!(out, "# flowgate suggest: {count} of {inputs}.")?;
        } else {
            writeln!(out, "# flowgate suggest: {count} of {inputs}, {span}.")?;
            writeln!(
                out,
                "# Counted by {key}. flowgate ran the whole {source} through the rules below"
            )?;
            writeln!(
                out,
                "# and counted what they rejected. Replay another log before you enforce them:"
            )?;
            writeln!(out, "# `flowgate replay -c FILE LOG`.")?;
        }

        for note in self.notes {
            writeln!(out, "# note: {}", clean(note))?;
        }

        if traffic.without_route > 0 {
            let requests = counted(traffic.without_route, "request");
            let [reach, are] = [("reaches", "reach"), ("is", "are")]
                .map(|(one, many)| inflected(traffic.without_route, one, many));
            writeln!(out, "# note: {requests} that {reach} no route {are} left out")?;
        }

        if traffic.beyond > 0 {
            let beyond = counted(traffic.beyond, "request");
            writeln!(out, "# note: left out: {beyond} of keys beyond the first {MOST_KEYS}")?;
        }
        Ok(())
    }

    /// Writes the limit that all routes share.
    fn write_budget(&self, out: &mut String) -> core::fmt::Result {
        out.push('\n');
        for all in &self.routes {
            if all.proposal.is_ok() {
                writeln!(out, "budgets:")?;
            }
            self.write_study(out, all)?;
            let Ok((proposal, _)) = &all.proposal else { continue };
            writeln!(out, "  - name: site")?;
            self.write_terms(out, "    ", proposal, all)?;
            writeln!(out, "flow: [{{ budget: site }}] # every route of the file")?;
        }
        if !self.is_for_file {
            writeln!(out, "routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: app }}]")?;
            writeln!(out, "end: true")?;
        }
        Ok(())
    }

    fn write_route(&self, out: &mut String, route: &RouteResult) -> core::fmt::Result {
        let name = &route.group.name;
        self.write_study(out, route)?;
        if self.is_for_file && route.proposal.is_err() {
            return Ok(());
        }

        writeln!(out, "  - name: {name}")?;
        match &route.group.path_prefix {
            Some(prefix) => {
                writeln!(out, "    match: {{ path_prefix: {prefix} }}\n    upstream: app")?;
            }
            None => writeln!(out, "    # with the `match` and the `upstream` that it has")?,
        }

        let Ok((proposal, _)) = &route.proposal else { return Ok(()) };
        let name = if self.key == "client_ip" { "per-client" } else { "per-key" };
        writeln!(out, "    flow:\n      - name: {name}")?;
        self.write_terms(out, "        ", proposal, route)
    }

    /// Writes what is known of the requests of a route, and why it gets its limit.
    fn write_study(&self, out: &mut String, route: &RouteResult) -> core::fmt::Result {
        let name = &route.group.name;
        let clients = route.clients;
        let requests = counted(route.requests, "request");
        let of_clients = match clients {
            0 => String::new(),
            _ => format!(" of {}", counted(clients, "client")),
        };
        writeln!(out, "  # {}: {requests}{of_clients}", clean(name))?;

        if route.without_key > 0 {
            writeln!(
                out,
                "  #   not counted: {} without {}",
                counted(route.without_key, "more request"),
                self.key
            )?;
        }

        for peaks in &route.peaks {
            writeln!(
                out,
                "  #   peaks of a client in {}: median {}, 99 % {}, highest {}",
                words(peaks.window),
                peaks.quantile(50),
                peaks.quantile(99),
                peaks.quantile(100)
            )?;
        }

        match &route.proposal {
            Ok((proposal, tried)) => {
                self.write_reason(out, proposal)?;
                self.write_tried(out, tried, clients)?;
            }
            Err(why) => writeln!(out, "  #   no limit is suggested: {why}")?,
        }
        Ok(())
    }

    fn write_reason(&self, out: &mut String, proposal: &Proposal) -> core::fmt::Result {
        let window = words(proposal.window);
        let limit = proposal.limit;

        match &proposal.basis {
            Basis::Apart { highest, outliers, factor } => {
                let count = outliers.len();
                let stand = inflected(count, "client stands", "clients stand");
                let named = outliers.iter().rev().take(MOST_NAMED);
                let named =
                    named.map(|peak| format!("{} with {}", self.key_of(peak.key), peak.most));
                let named: Vec<_> = named.collect();
                writeln!(out, "  #   {count} {stand} out in {window}: {}", named.join(", "))?;
                writeln!(
                    out,
                    "  #   limit: {highest}, the highest of all others, times {factor:.2}, rounded up: {limit}"
                )
            }
            Basis::Highest { highest, factor } => {
                writeln!(
                    out,
                    "  #   no client stands out for long; limit: {highest}, the highest in {window}, times {factor:.2}, rounded up: {limit}"
                )
            }
            Basis::Target(target) => {
                writeln!(out, "  #   limit: the lowest in {window} that rejects at most {target}")
            }
        }
    }

    fn write_tried(&self, out: &mut String, tried: &Tried, clients: usize) -> core::fmt::Result {
        let offered: u64 = tried.offered.iter().sum();
        let rejected: u64 = tried.rejected.iter().sum();
        let share = Percent::of(rejected, offered);
        let hit = tried.keys.len();
        writeln!(
            out,
            "  #   would have rejected {share} of the requests ({rejected} of {offered}), of {hit} of {}",
            counted(clients, "client")
        )?;
        if rejected == 0 {
            return Ok(());
        }

        let mut keys: Vec<_> = tried.keys.iter().collect();
        keys.sort_by_key(|(key, count)| (Reverse(**count), **key));
        let named = keys.iter().take(MOST_NAMED);
        let named: Vec<_> =
            named.map(|(key, count)| format!("{} ×{count}", self.key_of(**key))).collect();
        let halves = [0, 1].map(|half| Percent::of(tried.rejected[half], tried.offered[half]));

        writeln!(out, "  #   most of them: {}", named.join(", "))?;
        writeln!(
            out,
            "  #   in the first half of the {} {}, in the second {}",
            self.source, halves[0], halves[1]
        )?;

        if varies(halves) {
            writeln!(out, "  #   The halves differ: expect another share of other traffic.")?;
        }
        Ok(())
    }

    /// Writes the keys of a rule behind its name, each on a line of its own.
    fn write_terms(
        &self,
        out: &mut String,
        indent: &str,
        proposal: &Proposal,
        route: &RouteResult,
    ) -> core::fmt::Result {
        let rate = rate(proposal.limit, proposal.window);
        let key =
            if self.key.contains(',') { format!("[{}]", self.key) } else { self.key.to_owned() };
        writeln!(out, "{indent}algorithm: sliding_window\n{indent}limit: {rate}")?;
        writeln!(out, "{indent}strict: true\n{indent}key: {key}")?;
        if route.without_key > 0 && self.key != "client_ip" {
            writeln!(out, "{indent}on_missing_key: skip")?;
        }
        // Twice as many as there were, so that new ones find places.
        if route.clients > USUAL_KEYS / 2 {
            writeln!(out, "{indent}max_keys: {}", (2 * route.clients).min(10_000_000))?;
        }
        Ok(())
    }

    fn key_of(&self, key: u32) -> String {
        self.traffic.keys.get(key as usize).map_or_else(String::new, |key| clean(key))
    }
}

/// True if two shares differ by more than a fifth of their mean.
pub(super) fn varies([one, other]: [Percent; 2]) -> bool {
    (one.share() - other.share()).abs() > 0.2 * f64::midpoint(one.share(), other.share())
}

/// Returns a text that fits into a comment: in one line, short, and without control characters.
fn clean(text: &str) -> String {
    const LONGEST: usize = 400;
    printable(text, LONGEST)
}
