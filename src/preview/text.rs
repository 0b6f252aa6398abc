//! The report of a preview as text, for a terminal.

use super::report::{
    BudgetReport, ChangeReport, ClientReport, PreviewReport, RouteReport, RuleReport, State,
};
use crate::counted::counted;
use crate::terminal_text::terminal_text;
use core::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

impl PreviewReport {
    /// Returns one line: how long the preview has run, and how requests would fare.
    pub fn line(&self) -> String {
        format!("{}  {}", seconds(self.elapsed_s), self.requests.in_words())
    }
}

impl Display for PreviewReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let state = match (&self.state, &self.ended_because) {
            (State::Ended, Some(cause)) => format!("ended because {cause}"),
            (State::Ended, None) => "ended".to_owned(),
            (State::Running, _) => "running".to_owned(),
        };
        writeln!(
            f,
            "preview of {} beside {}, {}: {state}",
            self.config_hash,
            self.base_hash,
            seconds(self.elapsed_s)
        )?;
        writeln!(f, "{}", self.requests.in_words())?;
        if !self.changes.is_empty() {
            writeln!(f, "\nnow → with the new file")?;
            self.changes.iter().try_for_each(|change| change.write(f))?;
            more(f, self.more_changes, "kinds of change")?;
        }
        if !self.clients.is_empty() {
            writeln!(f, "\nclients that would be treated otherwise most often")?;
            self.clients.iter().try_for_each(|client| client.write(f))?;
        }
        if !self.routes.is_empty() {
            writeln!(f, "\nroutes and rules of the new file")?;
            self.routes.iter().try_for_each(|route| route.write(f))?;
            more(f, self.more_routes, "routes")?;
        }
        if !self.budgets.is_empty() {
            writeln!(f, "\nrules that routes of the new file share")?;
            self.budgets.iter().try_for_each(|budget| budget.write(f))?;
        }

        self.notes.iter().try_for_each(|note| writeln!(f, "\nnote: {note}"))
    }
}

impl ChangeReport {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "  {:>8}  {} → {}", self.count, self.here, self.there)?;
        if let Some([mean, max]) = self.wait_ms {
            write!(f, ", {mean:.0} ms on average, {max:.0} ms at most")?;
        }
        writeln!(f)?;
        self.examples.iter().take(1).try_for_each(|example| {
            let super::report::Example { ts, method, path, client } = example;
            let [method, path, client] = [method, path, client].map(|text| terminal_text(text));
            writeln!(f, "            e.g. {method} {path} of {client} at {ts}")
        })
    }
}

impl ClientReport {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let error = match self.error {
            0 => String::new(),
            error => format!(", {error} of them perhaps of others"),
        };
        let place = match (&self.route, &self.rule) {
            (Some(route), Some(rule)) => format!("  {route}/{rule}"),
            (Some(route), None) => format!("  {route}"),
            (None, _) => String::new(),
        };
        writeln!(
            f,
            "  {:>8}  {}{place}: {}{error}",
            self.count,
            terminal_text(&self.client),
            self.requests.in_words()
        )
    }
}

impl RouteReport {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}  {}", self.route, self.requests.in_words())?;
        self.rules.iter().try_for_each(|rule| rule.write(f))
    }
}

impl BudgetReport {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.budget)?;
        self.rules.iter().try_for_each(|rule| rule.write(f))
    }
}

impl RuleReport {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "    {}  {} passed", self.rule, self.passed)?;
        if self.delayed > 0 {
            write!(f, ", {} delayed", self.delayed)?;
        }
        for (reason, count) in &self.rejected {
            write!(f, ", {count} rejected ({reason})")?;
        }
        if self.dry_run {
            write!(f, ", {} would be rejected without dry run", self.dry_run_rejected)?;
        }
        if let Some(keys) = self.keys {
            write!(f, ", {}", counted(keys, "key"))?;
        }
        writeln!(f)
    }
}

fn more(f: &mut Formatter<'_>, count: usize, what: &str) -> fmt::Result {
    if count > 0 { writeln!(f, "  … and {count} more {what}") } else { Ok(()) }
}

fn seconds(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    humantime::format_duration(Duration::from_secs(whole)).to_string()
}
