//! The guard of the admin listener: it decides which requests get a page.
//!
//! Three things are checked, in this order: that the client does not ask too often, that no web
//! page of another site asks through an operator's browser, and that the client is authenticated.
//!
//! A page of another site can make a browser send requests, but not choose `Origin`, `Host` and
//! `Sec-Fetch-Site`. By DNS rebinding it can point its own name to this listener: then `Host` has
//! that name. So `Host` must be an address, `localhost` or a name of the listener's certificate.
//! A client with a bearer token may use any name, since no page of another site knows the token.

use super::{
    endpoint::Access,
    reply::{Reply, plain},
};
use crate::{
    config::{self, Secret},
    flow::{Algorithm, Claim, Gate, Instant, Key, Keyed, Rate, Rule, Rules, SlotId, limiter},
    meter::AdminRejection,
    route::Seed,
    small_http::Client,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, request::Parts,
    uri::Authority,
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Requests of one address: 500 a second, and 1000 at once.
const LIMIT: u64 = 500;
const BURST: u64 = 1000;

/// Addresses that are counted separately.
const MAX_CLIENTS: u32 = 1024;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Decides which requests may be answered.
#[derive(Debug)]
pub(super) struct Guard {
    gate: Arc<Gate>,
    slot: Option<SlotId>,
    seed: Seed,
}

/// The proof in a request's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    None,
    /// A browser sends it by itself, whichever page asks.
    Ambient,
    /// A bearer token.
    Token,
}

impl Guard {
    pub(super) fn new(now: Instant) -> Self {
        let gate = Arc::new(Gate::new(now));
        let rule = Rate::new(LIMIT, Duration::from_secs(1)).map(|rate| Rule {
            name: "admin".into(),
            algorithm: Algorithm::TokenBucket(limiter::token_bucket::Config { rate, burst: BURST }),
            keyed: Some(Keyed { by: "client_ip".into(), max_keys: MAX_CLIENTS }),
            dry_run: false,
            settles: false,
            queue: None,
            reject_for: None,
        });
        let rules = Rules { flow: rule.into_iter().collect(), ..Rules::default() };
        let slot = gate.install(&rules, now).flow.first().copied();
        Self { gate, slot, seed: Seed::random() }
    }

    /// Returns why a request is not answered, if it is not, and the answer that says so.
    pub(super) fn check(
        &self,
        now: Instant,
        (settings, address): (Option<&config::Admin>, SocketAddr),
        access: Access,
        head: &Parts,
    ) -> Option<(AdminRejection, Reply)> {
        let is_for_all = match access {
            Access::Everyone => true,
            Access::EveryoneWithoutQuery => head.uri.query().is_none(),
            Access::Operators => false,
        };
        let client = head.extensions.get::<Client>().copied();

        if let Some(wait) =
            client.and_then(|client| self.must_wait(now, client.address.ip(), is_for_all))
        {
            return Some((AdminRejection::Rate, too_often(wait)));
        }

        let proof = proof(settings, client, &head.headers);
        let names: &[String] = settings
            .and_then(|settings| settings.tls.as_ref())
            .map_or(&[], |tls| &tls.certificate().names);

        if proof != Proof::Token && !is_ours(&head.uri, &head.headers, names) {
            let text = "this name is not the admin listener's: ask by address, by `localhost`, or \
                        with a bearer token\n";
            return Some((AdminRejection::Host, plain(StatusCode::FORBIDDEN, text)));
        }
        if is_of_another_site(head) {
            let text = "not from a page of another site\n";
            return Some((AdminRejection::Site, plain(StatusCode::FORBIDDEN, text)));
        }

        // The address is that of the start, whatever the file says since.
        let needs_proof = settings.is_some_and(config::Admin::asks_for_proof)
            || !address.ip().to_canonical().is_loopback();
        if needs_proof && !is_for_all && proof == Proof::None {
            return Some((AdminRejection::Auth, unproven(settings)));
        }
        None
    }

    /// Counts a request. Returns how long the client must wait if it asks too often. Health checks
    /// are counted apart, so that nothing else keeps them from an answer.
    fn must_wait(&self, now: Instant, address: IpAddr, is_for_all: bool) -> Option<Duration> {
        let mut client = match address.to_canonical() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets()[..8].to_vec(),
        };
        client.push(is_for_all.into());
        let slot = self.slot?;
        let key = Key::Of(self.seed.fingerprint(&client));
        let claim = Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None };
        let rejection = self.gate.enter(now, &[claim]).err()?;
        Some(rejection.reason.retry_after().unwrap_or_default())
    }
}

