//! Some requests of a rule: those that an override, an exception or a priority is for.

use super::ClientList;
use crate::{
    geo::Place,
    route::{self, FoundNetwork, IdentityPattern, Matcher, Target},
};
use std::{net::IpAddr, sync::Arc, time::Duration};

/// Requests that may borrow from a rule's windows to come.
#[derive(Debug)]
pub struct Priority {
    words: Arc<str>,
    requests: route::Table,
    /// The longest that one waits for what it borrows.
    pub max_wait: Duration,
}

impl Priority {
    /// Returns the priority of requests that match, which are those of `words`.
    pub(in crate::config) fn new(words: Arc<str>, matcher: Matcher, max_wait: Duration) -> Self {
        Self { words, requests: route::Table::build(vec![matcher]), max_wait }
    }

    /// Says which requests have it.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Returns the names of the header fields that it looks at.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.requests.header_names()
    }

    /// Reports whether both are for the same requests, which wait as long.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.max_wait == other.max_wait && self.requests.is_same(&other.requests)
    }

    /// Reports whether this request has it.
    pub fn covers(&self, target: &Target<'_>) -> bool {
        self.requests.find(target).is_some()
    }
}

/// Two that say the same are equal.
impl PartialEq for Priority {
    fn eq(&self, other: &Self) -> bool {
        (&self.words, self.max_wait) == (&other.words, other.max_wait)
    }
}

/// Requests that a rule neither rejects nor counts.
#[derive(Debug)]
pub struct Except {
    words: Arc<str>,
    clients: ClientList,
    /// Each exempts by one condition.
    requests: Option<route::Table>,
    /// Each exempts.
    identity: Box<[IdentityPattern]>,
    looks_at_headers: bool,
    chosen: Option<String>,
}

impl Except {
    /// Returns the exceptions of `words`, or `None` if there is none. `chosen` is as for
    /// [`Self::chosen_field`].
    pub(in crate::config) fn new(
        words: Arc<str>,
        clients: ClientList,
        requests: Vec<Matcher>,
        identity: Vec<IdentityPattern>,
        chosen: Option<String>,
    ) -> Option<Self> {
        if clients.is_empty() && requests.is_empty() && identity.is_empty() {
            return None;
        }
        let looks_at_headers = requests.iter().any(|matcher| !matcher.headers.is_empty());
        let requests = (!requests.is_empty()).then(|| route::Table::build(requests));
        let identity = identity.into();
        Some(Self { words, clients, requests, identity, looks_at_headers, chosen })
    }

    /// Returns a field by which any client can be exempt, because its value is no secret.
    pub(in crate::config) fn chosen_field(&self) -> Option<&str> {
        self.chosen.as_deref()
    }

    /// Says which requests are exempt.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Reports whether it exempts by the client's address only.
    pub(in crate::config) fn is_by_client(&self) -> bool {
        self.requests.is_none() && self.identity.is_empty() && self.clients.places().is_empty()
    }

    /// Returns the conditions on what clients have proved to be.
    pub(in crate::config) const fn identity(&self) -> &[IdentityPattern] {
        &self.identity
    }

    /// Reports whether both exempt the same requests.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same_requests = match (&self.requests, &other.requests) {
            (None, None) => true,
            (Some(requests), Some(other)) => requests.is_same(other),
            (None, Some(_)) | (Some(_), None) => false,
        };
        same_requests && self.clients == other.clients && self.identity == other.identity
    }

    /// Reports whether some request is exempt by a header, or by what its client has proved to be.
    pub const fn looks_at_fields(&self) -> bool {
        self.looks_at_headers || !self.identity.is_empty()
    }

    /// Returns the names of the header fields that it looks at.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().flat_map(route::Table::header_names)
    }

    /// Reports whether it makes no difference to it which of these a request is, whoever the client
    /// is: that is not known yet where paths are compared.
    pub fn takes_alike(&self, one: &Target<'_>, other: &Target<'_>) -> bool {
        let takes =
            |target| self.requests.as_ref().is_some_and(|table| table.find(target).is_some());
        takes(one) == takes(other)
    }

    /// Returns the country or the autonomous system by which it exempts a client, for people.
    pub fn place_of(&self, place: Place) -> Option<String> {
        self.clients.places().found(place)
    }

    /// Returns the network by which it exempts a client, for people.
    pub fn network_of(&self, client: IpAddr) -> Option<FoundNetwork<'_>> {
        self.clients.networks().find(client)
    }

    /// Reports whether the rule leaves this request alone.
    pub fn covers(&self, target: &Target<'_>, client: IpAddr) -> bool {
        self.clients.has(client, target.place)
            || self.requests.as_ref().is_some_and(|table| table.find(target).is_some())
            || self.identity.iter().any(|pattern| pattern.holds(target.identity))
    }
}

