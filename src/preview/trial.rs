//! The decision of the new file about one request.

use super::{
    running::Preview,
    tally::{Client, Compared, Kind, Side},
    treatment::{OwnRejection, Treatment, TreatmentChange},
};
use crate::{
    access_log::{DecisionKind, DecisionRecord, PreviewRecord},
    config::{Claims, KeySource, RequestContext, Route, RouteRule, Unrouted},
    flow::{Claim, Instant, Key, Outcome, Permit, Rejection, Report, Sharer, SlotId},
    route::{Identity, Target},
};
use core::{
    net::IpAddr,
    task::{Poll, Waker},
    time::Duration,
};
use http::Method;
use std::sync::Arc;

/// A request that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The target of the request. No client is authenticated yet. The client is as the new file sees it.
    pub request: RequestContext<'a>,
    /// Its path as it was received.
    pub path: &'a str,
    /// Its route by the file in force.
    pub here: Option<&'a Arc<Route>>,
    /// The length of its body, if that is known.
    pub length: Option<u64>,
    /// True if the decision is logged.
    pub is_logged: bool,
    /// The number of the worker that serves it.
    pub worker: usize,
}

/// The authentication of a client by a route of the new file.
#[derive(Debug)]
pub enum Identified {
    /// It is, or need not be.
    As(Option<Identity>),
    /// It is not.
    Rejected,
    /// A password would have to be checked, which takes too long for a preview.
    Unchecked,
}

/// A request that the new file has decided about.
#[derive(Debug)]
pub struct Trial {
    /// The decision, until it is compared.
    pub(super) waiting: Option<Box<Waiting>>,
    /// The request's permit by the new file's rules, until it ends.
    pub(super) permit: Option<Permit>,
    pub(super) record: Option<Box<TrialRecord>>,
}

/// A decision of the new file that waits for that of the file in force.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The preview that it belongs to.
    preview: u64,
    there: There,
    claims: Claims,
    /// Keys in words, if they may be shown.
    names: Vec<(SlotId, String)>,
}

/// The treatment of a request by the new file.
#[derive(Clone, Copy, Debug)]
pub(super) struct There {
    /// The index of its route in force.
    pub(super) here: Option<u32>,
    /// The index of its route in the new file.
    pub(super) route: Option<u32>,
    pub(super) treatment: Treatment,
    pub(super) wait: Duration,
    pub(super) client: IpAddr,
}

/// The treatment of a request by the file in force.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// Its route.
    pub route: Option<&'a Arc<Route>>,
    /// The decision of the route's rules.
    pub treatment: Treatment,
    /// Its method.
    pub method: &'a Method,
    /// Its path as it was received.
    pub path: &'a str,
}

impl Preview {
    /// Decides about a request that arrives at `now`, and charges the new file's rules. `identify`
    /// returns its client's user by a route of the new file, which may ask for the same as the
    /// route in force, and `known` where its key comes from.
    /// `None` if that would take long, which is counted.
    pub fn decide(
        &self,
        arrival: &Arrival<'_>,
        identify: impl FnOnce(&Route, bool) -> Identified,
        known: impl Fn(&RouteRule, &str) -> KeySource,
        now: Instant,
    ) -> Option<Box<Trial>> {
        let RequestContext { seed, target, client } = arrival.request;
        let here = arrival.here.and_then(|route| self.index_of(route));
        let mut there =
            There { here, route: None, treatment: Treatment::Passed, wait: Duration::ZERO, client };
        let index = match self.find(arrival, here) {
            Ok(index) => index,
            Err(why) => return Some(self.reject(there, arrival, None, why)),
        };
        let route = &self.snapshot.routes[index];
        there.route = u32::try_from(index).ok();
        let identify = || identify(route, self.has_same_auth(here, index));

        let proven = match identified(route, arrival, identify) {
            Ok(Identified::As(proven)) => proven,
            Ok(Identified::Rejected) => {
                return Some(self.reject(
                    there,
                    arrival,
                    Some(route),
                    OwnRejection::Unauthenticated,
                ));
            }
            Ok(Identified::Unchecked) => {
                self.tally(arrival.worker).unchecked += 1;
                return None;
            }
            Err(why) => return Some(self.reject(there, arrival, Some(route), why)),
        };
        let target = &Target { identity: proven.as_ref(), ..*target };
        let request = RequestContext { seed, target, client };
        let mut claims = Claims::new();
        route.claim(request, known, &mut claims);
        let names =
            if self.shows_keys { names(route, &claims, target, client) } else { Vec::new() };
        let mut permit = None;
        let sharers =
            || if route.shares_queues { route.sharers(request, |_| None) } else { Vec::new() };
        let Asked { treatment, wait, record } =
            ask(route, &claims, sharers, arrival.is_logged, now, &mut permit);
        let there = There { treatment, wait, ..there };
        let waiting = Some(Box::new(Waiting { preview: self.id, there, claims, names }));
        Some(Box::new(Trial { waiting, permit, record }))
    }

