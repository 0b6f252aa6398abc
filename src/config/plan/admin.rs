//! The admin listener: its address, and how its clients are authenticated.

use super::AdminTls;
use crate::config::spec::Secret;
use std::{fmt, net::SocketAddr, path::PathBuf};

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Its address; with port 0 the system picks one.
    pub listen: SocketAddr,
    /// The secret that clients must send, if they must.
    pub token: Option<Secret>,
    /// Its certificate, and whose clients are known by theirs; `None`: cleartext.
    pub tls: Option<AdminTls>,
    /// True if operators may edit the file in the dashboard.
    pub edit: bool,
    /// True if clients' keys are shown by name.
    pub show_keys: bool,
}

impl Admin {
    /// Returns whether clients must authenticate.
    pub fn asks_for_proof(&self) -> bool {
        self.token.is_some() || self.tls.as_ref().is_some_and(AdminTls::knows_clients)
    }
}

/// The address, and how clients authenticate.
impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knows_clients = self.tls.as_ref().is_some_and(AdminTls::knows_clients);
        write!(f, "{}", self.listen)?;
        f.write_str(if self.tls.is_some() { "  TLS" } else { "" })?;
        f.write_str(match (self.token.is_some(), knows_clients) {
            (true, true) => "  by token or client certificate",
            (true, false) => "  by token",
            (false, true) => "  by client certificate",
            (false, false) => "",
        })?;
        f.write_str(if self.edit { "  edits by the dashboard" } else { "" })?;
        f.write_str(if self.show_keys { "  keys by name" } else { "" })
    }
}

/// The address by which commands reach the admin listener of a file whose other files need not be
/// readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAddress {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The token, if it stands in the file.
    pub token: Option<Secret>,
    /// Why the token in the file cannot be read, such as that a variable is not set.
    pub token_problem: Option<String>,
    /// The file that holds the token.
    pub token_file: Option<PathBuf>,
    /// The file of its certificate, if it has TLS.
    pub certificate: Option<PathBuf>,
}
