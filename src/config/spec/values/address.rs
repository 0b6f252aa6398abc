//! Where servers, listeners and networks are.

use super::{InvalidValue, Wrong, invalid, not, number::duration_within};
use crate::{
    config::diagnostics::quoted,
    route::{NO_ADDRESS, Nat64, WholePrefix},
};
use http::Uri;
use ipnet::{IpNet, Ipv6Net};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// The longest path of a Unix socket, in bytes: what `sockaddr_un` has room for.
pub(in crate::config) const MAX_SOCKET_PATH: usize = 107;

/// When the names of an upstream's servers are resolved again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// When their DNS records expire.
    ByTtl,
    /// After this time, which is not zero.
    Every(Duration),
    /// Whenever a connection opens.
    OnConnect,
}

/// Reads when names are resolved again: `ttl`, or a duration of at most a day.
pub(in crate::config) fn resolve(text: &str) -> Result<Resolve, Wrong> {
    const DAY: u64 = 24 * 3600 * 1_000_000_000;
    if text == "ttl" {
        return Ok(Resolve::ByTtl);
    }
    let every = duration_within(text, 0, DAY).map_err(|wrong| match wrong {
        Wrong::Text(InvalidValue { message, .. }) => Wrong::Text(InvalidValue {
            message,
            help: "write `ttl`, or a number and a unit, as in `30s`".to_owned(),
        }),
        bound @ Wrong::Bound { .. } => bound,
    })?;
    Ok(if every.is_zero() { Resolve::OnConnect } else { Resolve::Every(every) })
}

/// Reads the address of a DNS server, by default with port 53.
pub(in crate::config) fn dns_server(text: &str) -> Result<SocketAddr, InvalidValue> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().map(|ip: IpAddr| SocketAddr::new(ip, 53)).or_else(|_| text.parse());
    match address {
        Ok(address) if address.port() != 0 => Ok(address),
        _ => not(
            text,
            "is not the address of a DNS server",
            "write an IP address, with a port if it is not 53, as in `10.0.0.2` or `127.0.0.1:8600`",
        ),
    }
}

pub(in crate::config) fn address(text: &str) -> Result<SocketAddr, InvalidValue> {
    // A port alone means every address: a socket of `[::]` takes IPv4 too.
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>()
        && !text.contains('+')
    {
        return Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    if let Ok(SocketAddr::V6(address)) = text.parse()
        && let Some(ip) = address.ip().to_ipv4_mapped()
    {
        // Sockets of IPv6 take no IPv4 here, or two listeners could get one connection.
        return invalid(
            format!("{} is an IPv4 address in the form of IPv6", quoted(text)),
            format!("write `{ip}:{}`", address.port()),
        );
    }
    let message = || format!("{} is not an address to listen on", quoted(text));
    text.parse().or_else(|_| invalid(message(), address_help(text)))
}

/// Says what to write in place of `text`, which is not an address to listen on.
fn address_help(text: &str) -> String {
    let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
    if port.parse::<u64>().is_ok_and(|port| port > u64::from(u16::MAX)) {
        return "write a port from 1 to 65535".to_owned();
    }
    if text.matches(':').count() > 1 && !text.contains(['[', '/']) {
        return "write an IPv6 address in brackets and in quotes, as in `\"[::1]:8080\"`"
            .to_owned();
    }
    let port = port.parse::<u16>().map_or_else(|_| "8080".to_owned(), |port| port.to_string());
    format!(
        "write an IP address and a port: `127.0.0.1:{port}` for this machine only, `:{port}` for \
         every address of it"
    )
}

/// Where a server of an upstream is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::config) struct Endpoint {
    /// A name or an address, IPv6 without brackets; or the path of a Unix socket.
    pub host: Arc<str>,
    /// 0 for a Unix socket.
    pub port: u16,
    pub is_tls: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, is_tls } = self;
        let scheme = if *is_tls { "https" } else { "http" };
        if host.starts_with('/') {
            write!(f, "unix:{host}")
        } else if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// Reads `http://host:port`, `https://host:port` or `unix:/path`.
pub(in crate::config) fn url(text: &str) -> Result<Endpoint, InvalidValue> {
    const HELP: &str = "write `http://HOST:PORT`, as in `http://10.0.1.5:8000`, or `https://HOST:PORT`, or \
                        `unix:/PATH`";
    let wrong = |why: &str| invalid(format!("{} {why}", quoted(text)), HELP);

    if let Some(path) = text.strip_prefix("unix:") {
        if !path.starts_with('/') {
            return wrong("has no absolute path");
        }
        if path.len() > MAX_SOCKET_PATH || path.contains('\0') {
            return wrong("has a path that no socket can have");
        }
        return Ok(Endpoint { host: path.into(), port: 0, is_tls: false });
    }
    if let Some(path) = text.strip_prefix("http://unix:") {
        let path = format!("unix:{}", path.split(':').next().unwrap_or_default());
        return not(text, "is the form of nginx", format!("write {}", quoted(&path)));
    }

    let Ok(uri) = text.parse::<Uri>() else { return wrong("is not a URL") };
    let is_tls = uri.scheme_str() == Some("https");
    let has_scheme = is_tls || uri.scheme_str() == Some("http");
    let Some(authority) = uri.authority().filter(|_| has_scheme) else {
        let message = format!("{} is not an http:// or https:// URL", quoted(text));
        return invalid(message, scheme_help(text).unwrap_or_else(|| HELP.to_owned()));
    };

    if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") {
        let scheme = if is_tls { "https" } else { "http" };
        let (part, help) = match uri.path() {
            "/" => ("query", ""),
            _ => ("path", "; `rewrite` of a route changes paths"),
        };
        return invalid(
            format!("{} has a {part}; requests keep their own", quoted(text)),
            format!("write `{scheme}://{authority}`{help}"),
        );
    }

    if authority.as_str().contains('@') {
        return wrong("holds a user name");
    }

    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let port = match (authority.port_u16(), port) {
        (Some(port), _) if port > 0 => port,
        (None, None) if is_tls => 443,
        (None, None) => 80,
        _ => return wrong("has an invalid port"),
    };
    if host.is_empty() {
        return wrong("has no host");
    }

    if let Some((before, variable)) = text.split_once('$') {
        let end = variable.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = variable.split_at(end.unwrap_or(variable.len()));
        let help = format!("write braces around a variable, as in `{before}${{{name}}}{rest}`");
        return not(text, "has a host that no server can have", help);
    }

    // `%` comes before the zone of an IPv6 address.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '%');
    if !host.chars().all(fits) {
        return wrong("has a host that no server can have");
    }

    Ok(Endpoint { host: host.to_ascii_lowercase().into(), port, is_tls })
}

