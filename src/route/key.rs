//! Client keys, by which rules count.

use super::{
    ClaimValue, MemberPath, NO_ADDRESS, NamedSegment, NoKey, OnDuplicate, ParseError, PathPattern,
    Seed, Target,
    fingerprint::FingerprintHasher,
    header,
    key_text::meant_key,
    spelling::{Decoded, decoded},
};
use crate::{geo::Asn, http1::Fields};
use core::{fmt, net::IpAddr};
use http::{HeaderName, header::COOKIE};
use ipnet::IpNet;

/// The most parts of a key.
const MAX_PARTS: usize = 8;

/// The most values of a shown key to look at: one more than there may be.
pub(super) const MAX_SHOWN_PARTS: usize = MAX_PARTS + 1;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// Constant: all requests of a route count together.
    Route,
    /// The client's network.
    ClientIp {
        /// The significant bits of an IPv6 address, at most 128.
        v6_prefix: u8,
        /// The significant bits of an IPv4 address, at most 32.
        v4_prefix: u8,
    },
    /// The name of the listener that the request came by.
    Listener,
    /// The host.
    Host,
    /// The path in its [`normal_path`](super::normal_path) form, without the query.
    Path,
    /// The segment of the path that a template of the route names, decoded.
    Segment(NamedSegment),
    /// The method.
    Method,
    /// The value of the header line with this name, without blanks around it.
    Header(HeaderName),
    /// The value of the cookie with this name, without quotes around it.
    Cookie(String),
    /// The value of the query parameter with this name, decoded.
    Query(String),
    /// The authenticated user.
    User,
    /// The claim with this name of a verified token.
    Jwt(String),
    /// The field with this name that the route's auth service has said.
    Auth(HeaderName),
    /// The member at this path of the request's JSON body, decoded.
    Json(MemberPath),
    /// The fingerprint of the client's certificate.
    ClientCert,
    /// The country of the client's address.
    Country,
    /// The autonomous system of the client's address.
    Asn,
}

impl KeyPart {
    /// Reads `route`, `client_ip`, `listener`, `host`, `path`, `path:NAME`, `method`, `user`,
    /// `header:NAME`, `cookie:NAME`, `query:NAME`, `jwt:NAME`, `auth:NAME`, `json:PATH`, `client_cert`,
    /// `country` or `asn`.
    /// `v6_prefix` are the significant bits of an IPv6 client's address; all those of an IPv4 address are. No request has
    /// `path:NAME` before [`KeySpec::of_paths`].
    ///
    /// # Errors
    ///
    /// Another word, a name that cannot be one, or a prefix over 128.
    pub fn parse(text: &str, v6_prefix: u8) -> Result<Self, ParseError> {
        let (word, name) = match text.split_once(':') {
            Some((word, name)) => (word, Some(name)),
            None => (text, None),
        };

        match (word, name) {
            ("route", None) => Ok(Self::Route),
            ("client_ip", None) if v6_prefix <= 128 => {
                Ok(Self::ClientIp { v6_prefix, v4_prefix: 32 })
            }
            ("client_ip", None) => Err(ParseError::new(
                format!("an IPv6 address has no {v6_prefix} bits"),
                "128 at the most; 64 is usual",
            )),
            ("listener", None) => Ok(Self::Listener),
            ("host", None) => Ok(Self::Host),
            ("path", None) => Ok(Self::Path),
            ("method", None) => Ok(Self::Method),
            ("user", None) => Ok(Self::User),
            ("client_cert", None) => Ok(Self::ClientCert),
            ("country", None) => Ok(Self::Country),
            ("asn", None) => Ok(Self::Asn),
            ("header", Some(name)) => header::name(name).map(Self::Header),
            ("path", Some(name)) => NamedSegment::parse(name).map(Self::Segment),
            ("cookie", Some(name)) => part_name(name).map(Self::Cookie),
            ("query", Some(name)) => part_name(name).map(Self::Query),
            ("jwt", Some(name)) => part_name(name).map(Self::Jwt),
            ("auth", Some(name)) => header::name(name).map(Self::Auth),
            ("json", Some(path)) => MemberPath::parse(path).map(Self::Json),
            ("header" | "cookie" | "query" | "jwt" | "auth" | "json", None) => Err(
                ParseError::new(format!("`{word}` needs a name"), format!("write `{word}:NAME`")),
            ),
            _ => {
                let help = meant_key(text).map_or_else(
                    || {
                        "write one of route, client_ip, host, path, path:NAME, method, \
                         listener, user, client_cert, country, asn, header:NAME, cookie:NAME, \
                         query:NAME, jwt:NAME, auth:NAME, json:NAME, or a list of them"
                            .to_owned()
                    },
                    |meant| format!("did you mean `{meant}`?"),
                );
                Err(ParseError::new(format!("`{}` is not a key", text.escape_debug()), help))
            }
        }
    }