fn too_often(wait: Duration) -> Reply {
    let mut reply = plain(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    reply.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    reply
}

fn unproven(settings: Option<&config::Admin>) -> Reply {
    let mut reply = plain(
        StatusCode::UNAUTHORIZED,
        "send the token as `Authorization: Bearer TOKEN`, or show a client certificate\n",
    );
    if settings.is_none_or(|settings| settings.token.is_some()) {
        for scheme in ["Bearer", "Basic realm=\"flowgate admin\""] {
            let value = HeaderValue::from_static(scheme);
            reply.headers_mut().append(header::WWW_AUTHENTICATE, value);
        }
    }
    reply
}

/// Returns what the client proves: by the token as bearer token or, for browsers, as the password
/// of any user, or by its certificate.
fn proof(settings: Option<&config::Admin>, client: Option<Client>, fields: &HeaderMap) -> Proof {
    let Some(settings) = settings else { return Proof::None };
    if let Some(token) = &settings.token {
        let sent = fields.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some((scheme, sent)) = sent.and_then(|sent| sent.split_once(' ')) {
            let sent = sent.trim();
            if scheme.eq_ignore_ascii_case("bearer") && is_token(token, sent.as_bytes()) {
                return Proof::Token;
            }
            if scheme.eq_ignore_ascii_case("basic") && is_password(token, sent) {
                return Proof::Ambient;
            }
        }
    }
    let knows = settings.tls.as_ref().is_some_and(config::AdminTls::knows_clients);
    if knows && client.is_some_and(|client| client.is_certified) {
        return Proof::Ambient;
    }
    Proof::None
}

fn is_password(token: &Secret, sent: &str) -> bool {
    let Ok(login) = BASE64_STANDARD.decode(sent) else { return false };
    let password = login.iter().position(|byte| *byte == b':').map(|colon| &login[colon + 1..]);
    password.is_some_and(|password| is_token(token, password))
}

/// Compares in a time that does not depend on where the two differ.
fn is_token(token: &Secret, sent: &[u8]) -> bool {
    let token = token.reveal().as_bytes();
    let differs = token.iter().zip(sent).fold(0, |differs, (one, other)| differs | (one ^ other));
    token.len() == sent.len() && core::hint::black_box(differs) == 0
}

/// Reports whether every name by which the request calls the listener is its own. A request without
/// `Host` is of HTTP/1.0, which no browser speaks.
fn is_ours(uri: &Uri, fields: &HeaderMap, names: &[String]) -> bool {
    let is_ours = |host: &str| {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_name = |name: &String| {
            let wildcard = name.strip_prefix("*.");
            let parent = host.split_once('.').map(|(_, parent)| parent);
            *name == host || wildcard.is_some_and(|name| Some(name) == parent)
        };
        bare.parse::<IpAddr>().is_ok() || host == "localhost" || names.iter().any(is_name)
    };
    let hosts = fields.get_all(header::HOST).iter();
    let mut hosts = hosts.map(|host| host.to_str().ok()?.parse::<Authority>().ok());
    hosts.all(|host| host.is_some_and(|host| is_ours(host.host())))
        && uri.host().is_none_or(is_ours)
}

/// Reports whether a page of another site made a browser send the request. A link that an operator
/// follows is none: the page that has it reads nothing of the answer.
fn is_of_another_site(head: &Parts) -> bool {
    let fields = &head.headers;
    let is = |name: HeaderName, value: &str| fields.get(name).is_some_and(|sent| sent == value);
    let host = fields.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_other = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        own.is_none_or(|own| !own.eq_ignore_ascii_case(host))
    };
    if fields.get_all(header::ORIGIN).iter().any(is_other) {
        return true;
    }
    let is_own = !fields.contains_key(SITE) || is(SITE, "same-origin") || is(SITE, "none");
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    let is_followed = reads && is(MODE, "navigate") && is(DEST, "document");
    !is_own && !is_followed
}

#[cfg(test)]
#[path = "tests/guard.rs"]
mod tests;
