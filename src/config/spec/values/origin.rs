//! Origins of scripts, as browsers write them.

use super::{InvalidValue, not};
use std::fmt;

/// The origins that an entry of `cors.origins` allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    /// All.
    Any,
    /// This one, as a browser writes it.
    Exact(Box<str>),
    /// All hosts below a name.
    Below {
        /// The scheme with `://`.
        scheme: Box<str>,
        /// The dot, the name and the port.
        name: Box<str>,
    },
}

impl OriginPattern {
    /// Returns whether it allows the origin that a request names.
    pub fn allows(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(one) => one.as_bytes() == origin,
            Self::Below { scheme, name } => {
                let host = origin.strip_prefix(scheme.as_bytes());
                let label = host.and_then(|host| host.strip_suffix(name.as_bytes()));
                label
                    .is_some_and(|label| !label.is_empty() && label.iter().copied().all(is_of_name))
            }
        }
    }
}

/// As the file would have it.
impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(origin) => f.write_str(origin),
            Self::Below { scheme, name } => write!(f, "{scheme}*{name}"),
        }
    }
}

const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// Reads an origin, `*`, or an origin whose host begins with `*.`.
pub(in crate::config) fn origin(text: &str) -> Result<OriginPattern, InvalidValue> {
    const HELP: &str = "write a scheme and a host, as in `https://app.example.com`";
    if text == "*" {
        return Ok(OriginPattern::Any);
    }
    if text == "null" {
        let help = "remove it: any page in a sandbox has this origin";
        return not(text, "is the origin of no site", help);
    }

    let lower = text.to_ascii_lowercase();
    let Some((scheme, authority)) = lower.split_once("://") else {
        let is_host = !text.is_empty() && text.bytes().all(is_of_name);
        let help = if is_host { format!("write `https://{text}`") } else { HELP.to_owned() };
        return not(text, "is not an origin", help);
    };
    if let Some((host, _)) = authority.split_once(['/', '?', '#']) {
        return not(text, "has more than an origin has", format!("write `{scheme}://{host}`"));
    }

    let host = without_usual_port(scheme, authority);
    let is_below = host.starts_with("*.");
    let checked = host.strip_prefix("*.").unwrap_or(host);
    if !is_scheme(scheme) || !is_authority(checked) {
        return not(text, "is not an origin", HELP);
    }
    if !is_below {
        return Ok(OriginPattern::Exact(format!("{scheme}://{host}").into()));
    }
    let scheme = format!("{scheme}://").into();
    Ok(OriginPattern::Below { scheme, name: format!(".{checked}").into() })
}

/// Returns the host, with the port unless browsers leave that out.
fn without_usual_port<'a>(scheme: &str, authority: &'a str) -> &'a str {
    let usual = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return authority,
    };
    authority.strip_suffix(usual).unwrap_or(authority)
}

fn is_scheme(scheme: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && scheme.bytes().all(is_sign)
}

fn is_authority(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if let Some(rest) = text.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else { return false };
        let is_address = host.parse::<core::net::Ipv6Addr>().is_ok();
        return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    !host.is_empty() && host.bytes().all(is_of_name) && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_browsers_write_it() {
        for (text, shown) in [
            ("*", "*"),
            ("https://app.example.com", "https://app.example.com"),
            ("HTTPS://App.Example.com:443", "https://app.example.com"),
            ("http://localhost:80", "http://localhost"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("https://*.example.com", "https://*.example.com"),
            ("https://*.example.com:8443", "https://*.example.com:8443"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("capacitor://localhost", "capacitor://localhost"),
            ("chrome-extension://abcdefgh", "chrome-extension://abcdefgh"),
        ] {
            assert_eq!(origin(text).expect(text).to_string(), shown);
        }
        for (text, help) in [
            ("", "write a scheme and a host, as in `https://app.example.com`"),
            ("null", "remove it: any page in a sandbox has this origin"),
            ("app.example.com", "write `https://app.example.com`"),
            ("https://app.example.com/", "write `https://app.example.com`"),
            ("https://a/b?c", "write `https://a`"),
            ("https://", "write a scheme and a host, as in `https://app.example.com`"),
            ("https://a:b@c", "write a scheme and a host, as in `https://app.example.com`"),
            ("https://a:0", "write a scheme and a host, as in `https://app.example.com`"),
            ("https://a.*.b", "write a scheme and a host, as in `https://app.example.com`"),
            (
                "https://bücher.example",
                "write a scheme and a host, as in `https://app.example.com`",
            ),
        ] {
            assert_eq!(origin(text).expect_err(text).help, help, "{text}");
        }
    }

    #[test]
    fn no_other_origin_is_allowed() {
        let exact = origin("https://app.example.com").expect("an origin");
        let below = origin("https://*.example.com").expect("an origin");
        assert!(exact.allows(b"https://app.example.com"));
        assert!(below.allows(b"https://app.example.com"));
        assert!(below.allows(b"https://a.b.example.com"));
        for other in [
            "http://app.example.com",
            "https://app.example.com.evil.test",
            "https://app.example.com:8443",
            "https://evil.test/.example.com",
            "https://evil.test#.example.com",
            "https://user@.example.com",
            "https://evil.test:1.example.com",
            "https://.example.com",
            "https://example.com",
            "https://appXexample.com",
            "null",
            "",
        ] {
            assert!(!exact.allows(other.as_bytes()), "{other}");
            assert!(!below.allows(other.as_bytes()), "{other}");
        }
    }
}
