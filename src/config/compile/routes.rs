//! Routes: names, upstreams, matchers, waits, and which can never be reached.

use super::{
    budgets::{FlowEntries, Groups},
    compiler::Compiler,
    quotas,
    templates::Use,
    upstreams,
};
use crate::{
    config::{
        decode::{At, Key, Printed},
        diagnostics::{Lint, Problem, SourceSpan},
        plan::{
            Action, Auth, Body, ErrorBody, HeaderEdits, Limits, NO_ROUTE, Reject, RouteDefinition,
            RouteOptions, RoutePlan, RouteTimeouts, RuleGroupPlan, RulePlan,
        },
        read::source::Files,
        spec::{
            BreakerSpec, ErrorSpec, ErrorsFrom, RejectSpec, RouteSpec, leaf::Period,
            values::StatusOrClose,
        },
    },
    flow::{
        self,
        breaker::{self, Slow},
        time::spelled,
    },
    route::{Matcher, Table, folded_name},
};
use http::Method;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Reports whether a route matches methods whose requests usually have a body.
pub(super) fn takes_bodies(matcher: &Matcher) -> bool {
    const BODILESS: [Method; 3] = [Method::GET, Method::HEAD, Method::OPTIONS];
    matcher.methods.is_empty() || matcher.methods.iter().any(|method| !BODILESS.contains(method))
}

/// The parts of the file that routes refer to.
pub(super) struct Parts<'f> {
    pub(super) upstreams: &'f [upstreams::Compiled],
    pub(super) groups: &'f Groups,
    /// The limits of bodies, unless a route says otherwise.
    pub(super) limits: &'f Limits,
    pub(super) files: &'f Files,
}

impl Compiler {
    /// Compiles the routes.
    pub(super) fn routes(
        &mut self,
        specs: Vec<At<Printed<RouteSpec>>>,
        parts: &Parts<'_>,
    ) -> (Vec<RoutePlan>, Table) {
        self.names("route", specs.iter().filter_map(|at| at.value.1.name.as_ref()));
        let by_name: HashMap<&str, usize> =
            parts.upstreams.iter().enumerate().map(|(index, u)| (&*u.name, index)).collect();

        let mut plans = Vec::with_capacity(specs.len());
        let mut matchers = Vec::with_capacity(specs.len());
        for at in specs {
            let spec = &at.value.1;
            let action = self.action(spec, at.span, &by_name);
            let body_limit = spec.body_limit.read(|size| size.0);
            let conditions = spec.matcher.as_ref();
            let matcher = conditions.map(|at| self.matcher(at));
            let words = matcher.as_ref().map(|matcher| self.conceal(matcher.to_string()));
            let plan = self.route(at, action, matcher.as_ref().zip(words), parts);

            if let (Some(mut plan), Some(matcher)) = (plan, matcher) {
                self.segments(&mut plan.rules, &matcher);
                self.no_bodies(body_limit.filter(|_| takes_bodies(&matcher)));
                plans.push(plan);
                matchers.push(matcher);
            }
        }

        let table = Table::build(matchers);
        plans.extend(self.unmatched(parts));
        self.queue_waits(&plans, parts.groups);
        (plans, table)
    }

    /// Returns the route of requests that no other one matches, if shared rules decide about them.
    fn unmatched(&mut self, parts: &Parts<'_>) -> Option<RoutePlan> {
        let options = RouteOptions {
            access: None,
            auth: None,
            cors: None,
            compress: None,
            mirror: None,
            timeouts: RouteTimeouts::default(),
            body_limit: parts.limits.body,
            min_body_rate: parts.limits.min_body_rate,
            upgrades: Vec::new(),
            relaxed_path: false,
            request_trailers: false,
            retry: None,
            rewrite: None,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            reject: None,
            errors: Vec::new(),
            has_placeholders: false,
        };
        let definition = RouteDefinition {
            name: NO_ROUTE.into(),
            matches: "requests that no other route matches".into(),
            options,
            flow: flow::Rules::default(),
            policy: None,
            print: 0,
        };

        let mut plan = RoutePlan {
            definition,
            span: SourceSpan::default(),
            action: Action::NoRoute,
            rules: Vec::new(),
            paced: None,
            groups: Vec::new(),
            store_tag: None,
            auth_upstream: None,
            mirror_upstream: None,
        };
        let entries = FlowEntries::default();
        self.meet(&mut plan, &[], &entries, &Matcher::default(), parts);
        (!plan.groups.is_empty()).then_some(plan)
    }

