//! The search for the admin listener, if the configuration does not name it.

use super::{endpoint::AdminEndpoint, error::ClientError};
use crate::config::{self, AdminAddress};
use clap::Args;
use core::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
};
use std::path::{Path, PathBuf};

/// The configuration of the packaged gateway.
pub(super) const INSTALLED: &str = "/etc/flowgate/gateway.yaml";

/// The address of an admin listener whose file names none.
const DEFAULT: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9901);

/// The address to use.
#[derive(Debug)]
pub(super) struct Found {
    pub address: AdminAddress,
    pub tried: Tried,
}

/// The files that name no listener, and the address that is used in their place.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// Why each of them does not.
    files: Vec<String>,
    used: String,
}

/// Looks for the address in `config`, then in `installed`; else it is the default address.
///
/// # Errors
/// `config` is valid and has no admin listener, or the command names it and it is not there.
pub(super) fn search(config: &Path, installed: &Path) -> Result<Found, ClientError> {
    let mut tried = Tried::default();
    match config::read_admin(config) {
        Ok(Some(address)) => return Ok(Found { address, tried }),
        Ok(None) => return Err(ClientError::NoListener(config.into())),
        Err(problems) if is_mistyped(config) => return Err(ClientError::Config(problems)),
        Err(problems) => tried.files.push(problems.summary()),
    }

    if installed != config {
        match config::read_admin(installed) {
            Ok(Some(address)) => {
                tried.used = format!("the admin listener of {}", installed.display());
                return Ok(Found { address, tried });
            }
            Ok(None) => tried.files.push(format!("{}: it has no `admin`", installed.display())),
            Err(problems) => tried.files.push(problems.summary()),
        }
    }
    tried.used = format!("the default address, {DEFAULT}");
    let address = AdminAddress {
        listen: DEFAULT,
        token: None,
        token_problem: None,
        token_file: None,
        certificate: None,
    };
    Ok(Found { address, tried })
}

/// Reports whether a file that the command names is not there. The default one may be missing.
fn is_mistyped(config: &Path) -> bool {
    config != Path::new(config::DEFAULT_FILE) && !config.try_exists().unwrap_or(true)
}

impl Tried {
    pub(super) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no admin listener found in these files:\n")?;
        for file in &self.files {
            writeln!(f, "  {file}")?;
        }
        write!(f, "using {}; name another with --admin ADDRESS", self.used)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_broken_file_leads_to_the_installed_one_and_then_to_the_default_address() {
        let folder = tempfile::tempdir().unwrap();
        let [config, installed] =
            ["gateway.yaml", "installed.yaml"].map(|name| folder.path().join(name));
        let port = || {
            let Found { address, tried } = search(&config, &installed).unwrap();
            (address.listen.port(), tried.to_string())
        };
        fs::write(&config, "routes: [\n").unwrap();
        let (default, tried) = port();
        assert_eq!(default, 9901);
        for part in [
            "gateway.yaml:1:9: the `[` that opens here",
            "installed.yaml: cannot read the file",
            "default address, 127.0.0.1:9901",
        ] {
            assert!(tried.contains(part), "{tried}");
        }
        fs::write(&installed, "admin: { listen: 127.0.0.1:9922 }\nroutes: [\n").unwrap();
        let (of_installed, tried) = port();
        assert_eq!(of_installed, 9922);
        assert!(
            tried.ends_with(&format!(
                "using the admin listener of {}; name another with --admin ADDRESS",
                installed.display()
            )),
            "{tried}"
        );
        fs::write(&config, "admin: { listen: 127.0.0.1:9933 }\nroutes: [\n").unwrap();
        assert_eq!(search(&config, &installed).unwrap().address.listen.port(), 9933);
        assert!(search(&config, &installed).unwrap().tried.is_empty());
    }

    #[test]
    fn a_missing_file_is_an_error_only_if_the_command_names_it() {
        let none = Path::new("/nonexistent/installed.yaml");
        let named = search(Path::new("/nonexistent/gateway.yaml"), none).unwrap_err();
        assert!(matches!(named, ClientError::Config(_)), "{named}");
        // The tests run in a folder that has a file of this name.
        assert!(!is_mistyped(Path::new(config::DEFAULT_FILE)));
    }
}
