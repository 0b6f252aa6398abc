//! A client's key as operators write it, and its fingerprint.

use super::{
    KeyPart, KeySpec, Nat64, ParseError, Seed,
    fingerprint::FingerprintHasher,
    key::{MAX_SHOWN_PARTS, add_client},
    normal_path,
};
use crate::geo::{Asn, Country};
use core::net::IpAddr;
use ipnet::IpNet;

/// The beginning of a written fingerprint, before its hexadecimal digits.
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
    /// The mistake in it.
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
        KeyPart::Host | KeyPart::ClientCert => {
            fingerprint.add(value.to_ascii_lowercase().as_bytes());
        }
        KeyPart::Path => fingerprint.add(normal_path(value).as_bytes()),
        KeyPart::Country => {
            let country = Country::read(value).ok_or_else(|| {
                let message = format!("`{}` is not a country", value.escape_debug());
                ParseError::new(message, "write its two letters, as in `DE`")
            })?;
            fingerprint.add(country.as_str().as_bytes());
        }
        KeyPart::Asn => {
            let Asn(number) = value.parse().map_err(|()| {
                let message = format!("`{}` is not an AS number", value.escape_debug());
                ParseError::new(message, "write the number, as in `64500`")
            })?;
            fingerprint.add(&number.to_be_bytes());
        }
        KeyPart::Listener
        | KeyPart::Segment(_)
        | KeyPart::Method
        | KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_)
        | KeyPart::User
        | KeyPart::Jwt(_)
        | KeyPart::Auth(_)
        | KeyPart::Json(_) => fingerprint.add(value.as_bytes()),
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

/// Returns the text of a key in words: `client_ip/64`, by which IPv6 clients of a network count as
/// one, becomes `client_ip (IPv6: /64)`.
pub fn key_words(key: &str) -> String {
    key.split(',').map(part_words).collect::<Vec<_>>().join(", ")
}

fn part_words(part: &str) -> String {
    let Some(prefixes) = part.strip_prefix("client_ip/") else { return part.to_owned() };
    match prefixes.split_once('/') {
        Some((v6, v4)) => format!("client_ip (IPv4: /{v4}, IPv6: /{v6})"),
        None => format!("client_ip (IPv6: /{prefixes})"),
    }
}

/// Words that stand for a part without a name, in lower case and without `$`, braces and `%`.
const WORDS: &[(&str, &[&str])] = &[
    (
        "client_ip",
        &[
            "address",
            "addr",
            "binary_remote_addr",
            "client",
            "client_address",
            "client_addr",
            "client-ip",
            "clientip",
            "downstream_remote_address",
            "forwarded",
            "http_cf_connecting_ip",
            "http_x_forwarded_for",
            "http_x_real_ip",
            "ip",
            "ip_address",
            "ipaddress",
            "ipstrategy",
            "per_ip",
            "proxy_protocol_addr",
            "realip_remote_addr",
            "remote",
            "remote_address",
            "remote_addr",
            "remote_host",
            "remote_ip",
            "remoteaddr",
            "source_ip",
            "sourceip",
            "src",
            "x-forwarded-for",
            "x-real-ip",
            "x_forwarded_for",
            "x_real_ip",
        ],
    ),
    (
        "host",
        &[
            ":authority",
            "authority",
            "domain",
            "hostname",
            "http.request.host",
            "http_host",
            "requesthost",
            "request_host",
            "server_name",
            "vhost",
            "virtual_host",
        ],
    ),
    ("listener", &["entry_point", "entrypoint", "frontend", "port", "server_port"]),
    (
        "path",
        &[
            ":path",
            "document_uri",
            "endpoint",
            "http.request.uri.path",
            "request_path",
            "request_uri",
            "uri",
            "url",
        ],
    ),
    ("method", &[":method", "http.request.method", "http_method", "request_method", "verb"]),
    (
        "user",
        &[
            "consumer",
            "credential",
            "http.auth.user.id",
            "remote_user",
            "user_id",
            "userid",
            "username",
        ],
    ),
    ("route", &["all", "everyone", "everything", "global", "none", "service", "total"]),
    (
        "country",
        &[
            "country_code",
            "geo",
            "geoip",
            "geoip2_data_country_code",
            "geoip2_data_country_iso_code",
            "geoip_country_code",
            "ip.geoip.country",
            "ip.src.country",
        ],
    ),
    ("asn", &["as", "as_number", "autonomous_system_number", "geoip2_data_asn", "ip.geoip.asnum"]),
    ("jwt:sub", &["claim", "jwt", "sub", "subject", "token"]),
    ("header:authorization", &["authorization", "bearer", "http_authorization"]),
    ("header:x-api-key", &["api-key", "api_key", "apikey", "x-api-key", "x_api_key", "xapikey"]),
];

