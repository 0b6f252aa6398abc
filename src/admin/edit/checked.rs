//! What an edited text would do, without doing it.

use crate::{
    access_log::Output,
    config::{self, Diagnostic, Diagnostics, Live, Plan, Text},
    flow::Instant,
};
use serde::Serialize;
use std::path::Path;

/// The most problems that are named.
const MOST_PROBLEMS: usize = 50;

/// The result of a check.
#[derive(Debug, Serialize)]
pub(crate) struct Checked {
    /// Whether it could be saved.
    pub ok: bool,
    /// How many problems there are: errors, or warnings and notes.
    count: usize,
    /// The first ones, in the order of the file.
    problems: Vec<Diagnostic>,
    /// How it differs from the file in force, as `flowgate diff` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

impl Checked {
    /// Checks `text` in the place of the file in force. The time of the wall clock is `now`.
    pub(crate) fn of(live: &Live, text: &[u8], now: Instant) -> Self {
        let snapshot = live.load_full();
        let (path, in_force) = snapshot.main_file();
        let checked = plan(path, text)
            .and_then(|plan| live.sealed(plan))
            .and_then(|plan| can_log(&plan).map(|()| plan));
        match checked {
            Err(problems) => Self::failed(&problems),
            Ok(new) => {
                let remarks = new.remarks_at(now);
                // What it includes may be broken by now.
                let diff = plan(path, in_force.as_bytes())
                    .ok()
                    .map(|old| config::diff(&old, &new).to_string());
                Self { ok: true, diff, ..Self::failed(&remarks) }
            }
        }
    }

    /// Returns the result of a check that found errors.
    pub(crate) fn failed(problems: &Diagnostics) -> Self {
        let count = problems.count();
        let problems = problems.list().take(MOST_PROBLEMS).collect();
        Self { ok: false, count, problems, diff: None }
    }
}

fn plan(path: &Path, text: &[u8]) -> Result<Plan, Diagnostics> {
    Text::given(path, text)?.plan()
}

/// Checks whether the access log could be opened, without creating its file.
fn can_log(plan: &Plan) -> Result<(), Diagnostics> {
    Output::check(&plan.settings.access_log).map_err(|error| plan.cannot_log(&error))
}
