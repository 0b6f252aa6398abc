//! Which recorded traffic a command reads.

use super::{engine::Engine, input::Format};
use crate::route::canonical_host;
use std::path::PathBuf;

/// Recorded traffic, as the command line names it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TrafficOptions {
    /// Recorded traffic; `-` is the standard input. Gzip is unpacked.
    #[arg(value_name = "INPUT", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The format of the inputs, if flowgate does not recognise it from their lines.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The host of requests that name none, as in most logs of nginx and Apache.
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// The listener that requests came by if their line names none, as in all logs of other gateways.
    #[arg(long, value_name = "NAME")]
    pub listener: Option<String>,
}

/// Why an option does not fit the configuration.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// `--host` is invalid.
    #[error("`{0}` is not a host: write `--host shop.example.com`")]
    NoHost(String),
    /// `--listener` names no listener.
    #[error("the configuration has no listener `{name}`; it has {known}")]
    NoSuchListener {
        /// The missing listener.
        name: String,
        /// Known listeners.
        known: String,
    },
}

impl TrafficOptions {
    /// Gives requests the host and the listener that their lines do not name.
    ///
    /// # Errors
    ///
    /// The host is none, or the configuration has no such listener.
    pub fn complete(&self, engine: &mut Engine) -> Result<(), TrafficError> {
        if let Some(host) = &self.host {
            canonical_host(host).map_err(|_| TrafficError::NoHost(host.clone()))?;
            engine.assume_host(host);
        }
        let Some(name) = &self.listener else { return Ok(()) };
        let names = || engine.snapshot().listeners.iter().map(|listener| &*listener.name);
        if !names().any(|known| known == name) {
            let known = some_of(names());
            return Err(TrafficError::NoSuchListener { name: name.clone(), known });
        }
        engine.assume_listener(name);
        Ok(())
    }
}

/// Names the first few.
pub(super) fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 8;
    let all: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let mut shown: Vec<_> = all.iter().take(MOST).cloned().collect();
    if all.len() > MOST {
        shown.push(format!("{} more", all.len() - MOST));
    }
    shown.join(", ")
}
