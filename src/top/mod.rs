//! `flowgate top`: what a running gateway does, in a terminal.
//!
//! It follows `/live` as the dashboard does. `feed` receives the samples, `model` keeps what is shown,
//! `screen` draws it, `terminal` is the terminal, and `session` joins them.

mod backend;
mod error;
mod feed;
mod keys;
mod model;
mod once;
mod sample;
mod screen;
mod session;
mod signals;
mod terminal;
mod words;

pub use error::TopError;

use crate::{
    admin_client::{self, AdminClient, AdminOptions},
    cli::TopOptions,
};
use std::{
    env,
    io::{self, IsTerminal, Write},
    path::Path,
};

/// Shows a running gateway until a key or a signal ends it. Without a terminal it writes one
/// sample to `out` and returns.
///
/// # Errors
///
/// See [`TopError`].
pub fn run(
    config: &Path,
    admin: &AdminOptions,
    options: &TopOptions,
    out: &mut impl Write,
) -> Result<(), TopError> {
    let client = AdminClient::find(config, admin)?;
    let query = model::Query::new(options.sort.unwrap_or_default(), options.filter.clone());
    admin_client::run(async {
        if options.once || !is_interactive() {
            return once::write(&client, &query, out).await;
        }
        session::run(client, query, has_colours()).await
    })
}

/// Returns whether someone can look and press keys.
fn is_interactive() -> bool {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Returns whether colours are wanted: <https://no-color.org>.
fn has_colours() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests;
