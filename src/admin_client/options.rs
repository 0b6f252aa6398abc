//! Where the admin listener is, and how a command proves that it may ask.

use super::endpoint::AdminEndpoint;
use clap::Args;
use std::path::PathBuf;

/// The options of each command that asks a running gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct AdminOptions {
    /// The gateway's admin listener, if it differs from the configuration: `127.0.0.1:9901` or
    /// `https://gateway.internal:9901`.
    #[arg(long, value_name = "ADDRESS|URL")]
    pub admin: Option<AdminEndpoint>,
    /// The file with the token of the admin listener. Default: the token in `FLOWGATE_ADMIN_TOKEN`,
    /// or without `--admin` the token of the configuration.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The authorities that sign the listener's certificate, or that certificate itself, as PEM.
    /// Default: the system's authorities.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The client certificate, followed by its intermediates, as PEM. If an authority in
    /// `client_ca` has signed it, no token is needed.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// The private key of that certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
}