    /// Returns whether any client can send it, and several times: it is a header field, a cookie, a query
    /// parameter, or a member of the body.
    pub const fn is_sent(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Cookie(_) | Self::Query(_) | Self::Json(_))
    }

    /// Returns whether it is where the client is.
    pub const fn is_place(&self) -> bool {
        matches!(self, Self::Country | Self::Asn)
    }

    /// Returns this part with another number of significant bits of an IPv4 client's address.
    #[must_use]
    pub fn with_v4_prefix(mut self, bits: u8) -> Self {
        if let Self::ClientIp { v4_prefix, .. } = &mut self {
            *v4_prefix = bits;
        }
        self
    }

    /// Adds this part of a request to `fingerprint`.
    fn add(
        &self,
        fingerprint: &mut FingerprintHasher,
        target: &Target<'_>,
        client: IpAddr,
        on_duplicate: OnDuplicate,
    ) -> Result<(), NoKey> {
        match self {
            Self::Route => {}
            Self::ClientIp { .. } if client == NO_ADDRESS => return Err(NoKey::Missing),
            Self::ClientIp { v6_prefix, v4_prefix } => {
                add_client(client, [*v6_prefix, *v4_prefix], fingerprint);
            }
            Self::Listener => {
                fingerprint.add(target.listener.ok_or(NoKey::Missing)?.as_bytes());
            }
            Self::Host => fingerprint.add(target.host.as_bytes()),
            Self::Path => fingerprint.add(target.path.as_bytes()),
            Self::Segment(segment) => fingerprint.add(&segment_value(target, segment)?),
            Self::Method => fingerprint.add(target.method.as_str().as_bytes()),
            Self::Header(name) => {
                fingerprint.add(header_value(target, name, on_duplicate)?);
            }
            Self::Cookie(name) => {
                fingerprint.add(cookie_value(target, name, on_duplicate)?);
            }
            Self::Query(name) => fingerprint.add(&query_value(target, name, on_duplicate)?),
            Self::User => fingerprint.add(some(user(target).ok_or(NoKey::Missing)?)?.as_bytes()),
            Self::Jwt(name) => {
                fingerprint.add(some(claim(target, name).ok_or(NoKey::Missing)?)?.as_bytes());
            }
            Self::Auth(name) => {
                fingerprint.add(some(said(target, name).ok_or(NoKey::Missing)?)?);
            }
            Self::Json(path) => fingerprint.add(member(target, path, on_duplicate)?.as_bytes()),
            Self::ClientCert => {
                fingerprint.add(shown(target).ok_or(NoKey::Missing)?.as_bytes());
            }
            Self::Country => {
                let country = target.place.country().ok_or(NoKey::Missing)?;
                fingerprint.add(country.as_str().as_bytes());
            }
            Self::Asn => {
                let Asn(number) = target.place.asn().ok_or(NoKey::Missing)?;
                fingerprint.add(&number.to_be_bytes());
            }
        }
        Ok(())
    }

    /// Returns this part of a request as text.
    fn show(
        &self,
        target: &Target<'_>,
        client: IpAddr,
        on_duplicate: OnDuplicate,
    ) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

        Some(match self {
            Self::Route => "all".to_owned(),
            Self::ClientIp { .. } if client == NO_ADDRESS => return None,
            Self::ClientIp { v6_prefix, v4_prefix } => {
                let client = client.to_canonical();
                let bits = if client.is_ipv4() { *v4_prefix } else { *v6_prefix };
                match IpNet::new(client, bits) {
                    Ok(net) if bits < net.max_prefix_len() => net.trunc().to_string(),
                    _ => client.to_string(),
                }
            }
            Self::Listener => target.listener?.to_owned(),
            Self::Host => target.host.to_owned(),
            Self::Path => target.path.to_owned(),
            Self::Segment(segment) => text(&segment_value(target, segment).ok()?),
            Self::Method => target.method.to_string(),
            Self::Header(name) => text(header_value(target, name, on_duplicate).ok()?),
            Self::Cookie(name) => text(cookie_value(target, name, on_duplicate).ok()?),
            Self::Query(name) => text(&query_value(target, name, on_duplicate).ok()?),
            Self::User => user(target)?.to_owned(),
            Self::Jwt(name) => claim(target, name)?.to_owned(),
            Self::Auth(name) => text(said(target, name)?),
            Self::Json(path) => member(target, path, on_duplicate).ok()?.to_owned(),
            Self::ClientCert => shown(target)?.to_owned(),
            Self::Country => target.place.country()?.to_string(),
            Self::Asn => target.place.asn()?.to_string(),
        })
    }
}