    /// Returns the index of the request's route, or why there is none. `here` is that of its route
    /// in force.
    fn find(&self, arrival: &Arrival<'_>, here: Option<u32>) -> Result<usize, OwnRejection> {
        if let Some(index) = self.index_without_search(here, arrival.path) {
            return Ok(index);
        }
        let found = self.snapshot.find_index(arrival.request.target, arrival.path);
        found.map_err(|why| match why {
            Unrouted::NoRoute => OwnRejection::NoRoute,
            Unrouted::Path(_) => OwnRejection::Path,
        })
    }

    /// Answers the request before any rule is asked.
    fn reject(
        &self,
        there: There,
        arrival: &Arrival<'_>,
        route: Option<&Arc<Route>>,
        why: OwnRejection,
    ) -> Box<Trial> {
        let there = There { treatment: Treatment::OwnRejection(why), ..there };
        let claims = Claims::new();
        let names = Vec::new();
        let waiting = Some(Box::new(Waiting { preview: self.id, there, claims, names }));
        let record = || Box::new(TrialRecord { route: route.cloned(), decided: Err(why) });
        let record = arrival.is_logged.then(record);
        Box::new(Trial { waiting, permit: None, record })
    }

    /// Compares what the new file decided about a request with what became of it at `at`, by the
    /// wall's clock. A request that was really rejected ends here: how it would have ended is not
    /// known.
    pub(super) fn compare(&self, trial: &mut Trial, here: &Here<'_>, at: Instant, worker: usize) {
        let Some(mut waiting) = trial.waiting.take() else { return };
        if waiting.preview == self.id {
            let Waiting { there, claims, names, .. } = &mut *waiting;
            let name = |rule| {
                let place = names.iter().position(|(slot, _)| *slot == rule)?;
                Some(names.swap_remove(place).1)
            };
            self.note(*there, here, (claims, name), (at, worker));
        }
        if !here.treatment.is_let_through() {
            trial.permit = None;
        }
    }

    /// Counts a request that came `at` to `worker` by both decisions. It has these claims on the new
    /// file's rules, and keys with these names, if they may be shown.
    pub(super) fn note(
        &self,
        there: There,
        here: &Here<'_>,
        (claims, name): (&[Claim], impl FnOnce(SlotId) -> Option<String>),
        (at, worker): (Instant, usize),
    ) {
        let route = there.route.and_then(|index| self.snapshot.routes.get(index as usize));
        let treated = there.treatment.by(route);
        let treated_here = here.treatment.by(here.route);
        let change = treated_here.change(treated, self.is_same(there.here, there.route));
        let kind = Kind {
            here: Side { route: there.here, treatment: treated_here },
            there: Side { route: there.route, treatment: treated },
            change,
        };
        if change == TreatmentChange::Same && there.wait.is_zero() {
            return self.tally(worker).note_same(kind);
        }
        let (client, name) = if change == TreatmentChange::Same {
            (there.by_address(), None)
        } else {
            self.client(there, here, claims, name)
        };

        let compared = Compared {
            kind,
            wait: there.wait,
            client,
            address: there.client,
            name,
            at,
            method: here.method,
            path: here.path,
        };
        self.tally(worker).note_change(compared);
    }

