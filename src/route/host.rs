//! The canonical form of hosts, and host patterns.

use super::ParseError;
use core::{fmt, net::Ipv6Addr};
use std::borrow::Cow;

/// The longest DNS name, in bytes.
const MAX_LENGTH: usize = 253;

/// Why an authority names no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// It is empty before the port.
    #[error("the host is empty")]
    Empty,
    /// Longer than any DNS name.
    #[error("the host is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// It has two dots in a row, or one in front.
    #[error("the host has an empty label")]
    EmptyLabel,
    /// It has a character other than letters, digits, `-`, `_` and `.`.
    #[error("the host has an invalid character")]
    Character,
    /// The part after the colon is not a port.
    #[error("the host has a port that is not a number up to 65535")]
    Port,
    /// The part in brackets is not an IPv6 address.
    #[error("the host has brackets, but is not an IPv6 address")]
    Address,
}

/// Returns the canonical host of `authority` (`host`, `host:port`, `[v6]:port`): lower-case,
/// without port and trailing dot; an IPv6 address in brackets and its shortest form. Allocates only
/// if `authority` is not canonical.
///
/// # Errors
///
/// It has no valid host, or has user information.
pub fn canonical_host(authority: &str) -> Result<Cow<'_, str>, BadHost> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(BadHost::Address)?;
        match port.strip_prefix(':') {
            Some(port) => check_port(port)?,
            None if port.is_empty() => {}
            None => return Err(BadHost::Port),
        }
        return canonical_v6(address).map(|short| match short {
            Cow::Borrowed(address) => Cow::Borrowed(&authority[..address.len() + 2]),
            Cow::Owned(address) => Cow::Owned(format!("[{address}]")),
        });
    }
    let name = match authority.split_once(':') {
        Some((name, port)) => {
            check_port(port)?;
            name
        }
        None => authority,
    };
    canonical_name(name.strip_suffix('.').unwrap_or(name))
}

fn check_port(port: &str) -> Result<(), BadHost> {
    // RFC 3986 allows an empty port; parsing as `u16` would also accept a sign.
    let digits = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    if digits && (port.is_empty() || port.parse::<u16>().is_ok()) {
        Ok(())
    } else {
        Err(BadHost::Port)
    }
}

fn canonical_v6(text: &str) -> Result<Cow<'_, str>, BadHost> {
    let short = text.parse::<Ipv6Addr>().map_err(|_| BadHost::Address)?.to_string();
    Ok(if short == text { Cow::Borrowed(text) } else { Cow::Owned(short) })
}

fn canonical_name(name: &str) -> Result<Cow<'_, str>, BadHost> {
    if name.is_empty() {
        return Err(BadHost::Empty);
    }
    if name.len() > MAX_LENGTH {
        return Err(BadHost::TooLong);
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        return Err(BadHost::Character);
    }
    if name.split('.').any(str::is_empty) {
        return Err(BadHost::EmptyLabel);
    }
    let upper = name.bytes().any(|byte| byte.is_ascii_uppercase());
    Ok(if upper { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) })
}

/// A pattern of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPattern(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// This host.
    Exact(Box<str>),
    /// One or more labels before this suffix, which has no leading dot.
    Wildcard(Box<str>),
    /// One or more labels behind this name, which has no dot at its end.
    Below(Box<str>),
}

impl HostPattern {
    /// Reads `shop.example.com`, `*.example.com`, `shop.*` or `[2001:db8::1]`.
    ///
    /// The wildcard stands for one or more labels, as in the Kubernetes Gateway API, Envoy and nginx:
    /// `*.example.com` matches `a.example.com` and `a.b.example.com`, not `example.com`.
    ///
    /// # Errors
    ///
    /// A port, a `*` elsewhere, or a [`BadHost`].
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let shown = text.escape_debug();
        if text == "*" {
            return Err(ParseError::new(
                "`*` alone is not a host",
                "leave `host` out to match every host",
            ));
        }

        if let Some((_, rest)) = text.split_once("://") {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let help = canonical_host(authority).map_or_else(
                |_| "write the host alone, as in `shop.example.com`".to_owned(),
                |host| format!("write `{host}`"),
            );
            return Err(ParseError::new(format!("`{shown}` is a URL, not a host"), help));
        }

        let kind: fn(Box<str>) -> Kind;
        let name;
        if let Some(rest) = text.strip_prefix("*.") {
            kind = Kind::Wildcard;
            name = rest;
        } else if let Some(rest) = text.strip_suffix(".*") {
            kind = Kind::Below;
            name = rest;
        } else {
            kind = Kind::Exact;
            name = text;
        }
        if name.contains('*') {
            return Err(ParseError::new(
                format!(
                    "`{shown}` has a `*` that is neither its whole first label nor its last one"
                ),
                "a wildcard must come first, `*.example.com`, or last, `shop.*`",
            ));
        }

        if name.rsplit(']').next().is_some_and(|end| end.contains(':')) {
            return Err(ParseError::new(
                format!("`{shown}` has a port or is an IPv6 address without brackets"),
                "write the host alone, an IPv6 address as `[2001:db8::1]`; ports belong to listeners",
            ));
        }