/// Adds a client's network, by the significant bits of an IPv6 and of an IPv4 address.
#[inline]
pub(super) fn add_client(
    client: IpAddr,
    [v6_prefix, v4_prefix]: [u8; 2],
    fingerprint: &mut FingerprintHasher,
) {
    match client.to_canonical() {
        IpAddr::V4(address) => {
            let host_bits = 32 - u32::from(v4_prefix).min(32);
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            fingerprint.add(&(address.to_bits() & mask).to_be_bytes());
        }
        IpAddr::V6(address) => {
            let host_bits = 128 - u32::from(v6_prefix).min(128);
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            fingerprint.add(&(address.to_bits() & mask).to_be_bytes());
        }
    }
}

fn user<'a>(target: &Target<'a>) -> Option<&'a str> {
    target.identity?.user().map(|user| &**user)
}

fn segment_value(target: &Target<'_>, segment: &NamedSegment) -> Result<Decoded, NoKey> {
    let found = segment.find(target.path).ok_or(NoKey::Missing)?;
    some(decoded(found.as_bytes()).collect())
}

fn claim<'a>(target: &Target<'a>, name: &str) -> Option<&'a str> {
    target.identity?.claim(name).map(ClaimValue::key)
}

/// Returns the field that the auth service has said about the client.
fn said<'a>(target: &Target<'a>, name: &HeaderName) -> Option<&'a [u8]> {
    target.identity?.field(name.as_str())
}

/// Returns the member at `path` of the body.
fn member<'a>(
    target: &Target<'a>,
    path: &MemberPath,
    on_duplicate: OnDuplicate,
) -> Result<&'a str, NoKey> {
    target.body.ok_or(NoKey::Missing)?.text(path, on_duplicate)
}

/// Returns the fingerprint of the certificate that the client has shown.
fn shown<'a>(target: &Target<'a>) -> Option<&'a str> {
    target.certificate?.part("fingerprint")
}

/// Returns the value of the only cookie called `name`.
///
/// # Errors
/// There is none, or several.
pub fn cookie<'a>(headers: Fields<'a>, name: &str) -> Result<&'a [u8], NoKey> {
    some(OnDuplicate::Reject.pick(cookies(headers, name))?)
}

fn header_value<'a>(
    target: &Target<'a>,
    name: &HeaderName,
    on_duplicate: OnDuplicate,
) -> Result<&'a [u8], NoKey> {
    some(on_duplicate.pick(header::values(target.headers, name.as_str()))?)
}

fn cookie_value<'a>(
    target: &Target<'a>,
    name: &str,
    on_duplicate: OnDuplicate,
) -> Result<&'a [u8], NoKey> {
    some(on_duplicate.pick(cookies(target.headers, name))?)
}

fn query_value(
    target: &Target<'_>,
    name: &str,
    on_duplicate: OnDuplicate,
) -> Result<Decoded, NoKey> {
    let query = target.query.ok_or(NoKey::Missing)?;
    if on_duplicate == OnDuplicate::Reject && header::is_ambiguous_query(query, name) {
        return Err(NoKey::Duplicate);
    }
    some(on_duplicate.pick(header::query_values(query, name))?)
}

/// Returns `value` unless it is empty: an empty value identifies no client.
fn some<V: AsRef<[u8]>>(value: V) -> Result<V, NoKey> {
    if value.as_ref().is_empty() { Err(NoKey::Missing) } else { Ok(value) }
}

/// Returns the values of the cookies called `name`, in order. HTTP/2 clients may send each cookie
/// in its own line.
fn cookies<'a>(headers: Fields<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(COOKIE.as_str());
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let value = header::trimmed(pair).strip_prefix(name.as_bytes())?;
        let value = header::trimmed(header::trimmed(value).strip_prefix(b"=")?);
        let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        Some(quoted.unwrap_or(value))
    })
}