    fn route(
        &mut self,
        at: At<Printed<RouteSpec>>,
        action: Option<Action<usize>>,
        conditions: Option<(&Matcher, String)>,
        parts: &Parts<'_>,
    ) -> Option<RoutePlan> {
        let limits = parts.limits;
        let Printed(print, mut spec) = at.value;
        self.network_print = 0;

        let timeouts = self.timeouts(&spec);
        if let Some(timeouts) = timeouts {
            self.shorten_waits(&mut spec, timeouts.request);
        }

        let entries = self.flow_entries(spec.flow.items(), spec.flow.span.unwrap_or(at.span));
        let (mut flow, rules, paced) =
            self.rules(&entries.rules, entries.span, spec.pacing.at.as_ref());
        flow.breaker = spec.breaker.as_ref().and_then(|at| self.breaker(&at.value, at.span));
        let (auth, auth_print, auth_upstream) = self.route_auth(&spec, &rules, parts);
        let (mirror, mirror_upstream) = self.mirror(&spec.mirror, parts.upstreams).unzip();

        let mut options = RouteOptions {
            access: spec.access.as_ref().map(|at| self.access(at)),
            auth,
            compress: self.compress(&spec.compress).map(Box::new),
            mirror,
            cors: self.cors(&spec.cors, &spec.response_headers).map(Box::new),
            timeouts: timeouts.unwrap_or_default(),
            body_limit: spec.body_limit.bytes().unwrap_or(limits.body),
            min_body_rate: spec.min_body_rate.value().map_or(limits.min_body_rate, |rate| rate.0),
            upgrades: spec.upgrades.plain(|protocol| protocol.0.clone()),
            relaxed_path: spec.relaxed_path.is_true(),
            request_trailers: spec.request_trailers.is_true(),
            retry: spec.retry.value().and_then(|spec| self.retry(spec)),
            rewrite: self.rewrite(&spec.rewrite),
            request_headers: self.header_edits(&spec.request_headers),
            response_headers: self.header_edits(&spec.response_headers),
            reject: spec.reject.value().map(|spec| self.reject(spec)),
            errors: self.error_bodies(spec.errors.items()),
            has_placeholders: action.as_ref().is_some_and(Action::has_placeholders),
        };

        options.has_placeholders |= has_placeholders(&options);
        let (matcher, words) = conditions?;
        let definition = RouteDefinition {
            name: spec.name.value()?.0.clone(),
            matches: words.into(),
            options,
            policy: quotas::policy(rules.iter()),
            flow,
            print: print
                ^ u128::from(auth_print)
                ^ u128::from(self.address_print()).rotate_left(64),
        };
        let mut plan = RoutePlan {
            definition,
            span: spec.matcher.span.unwrap_or(at.span),
            action: action?,
            rules,
            paced,
            groups: Vec::new(),
            store_tag: None,
            auth_upstream,
            mirror_upstream,
        };
        self.meet(&mut plan, spec.exempt_from.items(), &entries, matcher, parts);
        self.not_too_many_numbers(&plan, parts);
        self.not_too_many_members(&plan, parts);
        Some(plan)
    }

    /// Returns what clients of a route must prove, what its files hash to, and the upstream that decides
    /// about each request, if one does.
    fn route_auth(
        &mut self,
        spec: &RouteSpec,
        rules: &[RulePlan],
        parts: &Parts<'_>,
    ) -> (Option<Auth>, u64, Option<usize>) {
        let (mut auth, print) = self.auth(&spec.auth, rules, parts.files);
        let forward = spec.auth.value().and_then(|auth| auth.forward.at.as_ref());
        let forward = forward.and_then(|at| self.forward_auth(at, parts.upstreams));
        let upstream = forward.as_ref().map(|forward| forward.upstream);
        if let (Some(auth), Some(forward)) = (&mut auth, forward) {
            auth.forward = Some(Arc::new(forward.auth));
        }
        self.needs_auth(&spec.auth, rules);
        (auth, print, upstream)
    }

    /// Warns of a limit of 0 for bodies, which nginx takes for no limit. Routes for methods without
    /// a body may have it.
    pub(super) fn no_bodies(&mut self, limit: Option<At<u64>>) {
        if let Some(limit) = limit.filter(|limit| limit.value == 0) {
            let message = "with a limit of 0, every request with a body gets 413";
            self.warn(
                Problem::warning(Lint::NoBodies, limit.span, message)
                    .help("write the largest size, as in `100GiB`, or `1EiB` for no limit"),
            );
        }
    }

