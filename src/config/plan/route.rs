//! A route and its rules, without state.

use super::{
    Access, Action, Auth, Body, ClientPlans, Compress, Cors, Except, HeaderText, MetGroup, Mirror,
    Priority, QueueShares, Settle, When,
};
use crate::counted::counted;
use crate::{
    config::{
        diagnostics::SourceSpan,
        spec::{ErrorsFrom, OnMissing, OnStoreError},
    },
    flow::{self, Algorithm},
    route::{IdentityPattern, KeySpec, MemberPath, PathPattern, Rewrite, Target},
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use std::{fmt, num::NonZeroU64, ops::Deref, sync::Arc, time::Duration};

/// Names a route's breaker where a rule's name is shown.
pub(in crate::config) const BREAKER: &str = "breaker";

/// Names its pacing there.
pub(in crate::config) const PACING: &str = "pacing";

/// Names the route of requests that no route of the file matches, if rules of the file or of a listener
/// decide about them. No route of a file has such a name, because names hold no blank.
pub(in crate::config) const NO_ROUTE: &str = "(no route)";

/// The definition of a route in the file, which a plan and a snapshot hold alike.
#[derive(Debug)]
pub struct RouteDefinition {
    /// Its identity, metric label and word in the log.
    pub name: Arc<str>,
    /// Its match in words.
    pub matches: Arc<str>,
    /// The keys about its requests, beside its rules.
    pub options: RouteOptions,
    /// The rules of the gate.
    pub flow: flow::Rules,
    /// The value of `RateLimit-Policy`, if there are quotas.
    pub policy: Option<HeaderValue>,
    /// Differs if the route was edited.
    pub(in crate::config) print: u128,
}

/// A rule, the breaker or the pacing of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum FlowPart {
    /// The rule of this index.
    Rule(usize),
    Breaker,
    Pacing,
}

impl RouteDefinition {
    /// Returns whether it is for the requests that no route of the file matches.
    pub fn is_for_unmatched(&self) -> bool {
        *self.name == *NO_ROUTE
    }

    /// Returns the part that a gate reports by this name.
    pub(in crate::config) fn part(&self, name: &str) -> Option<FlowPart> {
        let rule = self.flow.flow.iter().position(|rule| *rule.name == *name);
        rule.map(FlowPart::Rule).or_else(|| match name {
            BREAKER => self.flow.breaker.as_ref().map(|_| FlowPart::Breaker),
            PACING => self.flow.pacing.as_ref().map(|_| FlowPart::Pacing),
            _ => None,
        })
    }
}

/// A route without its gate and its meter.
#[derive(Debug)]
pub(in crate::config) struct RoutePlan {
    pub definition: RouteDefinition,
    /// Where the file has its conditions.
    pub span: SourceSpan,
    /// The action for requests that may pass; an upstream is an index into the plan's.
    pub action: Action<usize>,
    /// Beside `flow.flow`, in its order.
    pub rules: Vec<RulePlan>,
    /// The behavior of pacing while the store fails, if it is shared.
    pub paced: Option<OnStoreError>,
    /// The rules that it shares with other routes, in the order in which they decide after its own.
    pub groups: Vec<MetGroup>,
    /// The hash tag of the rules about which the store decides, if a request also meets such rules
    /// of a group.
    pub store_tag: Option<Arc<str>>,
    /// The index of the upstream that decides about each request, if one does.
    pub auth_upstream: Option<usize>,
    /// The index of the upstream that gets copies of its requests, if one does.
    pub mirror_upstream: Option<usize>,
}

impl Deref for RoutePlan {
    type Target = RouteDefinition;

    fn deref(&self) -> &RouteDefinition {
        &self.definition
    }
}

impl RoutePlan {
    /// Returns the hash tag of its rules' names in the store: keys with one tag lie on one node of a
    /// Redis Cluster, as all that one request asks must. `is_by_key` adds `:*`, which stands for
    /// the rules' key: if all rules that the store decides use the same one, keys are spread over
    /// nodes.
    pub(in crate::config) fn hash_tag(&self, is_by_key: bool) -> String {
        if is_by_key && let Some(tag) = &self.store_tag {
            return tag.to_string();
        }
        let by_key = if is_by_key && self.uses_one_key() { ":*" } else { "" };
        format!("{{{}{by_key}}}", self.name)
    }

    /// Returns whether the store decides about each request of a rule, or paces.
    pub(in crate::config) fn is_decided_by_store(&self) -> bool {
        self.paced.is_some() || self.rules.iter().any(RulePlan::is_decided_by_store)
    }