        let host = canonical_host(name).map_err(|bad| {
            let help = if name.is_ascii() {
                "a name such as `shop.example.com` or `*.example.com`, or an address"
            } else {
                "write an international name in its ASCII form, `xn--…`"
            };
            ParseError::new(format!("`{shown}` is not a host: {bad}"), help)
        })?;

        if text.contains('*') && host.starts_with('[') {
            return Err(ParseError::new(
                format!("`{shown}` has a wildcard beside an address"),
                "leave the `*` and its dot out",
            ));
        }
        Ok(Self(kind(host.into())))
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.0
    }
}

impl HostPattern {
    /// Reports whether it is one host, and no wildcard.
    pub const fn is_exact(&self) -> bool {
        match &self.0 {
            Kind::Exact(_) => true,
            Kind::Wildcard(_) | Kind::Below(_) => false,
        }
    }

    /// Reports whether it takes this host, which is in lower case.
    pub fn matches(&self, host: &str) -> bool {
        match &self.0 {
            Kind::Exact(own) => **own == *host,
            Kind::Wildcard(suffix) => host
                .strip_suffix(&**suffix)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Kind::Below(name) => host
                .strip_prefix(&**name)
                .is_some_and(|rest| rest.len() > 1 && rest.starts_with('.')),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Exact(host) => f.write_str(host),
            Kind::Wildcard(suffix) => write!(f, "*.{suffix}"),
            Kind::Below(name) => write!(f, "{name}.*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BadHost::{Address, Character, Empty, EmptyLabel, Port, TooLong};

    #[test]
    fn a_host_has_one_form() {
        for (authority, expected) in [
            ("a.example", Ok("a.example")),
            ("A.Example.", Ok("a.example")),
            ("a.example:80", Ok("a.example")),
            ("a.example.:", Ok("a.example")),
            ("a_b-c", Ok("a_b-c")),
            ("127.0.0.1:65535", Ok("127.0.0.1")),
            ("[::1]", Ok("[::1]")),
            ("[::1]:8080", Ok("[::1]")),
            ("[0:0::0:1]:8080", Ok("[::1]")),
            ("[2001:DB8::1]", Ok("[2001:db8::1]")),
            ("", Err(Empty)),
            (".", Err(Empty)),
            (":80", Err(Empty)),
            ("a..b", Err(EmptyLabel)),
            (".a", Err(EmptyLabel)),
            ("a..", Err(EmptyLabel)),
            ("a:65536", Err(Port)),
            ("a:+80", Err(Port)),
            ("a:8 0", Err(Port)),
            ("a:b:c", Err(Port)),
            ("::1", Err(Port)),
            ("a b", Err(Character)),
            ("u@a", Err(Character)),
            ("a/b", Err(Character)),
            ("a%2e", Err(Character)),
            ("*.a", Err(Character)),
            ("é.example", Err(Character)),
            ("a,b", Err(Character)),
            ("[::1", Err(Address)),
            ("[a]", Err(Address)),
            ("[]", Err(Address)),
            ("[fe80::1%eth0]", Err(Address)),
            ("[::1]x", Err(Port)),
            ("[::1]:x", Err(Port)),
        ] {
            assert_eq!(
                canonical_host(authority).as_deref(),
                expected.as_ref().copied(),
                "{authority}"
            );
        }
        assert_eq!(canonical_host(&"a".repeat(254)), Err(TooLong));
    }

    #[test]
    fn a_host_in_its_form_is_not_copied() {
        for authority in ["a.example", "a.example:80", "a.example.", "[::1]:1"] {
            assert!(matches!(canonical_host(authority), Ok(Cow::Borrowed(_))), "{authority}");
        }
    }

    #[test]
    fn patterns_are_hosts_or_one_wildcard_at_an_end() {
        for text in [
            "shop.example.com",
            "*.example.com",
            "shop.*",
            "shop.example.*",
            "[2001:db8::1]",
            "10.0.0.1",
            "localhost",
        ] {
            assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(HostPattern::parse("*.Example.COM.").unwrap().to_string(), "*.example.com");
        for (text, word) in [
            ("*", "leave `host` out"),
            ("*.*.a", "come first"),
            ("a*.b", "come first"),
            ("a.example:80", "listeners"),
            ("[::1]:80", "listeners"),
            ("::1", "brackets"),
            ("*.[::1]", "leave the `*` and"),
            ("[::1].*", "leave the `*` and"),
            ("*.a.*", "come first"),
            ("a.*.b", "come first"),
            (".*", "a name such as"),
            ("*.", "a name such as"),
            ("", "a name such as"),
            ("bücher.example", "xn--"),
            ("https://A.example:443/x", "write `a.example`"),
            ("https://[::1]:80/", "write `[::1]`"),
            ("https://", "write the host alone"),
            ("https://*.example.com/", "write the host alone"),
        ] {
            let invalid = HostPattern::parse(text).unwrap_err();
            assert!(
                format!("{} {}", invalid.message, invalid.help).contains(word),
                "{text}: {invalid:?}"
            );
        }
    }
}