fn part_name(text: &str) -> Result<String, ParseError> {
    // Shown keys separate parts by commas.
    if text.is_empty()
        || text
            .contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, ',' | ';' | '='))
    {
        return Err(ParseError::new(
            format!(
                "`{}` is not the name of a cookie, a query parameter or a claim",
                text.escape_debug()
            ),
            "a name without blanks, commas, semicolons and equals signs",
        ));
    }
    Ok(text.into())
}

/// Writes what [`KeyPart::parse`] reads, with the prefix of `client_ip/64`.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route => f.write_str("route"),
            Self::ClientIp { v6_prefix, v4_prefix: 32 } => write!(f, "client_ip/{v6_prefix}"),
            Self::ClientIp { v6_prefix, v4_prefix } => {
                write!(f, "client_ip/{v6_prefix}/{v4_prefix}")
            }
            Self::Listener => f.write_str("listener"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Segment(segment) => write!(f, "path:{}", segment.name()),
            Self::Method => f.write_str("method"),
            Self::User => f.write_str("user"),
            Self::Jwt(name) => write!(f, "jwt:{name}"),
            Self::Auth(name) => write!(f, "auth:{name}"),
            Self::Json(path) => write!(f, "json:{path}"),
            Self::ClientCert => f.write_str("client_cert"),
            Self::Country => f.write_str("country"),
            Self::Asn => f.write_str("asn"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
        }
    }
}

/// The key of a rule. Its text is its identity: counts of another text mean nothing. The text
/// leaves out `on_duplicate`, because clients without duplicates keep their key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySpec {
    parts: Vec<KeyPart>,
    on_duplicate: OnDuplicate,
}

impl KeySpec {
    /// Returns the key with these parts.
    ///
    /// # Errors
    ///
    /// No parts, more than eight, or one part twice.
    pub fn new(parts: Vec<KeyPart>) -> Result<Self, ParseError> {
        if parts.is_empty() || parts.len() > MAX_PARTS {
            return Err(ParseError::new(
                format!("the key has {} parts", parts.len()),
                format!(
                    "from one to {MAX_PARTS}; leave `key` out to count all requests of the route together"
                ),
            ));
        }
        if let Some(twice) = (1..parts.len()).find(|index| parts[..*index].contains(&parts[*index]))
        {
            return Err(ParseError::new(
                format!("the key names `{}` twice", parts[twice]),
                "once is enough",
            ));
        }
        Ok(Self { parts, on_duplicate: OnDuplicate::default() })
    }

    /// Returns this key with another handling of duplicates.
    #[must_use]
    pub fn with_duplicates(self, on_duplicate: OnDuplicate) -> Self {
        Self { on_duplicate, ..self }
    }

    /// Returns the handling of duplicates.
    pub const fn on_duplicate(&self) -> OnDuplicate {
        self.on_duplicate
    }

    /// Returns the parts, one or more.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Returns in words what a request has to bring along, such as `the header field x-api-key`.
    pub fn needs(&self) -> String {
        let needed = self.parts.iter().filter_map(|part| match part {
            KeyPart::Header(name) => Some(format!("the header field {name}")),
            KeyPart::Cookie(name) => Some(format!("the cookie {name}")),
            KeyPart::Query(name) => Some(format!("the query parameter {name}")),
            KeyPart::User => Some("a user name".to_owned()),
            KeyPart::Segment(segment) => {
                Some(format!("the segment {} in its path", segment.name()))
            }
            KeyPart::Jwt(name) => Some(format!("the claim {name} in its token")),
            KeyPart::Auth(name) => Some(format!("the field {name} of the auth service")),
            KeyPart::Json(path) => Some(format!("the member {path} in its JSON body")),
            KeyPart::ClientCert => Some("a client certificate".to_owned()),
            KeyPart::Country => Some("a country of its client's address".to_owned()),
            KeyPart::Asn => Some("an AS number of its client's address".to_owned()),
            KeyPart::Route
            | KeyPart::ClientIp { .. }
            | KeyPart::Listener
            | KeyPart::Host
            | KeyPart::Path
            | KeyPart::Method => None,
        });
        needed.collect::<Vec<_>>().join(" or ")
    }