    fn uses_one_key(&self) -> bool {
        let decided = self.rules.iter().filter(|rule| rule.is_decided_by_store());
        let mut keys = decided.map(|rule| &rule.key);
        let Some(first) = keys.next() else { return false };
        self.paced.is_none() && !first.is_shared() && keys.all(|key| key == first)
    }
}

/// A rule without its slot.
#[derive(Clone, Debug)]
pub(in crate::config) struct RulePlan {
    /// Where the file names it.
    pub span: SourceSpan,
    pub options: RuleOptions,
    /// The behavior while the store fails, if the rule is shared.
    pub shared: Option<OnStoreError>,
    /// The interval in which gateways sync it, if they do.
    pub sync_interval: Option<Duration>,
    /// The place in the file of the longest wait in its queue, if it has one.
    pub queue_wait: Option<SourceSpan>,
}

impl RulePlan {
    /// Returns whether the store decides about each request.
    pub(in crate::config) const fn is_decided_by_store(&self) -> bool {
        self.shared.is_some() && self.sync_interval.is_none()
    }
}

impl Deref for RulePlan {
    type Target = RuleOptions;

    fn deref(&self) -> &RuleOptions {
        &self.options
    }
}

/// The conditions that a rule has of requests.
#[derive(Clone, Debug)]
pub struct RuleOptions {
    /// Its name in headers, logs and metrics.
    pub name: Arc<str>,
    /// The requests that it decides instead of the rule of that name that follows;
    /// `None` for the rule itself.
    pub when: Option<Arc<When>>,
    /// The key that is counted separately; [`KeySpec::is_shared`] if nothing is.
    pub key: KeySpec,
    /// The treatment of a request that lacks a part of the key.
    pub on_missing: OnMissing,
    /// The cost of a request.
    pub cost: Cost,
    /// The requests that are exempt.
    pub except: Option<Arc<Except>>,
    /// The requests that may borrow from the windows to come.
    pub priority: Option<Arc<Priority>>,
    /// Other numbers by the client's plan.
    pub plans: Option<Arc<ClientPlans>>,
    /// The parts that requests have in the order of its queue, if they differ.
    pub shares: Option<Arc<QueueShares>>,
    /// The quota to publish; `None` for a rule without a rate.
    pub quota: Option<Limit>,
    /// True if its limit finds itself.
    pub is_auto: bool,
    /// True if it only counts what it would reject.
    pub dry_run: bool,
    /// The most that is added at random to `Retry-After`.
    pub retry_after_jitter: Option<Duration>,
    /// True if it decides before the route's auth service is asked.
    pub before_auth: bool,
}

impl RuleOptions {
    /// Returns them for a route with these paths, some of whose segments they may name.
    pub(in crate::config) fn of_paths(self, paths: &[PathPattern]) -> Self {
        let shares = self.shares.map(|shares| Arc::new(shares.of_paths(paths)));
        Self { key: self.key.of_paths(paths), shares, ..self }
    }

    /// Returns what its conditions demand of what clients have proved to be.
    pub(in crate::config) fn identity(&self) -> impl Iterator<Item = &IdentityPattern> {
        let when = self.when.iter().flat_map(|when| when.identity());
        when.chain(self.except.iter().flat_map(|except| except.identity()))
    }

    /// Returns the names of the claims that it looks at.
    pub(in crate::config) fn claims(&self) -> impl Iterator<Item = &str> {
        let plans = self.plans.iter().flat_map(|plans| plans.by().claims());
        let shares = self.shares.iter().flat_map(|shares| shares.keys()).flat_map(KeySpec::claims);
        self.key
            .claims()
            .chain(plans)
            .chain(shares)
            .chain(self.identity().filter_map(IdentityPattern::claim))
    }

    /// Returns the members of bodies that it looks at.
    pub(in crate::config) fn members(&self) -> impl Iterator<Item = &MemberPath> {
        let plans = self.plans.iter().flat_map(|plans| plans.by().members());
        let shares = self.shares.iter().flat_map(|shares| shares.keys());
        let settle = self.cost.settle.iter();
        let numbers = settle.filter_map(|settle| settle.reserve.as_ref()?.json.as_ref());
        let reserved = numbers.flat_map(|json| json.terms.iter().map(|(path, _)| path));
        self.key.members().chain(plans).chain(shares.flat_map(KeySpec::members)).chain(reserved)
    }