/// The text before a name, in lower case, and the part of which it is the name. Of two that begin
/// alike, the longer one comes first.
const PREFIXES: &[(&str, &str)] = &[
    ("http.request.header", "header"),
    ("http.request.cookie", "cookie"),
    ("http.request.uri.query", "query"),
    ("request.header", "header"),
    ("request_headers", "header"),
    ("request_header", "header"),
    ("requestheadername", "header"),
    ("req.header", "header"),
    ("req.hdr", "header"),
    ("req.fhdr", "header"),
    ("req.cook", "cookie"),
    ("req", "header"),
    ("headers", "header"),
    ("header", "header"),
    ("hdr", "header"),
    ("http", "header"),
    ("cookies", "cookie"),
    ("cookie", "cookie"),
    ("cook", "cookie"),
    ("query_params", "query"),
    ("query_param", "query"),
    ("query", "query"),
    ("url_param", "query"),
    ("urlp", "query"),
    ("path_params", "path"),
    ("path_param", "path"),
    ("params", "query"),
    ("param", "query"),
    ("args", "query"),
    ("arg", "query"),
    ("request_body", "json"),
    ("request.body", "json"),
    ("json_body", "json"),
    ("body", "json"),
    ("json", "json"),
    ("jwt_claims", "jwt"),
    ("jwt_claim", "jwt"),
    ("jwt", "jwt"),
    ("claims", "jwt"),
    ("claim", "jwt"),
    ("token", "jwt"),
];

/// The longest text that is looked at.
const LONGEST: usize = 100;

/// Returns the key that `text`, which is none, is probably meant to be: `header:x-api-key` for
/// `X-Api-Key` and `$http_x_api_key`, `[client_ip, host]` for `$binary_remote_addr$host`.
pub(crate) fn meant_key(text: &str) -> Option<String> {
    if text.len() > LONGEST || !text.is_ascii() {
        return None;
    }
    let variables: Vec<&str> = text.split('$').skip(1).collect();
    if text.starts_with('$') && variables.len() > 1 {
        let parts: Option<Vec<_>> = variables.into_iter().map(part).collect();
        return parts.map(|parts| format!("[{}]", parts.join(", ")));
    }
    part(text)
}

fn part(text: &str) -> Option<String> {
    let is_variable = text.starts_with(['$', '%', '{']);
    let bare = text.trim_matches(['$', '%', '{', '}', ' ', ':', '"', '\'']);
    let lower = bare.to_ascii_lowercase();
    let is_word = |(part, words): &&(&str, &[&str])| *part == lower || words.contains(&&*lower);
    if let Some((part, _)) = WORDS.iter().find(is_word) {
        return Some((*part).to_owned());
    }
    if let Some(part) = named(bare, &lower) {
        return Some(part);
    }
    // A field's name alone, as in `X-Tenant`.
    let is_name = lower.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let is_field = lower.contains('-') || lower.starts_with("x_");
    let field = || format!("header:{}", lower.replace('_', "-"));
    (is_name && is_field && !is_variable).then(field)
}