    /// Returns the deadlines of a route, of which one has a short form.
    fn timeouts(&mut self, spec: &RouteSpec) -> Option<RouteTimeouts> {
        let short = spec.timeout.timeout();
        let long = spec.timeouts.value()?;
        let request = long.request.timeout();
        if let (Some(short), Some(long)) = (short, request.filter(|at| at.written)) {
            self.error(
                Problem::error(long.span, "the whole request has two timeouts")
                    .label("here")
                    .also(short.span, "and here")
                    .help("write one of `timeout` and `timeouts: { request: … }`"),
            );
        }
        Some(RouteTimeouts {
            first_byte: long.first_byte.duration()?.value,
            idle: long.idle.duration()?.value,
            event_stream: long.event_stream.duration()?.value,
            tunnel: long.tunnel.duration()?.value,
            request: short.or(request)?.value,
        })
    }

    fn reject(&mut self, spec: &RejectSpec) -> Reject {
        let status = match spec.status.value().map(|status| status.0) {
            None => None,
            Some(StatusOrClose::Status(status)) => Some(status),
            Some(StatusOrClose::Close) => {
                self.without_response("body", spec.body.span);
                self.without_response("content_type", spec.content_type.span);
                return Reject::Close;
            }
        };
        if let (Some(at), None) = (&spec.content_type.at, &spec.body.at) {
            self.error(
                Problem::error(at.span, "`content_type` without `body`")
                    .help("write the `body` that it is the type of, or remove it"),
            );
        }
        let content_type = spec.content_type.as_ref();
        let content_type =
            content_type.map(|at| self.header_text(&at.value, at.span, Use::Rejection));
        let body = spec.body.as_ref();
        let body = body.map(|at| self.body(&at.value.0, at.span, content_type, Use::Rejection));
        Reject::Respond { status, body }
    }

    /// Reports a key of a response beside `status: close`.
    pub(super) fn without_response(&mut self, key: &str, span: Option<SourceSpan>) {
        let Some(span) = span else { return };
        let message = format!("`{key}` beside `status: close`, which sends no response");
        let help = format!("remove `{key}`, or write a number as `status`");
        self.error(Problem::error(span, message).help(help));
    }

    fn error_bodies(&mut self, specs: &[At<ErrorSpec>]) -> Vec<ErrorBody> {
        let mut errors: Vec<ErrorBody> = Vec::with_capacity(specs.len());
        for At { value: spec, span, .. } in specs {
            let statuses = spec.status.plain(|status| status.0);
            if let Some(span) = spec.status.span.filter(|_| statuses.is_empty()) {
                self.error(
                    Problem::error(span, "`status` is empty")
                        .help("write a status, as in `502`, or remove `status` for all"),
                );
            }

            let from = spec.from.value().copied().unwrap_or(ErrorsFrom::Flowgate);
            let has_all = |earlier: &ErrorBody| {
                let mut these = statuses.iter();
                let has_statuses = earlier.statuses.is_empty()
                    || !statuses.is_empty() && these.all(|one| earlier.statuses.contains(one));
                has_statuses && (earlier.from == ErrorsFrom::Both || earlier.from == from)
            };
            if errors.iter().any(has_all) {
                let message = "an entry before this one has all its statuses";
                let problem = Problem::warning(Lint::KeyWithoutEffect, *span, message);
                self.warn(problem.help("remove it, or write it first"));
            }

            let Some(body) = spec.body.as_ref() else { continue };
            let content_type = spec.content_type.as_ref();
            let content_type =
                content_type.map(|at| self.header_text(&at.value, at.span, Use::Request));
            let body = self.body(&body.value.0, body.span, content_type, Use::Request);
            errors.push(ErrorBody { statuses, from, body });
        }
        errors
    }
}

/// True if a text of these options has placeholders.
fn has_placeholders(options: &RouteOptions) -> bool {
    let mut fields = options.request_headers.set.iter().chain(&options.response_headers.set);
    let auth = options.auth.as_ref().and_then(|auth| auth.forward.as_ref());
    let mut asked = auth.into_iter().flat_map(|forward| &forward.set);
    let login = auth.and_then(|forward| forward.login.as_ref());
    let rejection = options.reject.as_ref().and_then(Reject::body);
    let errors = options.errors.iter().map(|error| &error.body);
    fields.any(|(_, text)| text.is_template())
        || asked.any(|(_, text)| text.is_template())
        // A redirect is written from the request, also without placeholders.
        || login.is_some()
        || rejection.into_iter().chain(errors).any(Body::has_placeholders)
}

