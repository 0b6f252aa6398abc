//! `flowgate top`: what a running gateway does, in a terminal.
//!
//! It follows `/live` as the dashboard does. `feed` receives the samples, `model` keeps what is shown,
//! `screen` draws it, `terminal` is the terminal, and `session` joins them.

mod backend;
mod feed;
mod input;
mod model;
mod screen;
mod session;
mod terminal;
mod words;

use crate::{
    admin_client::{self, AdminClient, AdminOptions, ClientError},
    cli::TopOptions,
};
use std::{
    env,
    io::{self, IsTerminal, Write},
    path::Path,
};

/// Why the command ended without success.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The gateway does not answer, or says why not.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The terminal cannot be used.
    #[error("cannot use the terminal")]
    Io(#[from] io::Error),
}

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
            return feed::write_one(&client, &query, out).await;
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
