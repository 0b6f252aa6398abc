//! An explanation as text, for a terminal.

use super::answer::{ExpectedDecision, Explanation, RuleView, UpstreamView};
use crate::{route::key_words, terminal_text::terminal_text};
use core::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        writeln!(f, "{} {}", terminal_text(&request.method), terminal_text(&request.path))?;
        let host = terminal_text(&request.host);
        let listener = &request.listener;
        let client = &request.client;
        writeln!(f, "  host {host}, listener {listener}, client {client}\n")?;
        if let Some(route) = &self.route {
            writeln!(f, "route {}  {}", route.name, route.r#match)?;
            match &route.runner_up {
                Some(other) => {
                    writeln!(f, "  before {}  {}: {}", other.name, other.r#match, other.because)?;
                }
                None => writeln!(f, "  no other route matches")?,
            }
        }
        self.rules.iter().try_for_each(|rule| write!(f, "\n{rule}"))?;
        if let Some(upstream) = &self.upstream {
            write!(f, "\n{upstream}")?;
        }
        writeln!(f)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {}", terminal_text(note)))?;
        self.write_decision(f)
    }
}

impl Explanation {
    fn write_decision(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rule = self.rule.as_deref();
        let reason = self.reason.as_deref();
        match self.decision {
            ExpectedDecision::Rejected | ExpectedDecision::DryRunRejected => {
                let rule = rule.unwrap_or_default();
                let reason = reason.unwrap_or_default();
                write!(f, "→ rejected by {rule} ({reason})")?;
                match self.retry_after_ms {
                    Some(wait) => writeln!(f, ", retry after {}", spelled(wait)),
                    None => writeln!(f),
                }
            }
            ExpectedDecision::Delayed => {
                writeln!(f, "→ passed after {}{}", spelled(self.wait_ms), self.obstacle())
            }
            ExpectedDecision::NotAsked => {
                writeln!(f, "→ answered with {}", self.status.unwrap_or_default())
            }
            ExpectedDecision::Undecided => {
                writeln!(
                    f,
                    "→ passed by the rules of this gateway; the store was not asked{}",
                    self.obstacle()
                )
            }
            ExpectedDecision::Passed if self.obstacle().is_empty() => writeln!(f, "→ passed"),
            ExpectedDecision::Passed => writeln!(f, "→ passed by the rules{}", self.obstacle()),
        }
    }

    /// Says why a request that the rules pass may get no answer.
    fn obstacle(&self) -> &'static str {
        match &self.upstream {
            Some(UpstreamView { healthy: Some(0), .. }) => "; no server is healthy",
            Some(_) | None => "",
        }
    }
}

impl Display for RuleView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.name)?;
        if let Some(when) = &self.when {
            write!(f, " when {when}")?;
        }
        write!(f, "  {}", self.algorithm)?;
        if let Some(key) = &self.key {
            write!(f, "  {}", key_words(key))?;
        }
        if let Some(value) = &self.value {
            write!(f, " = {}", terminal_text(value))?;
        }
        write!(f, "\n  {}", self.decision.word())?;
        if let Some(reason) = &self.reason {
            write!(f, " ({reason})")?;
        }
        if let (Some(limit), Some(used)) = (self.limit, self.used) {
            write!(f, ": {used} of {limit} used")?;
        }
        if let Some(cost) = self.cost.filter(|cost| *cost != 1) {
            write!(f, ", cost {cost}")?;
        }
        if self.wait_ms > 0.0 {
            write!(f, ", wait {}", spelled(self.wait_ms))?;
        }
        if let Some(reset) = self.reset_ms.filter(|reset| *reset > 0.0) {
            write!(f, ", all free again in {}", spelled(reset))?;
        }
        if let Some(note) = &self.note {
            write!(f, "; {note}")?;
        }
        writeln!(f)
    }
}

impl Display for UpstreamView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let server = self.server.as_deref().unwrap_or("one of its servers");
        writeln!(f, "upstream {}: {server}, {}", self.name, self.because)?;
        self.servers.iter().try_for_each(|server| {
            let address = &server.address;
            let health = &server.health;
            let in_flight = server.in_flight;
            writeln!(f, "  {address}  {health}, {in_flight} in flight")
        })
    }
}

/// Returns milliseconds in words, to the millisecond.
fn spelled(millis: f64) -> String {
    let nanos = Duration::try_from_secs_f64(millis / 1e3).unwrap_or(Duration::MAX);
    // Up: after that time it is so.
    let whole = nanos.as_nanos().div_ceil(1_000_000);
    let whole = Duration::from_millis(u64::try_from(whole).unwrap_or(u64::MAX));
    humantime::format_duration(whole).to_string()
}
