//! The address of an admin listener, as people write it.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};
use http::Uri;

/// Where an admin listener is, and whether it has TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminEndpoint {
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) has_tls: bool,
}

impl AdminEndpoint {
    /// Returns how a listener is reached that listens on `address`: one that listens on all
    /// addresses is reached on loopback.
    pub(super) fn of_listener(address: SocketAddr, has_tls: bool) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V4(_) | IpAddr::V6(_) => address.ip(),
        };
        Self { host: ip.to_string(), port: address.port(), has_tls }
    }

    /// Returns host and port as `Host` has them.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for AdminEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_tls { "https://" } else { "" })?;
        f.write_str(&self.authority())
    }
}

impl FromStr for AdminEndpoint {
    type Err = &'static str;

    /// Reads `host:port`, `http://host:port` or `https://host:port`. In a URL the port may be
    /// missing.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const USAGE: &str = "write an address as 127.0.0.1:9901, or a URL as https://gateway:9901";
        let has_scheme = text.contains("://");
        let url = if has_scheme { text.to_owned() } else { format!("http://{text}") };
        let url: Uri = url.parse().map_err(|_| USAGE)?;
        let has_tls = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("the admin listener speaks http:// or https://"),
        };
        if !matches!(url.path_and_query().map(http::uri::PathAndQuery::as_str), None | Some("/")) {
            return Err("name the listener without a path");
        }
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or(USAGE)?;
        let usual = has_scheme.then_some(if has_tls { 443 } else { 80 });
        let port = authority.port_u16().or(usual).ok_or(USAGE)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(USAGE);
        }
        Ok(Self { host: host.to_owned(), port, has_tls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_urls_are_read() {
        let read = |text: &str| text.parse::<AdminEndpoint>().map(|endpoint| endpoint.to_string());
        for (text, shown) in [
            ("127.0.0.1:9901", "127.0.0.1:9901"),
            ("[::1]:9901", "[::1]:9901"),
            ("gateway:9901", "gateway:9901"),
            ("http://gateway:9901/", "gateway:9901"),
            ("http://gateway", "gateway:80"),
            ("https://gateway.internal:9901", "https://gateway.internal:9901"),
            ("https://[::1]", "https://[::1]:443"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(shown), "{text}");
        }
        for text in [
            "",
            "9901",
            "127.0.0.1",
            ":9901",
            "ftp://a:1",
            "http://a:1/routes",
            "http://me@a:1",
            "a:99999",
            "a b:1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        let reached =
            |text: &str| AdminEndpoint::of_listener(text.parse().unwrap(), false).authority();
        assert_eq!(reached("0.0.0.0:9901"), "127.0.0.1:9901");
        assert_eq!(reached("[::]:9901"), "[::1]:9901");
        assert_eq!(reached("192.0.2.1:9901"), "192.0.2.1:9901");
    }
}
