//! Which recorded traffic a command reads.

use super::input::Format;
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
}
