//! The address of a listener: an IP address with a port, or a Unix socket.

use super::{InvalidValue, MAX_SOCKET_PATH, address, invalid};
use crate::config::diagnostics::quoted;
use core::fmt;
use serde::{Deserialize, Serialize};
use std::{
    net::{Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

/// The beginning of the text of a Unix socket.
const UNIX: &str = "unix:";

/// The address of a listener. As text it is `127.0.0.1:8080` or `unix:/run/flowgate.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ListenAddress {
    /// An address and a port; with port 0 the system picks one.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl ListenAddress {
    /// Returns the address and the port, if it is no Unix socket.
    pub const fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns whether the system picks the port.
    pub fn has_any_port(&self) -> bool {
        self.ip().is_some_and(|address| address.port() == 0)
    }

    /// Returns whether sockets at both, whose ports are known, could get the same connection: `[::]`
    /// takes IPv4 too, and another address of IPv6 does not.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Self::Ip(one), Self::Ip(other)) = (self, other) else { return self == other };
        let covers = |all: &SocketAddr, one: &SocketAddr| {
            all.ip() == Ipv6Addr::UNSPECIFIED || (all.ip().is_unspecified() && one.is_ipv4())
        };
        one.port() == other.port() && (one == other || covers(one, other) || covers(other, one))
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> Self {
        address.to_string()
    }
}

/// Reads what [`fmt::Display`] writes.
impl TryFrom<String> for ListenAddress {
    type Error = std::net::AddrParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.strip_prefix(UNIX) {
            Some(path) => Ok(Self::Unix(Path::new(path).into())),
            None => text.parse().map(Self::Ip),
        }
    }
}

/// Reads where a listener is.
pub(in crate::config) fn listen_address(text: &str) -> Result<ListenAddress, InvalidValue> {
    let Some(path) = text.strip_prefix(UNIX) else { return address(text).map(ListenAddress::Ip) };
    let wrong = |why: &str| {
        invalid(
            format!("{} {why}", quoted(text)),
            "write `unix:` and a path, as in `unix:/run/flowgate/web.sock`",
        )
    };
    if !path.starts_with('/') {
        return wrong("has no absolute path");
    }
    if path.len() > MAX_SOCKET_PATH || path.contains('\0') || path.ends_with('/') {
        return wrong("has a path that no socket can have");
    }
    Ok(ListenAddress::Unix(Path::new(path).into()))
}

/// Reads the permissions of a socket: three octal digits, after a `0` or not.
pub(in crate::config) fn file_mode(text: &str) -> Result<u32, InvalidValue> {
    let digits = text.strip_prefix("0o").or_else(|| text.strip_prefix('0')).unwrap_or(text);
    let is_octal = digits.len() == 3 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    u32::from_str_radix(digits, 8).ok().filter(|_| is_octal).map_or_else(
        || {
            invalid(
                format!("{} is no permission of a file", quoted(text)),
                "write three octal digits, as in `\"0660\"`: read and write for the owner and the group",
            )
        },
        Ok,
    )
}