/// Two that say the same, also in files of networks, are equal.
impl PartialEq for Except {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words && self.clients == other.clients
    }
}

/// Requests for which a rule has other numbers.
#[derive(Debug)]
pub struct When {
    words: Arc<str>,
    /// The networks; empty: any. The countries and autonomous systems, one of each; empty: any, or unknown.
    clients: ClientList,
    /// One of them must match.
    requests: route::Table,
    /// All of them must hold.
    identity: Box<[IdentityPattern]>,
    looks_at_fields: bool,
    chosen: Option<String>,
}

impl When {
    /// `chosen` is as for [`Self::chosen_field`].
    pub(in crate::config) fn new(
        words: Arc<str>,
        clients: ClientList,
        requests: Vec<Matcher>,
        identity: Vec<IdentityPattern>,
        chosen: Option<String>,
    ) -> Self {
        let has_fields =
            |matcher: &Matcher| !(matcher.headers.is_empty() && matcher.query.is_empty());
        let looks_at_fields = requests.iter().any(has_fields);
        let requests = route::Table::build(requests);
        let identity = identity.into();
        Self { words, clients, requests, identity, looks_at_fields, chosen }
    }

    /// Returns a field by which any client can get these numbers, because no value that it needs is
    /// a secret.
    pub(in crate::config) fn chosen_field(&self) -> Option<&str> {
        self.chosen.as_deref()
    }

    /// Reports whether both are the same requests.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.clients == other.clients
            && self.identity == other.identity
            && self.requests.is_same(&other.requests)
    }

    /// Reports whether some request is one of these by a header or by its query.
    pub const fn looks_at_fields(&self) -> bool {
        self.looks_at_fields
    }

    /// Returns the conditions on what clients have proved to be.
    pub(in crate::config) const fn identity(&self) -> &[IdentityPattern] {
        &self.identity
    }

    fn is_for(&self, target: &Target<'_>, client: IpAddr) -> bool {
        let networks = self.clients.networks();
        let places = self.clients.places();
        (networks.is_empty() || networks.contains(client))
            && (places.is_empty() || places.has_both(target.place.place()))
    }

    fn holds_for(&self, target: &Target<'_>) -> bool {
        self.identity.iter().all(|pattern| pattern.holds(target.identity))
    }

    /// Says when: the identity of an alternative within its rule.
    pub fn words(&self) -> &Arc<str> {
        &self.words
    }

    /// Returns the names of the header fields that it looks at.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.requests.header_names()
    }

    /// Reports whether it makes no difference to it which of these a request is, whoever the client
    /// is: that is not known yet where paths are compared.
    pub fn takes_alike(&self, one: &Target<'_>, other: &Target<'_>) -> bool {
        self.requests.find(one).is_some() == self.requests.find(other).is_some()
    }

    /// Reports whether servers could disagree whether the request is one of these: it has a header
    /// line or a query parameter several times that this looks at.
    pub fn is_ambiguous(&self, target: &Target<'_>, client: IpAddr) -> bool {
        self.looks_at_fields
            && self.is_for(target, client)
            && self.holds_for(target)
            && self.requests.looks_at_repeated(target)
    }

    /// Reports whether the request is one of these.
    pub fn covers(&self, target: &Target<'_>, client: IpAddr) -> bool {
        self.is_for(target, client)
            && self.holds_for(target)
            && self.requests.find(target).is_some()
    }
}
