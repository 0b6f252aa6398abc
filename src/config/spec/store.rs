//! The store that gateways share, and its URL, which may hold a password.

use super::{
    keys::keys,
    leaf::{
        FileName, HOUR, Integer, MILLI, Password, Period, Prefix, Primary, SECOND, StoreUrl,
        Timeout, User,
    },
    values::{InvalidValue, invalid},
};
use crate::config::decode::Several;
use core::fmt;
use http::Uri;
use std::net::IpAddr;

keys! {
    /// A Redis (5 or later) or Valkey that all gateways reach: one server, the primary that
    /// sentinels name, or a Redis Cluster. `docs/cluster.md` describes what it decides, and what
    /// happens while it fails.
    #[instead = &[["password", "write it in `redis`, as in `redis: redis://:PASSWORD@HOST`"]]]
    #[meant = &[["url", "redis"], ["address", "redis"], ["valkey", "redis"]]]
    struct StoreSpec: "the store" {
        /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS. Several for
        /// sentinels or the nodes of a cluster.
        redis: Several<StoreUrl>;
        /// The name of a primary. `redis` then names sentinels. User and password in the URL are
        /// for the primary.
        sentinel: Primary, else "–";
        /// The user for the sentinels, if it is not their default user.
        sentinel_user: User, else "–";
        /// The password for the sentinels, if they need one.
        sentinel_password: Password, else "–";
        /// Whether `redis` names nodes of a Redis Cluster.
        cluster: bool = false;
        /// Trusted certificates, as PEM. flowgate reads the file for each connection. Without it,
        /// flowgate trusts the system's authorities.
        ca: FileName, else "–";
        /// The prefix of every key in the store, without braces.
        prefix: Prefix = "flowgate:";
        /// How long a connection may take to open.
        connect_timeout: Timeout = "1s";
        /// How long a reply may take. A request waits at most this long for the store.
        timeout: Period<MILLI, { 10 * SECOND }> = "20ms";
        /// How long the requests in flight of a killed gateway still count, and how long it still
        /// counts as a gateway.
        lease: Period<SECOND, HOUR> = "10s";
        /// While the store fails, limits are divided by at least this number of gateways. Otherwise
        /// the store counts the gateways.
        gateways: Integer<1, 10_000> = 1;
    }
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A URL of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct RedisUrl {
    pub(in crate::config) node: (String, u16),
    pub(in crate::config) is_tls: bool,
    pub(in crate::config) user: Option<String>,
    pub(in crate::config) password: Option<Secret>,
    pub(in crate::config) database: i64,
}

impl RedisUrl {
    /// Reports whether the server is on this machine.
    pub(in crate::config) fn is_on_loopback(&self) -> bool {
        let host = self.node.0.as_str();
        let address = host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        address || host.eq_ignore_ascii_case("localhost")
    }

    /// Reads `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://…`.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, InvalidValue> {
        const HELP: &str =
            "write `redis://HOST:PORT`, as in `redis://10.0.1.9:6379`, or `rediss://…` for TLS";
        // Without the text, which may hold a password.
        let wrong = |why: &str| invalid(format!("the store's URL {why}"), HELP);

        // What is behind it would be left out unsaid.
        if text.contains('#') {
            return invalid(
                "the store's URL has a `#`",
                "write `%23` for one of the user or the password, or remove it and what follows",
            );
        }

        let Ok(uri) = text.parse::<Uri>() else { return wrong("is not a URL") };
        let is_tls = match uri.scheme_str() {
            Some("redis") => false,
            Some("rediss") => true,
            _ => return wrong("begins with neither `redis://` nor `rediss://`"),
        };

        let Some(authority) = uri.authority() else { return wrong("has no host") };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let login = authority.as_str().rsplit_once('@').map(|(login, _)| login);
        let node = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, node)| node);
        let Some(port) = node.strip_prefix(authority.host()).and_then(port) else {
            return wrong("has an invalid port");
        };

        let database = match uri.path().trim_start_matches('/') {
            "" => Some(0),
            digits => digits.parse().ok().filter(|number| (0..=65_535).contains(number)),
        };
        let (Some(database), None, false) = (database, uri.query(), host.is_empty()) else {
            return wrong("names no host and database");
        };

        let (user, password) = login.map_or((None, None), |login| match login.split_once(':') {
            Some((user, password)) => (Some(user), Some(password)),
            None => (Some(login), None),
        });
        let decode =
            |text: Option<&str>| text.filter(|text| !text.is_empty()).map(decoded).transpose();
        let (Some(user), Some(password)) = (decode(user).ok(), decode(password).ok()) else {
            return wrong("has a user or a password with a `%` that is not an escape");
        };

        if user.is_some() && password.is_none() {
            return invalid(
                "the store's URL has a user without a password",
                "write `redis://:PASSWORD@HOST`, or `redis://USER:PASSWORD@HOST`",
            );
        }

        let node = (host.to_owned(), port);
        Ok(Self { node, is_tls, user, password: password.map(Secret::new), database })
    }
}

/// Reads `:PORT`, or nothing for the usual one.
fn port(text: &str) -> Option<u16> {
    let Some(digits) = text.strip_prefix(':') else { return text.is_empty().then_some(6379) };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| *port > 0 && is_number)
}

/// Reads `%40` for `@`.
fn decoded(text: &str) -> Result<String, ()> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or(())?;
        let digits = std::str::from_utf8(digits).map_err(|_| ())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| ())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_user_password_and_address() {
        let url = RedisUrl::parse("rediss://me:p%40ss%3A@[::1]:7000/3").expect("a URL");
        assert_eq!(url.node, ("::1".to_owned(), 7000));
        assert_eq!((url.is_tls, url.database), (true, 3));
        assert_eq!(url.user.as_deref(), Some("me"));
        assert_eq!(url.password.as_ref().map(Secret::reveal), Some("p@ss:"));
        assert!(!format!("{url:?}").contains("p@ss"));
        let url = RedisUrl::parse("redis://:secret@store").expect("a URL");
        assert_eq!((url.node, url.is_tls), (("store".to_owned(), 6379), false));
        assert_eq!((url.user, url.password.is_some()), (None, true));
    }

    #[test]
    fn what_is_no_url_is_rejected_without_being_shown() {
        for text in [
            "http://store",
            "store:6379",
            "redis://",
            "redis://store:0",
            "redis://store:",
            "redis://store:65536",
            "redis://:hidden@[::1]:70000",
            "redis://store:+6379",
            "rediss://store/#insecure",
            "redis://:hid#den@store",
            "redis://store/one",
            "redis://store/-1",
            "redis://:hidden%4@store",
            "redis://hidden@store",
            "redis://hidden:@store",
            "redis://store?a=b",
        ] {
            let rejected = RedisUrl::parse(text).expect_err(text);
            assert!(!rejected.message.contains("hidden") && !rejected.help.contains("hidden"));
        }
    }
}