    /// Returns the client for which a request counts: by the rule of the new file that treats it otherwise, or
    /// the one of the same name as the rule in force that did.
    fn client(
        &self,
        there: There,
        here: &Here<'_>,
        claims: &[Claim],
        name: impl FnOnce(SlotId) -> Option<String>,
    ) -> (Client, Option<Box<str>>) {
        let claim_on = |slot| claims.iter().find(|claim| claim.slot == slot);
        let route = there.route.and_then(|index| self.snapshot.routes.get(index as usize));
        let of_same_name = || {
            let name = here.route?.rule_name(here.treatment.rule()?);
            let rules = &route?.rules;
            let claimed = |rule: &&RouteRule| claim_on(rule.slot).is_some();
            rules.iter().filter(claimed).find(|rule| *rule.name == *name).map(|rule| rule.slot)
        };
        let Some(rule) = there.treatment.rule().or_else(of_same_name) else {
            return (there.by_address(), None);
        };
        match claim_on(rule).map(|claim| claim.key) {
            Some(Key::Of(key)) => {
                let client = Client { route: there.route, rule: Some(rule), key };
                (client, name(rule).map(String::into_boxed_str))
            }
            _ => (Client { rule: Some(rule), ..there.by_address() }, None),
        }
    }
}

/// Returns the user of a request, or why its route is for no such client.
fn identified(
    route: &Route,
    arrival: &Arrival<'_>,
    identify: impl FnOnce() -> Identified,
) -> Result<Identified, OwnRejection> {
    let options = &route.options;
    let RequestContext { target, client, .. } = arrival.request;
    if options.access.as_ref().is_some_and(|access| !access.allows(client, target.place)) {
        return Err(OwnRejection::Denied);
    }
    if arrival.length.is_some_and(|length| length > options.body_limit) {
        return Err(OwnRejection::TooLong);
    }
    let auth = options.auth.as_ref().filter(|_| !route.answers_preflight(target));
    Ok(auth.map_or(Identified::As(None), |_| identify()))
}

/// Returns the keys that a request claims, in words.
fn names(
    route: &Route,
    claims: &Claims,
    target: &Target<'_>,
    client: IpAddr,
) -> Vec<(SlotId, String)> {
    let claimed = |rule: &&RouteRule| claims.iter().any(|claim| claim.slot == rule.slot);
    let keyed = route.rules.iter().filter(|rule| !rule.key.is_shared()).filter(claimed);
    // An address by itself is known without.
    let keyed = keyed.filter(|rule| !rule.key.is_address());
    keyed.filter_map(|rule| Some((rule.slot, rule.key.show(target, client)?))).collect()
}

impl Trial {
    /// Returns whether the decision is still to be compared.
    pub const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns the decision, if it is logged.
    pub fn record(&self) -> Option<&TrialRecord> {
        self.record.as_deref()
    }

    /// Takes the decision for the access log.
    pub fn take_record(&mut self) -> Option<Box<TrialRecord>> {
        self.record.take()
    }

    /// Says how the request is answered, when that is known, and how long its body took.
    pub fn answered(&mut self, outcome: Outcome, uploading: Duration) {
        if let Some(permit) = &mut self.permit {
            // A breaker that is not in force has no message.
            let _transition = permit.answered(outcome, uploading);
        }
    }