/// The URL of a server, as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// The URL, without a slash at its end.
    pub text: String,
    /// Its port, or the usual one of its scheme; 0 for a Unix socket.
    pub port: u16,
}

/// Reads the URL of a server that a command was given.
///
/// # Errors
/// The reason why it is not one, in a sentence.
pub fn server_url(text: &str) -> Result<ServerUrl, String> {
    if text.chars().any(char::is_control) {
        return Err(format!("{} is not a URL", quoted(text)));
    }
    let endpoint = url(text).map_err(|wrong| wrong.message)?;
    let text = if endpoint.host.starts_with('/') { text } else { text.trim_end_matches('/') };
    Ok(ServerUrl { text: text.to_owned(), port: endpoint.port })
}

/// Says what to write in place of a URL with another scheme or without one, if that is known.
fn scheme_help(text: &str) -> Option<String> {
    if let Some(variable) = text.strip_prefix('$') {
        return Some(format!("write braces around a variable, as in `${{{variable}}}`"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let with_scheme = format!("http://{text}");
        return url(&with_scheme).is_ok().then(|| format!("write `{with_scheme}`"));
    };
    match scheme {
        "ws" => Some(format!("write `http://{rest}`, and `upgrades: websocket` in the route")),
        "wss" => Some(format!("write `https://{rest}`, and `upgrades: websocket` in the route")),
        "grpc" | "h2c" => {
            Some(format!("write `http://{rest}`, and `protocol: h2` in the upstream"))
        }
        _ => None,
    }
}

/// The network of clients without an address, which connect to a Unix socket: see [`NO_ADDRESS`].
const UNIX_CLIENTS: &str = "unix";

/// Reads a network such as `10.0.0.0/8`, or one address, or `unix`. A network of IPv4 addresses in IPv6, as in
/// `::ffff:10.0.0.0/104`, is that of IPv4: addresses of clients are compared in this form.
pub(in crate::config) fn network(text: &str) -> Result<IpNet, InvalidValue> {
    if text == UNIX_CLIENTS {
        return Ok(NO_ADDRESS.into());
    }
    let Some(network) = written_network(text) else {
        return not(
            text,
            "is not a network",
            "write an address or a range, as in `10.0.0.0/8`, `192.0.2.1` or `2001:db8::/32`",
        );
    };
    canonical(network, &Nat64::default())
}

/// Reads a network or one address, in the form in which it is written.
pub(in crate::config) fn written_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Returns the network of IPv4 that `network` stands for, or `network`.
pub(in crate::config) fn canonical(network: IpNet, nat64: &Nat64) -> Result<IpNet, InvalidValue> {
    nat64.network(network).map_err(|WholePrefix| InvalidValue {
        message: format!("`{network}` is a prefix of NAT64, which stands for all IPv4 addresses"),
        help: "write the clients' IPv4 networks, or `0.0.0.0/0` if all are meant: clients behind \
               NAT64 are compared by their IPv4 addresses"
            .to_owned(),
    })
}

/// Reads a prefix of NAT64, which has one of the lengths of RFC 6052.
pub(in crate::config) fn nat64_prefix(text: &str) -> Result<Ipv6Net, InvalidValue> {
    let help = "write a prefix of IPv6 with a length of 32, 40, 48, 56, 64 or 96, as in \
                `64:ff9b:1::/48`";
    let Ok(prefix) = text.parse::<Ipv6Net>() else {
        return not(text, "is not a prefix of NAT64", help);
    };
    if !Nat64::LENGTHS.contains(&prefix.prefix_len()) {
        return not(text, "has no length of a prefix of NAT64", help);
    }
    if prefix.network() != prefix.addr() {
        return not(text, "has bits behind its length", format!("write `{}`", prefix.trunc()));
    }
    // Bits 64 to 71 are reserved, also in a prefix that contains them.
    if prefix.addr().octets()[8] != 0 {
        return not(text, "has bits in its reserved ninth octet", help);
    }
    // Such as `::1`, which is no client behind NAT64.
    if prefix.addr().octets()[..4] == [0; 4] {
        return not(text, "contains addresses of the system's own", help);
    }
    Ok(prefix)
}