/// Returns the header fields that decide about requests, on any route: which one a request takes
/// is decided by them as well.
pub(super) fn deciding_headers(
    table: &Table,
    routes: &[RoutePlan],
    groups: &[RuleGroupPlan],
) -> Arc<[Box<str>]> {
    let mut names: BTreeSet<Box<str>> = BTreeSet::new();
    let mut add = |name: &str| _ = names.insert(folded_name(name).into());
    table.header_names().for_each(&mut add);
    let auth = routes.iter().filter_map(|route| route.options.auth.as_ref());
    auth.flat_map(Auth::header_names).for_each(&mut add);
    let shared = groups.iter().flat_map(|group| &group.rules);
    for rule in routes.iter().flat_map(|route| &route.rules).chain(shared) {
        rule.key.header_names().for_each(&mut add);
        rule.plans.iter().flat_map(|plans| plans.by().header_names()).for_each(&mut add);
        rule.when.iter().flat_map(|when| when.header_names()).for_each(&mut add);
        rule.except.iter().flat_map(|except| except.header_names()).for_each(&mut add);
        rule.priority.iter().flat_map(|priority| priority.header_names()).for_each(&mut add);
    }
    names.into_iter().collect()
}

/// Fewer answers than this say little about a ratio.
const MIN_ANSWERS: u64 = 20;

impl Compiler {
    /// Returns the breaker at `span`, or `None` if a part of it could not be read.
    fn breaker(&mut self, spec: &BreakerSpec, span: SourceSpan) -> Option<breaker::Config> {
        let slow = [spec.slow_after.span, spec.slow_ratio.span];
        if !spec.error_ratio.is_written() && !spec.errors.is_written() && slow == [None, None] {
            self.error(
                Problem::error(span, "a breaker without a condition to open").help(
                    "write `error_ratio: 0.5`, `slow_after` with `slow_ratio`, or `errors: 10`",
                ),
            );
        }

        match slow {
            [Some(span), None] => self.error(
                Problem::error(span, "`slow_after` without `slow_ratio`")
                    .help("write how many may be slow, as in `slow_ratio: 0.5`"),
            ),
            [None, Some(span)] => self.error(
                Problem::error(span, "`slow_ratio` without `slow_after`")
                    .help("write what is slow, as in `slow_after: 1s`"),
            ),
            [Some(_), Some(_)] | [None, None] => {}
        }

        let slow = spec.slow_after.duration().zip(spec.slow_ratio.value());
        let slow = slow.map(|(after, ratio)| Slow { after: after.value, ratio: ratio.0 });
        let small = |at: At<u64>| u32::try_from(at.value).unwrap_or(u32::MAX);
        let errors_alone = spec.error_ratio.is_none() && slow.is_none();
        let default = if errors_alone { 1 } else { MIN_ANSWERS };

        Some(breaker::Config {
            error_ratio: spec.error_ratio.value().map(|ratio| ratio.0),
            slow,
            errors: spec.errors.number().map(|at| at.value),
            min_requests: spec.min_requests.number().map_or(default, |at| at.value),
            window: spec.window.duration()?.value,
            buckets: spec.buckets.number().map(small)?,
            open_for: spec.open_for.duration()?.value,
            probes: spec.probes.number().map(small)?,
            dry_run: spec.dry_run.is_true(),
        })
    }
}

impl Compiler {
    /// Shortens each `max_wait` of a route to half of its `timeouts.request`, so that what would
    /// wait longer is rejected at once; warns of those that are written. Without that timeout, only
    /// the bound of `max_wait` itself holds.
    pub(super) fn shorten_waits(&mut self, route: &mut RouteSpec, request: Option<Duration>) {
        let most = request.map_or(Duration::MAX, |request| request / 2);
        self.longest_wait = most;
        self.has_short_timeout = route.timeout.is_written();
        self.shortened_waits.clear();
        if let Some(pacing) = &mut route.pacing.at {
            self.shorten(&mut pacing.value.max_wait, most);
        }
        for rule in route.flow.at.iter_mut().flat_map(|flow| &mut flow.value.0) {
            self.shorten(&mut rule.value.max_wait, most);
            if let Some(priority) = &mut rule.value.priority.at {
                self.shorten(&mut priority.value.max_wait, most);
            }
        }
    }

    fn shorten<const MIN: u64, const MAX: u64>(
        &mut self,
        key: &mut Key<Period<MIN, MAX>>,
        most: Duration,
    ) {
        let Some(max_wait) = key.at.as_mut().filter(|at| at.value.0 > most) else { return };
        max_wait.value = Period(most);
        if max_wait.written {
            self.shortened_waits.push(max_wait.span);
            let message = "such a wait leaves too little time for the response";
            let timeout = if self.has_short_timeout { "timeout" } else { "timeouts.request" };
            self.warn(
                Problem::warning(Lint::WaitAboveTimeout, max_wait.span, message)
                    .label(format!("longer than half of the route's `{timeout}`"))
                    .help(format!(
                        "write at most `max_wait: {}`, or a longer `{timeout}`",
                        spelled(most).replace(' ', "")
                    )),
            );
        }
    }
}