    /// Returns this key for a route with these paths, whose templates say where `path:NAME` is.
    #[must_use]
    pub fn of_paths(self, paths: &[PathPattern]) -> Self {
        let part = |part| {
            if let KeyPart::Segment(segment) = part {
                KeyPart::Segment(segment.of_paths(paths))
            } else {
                part
            }
        };
        Self { parts: self.parts.into_iter().map(part).collect(), ..self }
    }

    /// Returns the segments of the path that it counts by.
    pub fn segments(&self) -> impl Iterator<Item = &NamedSegment> {
        self.parts.iter().filter_map(|part| {
            if let KeyPart::Segment(segment) = part { Some(segment) } else { None }
        })
    }

    /// Returns whether a request counts under the same key with either path, each in a form of
    /// [`normal_path`](super::normal_path). Of a whole `path`, every spelling is a key.
    pub fn takes_alike(&self, one: &str, other: &str) -> bool {
        self.segments().all(|segment| segment.find(one) == segment.find(other))
    }

    /// Returns whether all requests of a route count together.
    pub fn is_shared(&self) -> bool {
        matches!(*self.parts, [KeyPart::Route])
    }

    /// Returns whether a part is taken from header fields, the query, the body or what the client has
    /// proved to be.
    pub fn looks_at_fields(&self) -> bool {
        self.needs_identity() || self.parts.iter().any(KeyPart::is_sent)
    }

    /// Returns the members of the body that it looks at.
    pub fn members(&self) -> impl Iterator<Item = &MemberPath> {
        self.parts.iter().filter_map(
            |part| {
                if let KeyPart::Json(path) = part { Some(path) } else { None }
            },
        )
    }

    /// Returns whether a part is what the client has proved to be.
    pub fn needs_identity(&self) -> bool {
        let is_proven =
            |part: &KeyPart| matches!(part, KeyPart::User | KeyPart::Jwt(_) | KeyPart::Auth(_));
        self.parts.iter().any(is_proven)
    }

    /// Returns the names of the fields of an auth service that it looks at.
    pub fn auth_fields(&self) -> impl Iterator<Item = &HeaderName> {
        self.parts.iter().filter_map(
            |part| {
                if let KeyPart::Auth(name) = part { Some(name) } else { None }
            },
        )
    }

    /// Returns whether a part is the user of a password or a token.
    pub fn needs_user(&self) -> bool {
        self.parts.contains(&KeyPart::User)
    }

    /// Returns the names of the claims that it looks at.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| {
            if let KeyPart::Jwt(name) = part { Some(name.as_str()) } else { None }
        })
    }

    /// Returns the header names that it looks at, without cookies.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| {
            if let KeyPart::Header(name) = part { Some(name.as_str()) } else { None }
        })
    }

    /// Returns whether a part is where the client is.
    pub fn needs_place(&self) -> bool {
        self.parts.iter().any(KeyPart::is_place)
    }

    /// True if the head of the request has all that [`Self::show`] needs: it needs no listener, no
    /// client's identity or place, no body, and not the host as routes know it.
    pub fn is_shown_by_head(&self) -> bool {
        let is_elsewhere =
            |part: &KeyPart| matches!(part, KeyPart::Host | KeyPart::Listener | KeyPart::Json(_));
        let is_by_client = self.needs_identity() || self.needs_place();
        !is_by_client && !self.parts.iter().any(is_elsewhere)
    }

    /// Returns whether the client's address by itself is the key.
    pub fn is_address(&self) -> bool {
        matches!(&*self.parts, [KeyPart::ClientIp { .. }])
    }

    /// Returns a request's key as text, if it has one.
    pub fn show(&self, target: &Target<'_>, client: IpAddr) -> Option<String> {
        let parts: Option<Vec<String>> =
            self.parts.iter().map(|part| part.show(target, client, self.on_duplicate)).collect();
        parts.map(|parts| parts.join(", "))
    }

    /// Returns the fingerprint of a request's key.
    ///
    /// Allocates only for a query value over 128 bytes.
    ///
    /// # Errors
    ///
    /// Why it has none. Duplicates prevail over missing parts.
    pub fn fingerprint(
        &self,
        seed: &Seed,
        target: &Target<'_>,
        client: IpAddr,
    ) -> Result<u128, NoKey> {
        let mut fingerprint = FingerprintHasher::new(seed);
        let mut is_missing = false;
        for part in &self.parts {
            match part.add(&mut fingerprint, target, client, self.on_duplicate) {
                Ok(()) => {}
                Err(NoKey::Missing) => is_missing = true,
                Err(NoKey::Duplicate) => return Err(NoKey::Duplicate),
            }
        }
        if is_missing { Err(NoKey::Missing) } else { Ok(fingerprint.finish()) }
    }
}