/// Reads a part with its name behind a prefix, as in `jwt.sub`, `req.hdr(X-Api-Key)`,
/// `header[x-tenant]`, `http_x_tenant` and `cookie_session`.
fn named(bare: &str, lower: &str) -> Option<String> {
    let (prefix, part) = PREFIXES.iter().find(|(prefix, _)| {
        let rest = lower.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(['.', '_', '(', '[', '/', ':', '=', ' ', '-']))
    })?;
    let rest = &bare[prefix.len()..];
    let is_snake = rest.starts_with('_');
    let name =
        rest.trim_matches(['.', '_', '(', ')', '[', ']', '/', ':', '=', ' ', '-', '"', '\'']);
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(fits) {
        return None;
    }
    if *part != "header" {
        return Some(format!("{part}:{name}"));
    }
    let name = name.to_ascii_lowercase();
    // nginx writes the `-` of a field as `_`.
    Some(format!("header:{}", if is_snake { name.replace('_', "-") } else { name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        geo::Located,
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
            listener: Some("web"),
            host: "shop.example",
            path: "/a/b",
            query: Some("q=1%202"),
            method: &Method::POST,
            headers: Fields::Map(&headers),
            certificate: None,
            place: Located::default(),
            identity: Some(&identity),
            body: None,
        };
        let seed = Seed::new([1, 2]);
        for client in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:2:3:4:5:6"] {
            let client: IpAddr = client.parse().unwrap();
            for parts in [
                &["client_ip"][..],
                &["host"],
                &["path"],
                &["method"],
                &["listener"],
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

#[cfg(test)]
mod key_words_tests {
    use super::*;
    use crate::route::{KeyPart, KeySpec};

    #[test]
    fn the_prefix_of_addresses_names_its_version() {
        let words = |v6_prefix, v4_prefix| {
            let address = KeyPart::ClientIp { v6_prefix, v4_prefix };
            let user = KeyPart::User;
            key_words(&KeySpec::new(vec![user, address]).unwrap().to_string())
        };
        assert_eq!(words(64, 32), "user, client_ip (IPv6: /64)");
        assert_eq!(words(56, 24), "user, client_ip (IPv4: /24, IPv6: /56)");
        assert_eq!(key_words("header:x-tenant"), "header:x-tenant");
    }
}

#[cfg(test)]
mod key_meant_tests {
    use super::*;
    use crate::route::KeyPart;

    #[test]
    fn the_keys_of_other_gateways_are_known_and_what_is_meant_is_a_key() {
        for (text, key) in [
            ("X-Api-Key", "header:x-api-key"),
            ("x_api_key", "header:x-api-key"),
            ("$http_x_api_key", "header:x-api-key"),
            ("X-Tenant-Id", "header:x-tenant-id"),
            ("Authorization", "header:authorization"),
            ("User-Agent", "header:user-agent"),
            ("header.x-tenant", "header:x-tenant"),
            ("headers[X-Tenant]", "header:x-tenant"),
            ("header=x_tenant", "header:x_tenant"),
            ("req.hdr(X-Api-Key)", "header:x-api-key"),
            ("hdr(host)", "header:host"),
            ("request.header.X-Api-Key", "header:x-api-key"),
            ("{http.request.header.X-Api-Key}", "header:x-api-key"),
            ("%REQ(X-API-KEY)%", "header:x-api-key"),
            ("jwt.sub", "jwt:sub"),
            ("jwt[tenant]", "jwt:tenant"),
            ("claims.tenant", "jwt:tenant"),
            ("$jwt_claim_sub", "jwt:sub"),
            ("sub", "jwt:sub"),
            ("$cookie_session", "cookie:session"),
            ("cookie.JSESSIONID", "cookie:JSESSIONID"),
            ("req.cook(sid)", "cookie:sid"),
            ("$arg_token", "query:token"),
            ("query.q", "query:q"),
            ("url_param(q)", "query:q"),
            ("ip", "client_ip"),
            ("$binary_remote_addr", "client_ip"),
            ("{remote_host}", "client_ip"),
            ("%DOWNSTREAM_REMOTE_ADDRESS%", "client_ip"),
            ("X-Forwarded-For", "client_ip"),
            ("src", "client_ip"),
            ("Client_IP", "client_ip"),
            ("$host", "host"),
            ("domain", "host"),
            ("$uri", "path"),
            ("$request_method", "method"),
            ("consumer", "user"),
            ("$remote_user", "user"),
            ("global", "route"),
        ] {
            assert_eq!(meant_key(text).as_deref(), Some(key), "{text}");
            assert!(KeyPart::parse(key, 64).is_ok(), "{key}");
        }
        assert_eq!(
            meant_key("$binary_remote_addr$http_x_tenant").as_deref(),
            Some("[client_ip, header:x-tenant]")
        );
        for text in
            ["", "$", "$foo", "frobnicate", "header:", "jwt.", "$a$b", "\u{e4}", "req.hdr()"]
        {
            assert_eq!(meant_key(text), None, "{text}");
        }
    }
}
