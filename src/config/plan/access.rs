//! The clients that may use a route: by their address, and by what they prove to be.

use crate::{
    auth::{JwtKeys, JwtRules, TokenSource, Users},
    config::plan::{HeaderText, Redirect},
    counted::counted,
    geo::{Located, PlaceSet},
    route::{NetworkList, folded_name, folds_to},
};
use core::hash::{Hash, Hasher};
use http::{HeaderName, HeaderValue, uri::PathAndQuery};
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

/// Clients that may use a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `None`: all.
    allow: Option<ClientList>,
    deny: ClientList,
}

/// Clients by their addresses, or by where these are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::config) struct ClientList {
    networks: NetworkList,
    places: PlaceSet,
}

impl ClientList {
    /// Returns the clients in one of the networks, the countries or the autonomous systems.
    pub(in crate::config) const fn new(networks: NetworkList, places: PlaceSet) -> Self {
        Self { networks, places }
    }

    /// Returns the networks.
    pub(in crate::config) const fn networks(&self) -> &NetworkList {
        &self.networks
    }

    /// Returns the countries and autonomous systems.
    pub(in crate::config) const fn places(&self) -> &PlaceSet {
        &self.places
    }

    /// Reports whether it has no client.
    pub(in crate::config) fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.places.is_empty()
    }

    /// Reports whether it has a client.
    pub(in crate::config) fn has(&self, client: IpAddr, place: Located<'_>) -> bool {
        self.networks.contains(client)
            || (!self.places.is_empty() && self.places.has_either(place.place()))
    }

    /// Returns by what it has a client, for people.
    pub(in crate::config) fn find(&self, client: IpAddr, place: Located<'_>) -> Option<String> {
        let network = self.networks.find(client).map(|found| found.to_string());
        network.or_else(|| self.places.found(place.place()))
    }
}

/// Writes `10.0.0.0/8, country AT|DE asn 64500`.
impl fmt::Display for ClientList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.places.is_empty() {
            return self.networks.fmt(f);
        }
        if !self.networks.is_empty() {
            write!(f, "{}, ", self.networks)?;
        }
        self.places.fmt(f)
    }
}

impl Access {
    /// Returns the clients in `allow`, or all, except those in `deny`.
    pub(in crate::config) const fn new(allow: Option<ClientList>, deny: ClientList) -> Self {
        Self { allow, deny }
    }

    /// Reports whether it names the clients that may.
    pub(in crate::config) const fn names_clients(&self) -> bool {
        self.allow.is_some()
    }

    /// Reports whether a client may use the route. `client` must be canonical: no IPv4 address
    /// mapped into IPv6.
    pub fn allows(&self, client: IpAddr, place: Located<'_>) -> bool {
        let is_allowed = self.allow.as_ref().is_none_or(|allow| allow.has(client, place));
        is_allowed && !self.deny.has(client, place)
    }

    /// Returns why a client may not use the route, for people; `None`: it may.
    pub fn denial(&self, client: IpAddr, place: Located<'_>) -> Option<String> {
        if let Some(found) = self.deny.find(client, place) {
            return Some(format!("`deny` has {found}"));
        }
        let lacking = self.allow.as_ref().filter(|allow| !allow.has(client, place))?;
        let place = Some(place.place()).filter(|_| !lacking.places.is_empty());
        let words = place.map(|place| format!(" ({place})")).unwrap_or_default();
        Some(format!("`allow` does not have {client}{words}"))
    }
}

/// Writes `allow 10.0.0.0/8; deny 10.0.0.5/32`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(allow) = &self.allow {
            write!(f, "allow {allow}")?;
        }
        let is_both = self.allow.is_some() && !self.deny.is_empty();
        f.write_str(if is_both { "; " } else { "" })?;
        if self.deny.is_empty() { Ok(()) } else { write!(f, "deny {}", self.deny) }
    }
}

/// The proof that a client needs: either, if there are both. A service stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Users with passwords.
    pub basic: Option<Arc<Users>>,
    /// Tokens.
    pub jwt: Option<Arc<Jwt>>,
    /// The service that decides in place of both.
    pub forward: Option<Arc<ForwardAuth>>,
}

/// A service that decides about each request.
#[derive(Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The name of its upstream.
    pub upstream: Arc<str>,
    /// The `Host` that it receives; `None`: the address of the server.
    pub host: Option<HeaderValue>,
    /// The target that it is asked for.
    pub target: PathAndQuery,
    /// The fields of its response that the route's upstream receives.
    pub(in crate::config) copy: Vec<CopiedField>,
    /// The fields that it receives besides.
    pub set: Vec<(HeaderName, HeaderText)>,
    /// The redirect that clients get in place of a 401.
    pub login: Option<Redirect>,
    /// The longest time until the header of its response.
    pub timeout: Duration,
}

/// A field that only an auth service may write.
#[derive(Debug)]
pub(in crate::config) struct CopiedField {
    /// Its name in the service's response.
    from: HeaderName,
    /// Its name for the upstream.
    pub(in crate::config) to: HeaderName,
    /// Both names as the most lenient servers see them.
    folded_from: Box<str>,
    folded: Box<str>,
}

impl CopiedField {
    /// Returns the field that is called `from` by the service, and `to` for the upstream.
    pub(in crate::config) fn new(from: HeaderName, to: HeaderName) -> Self {
        let folded_from = folded_name(from.as_str()).into();
        let folded = folded_name(to.as_str()).into();
        Self { from, to, folded_from, folded }
    }
}

