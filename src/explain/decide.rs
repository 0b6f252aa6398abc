//! From a question to its explanation.

use super::{
    answer::{
        ExpectedDecision, ExplainedRequest, ExplainedRoute, ExplainedRule, ExplainedServer,
        ExplainedUpstream, Explanation, RunnerUp, millis,
    },
    auto_limit::AutoState,
    question::{Question, Request, TokenClaim},
    shared::{Local, Seeds},
};
use crate::{
    config::{
        Action, Balance, Claims, KeySource, Members, Reject, RequestContext, Route, RouteRule,
        Snapshot, Unrouted, Upstream, rejected_path,
    },
    flow::{Claim, Instant, Key, Quota, ReasonKind, Rejection, Report, SlotId, Verdict},
    geo::{Asn, Located},
    http1::Fields,
    proxy::{by_token, owner},
    route::{Identity, KeyPart, Seed, Target, fingerprint_text, low_bits, normal_path},
};
use core::{net::IpAddr, sync::atomic::Ordering::Relaxed, time::Duration};
use http::header::CONTENT_LENGTH;
use std::{borrow::Cow, sync::Arc};

/// The wait after which a client may try again while the store fails.
const UNDECIDED: Duration = Duration::from_secs(1);

impl Question {
    /// Explains it by the configuration in force, at `now`, by the wall's clock at `wall`.
    ///
    /// # Errors
    ///
    /// The error in the question, for people.
    pub fn explain(
        &self,
        snapshot: &Snapshot,
        seeds: &Seeds,
        (now, wall): (Instant, Instant),
    ) -> Result<Explanation, String> {
        let request = self.read(snapshot)?;
        let proxies = snapshot.proxies(Some(&request.listener.name));
        let found = proxies.client(request.from, Fields::Map(&request.headers));
        let client = found.address;
        let written = request.target.path();
        let path = normal_path(written);
        let target = Target {
            listener: Some(&request.listener.name),
            host: &request.host,
            path: &path,
            query: request.target.query(),
            method: &request.method,
            headers: Fields::Map(&request.headers),
            certificate: request.certificate.as_ref(),
            place: Located::At(snapshot.place(client)),
            identity: None,
            body: None,
        };
        let mut said = blank(snapshot, &target, client);
        if let Some(unread) = found.unread {
            said.notes.push(format!("{} names no client: {unread}", proxies.header_name()));
        }
        let index = match snapshot.find_index(&target, written) {
            Ok(index) => index,
            Err(Unrouted::NoRoute) => return Ok(said.answered(404, "no route matches")),
            Err(Unrouted::Path(why)) => return Ok(said.answered(400, &rejected_path(why))),
        };
        said.route = Some(route_view(snapshot, &target, index));
        let route = &snapshot.routes[index];
        if let Some((status, why)) = turned_away(route, &request, &target, client) {
            return Ok(said.answered(status, &why));
        }
        let identity = match self.identity(route, &request, wall) {
            Ok(identity) => identity,
            Err(why) => return Ok(said.answered(401, why)),
        };
        let members = self.members(route.members.as_ref(), snapshot.settings.limits.peek_body)?;
        let target = Target { identity: identity.as_ref(), body: members.as_ref(), ..target };
        if let Some(forward) = route.options.auth.as_ref().and_then(|auth| auth.forward.as_ref()) {
            said.notes.push(format!(
                "the auth service decides first: {forward}; the answer holds if it lets the request \
                 pass and says what the request has in the fields of `copy`"
            ));
        }
        said.notes.extend(self.unseen(route).map(str::to_owned));
        said.ask(route, seeds, (&target, client), now);

        match &route.action {
            Action::Forward(upstream) => {
                said.forward(upstream, &target, client);
            }
            Action::Redirect(redirect) => said.responds(redirect.status.as_u16()),
            Action::Respond(respond) => said.responds(respond.status.as_u16()),
            Action::NoRoute => {
                said.notes.push("no route matches".to_owned());
                said.responds(404);
            }
            Action::Close => said.ends_itself(None, CLOSES.to_owned()),
        }
        Ok(said)
    }