/// The key that all requests of a route share.
impl Default for KeySpec {
    fn default() -> Self {
        Self { parts: vec![KeyPart::Route], on_duplicate: OnDuplicate::default() }
    }
}

/// Writes the parts with commas between them.
impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().enumerate().try_for_each(|(index, part)| {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{part}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{geo::Located, route::normal_path};
    use http::{HeaderMap, Method};

    #[test]
    fn a_key_says_what_a_request_needs() {
        let needs = |parts: &[&str]| {
            let parts = parts.iter().map(|part| KeyPart::parse(part, 64).unwrap());
            KeySpec::new(parts.collect()).unwrap().needs()
        };
        assert_eq!(needs(&["header:X-Api-Key", "client_ip"]), "the header field x-api-key");
        assert_eq!(needs(&["cookie:sid", "query:q"]), "the cookie sid or the query parameter q");
        assert_eq!(needs(&["json:model"]), "the member model in its JSON body");
        assert_eq!(needs(&["user", "jwt:org"]), "a user name or the claim org in its token");
    }

    #[test]
    fn keys_are_shown_as_they_are_read() {
        for (text, expected) in [
            ("route", "route"),
            ("client_ip", "client_ip/56"),
            ("listener", "listener"),
            ("host", "host"),
            ("path", "path"),
            ("path:org", "path:org"),
            ("method", "method"),
            ("user", "user"),
            ("jwt:tenant", "jwt:tenant"),
            ("header:X-Tenant", "header:x-tenant"),
            ("cookie:Sid", "cookie:Sid"),
            ("query:filter[a:b]", "query:filter[a:b]"),
            ("json:options.num_ctx", "json:options.num_ctx"),
        ] {
            assert_eq!(KeyPart::parse(text, 56).unwrap().to_string(), expected);
        }
        assert_eq!(key(&["header:x-tenant", "path"]).to_string(), "header:x-tenant,path");
        assert_eq!(
            KeyPart::ClientIp { v6_prefix: 64, v4_prefix: 24 }.to_string(),
            "client_ip/64/24"
        );
    }

    #[test]
    fn what_is_not_a_key_is_rejected_in_words() {
        for (text, word) in [
            ("ip", "client_ip"),
            ("", "client_ip"),
            ("path:", "write the name in a template"),
            ("path:{org}", "write the name in a template"),
            ("segment:x", "header:NAME"),
            ("header", "write `header:NAME`"),
            ("header:", "x-tenant"),
            ("header:a b", "x-tenant"),
            ("cookie:", "a name without"),
            ("query:a,path", "a name without"),
            ("json", "write `json:NAME`"),
            ("json:", "the name of a member"),
            ("body.model", "json:model"),
        ] {
            let help = KeyPart::parse(text, 64).unwrap_err().help;
            assert!(help.contains(word), "{text}: {help}");
        }
        assert!(KeyPart::parse("client_ip", 129).is_err());
        assert!(KeySpec::new(vec![]).is_err());
        assert!(KeySpec::new(vec![KeyPart::Path, KeyPart::Path]).is_err());
        assert!(KeySpec::new((0..9).map(|n| KeyPart::Query(n.to_string())).collect()).is_err());
    }

    #[test]
    fn only_the_lone_route_is_shared() {
        assert!(KeySpec::default().is_shared());
        assert!(key(&["route"]).is_shared());
        assert!(!key(&["route", "path"]).is_shared());
        assert!(!key(&["path"]).is_shared());
    }

    #[test]
    fn one_client_has_one_key() {
        for (parts, one, other) in [
            (&["client_ip"][..], "/ @2001:db8::1", "/ @2001:db8::2:0:0:1"),
            (&["client_ip"], "/ @192.0.2.1", "/ @::ffff:192.0.2.1"),
            (&["path"], "/a%2fb", "/a%2Fb"),
            (&["path"], "/a", "/%61"),
            (&["path"], "/a/b?c", "//a//b?d"),
            (&["header:x-a"], "/ x-a:b", "/ X-A:\tb\t"),
            (&["cookie:a"], "/ cookie:a=1", "/ cookie:b=2;a=1"),
            (&["cookie:a"], "/ cookie:a=1", "/ cookie:b=2 cookie:a=1;A=2"),
            (&["cookie:a"], "/ cookie:a=1", "/ cookie:aa=2;a=\"1\""),
            (&["query:a"], "/?a=1+2", "/?a=1%202&aa=3"),
            (&["query:a"], "/?a=1", "/?b&%61=%31"),
        ] {
            let one = fingerprint(parts, one);
            let other = fingerprint(parts, other);
            assert!(one.is_ok() && one == other, "{parts:?}");
        }
    }

    #[test]
    fn different_clients_have_different_keys() {
        for (parts, one, other) in [
            (&["client_ip"][..], "/ @2001:db8::1", "/ @2001:db8:0:1::1"),
            (&["client_ip"], "/ @192.0.2.1", "/ @192.0.2.2"),
            (&["client_ip"], "/ @0.0.0.0", "/ @::1"),
            (&["path"], "/a", "/A"),
            (&["path"], "/a", "/a/"),
            (&["header:x-a"], "/ x-a:b", "/ x-a:B"),
            (&["header:x-a", "header:x-b"], "/ x-a:a x-b:bc", "/ x-a:ab x-b:c"),
            (&["header:x-a", "header:x-b"], "/ x-a:a x-b:b", "/ x-a:b x-b:a"),
            (&["query:a"], "/?a=1", "/?a=2"),
        ] {
            let one = fingerprint(parts, one);
            let other = fingerprint(parts, other);
            assert!(one.is_ok() && other.is_ok() && one != other, "{parts:?}");
        }
    }

    #[test]
    fn what_a_request_lacks_gives_no_key() {
        for (parts, request) in [
            (&["header:x-a"][..], "/"),
            (&["header:x-a"], "/ x-a:"),
            (&["header:x-a"], "/ x-a:\t"),
            (&["path", "header:x-a"], "/a"),
            (&["cookie:a"], "/ cookie:aa=1"),
            (&["cookie:a"], "/ cookie:a"),
            (&["cookie:a"], "/ cookie:a=\"\""),
            (&["query:a"], "/"),
            (&["query:a"], "/?b=1"),
            (&["query:a"], "/?a"),
            (&["client_ip"], "/ @::"),
        ] {
            assert_eq!(fingerprint(parts, request), Err(NoKey::Missing), "{parts:?} {request}");
        }
    }

    #[test]
    fn a_repeated_part_gives_the_key_that_the_rule_selects() {
        use OnDuplicate::{First, Last, Reject};
        for (part, request, first, last) in [
            ("header:x-a", "/ x-a:b x-a:c", "/ x-a:b", "/ x-a:c"),
            ("header:x-a", "/ x-a:b x-a:b", "/ x-a:b", "/ x-a:b"),
            ("header:x-a", "/ x-a: x-a:b", "/", "/ x-a:b"),
            ("cookie:a", "/ cookie:a=1;b=2;a=3", "/ cookie:a=1", "/ cookie:a=3"),
            ("cookie:a", "/ cookie:a=1 cookie:a=3", "/ cookie:a=1", "/ cookie:a=3"),
            ("cookie:a", "/ cookie:a=\"1\";a=", "/ cookie:a=1", "/"),
            ("query:a", "/?a=1&a=3", "/?a=1", "/?a=3"),
            ("query:a", "/?a=1&%61=3", "/?a=1", "/?a=3"),
            ("query:a", "/?a=1+&b&a", "/?a=1%20", "/"),
            ("query:a b", "/?a+b=1&a%20b=3", "/?a%20b=1", "/?a+b=3"),
            ("query:a", "/?a=1;a=3", "/?a=1;a=3", "/?a=1;a=3"),
            ("query:a", "/?a=1;b=3", "/?a=1;b=3", "/?a=1;b=3"),
            ("query:a", "/?b=1;a=3", "/", "/"),
        ] {
            let key = |on_duplicate, request| {
                // No file can name a parameter with a blank.
                let part = match part {
                    "query:a b" => KeyPart::Query("a b".into()),
                    part => KeyPart::parse(part, 64).unwrap(),
                };
                let key = KeySpec::new(vec![part]).unwrap().with_duplicates(on_duplicate);
                of_key(&key, request)
            };
            assert_eq!(key(Reject, request), Err(NoKey::Duplicate), "{part} {request}");
            assert_eq!(key(First, request), key(First, first), "{part} {request}");
            assert_eq!(key(Last, request), key(Last, last), "{part} {request}");
        }
        let parts = ["header:x-b", "query:a"];
        assert_eq!(fingerprint(&parts, "/?a=1&a=2"), Err(NoKey::Duplicate), "whatever it lacks");
    }

    #[test]
    fn the_bits_of_an_ipv4_prefix_are_one_client() {
        let print = |v4_prefix, client: &str| {
            let part = KeyPart::parse("client_ip", 64).unwrap().with_v4_prefix(v4_prefix);
            of_key(&KeySpec::new(vec![part]).unwrap(), &format!("/ @{client}")).unwrap()
        };
        for (prefix, one, other, is_same) in [
            (32, "192.0.2.1", "192.0.2.1", true),
            (32, "192.0.2.1", "192.0.2.0", false),
            (24, "192.0.2.1", "192.0.2.255", true),
            (24, "192.0.2.1", "192.0.3.1", false),
            (24, "192.0.2.1", "::ffff:192.0.2.9", true),
            (17, "192.0.127.1", "192.0.0.9", true),
            (17, "192.0.127.1", "192.0.128.1", false),
            (1, "127.0.0.1", "1.0.0.1", true),
            (1, "127.0.0.1", "128.0.0.1", false),
            (8, "2001:db8::1", "2001:db8::2", true),
            (8, "2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(print(prefix, one) == print(prefix, other), is_same, "{prefix} {other}");
        }
    }

    #[test]
    fn each_listener_is_a_key() {
        let print = |listener| {
            let headers = HeaderMap::new();
            let target = Target {
                listener,
                certificate: None,
                place: Located::default(),
                identity: None,
                body: None,
                host: "a",
                path: "/",
                query: None,
                method: &Method::GET,
                headers: Fields::Map(&headers),
            };
            key(&["listener"]).fingerprint(&Seed::new([1, 2]), &target, IpAddr::from([0; 4]))
        };
        assert_eq!(print(Some("web")), print(Some("web")));
        assert_ne!(print(Some("web")), print(Some("internal")));
        assert_eq!(print(None), Err(NoKey::Missing), "a log without the listener");
    }

    #[test]
    fn the_seed_decides_the_fingerprint() {
        let target = Target {
            listener: None,
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
            host: "a",
            path: "/",
            query: None,
            method: &Method::GET,
            headers: Fields::Map(&HeaderMap::new()),
        };
        let print =
            |seed| key(&["host", "method"]).fingerprint(&seed, &target, IpAddr::from([0; 4]));
        assert_eq!(print(Seed::new([1, 2])), print(Seed::new([1, 2])));
        assert_ne!(print(Seed::new([1, 2])), print(Seed::new([1, 3])));
        assert_ne!(print(Seed::new([1, 2])), print(Seed::new([2, 2])));
        assert_ne!(print(Seed::random()), print(Seed::random()));
        assert_eq!(format!("{:?}", Seed::new([1, 2])), "Seed(..)");
    }

    /// Reads `path[?query] [name:value…] [@client]`.
    fn fingerprint(parts: &[&str], request: &str) -> Result<u128, NoKey> {
        of_key(&key(parts), request)
    }

    fn of_key(key: &KeySpec, request: &str) -> Result<u128, NoKey> {
        let mut words = request.split(' ');
        let address = words.next().unwrap();
        let (path, query) = match address.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (address, None),
        };
        let mut headers = HeaderMap::new();
        let mut client = IpAddr::from([192, 0, 2, 1]);
        for word in words {
            if let Some(address) = word.strip_prefix('@') {
                client = address.parse().unwrap();
            } else {
                let (name, value) = word.split_once(':').unwrap_or((word, ""));
                headers.append(header::name(name).unwrap(), value.parse().unwrap());
            }
        }
        let path = &*normal_path(path);
        let method = &Method::GET;
        let target = Target {
            listener: None,
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
            host: "a.example",
            path,
            query,
            method,
            headers: Fields::Map(&headers),
        };
        key.fingerprint(&Seed::new([1, 2]), &target, client)
    }

    fn key(parts: &[&str]) -> KeySpec {
        KeySpec::new(parts.iter().map(|part| KeyPart::parse(part, 64).unwrap()).collect()).unwrap()
    }
}