/// Those are equal whose names for the upstream servers read alike.
impl PartialEq for CopiedField {
    fn eq(&self, other: &Self) -> bool {
        self.folded == other.folded
    }
}

impl Eq for CopiedField {}

impl Hash for CopiedField {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

impl ForwardAuth {
    /// Returns whether servers may take a field called `name` for one that only the service may write.
    pub fn guards(&self, name: &[u8]) -> bool {
        let is_name = |copied: &CopiedField| {
            folds_to(name, &copied.folded) || folds_to(name, &copied.folded_from)
        };
        self.copy.iter().any(is_name)
    }

    /// Returns the service's names of the fields that the upstream receives.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.copy.iter().map(|copied| &copied.from)
    }

    /// Returns the fields that the upstream receives: the service's name, and that for the upstream.
    pub fn renamed(&self) -> impl Iterator<Item = [&HeaderName; 2]> {
        self.copy.iter().map(|copied| [&copied.from, &copied.to])
    }

    /// Returns whether the upstream receives this field of the service.
    pub(in crate::config) fn copies(&self, name: &HeaderName) -> bool {
        self.copy.iter().any(|copied| copied.from == *name)
    }
}

/// Writes `forward to authelia/auth, copy remote-user, timeout 2s`. A query may hold a secret.
impl fmt::Display for ForwardAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forward, {} {}", self.upstream, self.target.path())?;
        for (at, copied) in self.copy.iter().enumerate() {
            write!(f, "{} {}", if at == 0 { ", copy" } else { "" }, copied.from)?;
            if copied.to != copied.from {
                write!(f, " as {}", copied.to)?;
            }
        }
        let names: Vec<_> = self.set.iter().map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            write!(f, ", set {}", names.join(" "))?;
        }
        if let Some(login) = &self.login {
            write!(f, ", login {}", login.words)?;
        }
        write!(f, ", timeout {}", humantime::format_duration(self.timeout))
    }
}

/// The tokens that are valid.
#[derive(Debug)]
pub struct Jwt {
    /// By which keys they are signed.
    pub keys: JwtKeys,
    /// The claims that they need.
    pub rules: JwtRules,
    /// Differs if the file of the keys was edited.
    pub(in crate::config) print: u64,
}

impl PartialEq for Jwt {
    fn eq(&self, other: &Self) -> bool {
        (self.print, &self.rules) == (other.print, &other.rules)
    }
}

impl Eq for Jwt {}

impl Auth {
    /// Returns whether clients prove themselves to flowgate, by a password or a token.
    pub(in crate::config) const fn is_own(&self) -> bool {
        self.basic.is_some() || self.jwt.is_some()
    }

    /// Returns the names of the fields that decide: that with a token, if it is one of its own, and those
    /// that only an auth service may write.
    pub(in crate::config) fn header_names(&self) -> impl Iterator<Item = &str> {
        let token = self.jwt.as_ref().and_then(|jwt| match &jwt.rules.source {
            TokenSource::Header(name) => Some(name.as_str()),
            TokenSource::Bearer | TokenSource::Cookie(_) => None,
        });
        let copied = self.forward.iter().flat_map(|forward| forward.renamed()).flatten();
        token.into_iter().chain(copied.map(HeaderName::as_str))
    }
}

/// Writes `basic, 3 users; jwt, 2 keys`.
impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.basic.as_ref().map(|users| users.count());
        let users = users.map(|count| format!("basic, {}", counted(count, "user")));
        let keys = self.jwt.as_ref().map(|jwt| jwt.keys.count());
        let keys = keys.map(|count| format!("jwt, {}", counted(count, "key")));
        let forward = self.forward.as_ref().map(ToString::to_string);
        let all = users.into_iter().chain(keys).chain(forward);
        f.write_str(&all.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> ClientList {
        let networks = texts.iter().map(|text| text.parse().unwrap());
        ClientList::new(NetworkList::new(networks, Vec::new()), PlaceSet::default())
    }

    #[track_caller]
    fn check(access: &Access, client: &str, expected: bool) {
        assert_eq!(
            access.allows(client.parse().unwrap(), Located::default()),
            expected,
            "{access}: {client}"
        );
    }

    #[test]
    fn deny_wins_over_allow() {
        let access =
            Access::new(Some(nets(&["10.0.0.0/8", "2001:db8::/32"])), nets(&["10.1.0.0/16"]));
        check(&access, "10.0.0.1", true);
        check(&access, "10.1.0.1", false);
        check(&access, "11.0.0.1", false);
        check(&access, "2001:db8::1", true);
        check(&access, "2001:db9::1", false);
        assert_eq!(access.to_string(), "allow 10.0.0.0/8, 2001:db8::/32; deny 10.1.0.0/16");
        let why = |client: &str| access.denial(client.parse().unwrap(), Located::default());
        assert_eq!(why("10.0.0.1"), None);
        assert_eq!(why("11.0.0.1").as_deref(), Some("`allow` does not have 11.0.0.1"));
    }

    #[test]
    fn without_allow_all_others_may() {
        let access = Access::new(None, nets(&["192.0.2.7/32", "2001:db8::/32"]));
        check(&access, "192.0.2.6", true);
        check(&access, "192.0.2.7", false);
        check(&access, "::1", true);
        check(&access, "2001:db8::1", false);
        assert_eq!(access.to_string(), "deny 192.0.2.7/32, 2001:db8::/32");
        let why = access.denial("2001:db8::1".parse().unwrap(), Located::default());
        assert_eq!(why.as_deref(), Some("`deny` has 2001:db8::/32"));
    }
}