    /// Returns notes about what no rule of the route looks at.
    fn unseen(&self, route: &Route) -> impl Iterator<Item = &'static str> + use<> {
        let takes_tokens = route.options.auth.as_ref().is_some_and(|auth| auth.jwt.is_some());
        let has_claims = self.token.is_some() || !self.claims.is_empty();
        let claims = (!takes_tokens && has_claims)
            .then_some("the route takes no tokens, so that no rule sees their claims");
        let body = (!self.json.is_empty() && route.members.is_none())
            .then_some("no rule of the route looks at the body");
        let has_subject_only =
            self.client_cert_subject.is_some() && self.client_cert_fingerprint.is_none();
        let counts = |rule: &RouteRule| rule.key.parts().contains(&KeyPart::ClientCert);
        let certificate = (has_subject_only && route.rules.iter().any(counts)).then_some(
            "`key: client_cert` counts by the fingerprint: pass it too (`--client-cert-fingerprint`)",
        );
        claims.into_iter().chain(body).chain(certificate)
    }

    /// Returns who the client is: as the question says, or as the token does. Fails with the reason
    /// of a 401.
    fn identity(
        &self,
        route: &Route,
        request: &Request,
        wall: Instant,
    ) -> Result<Option<Identity>, &'static str> {
        let Some(auth) = &route.options.auth else { return Ok(None) };
        if let Some(forward) = &auth.forward {
            let fields = Fields::Map(&request.headers);
            return Ok(Some(Identity::of_service(fields, forward.names())));
        }
        if self.user.is_some() || !self.claims.is_empty() {
            let user = self.user.as_deref().or_else(|| match self.claims.get("sub")? {
                TokenClaim::One(user) => Some(user.as_str()),
                TokenClaim::List(_) => None,
            });
            let claims = self.claims.iter().filter(|_| auth.jwt.is_some());
            let claims = claims.map(|(name, claim)| (name.as_str().into(), claim.value()));
            return Ok(Some(Identity::of_token(user.map(Arc::from), claims.collect())));
        }

        let named = self.token.as_deref().zip(auth.jwt.as_ref());
        let verified = match named {
            Some((token, jwt)) => {
                let time = wall.since(Instant::EPOCH);
                Some(jwt.keys.verify(token.trim().as_bytes(), &jwt.rules, time))
            }
            None => by_token(auth, Fields::Map(&request.headers), wall),
        };

        match verified {
            Some(verified) => verified.map(Some),
            None if auth.jwt.is_some() => Err(
                "the route asks who the client is: pass its token (`--token`), its claims (`--claim \
                 tenant=acme`) or the user (`--user`)",
            ),
            None => Err("the route asks who the client is: name the user (`--user`)"),
        }
    }
}

/// Returns why no rule is asked, if none is: a status and words.
fn turned_away(
    route: &Route,
    request: &Request,
    target: &Target<'_>,
    client: IpAddr,
) -> Option<(u16, Cow<'static, str>)> {
    let options = &route.options;
    let length = request.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.parse().ok());
    if let Some(why) =
        options.access.as_ref().and_then(|access| access.denial(client, target.place))
    {
        let why = format!("the route's `access` does not allow this client: {why}");
        return Some((403, why.into()));
    }
    if length.is_some_and(|length| length > options.body_limit) {
        return Some((413, "the body is longer than the route's `body_limit`".into()));
    }

    let cors = options.cors.as_ref().filter(|_| route.answers_preflight(target))?;
    let is_allowed = cors.allows(target.headers.get_only("origin").unwrap_or_default());
    let (status, why) = if is_allowed {
        (204, "a preflight, which `cors` answers")
    } else {
        (403, "a preflight, whose origin `cors` does not allow")
    };
    Some((status, why.into()))
}

const CLOSES: &str = "the gateway closes the connection without a response";
const LACKS_SHARED: &str = "the request lacks the key, and is counted with all others that do";
const DUPLICATE: &str = "the request has the key several times, or servers read it differently";