    /// Returns whether it makes no difference to the rule which of these a request is, but for the
    /// whole path and query that it counts by. The client need not be known.
    pub(in crate::config) fn takes_alike(&self, one: &Target<'_>, other: &Target<'_>) -> bool {
        self.when.as_ref().is_none_or(|when| when.takes_alike(one, other))
            && self.except.as_ref().is_none_or(|except| except.takes_alike(one, other))
            && self.key.takes_alike(one.path, other.path)
    }

    /// Returns whether both ask the same of requests, and count them alike.
    pub(in crate::config) fn claims_like(&self, other: &Self) -> bool {
        let Self {
            name: _,
            when,
            key,
            on_missing,
            cost,
            except,
            priority,
            plans,
            shares,
            quota: _,
            is_auto: _,
            dry_run: _,
            retry_after_jitter: _,
            before_auth,
        } = self;
        let same_when = are_same(when.as_ref(), other.when.as_ref(), When::is_same);
        let same_except = are_same(except.as_ref(), other.except.as_ref(), Except::is_same);
        let same_priority = are_same(priority.as_ref(), other.priority.as_ref(), Priority::is_same);
        same_when
            && same_except
            && same_priority
            && (key, on_missing, cost) == (&other.key, &other.on_missing, &other.cost)
            && *plans == other.plans
            && *shares == other.shares
            && *before_auth == other.before_auth
    }
}

/// Returns whether there is neither, or both are the same.
fn are_same<T>(
    one: Option<&Arc<T>>,
    other: Option<&Arc<T>>,
    is_same: impl FnOnce(&T, &T) -> bool,
) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => is_same(one, other),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// The keys of a route about its requests, beside its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteOptions {
    /// The clients that may use it; `None`: all.
    pub access: Option<Access>,
    /// The proof that a client needs; `None`: nothing.
    pub auth: Option<Auth>,
    /// The scripts of other origins that may use it; `None`: no fields about them.
    pub cors: Option<Box<Cors>>,
    /// The responses that are compressed; `None`: none.
    pub compress: Option<Box<Compress>>,
    /// The requests that another upstream gets as well; `None`: none.
    pub mirror: Option<Box<Mirror>>,
    /// Deadlines of the upstream's response.
    pub timeouts: RouteTimeouts,
    /// The largest body of a request, in bytes.
    pub body_limit: u64,
    /// The least rate of a request's body, in bytes per second.
    pub min_body_rate: Option<NonZeroU64>,
    /// Protocols that a client may upgrade to, lower-case.
    pub upgrades: Vec<String>,
    /// True if paths pass that servers read differently.
    pub relaxed_path: bool,
    /// True if the upstream receives the trailers of requests other than gRPC.
    pub request_trailers: bool,
    /// The requests that are sent again, if the file says so.
    pub retry: Option<RetryPolicy>,
    /// Changes to the path and the host that the upstream is asked for.
    pub rewrite: Option<Rewrite>,
    /// Changes to what the upstream receives.
    pub request_headers: HeaderEdits,
    /// Changes to what the client receives.
    pub response_headers: HeaderEdits,
    /// The response to a rejected request, if the file has one.
    pub reject: Option<Reject>,
    /// The bodies of flowgate's own errors, if the file has any.
    pub errors: Vec<ErrorBody>,
    /// True if any text of the route needs to know of the request.
    pub has_placeholders: bool,
}

/// Deadlines of the upstream's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// From the request's end to the header of the answer.
    pub first_byte: Duration,
    /// The longest time that a body may stand still, in either direction.
    pub idle: Duration,
    /// The longest time that an answer that is a stream of events may stand still.
    pub event_stream: Duration,
    /// The longest time that a tunnel may stand still.
    pub tunnel: Duration,
    /// From the request to the end of the response, tunnels excepted; `None` if it is off.
    pub request: Option<Duration>,
}

/// The requests that are sent again after a server failed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts for one request, the first one included.
    pub attempts: u32,
    /// After a connection that could not be opened.
    pub connect: bool,
    /// After one that was closed before its answer began.
    pub reset: bool,
    /// After `timeouts.first_byte` without an answer.
    pub timeout: bool,
    /// After these statuses.
    pub statuses: Vec<u16>,
    /// Requests that may be sent again after a server had them.
    pub methods: Vec<Method>,
    /// The most of those, in percent of the upstream's requests.
    pub budget_percent: u32,
}

/// The causes, the methods and the budget, as the file would have them.
impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(self.connect, "connect"), (self.reset, "reset"), (self.timeout, "timeout")];
        let words = words.into_iter().filter(|(is_on, _)| *is_on).map(|(_, word)| word.to_owned());
        let on: Vec<_> = words.chain(self.statuses.iter().map(u16::to_string)).collect();
        let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
        write!(
            f,
            "{}, on [{}], methods [{}], budget {}%",
            counted(self.attempts, "attempt"),
            on.join(", "),
            methods.join(", "),
            self.budget_percent
        )
    }
}