    /// Returns whether a rule waits for [`Self::answered`].
    pub fn awaits_answer(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::awaits_answer)
    }

    /// Ends the request.
    pub fn finish(self, outcome: Outcome) {
        if let Some(permit) = self.permit {
            let _transition = permit.finish(outcome);
        }
    }

    /// Ends the request, as its client has left at `at`.
    pub fn leave(self, at: Instant) {
        match self.permit {
            // Its place in a queue is another's.
            Some(permit) if at < permit.start() => permit.leave(at),
            Some(permit) => drop(permit.finish(Outcome::Cancelled)),
            None => {}
        }
    }
}

impl There {
    fn by_address(&self) -> Client {
        let key = match self.client {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        Client { route: self.route, rule: None, key }
    }
}

/// The decision of the new file, for the access log.
#[derive(Debug)]
pub struct TrialRecord {
    pub(super) route: Option<Arc<Route>>,
    pub(super) decided: Result<DecisionRecord, OwnRejection>,
}

/// The decision of a route's rules about a request.
pub(super) struct Asked {
    pub(super) treatment: Treatment,
    pub(super) wait: Duration,
    pub(super) record: Option<Box<TrialRecord>>,
}

/// Asks the rules of `route`. Writes into `permit` what the request holds until its end: it is large,
/// and need not be moved. `sharers` says the parts of the request in the order of queues.
#[inline]
pub(super) fn ask(
    route: &Arc<Route>,
    claims: &[Claim],
    sharers: impl FnOnce() -> Vec<(SlotId, Sharer)>,
    is_logged: bool,
    now: Instant,
    permit: &mut Option<Permit>,
) -> Asked {
    // Only the access log needs the numbers of a request that passes.
    if !is_logged && route.gates.pass_uncounted(now, claims, permit) {
        return Asked { treatment: Treatment::Passed, wait: Duration::ZERO, record: None };
    }

    let mut report = Report::default();
    let mut decided = route.gates.decide_uncounted(now, claims, &mut report);
    if let Ok(Some(waiting)) = &mut decided
        && waiting.is_waiting()
    {
        waiting.share(sharers());
        // It takes a place as it would live, but waits for nothing.
        if let Poll::Ready(Err(rejection)) = waiting.poll_start(now, Waker::noop()) {
            return rejected(route, &rejection, is_logged);
        }
    }

    match decided {
        Ok(admitted) => {
            *permit = admitted;
            let treatment = Treatment::admitted(&report);
            let decided = is_logged.then(|| {
                let mut decided = DecisionRecord::admitted(&report, route);
                // One that waits for a place is delayed; by how much is not known.
                if matches!(treatment, Treatment::Delayed(_)) {
                    decided.decision = DecisionKind::Delayed;
                }
                decided
            });
            Asked { treatment, wait: report.wait(), record: record(route, decided) }
        }
        Err(by) => rejected(route, &by.with(report), is_logged),
    }
}

fn rejected(route: &Arc<Route>, rejection: &Rejection, is_logged: bool) -> Asked {
    let decided = is_logged.then(|| DecisionRecord::rejected(rejection));
    Asked {
        treatment: Treatment::Rejected(rejection.slot, rejection.reason.kind()),
        wait: Duration::ZERO,
        record: record(route, decided),
    }
}

fn record(route: &Arc<Route>, decided: Option<DecisionRecord>) -> Option<Box<TrialRecord>> {
    let decided = Ok(decided?);
    Some(Box::new(TrialRecord { route: Some(Arc::clone(route)), decided }))
}

impl TrialRecord {
    /// Returns what the rules said.
    ///
    /// # Errors
    ///
    /// Why none was asked.
    pub const fn decided(&self) -> Result<DecisionRecord, OwnRejection> {
        self.decided
    }

    /// Returns what the access log shows.
    pub fn record(&self) -> PreviewRecord<'_> {
        let route = self.route.as_deref();
        PreviewRecord {
            route: route.map(|route| &*route.name),
            status: self.decided.err().map(OwnRejection::status),
            flow: self.decided.ok().map(|decided| decided.record(route, &[])),
        }
    }
}