fn blank(snapshot: &Snapshot, target: &Target<'_>, client: IpAddr) -> Explanation {
    Explanation {
        config_version: snapshot.version,
        config_hash: snapshot.hash.clone(),
        request: ExplainedRequest {
            method: target.method.to_string(),
            path: target.path.to_owned(),
            host: target.host.to_owned(),
            listener: target.listener.unwrap_or_default().to_owned(),
            client: client.to_string(),
            country: target.place.country().map(|country| country.to_string()),
            asn: target.place.asn().map(|Asn(number)| number),
        },
        route: None,
        decision: ExpectedDecision::Passed,
        reason: None,
        rule: None,
        wait_ms: 0.0,
        retry_after_ms: None,
        status: None,
        rules: Vec::new(),
        upstream: None,
        own_response: None,
        notes: Vec::new(),
    }
}

fn route_view(snapshot: &Snapshot, target: &Target<'_>, index: usize) -> ExplainedRoute {
    let route = &snapshot.routes[index];
    let other = snapshot.table.runner_up(target, index);
    let runner_up = other.and_then(|(other, advantage)| {
        let other = snapshot.routes.get(other)?;
        Some(RunnerUp {
            name: other.name.to_string(),
            r#match: other.matches.to_string(),
            because: advantage.to_string(),
        })
    });
    ExplainedRoute { name: route.name.to_string(), r#match: route.matches.to_string(), runner_up }
}

impl Explanation {
    /// Says that it is answered before any rule is asked.
    fn answered(mut self, status: u16, why: &str) -> Self {
        self.decision = ExpectedDecision::NotAsked;
        self.status = Some(status);
        self.notes.push(why.to_owned());
        self
    }

    /// Says that the gateway itself responds to it, if the rules let it pass.
    fn responds(&mut self, status: u16) {
        self.ends_itself(Some(status), format!("the gateway itself responds with {status}"));
    }

    /// Says what the gateway itself does with it, if the rules let it pass.
    fn ends_itself(&mut self, status: Option<u16>, words: String) {
        if self.decision != ExpectedDecision::Rejected {
            self.status = status;
            self.own_response = Some(words);
        }
    }

    /// Says where it would be sent.
    fn forward(&mut self, upstream: &Upstream, target: &Target<'_>, client: IpAddr) {
        if let Some(cookie) = &upstream.options.sticky {
            self.notes.push(format!(
                "with the cookie {cookie}, it goes to the server that set it, while that gets requests"
            ));
        }
        self.upstream = Some(next(upstream, target, client));
    }

    /// Peeks at the rules of `route`.
    fn ask(
        &mut self,
        route: &Route,
        seeds: &Seeds,
        (target, client): (&Target<'_>, IpAddr),
        now: Instant,
    ) {
        let claims = claims(route, seeds, target, client);
        let local = Local::of(route, &claims, seeds.store);
        let report = match route.gates.peek(now, &local.claims) {
            Ok(report) => {
                self.passes(route, &report, &local);
                report
            }
            Err(Rejection { slot, reason, report, .. }) => {
                self.rejected(route.rule_name(slot), reason.kind(), reason.retry_after());
                if route.options.reject == Some(Reject::Close) {
                    self.notes.push(CLOSES.to_owned());
                }
                report
            }
        };
        for rule in route.rules.iter().filter(|rule| rule.is_asked_at(target.listener)) {
            let claim = claims.iter().find(|claim| claim.slot == rule.slot);
            let mut view = ExplainedRule::of(rule.algorithm, &rule.name);
            let condition = rule.identity.strip_prefix(&*rule.name);
            let condition = condition.and_then(|condition| condition.strip_prefix(" when "));
            view.when = condition.map(str::to_owned);
            view.describe_key(rule, claim, target, client);
            view.auto = route.gates.auto_stats(rule.slot).as_ref().map(AutoState::of);
            if claim.is_some() {
                view.decide(rule.slot, &report, &local);
                view.is_reserve = rule.cost.settle.is_some();
                let debt = view.used.zip(view.limit);
                let debt = debt.map(|(used, limit)| used.saturating_sub(limit));
                view.debt = debt.filter(|debt| view.is_reserve && *debt > 0);
            } else {
                view.note = Some(why_not_asked(rule, target, client).into_owned());
            }
            self.rules.push(view);
        }

        for (slot, word) in [(route.breaker, "breaker"), (route.pacing, "pacing")] {
            let Some(slot) = slot else { continue };
            let mut view = ExplainedRule::of(word, word);
            view.decide(slot, &report, &local);
            self.rules.push(view);
        }
    }

    /// Says that no rule here rejects it.
    fn passes(&mut self, route: &Route, report: &Report, local: &Local) {
        let wait = report.wait();
        self.wait_ms = millis(wait);
        if let Some(slot) = local.denied {
            return self.rejected(route.rule_name(slot), ReasonKind::Store, Some(UNDECIDED));
        }
        let waits = report.quotas.iter().any(|quota| quota.verdict == Verdict::Delayed);
        self.decision = match !waits {
            _ if local.asks => ExpectedDecision::Undecided,
            true => ExpectedDecision::Passed,
            false => ExpectedDecision::Delayed,
        };
    }

    fn rejected(&mut self, rule: &str, kind: ReasonKind, retry_after: Option<Duration>) {
        self.decision = ExpectedDecision::Rejected;
        self.rule = Some(rule.to_owned());
        self.reason = Some(kind.word().to_owned());
        self.retry_after_ms = retry_after.map(millis);
        self.wait_ms = 0.0;
    }
}

/// Returns what the request claims, as the proxy makes it.
fn claims(route: &Route, seeds: &Seeds, target: &Target<'_>, client: IpAddr) -> Claims {
    let known = |rule: &RouteRule, _: &str| {
        // Shared rules count by the secret that all gateways have.
        let store = seeds.store.filter(|_| rule.shared.is_some() && !rule.key.is_shared());
        let print = store.and_then(|store| rule.key.fingerprint(&store.seed, target, client).ok());
        print.map_or(KeySource::Request, KeySource::Fingerprint)
    };
    let mut claims = Claims::new();
    route.claim(RequestContext { seed: &seeds.own, target, client }, known, &mut claims);
    claims
}

/// Returns why a rule leaves the request alone.
fn why_not_asked(rule: &RouteRule, target: &Target<'_>, client: IpAddr) -> Cow<'static, str> {
    if let Some(except) = rule.except.as_ref().filter(|except| except.covers(target, client)) {
        return match except.network_of(client) {
            Some(found) => format!("the request is exempt (`except`: {found})").into(),
            None => match except.place_of(target.place.place()) {
                Some(found) => format!("the request is exempt (`except`: {found})").into(),
                None => "the request is exempt (`except`)".into(),
            },
        };
    }
    let why = if rule.when.as_ref().is_some_and(|when| !when.covers(target, client)) {
        "its condition (`when`) is not met"
    } else if rule.key.show(target, client).is_none() && !rule.key.is_shared() {
        "the request lacks the key (`on_missing_key: skip`)"
    } else {
        "an override of the rule is asked instead"
    };
    why.into()
}

impl ExplainedRule {
    fn of(algorithm: &str, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            when: None,
            algorithm: algorithm.to_owned(),
            key: None,
            value: None,
            fingerprint: None,
            decision: ExpectedDecision::NotAsked,
            reason: None,
            limit: None,
            used: None,
            cost: None,
            is_reserve: false,
            debt: None,
            wait_ms: 0.0,
            reset_ms: None,
            auto: None,
            note: None,
        }
    }

    /// Shows the key that the request itself has, which is no secret to those that ask.
    fn describe_key(
        &mut self,
        rule: &RouteRule,
        claim: Option<&Claim>,
        target: &Target<'_>,
        client: IpAddr,
    ) {
        if rule.key.is_shared() {
            return;
        }
        self.key = Some(rule.key.to_string());
        match claim.map(|claim| claim.key) {
            Some(Key::Of(fingerprint)) => {
                self.value = rule.key.show(target, client);
                self.fingerprint = Some(fingerprint_text(fingerprint));
            }
            Some(Key::Shared) => self.note = Some(LACKS_SHARED.to_owned()),
            Some(Key::Missing) => self.note = Some("the request lacks the key".to_owned()),
            Some(Key::Duplicate) => self.note = Some(DUPLICATE.to_owned()),
            None => {}
        }
    }

    fn decide(&mut self, slot: SlotId, report: &Report, local: &Local) {
        if let Some(note) = local.note(slot) {
            self.note = Some(note.to_owned());
        }
        let quota = report.quotas.iter().find(|quota| quota.slot == slot);
        let Some(Quota { verdict, limit, used, cost, wait, reset, .. }) = quota else { return };
        let (decision, kind) = ExpectedDecision::of(*verdict);
        self.decision = decision;
        self.reason = kind.map(|kind| kind.word().to_owned());
        self.cost = Some(*cost);
        self.wait_ms = millis(*wait);
        if *verdict == Verdict::Delayed && wait.is_zero() {
            self.note = Some("no place is free: the request waits in the queue".to_owned());
        }
        if *limit > 0 {
            self.limit = Some(*limit);
            self.used = Some(*used);
            self.reset_ms = Some(millis(*reset));
        }
    }
}

/// The most servers that are listed.
const LISTED: usize = 16;

/// Returns where a request would be sent. No turn is taken, and no server is tried.
pub(super) fn next(upstream: &Upstream, target: &Target<'_>, client: IpAddr) -> ExplainedUpstream {
    let members = upstream.members();
    let (place, because) = pick(upstream, &members, target, client);
    let address = |place: usize| members.servers.get(place).map(|server| server.address());
    let servers = members.servers.iter().take(LISTED).map(|server| ExplainedServer {
        address: server.address(),
        health: server.health_word().to_owned(),
        in_flight: server.in_flight.load(Relaxed),
    });
    let healthy = members.servers.iter().filter(|server| server.health.is_healthy());
    ExplainedUpstream {
        name: upstream.name.to_string(),
        server: place.and_then(address),
        because: because.to_owned(),
        healthy: Some(healthy.count()),
        servers: servers.collect(),
    }
}

fn pick(
    upstream: &Upstream,
    members: &Members,
    target: &Target<'_>,
    client: IpAddr,
) -> (Option<usize>, &'static str) {
    let servers = &members.servers;
    if servers.len() == 1 {
        return (Some(0), "the only server");
    }
    if servers.is_empty() {
        return (None, "no address of one is known");
    }
    if servers.iter().all(|server| server.health.is_out()) {
        return (None, "none gets requests now, so one is tried");
    }

    if servers.iter().all(|server| server.is_backup || server.health.is_out()) {
        return (None, "a backup, as all other servers are out");
    }

    match upstream.options.balance {
        Balance::RoundRobin => {
            let turn = upstream.turn.load(Relaxed) % members.schedule.len().max(1);
            let place = members.schedule.get(turn).map(|place| usize::from(*place));
            match place.filter(|place| !servers[*place].health.is_out()) {
                Some(place) => (Some(place), "its turn, if no other request comes before"),
                None => (None, "one of the healthy servers, in place of the one whose turn it is"),
            }
        }
        Balance::LeastRequest => (None, "the less busy of two that chance picks"),
        Balance::Random => (None, "by chance"),
        Balance::Hash => {
            let key = upstream.options.hash_key.as_ref();
            // The same in all gateways.
            let key = key.and_then(|key| key.fingerprint(&Seed::new([0, 0]), target, client).ok());
            match key.and_then(|key| owner(servers, low_bits(key))) {
                Some(place) => (Some(place), "by its hash_key"),
                None => (None, "by chance, as the request lacks the hash_key"),
            }
        }
    }
}