/// Changes to the headers of a message: `remove` first, then `set`. In requests, they also remove the fields
/// that servers take for those named here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Fields to write, in place of any that are there.
    pub set: Vec<(HeaderName, HeaderText)>,
    /// Fields to remove.
    pub remove: Vec<HeaderName>,
}

impl HeaderEdits {
    /// Returns whether it says something about a field.
    pub fn names(&self, name: &HeaderName) -> bool {
        self.remove.contains(name) || self.set.iter().any(|(other, _)| other == name)
    }
}

/// The response to a rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reject {
    /// The end of its connection, or of its stream, without a response.
    Close,
    /// A response.
    Respond {
        /// 400 to 599; `None`: as the reason demands.
        status: Option<StatusCode>,
        /// `None`: a problem+json document.
        body: Option<Body>,
    },
}

impl Reject {
    /// Returns the status of the response, if the file has one.
    pub const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Close => None,
            Self::Respond { status, .. } => *status,
        }
    }

    /// Returns the body of the response, if the file has one.
    pub const fn body(&self) -> Option<&Body> {
        match self {
            Self::Close => None,
            Self::Respond { body, .. } => body.as_ref(),
        }
    }
}

/// The body of errors with some statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorBody {
    /// 400 to 599; if there is none, all.
    pub statuses: Vec<StatusCode>,
    /// Whose errors get it.
    pub from: ErrorsFrom,
    /// The text for the client.
    pub body: Body,
}

impl ErrorBody {
    fn is_for(&self, status: StatusCode) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }
}

impl RouteOptions {
    /// Returns the body of an error of flowgate's own; `None`: a problem+json document.
    pub fn error_body(&self, status: StatusCode) -> Option<&Body> {
        self.first_error_body(status, |from| from != ErrorsFrom::Upstream)
    }

    /// Returns the body in place of that of an upstream's error; `None`: it passes as it is.
    pub fn upstream_error_body(&self, status: StatusCode) -> Option<&Body> {
        self.first_error_body(status, |from| from != ErrorsFrom::Flowgate)
    }

    /// Returns the first body for this status whose origin of errors `is_meant`.
    fn first_error_body(
        &self,
        status: StatusCode,
        is_meant: impl Fn(ErrorsFrom) -> bool,
    ) -> Option<&Body> {
        let mut errors = self.errors.iter().filter(|error| is_meant(error.from));
        errors.find(|error| error.is_for(status)).map(|error| &error.body)
    }
}

/// A quota over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In words, as in the file: `10/1m`.
    pub text: Arc<str>,
    /// Its item in `RateLimit-Policy`. `None` if clients do not see it: what a rule with `warm_up` has
    /// left falls while no request comes, so no field could promise it.
    pub policy: Option<Arc<str>>,
}

/// The cost of a request; if it is settled after the response, the reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// For methods that are not named; at least 1.
    pub default: u64,
    /// For those that are; at least 1 each.
    pub by_method: Vec<(Method, u64)>,
    /// The source of the cost that is known after the response.
    pub settle: Option<Arc<Settle>>,
}

impl Cost {
    /// Returns it for a rule with this algorithm: a computed reserve is cut to what passes at once.
    pub(in crate::config) fn cut_to(&self, algorithm: &Algorithm) -> Self {
        let mut cost = self.clone();
        let settle = cost.settle.as_mut().map(Arc::make_mut);
        if let Some(reserve) = settle.and_then(|settle| settle.reserve.as_mut()) {
            let plans = algorithm.plans().map_or(&[][..], |plans| plans.table().levels());
            reserve.most = algorithm.most_at_once();
            reserve.most_of_plans = plans.iter().map(Algorithm::most_at_once).collect();
        }
        cost
    }

    /// Returns whether the reserve of each request is computed.
    pub fn computes_reserve(&self) -> bool {
        self.settle.as_ref().is_some_and(|settle| settle.reserve.is_some())
    }

    /// Returns whether what a response has cost so far is charged while it passes.
    pub fn settles_while_streaming(&self) -> bool {
        self.settle.as_ref().is_some_and(|settle| settle.while_streaming)
    }

    /// Returns how much a request with this method counts.
    pub fn of(&self, method: &Method) -> u64 {
        let named = self.by_method.iter().find(|(named, _)| named == method);
        named.map_or(self.default, |(_, cost)| *cost)
    }
}
