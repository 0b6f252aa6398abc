//! The result of a reload.

use crate::config::report::changes::{ConfigChanges, MOVED, RESET};
use std::fmt;

/// The result of a reload, for one line of the log.
#[derive(Debug, Default)]
pub struct Summary {
    /// The snapshot's version.
    pub version: u64,
    /// The differences from the one before.
    pub changes: ConfigChanges,
    /// Routes that are new.
    pub routes_added: usize,
    /// Routes that were edited.
    pub routes_changed: usize,
    /// Routes that are gone.
    pub routes_removed: usize,
    /// Rules that are as they were.
    pub rules_kept: usize,
    /// Rules with other numbers, whose state went on.
    pub rules_converted: usize,
    /// Rules that began afresh, as `route/rule`: with another algorithm or key, or newly or no
    /// longer synced.
    pub reset: Vec<String>,
    /// Rules whose local state went on, but whose count in the store began afresh, as
    /// `route/rule`.
    pub moved: Vec<String>,
    /// Keys that were edited and are read at start only.
    pub restart: Vec<&'static str>,
    /// True if there is a store in the file and none was at the start, so that none is asked until
    /// the restart.
    pub lacks_store: bool,
}

impl Summary {
    /// Returns how many rules began afresh, here or in the store.
    pub fn rules_reset(&self) -> usize {
        self.reset.len() + self.moved.len()
    }

    /// Returns a line for the log about what began afresh or waits for a restart, if anything did.
    pub fn warning(&self) -> Option<String> {
        const MOST_NAMED: usize = 10;
        let mut lines = Vec::new();
        for (why, rules) in [(RESET, &self.reset), (MOVED, &self.moved)] {
            if rules.is_empty() {
                continue;
            }
            let named = rules.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = rules.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!("{why}: {named}{more}"));
        }
        if !self.restart.is_empty() {
            lines.push(format!("takes effect at the next start: {}", self.restart.join(", ")));
        }
        if self.lacks_store {
            lines.push(
                "flowgate started without a store and connects to none until the next start: until then \
                 rules with `scope: cluster` follow `on_store_error` (`local`: this gateway counts alone, \
                 with the whole limit)"
                    .to_owned(),
            );
        }
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "reloaded v{}: {}; kept {}, converted {}, reset {}",
            self.version,
            self.changes,
            self.rules_kept,
            self.rules_converted,
            self.rules_reset()
        )
    }
}
