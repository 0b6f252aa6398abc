//! A client's key as operators write it, and its fingerprint.

use super::{
    KeyPart, KeySpec, Nat64, ParseError, Seed,
    fingerprint::FingerprintHasher,
    key::{MAX_SHOWN_PARTS, add_client},
    normal_path,
};
use core::net::IpAddr;
use ipnet::IpNet;

/// How a fingerprint is written, before its hexadecimal digits.
const PREFIX: &str = "fp:";

/// Writes a fingerprint as text.
pub fn fingerprint_text(fingerprint: u128) -> String {
    format!("{PREFIX}{fingerprint:032x}")
}

/// Returns a line for where keys are shown as fingerprints: how to see their names.
pub const fn fingerprint_hint(shows_keys: bool) -> &'static str {
    if shows_keys {
        "fingerprints are keys whose names are not kept: their last request was not rejected and \
         used less than half of each limit"
    } else {
        "keys are shown as fingerprints; `admin: { show_keys: true }` in the file shows their names"
    }
}

/// Reads what [`fingerprint_text`] writes.
fn read_fingerprint(text: &str) -> Option<u128> {
    let digits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok()
}

impl KeySpec {
    /// Returns the fingerprint of a key that is written as pages show it: a fingerprint, or each
    /// part's value with `, ` between them. An address behind a prefix of `nat64` is that of IPv4.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(&self, seed: &Seed, nat64: &Nat64, text: &str) -> Result<u128, ParseError> {
        if let Some(fingerprint) = read_fingerprint(text) {
            return Ok(fingerprint);
        }
        let values: Vec<&str> = match self.parts() {
            [_] => vec![text],
            _ => text.split(", ").take(MAX_SHOWN_PARTS).collect(),
        };
        if values.len() != self.parts().len() {
            return Err(ParseError::new(
                format!("the key has {} parts, `{self}`", self.parts().len()),
                "write a value for each with a comma and a blank between them; if a value has \
                 these itself, write the fingerprint, `fp:…`",
            ));
        }
        let mut fingerprint = FingerprintHasher::new(seed);
        for (part, value) in self.parts().iter().zip(values) {
            add(part, value, nat64, &mut fingerprint)?;
        }
        Ok(fingerprint.finish())
    }
}

/// Adds the value of a part as a request with it does.
fn add(
    part: &KeyPart,
    value: &str,
    nat64: &Nat64,
    fingerprint: &mut FingerprintHasher,
) -> Result<(), ParseError> {
    if value.is_empty() {
        return Err(ParseError::new(
            format!("`{part}` has no value"),
            "no client has an empty key",
        ));
    }
    match part {
        KeyPart::Route => {}
        KeyPart::ClientIp { v6_prefix, v4_prefix } => {
            add_client(nat64.canonical(address(value)?), [*v6_prefix, *v4_prefix], fingerprint);
        }
        KeyPart::Host => fingerprint.add(value.to_ascii_lowercase().as_bytes()),
        KeyPart::Path => fingerprint.add(normal_path(value).as_bytes()),
        KeyPart::Method
        | KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_)
        | KeyPart::User
        | KeyPart::Jwt(_) => fingerprint.add(value.as_bytes()),
    }
    Ok(())
}

/// Reads an address, or a network by its first one.
fn address(value: &str) -> Result<IpAddr, ParseError> {
    let network = || value.parse::<IpNet>().map(|network| network.network());
    value.parse().or_else(|_| network()).map_err(|_| {
        let message = format!("`{}` is not an address", value.escape_debug());
        ParseError::new(message, "write it as in `192.0.2.1` or `2001:db8::/64`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        http1::Fields,
        route::{Identity, Target},
    };
    use http::{HeaderMap, Method};

    fn key(parts: &[&str]) -> KeySpec {
        let parts = parts.iter().map(|part| KeyPart::parse(part, 64).unwrap());
        KeySpec::new(parts.collect()).unwrap()
    }

    #[test]
    fn a_key_is_read_as_it_is_shown() {
        let headers: HeaderMap = [("x-tenant", "a b"), ("cookie", "sid=\"x,y\"")]
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .into_iter()
            .collect();
        let identity = Identity::of_user(Some("eve".into()));
        let target = Target {
            listener: None,
            host: "shop.example",
            path: "/a/b",
            query: Some("q=1%202"),
            method: &Method::POST,
            headers: Fields::Map(&headers),
            identity: Some(&identity),
        };
        let seed = Seed::new([1, 2]);
        for client in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:2:3:4:5:6"] {
            let client: IpAddr = client.parse().unwrap();
            for parts in [
                &["client_ip"][..],
                &["host"],
                &["path"],
                &["method"],
                &["header:x-tenant"],
                &["cookie:sid"],
                &["query:q"],
                &["user"],
                &["client_ip", "header:x-tenant", "route", "path"],
            ] {
                let key = key(parts);
                let shown = key.show(&target, client).unwrap();
                let made = key.fingerprint(&seed, &target, client).unwrap();
                assert_eq!(key.read(&seed, &Nat64::default(), &shown).unwrap(), made, "{shown}");
                assert_eq!(
                    key.read(&seed, &Nat64::default(), &fingerprint_text(made)).unwrap(),
                    made
                );
            }
        }
    }

    #[test]
    fn what_is_no_key_is_said() {
        let seed = Seed::new([1, 2]);
        let read = |parts: &[&str], text: &str| {
            key(parts).read(&seed, &Nat64::default(), text).unwrap_err().message
        };
        assert_eq!(read(&["client_ip"], "localhost"), "`localhost` is not an address");
        assert_eq!(read(&["user"], ""), "`user` has no value");
        assert_eq!(read(&["user", "host"], "eve"), "the key has 2 parts, `user,host`");
        assert_eq!(read(&["user", "host"], "a, b, c"), "the key has 2 parts, `user,host`");
        assert!(
            key(&["user"]).read(&seed, &Nat64::default(), "fp:12").is_ok(),
            "a user of that name"
        );
    }
}
