//! Previews beside gateways of their own, in virtual time.

use super::{
    Arrival, EndCause, Here, Identified, LiveRequest, OwnRejection, PreviewReport, Previews,
    RunningPreview, Start, State, Treatment, TreatmentChange, Trial, UNREAD,
};
use crate::{
    access_log::{DecisionKind, DecisionRecord},
    config::{self, Claims, KeySource, Live, Plan, RequestContext, Retired, RouteRule, Snapshot},
    flow::{self, Instant, Outcome, Permit},
    geo::Located,
    route::{Identity, Seed, Target},
};
use core::{cell::Cell, net::IpAddr, time::Duration};
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use std::sync::Arc;

const SEED: Seed = Seed::new([1, 2]);

/// A day, so that the clock has begun.
const START: Instant = Instant::from_nanos(86_400_000_000_000);

fn after(millis: u64) -> Instant {
    START + Duration::from_millis(millis)
}

fn plan(routes: &str) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    let text = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]
routes:\n{routes}"
    );
    std::fs::write(&path, text).unwrap();
    config::read(&path).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns a route for all requests with these rules.
fn all(rules: &str) -> String {
    format!("  - {{ name: all, match: {{ path_prefix: / }}, upstream: app{rules} }}\n")
}

/// A request, as a client sends it.
#[derive(Clone, Debug)]
struct Sent {
    path: &'static str,
    method: Method,
    client: IpAddr,
    headers: HeaderMap,
}

fn sent(path: &'static str, client: u8, tenant: u8) -> Sent {
    let mut headers = HeaderMap::new();
    headers.insert("x-tenant", HeaderValue::from(u16::from(tenant)));
    Sent { path, method: Method::GET, client: [192, 0, 2, client].into(), headers }
}

impl Sent {
    fn target(&self) -> Target<'_> {
        let Self { path, method, headers, .. } = self;
        let headers = headers.into();
        let listener = Some("web");
        let host = "shop.example.com";
        Target {
            listener,
            host,
            path,
            query: None,
            method,
            headers,
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
        }
    }
}

/// A gateway without sockets.
struct TestProxy {
    live: Live,
    previews: Arc<Previews>,
    is_logged: bool,
    shows_keys: bool,
    /// Requests that the new file decided about by what the file in force had found out.
    alike: Cell<u64>,
}

/// A request that a gateway has decided about.
struct Decided {
    result: Result<DecisionRecord, OwnRejection>,
    permit: Option<Permit>,
    trial: Option<Box<Trial>>,
}

impl TestProxy {
    fn new(routes: &str) -> Self {
        Self {
            live: Live::start(plan(routes), START),
            previews: Arc::default(),
            is_logged: true,
            shows_keys: true,
            alike: Cell::new(0),
        }
    }

    /// Returns one whose rules had other names before, so that some have other slots than those of a
    /// preview.
    fn edited(routes: &str) -> Self {
        let proxy = Self::new(&routes.replace("name: bucket", "name: former"));
        proxy.live.apply(plan(routes), START, &mut Retired::default());
        proxy
    }

    /// Begins a preview.
    fn preview(&self, routes: &str, now: Instant) {
        let plan = plan(routes);
        let memory = config::most_bytes(&plan);
        let start = Start {
            base: self.live.load_full(),
            snapshot: self.live.preview(plan, now),
            text: Vec::new(),
            on_disk: 0,
            memory,
            seed: SEED,
            shows_keys: self.shows_keys,
            most: Some(Duration::from_mins(10)),
            workers: 2,
        };
        self.previews.begin(start, now);
    }

    fn report(&self, now: Instant) -> PreviewReport {
        self.previews.report(now).expect("a preview")
    }

    /// Decides about a request as the proxy does.
    fn decide(&self, sent: &Sent, now: Instant) -> Decided {
        self.decide_as(sent, now, |_| Identified::Unchecked)
    }

    fn decide_as(
        &self,
        sent: &Sent,
        now: Instant,
        identify: impl Fn(bool) -> Identified,
    ) -> Decided {
        let snapshot = self.live.load_full();
        let target = sent.target();
        let route = snapshot.find(&target, sent.path).ok();
        let request = RequestContext { seed: &SEED, target: &target, client: sent.client };
        let worker = self.previews.handle(usize::from(sent.client.is_ipv4()));
        let running = worker.running(&snapshot);
        let preview = running.as_ref().and_then(RunningPreview::get);
        let alike = route.and_then(|route| preview?.alike(route, sent.path, sent.client));
        let arrival = Arrival {
            request,
            path: sent.path,
            here: route,
            length: Some(0),
            is_logged: self.is_logged,
            worker: worker.worker(),
        };
        let mut trial = preview.filter(|_| alike.is_none()).and_then(|preview| {
            preview.decide(&arrival, |_, same| identify(same), |_, _| KeySource::Request, now)
        });
        let (result, treatment, permit, claims) = decide(&snapshot, request, sent.path, now);
        let here = Here { route, treatment, method: &sent.method, path: sent.path };
        if let Some(trial) = &mut trial {
            worker.compare(trial, &here, now);
        }
        if let Some(alike) = alike {
            self.alike.set(self.alike.get() + 1);
            let claims = &claims;
            let is_logged = self.is_logged;
            let live = LiveRequest { claims, here, is_logged, wall: now, worker: worker.worker() };
            let by_client = |rule: &RouteRule| rule.claim_by_client(request, KeySource::Request);
            let show = |rule: &RouteRule| rule.key.show(&target, sent.client);
            trial = alike.decide(&live, by_client, show, now);
        }
        Decided { result, permit, trial }
    }
}

/// Decides by a snapshot.
fn decide(
    snapshot: &Snapshot,
    request: RequestContext<'_>,
    path: &str,
    now: Instant,
) -> (Result<DecisionRecord, OwnRejection>, Treatment, Option<Permit>, Claims) {
    let mut claims = Claims::new();
    let Ok(route) = snapshot.find(request.target, path) else {
        return (
            Err(OwnRejection::NoRoute),
            Treatment::OwnRejection(OwnRejection::NoRoute),
            None,
            claims,
        );
    };
    route.claim(request, |_, _| KeySource::Request, &mut claims);
    match route.gates.enter(now, &claims) {
        Ok(flow::Admission { permit, report }) => {
            let treatment = Treatment::admitted(&report);
            (Ok(DecisionRecord::admitted(&report, route)), treatment, Some(permit), claims)
        }
        Err(rejection) => {
            let treatment = Treatment::Rejected(rejection.slot, rejection.reason.kind());
            (Ok(DecisionRecord::rejected(&rejection)), treatment, None, claims)
        }
    }
}

/// Rules of each algorithm, keyed and not, with overrides, priorities, warm-ups, costs, exceptions and
/// dry runs.
const NEW: &str = "
  - name: cart
    match: { path: /cart }
    upstream: app
    flow:
      - { name: units, limit: 6/1s, key: \"header:x-tenant\", cost: { default: 1, POST: 2 }, except: { client_ip: 192.0.2.3/32 }, overrides: [{ when: { \"header:x-tenant\": \"1\" }, limit: 3/1s }] }
      - { name: turns, algorithm: fixed_window, limit: 7/2s, priority: { header: x-tenant, equals: \"2\", max_wait: 300ms } }
      - { name: warm, limit: 20/1s, burst: 4, warm_up: { period: 2s, cold_factor: 4 } }
  - name: login
    match: { path: /login }
    upstream: app
    flow:
      - { name: bucket, limit: 3/1s, burst: 4, key: client_ip }
      - { name: log, algorithm: sliding_log, limit: 7/2s, key: \"header:x-tenant\" }
      - { name: dry, limit: 1/1s, dry_run: true }
    pacing: { rate: 20/1s, max_wait: 200ms, max_queue: 3 }
  - name: search
    match: { path: /search }
    upstream: app
    flow:
      - { name: window, algorithm: sliding_window, limit: 5/1s, key: client_ip, max_keys: 2 }
      - { name: fixed, algorithm: fixed_window, limit: 4/1s, key: \"header:x-tenant\" }
      - { name: counter, algorithm: sliding_counter, limit: 9/1s }
  - name: rest
    match: { path_prefix: / }
    upstream: app
    flow:
      - { name: leaky, algorithm: leaky_bucket, limit: 6/1s, burst: 3 }
      - { name: at-once, concurrency: 3, key: client_ip }
    breaker: { error_ratio: 0.5, min_requests: 4, window: 2s, open_for: 1s }
";

/// The same without what depends on how requests end.
fn rates_only() -> String {
    let cut = NEW.find("      - { name: at-once").unwrap();
    NEW[..cut].to_owned()
}

/// The same without the lines with these words.
fn without(words: &[&str]) -> String {
    let rates = rates_only();
    let has_none = |line: &&str| words.iter().all(|word| !line.contains(word));
    let lines = rates.lines().filter(has_none).map(|line| {
        if line == "    flow:" {
            line.to_owned() + "\n      - { name: first, limit: 50/1s }"
        } else {
            line.to_owned()
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[derive(Clone, Debug)]
struct Step {
    gap: u64,
    sent: Sent,
    lasts: u64,
    fails: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = prop::sample::select(vec!["/cart", "/login", "/search", "/other"]);
    let gap = prop_oneof![Just(0), 0..30_u64, 100..900_u64];
    let method = prop_oneof![3 => Just(Method::GET), 1 => Just(Method::POST)];
    let step = (gap, path, 1..4_u8, 0..3_u8, method, 0..400_u64, any::<bool>());
    let step = step.prop_map(|(gap, path, client, tenant, method, lasts, fails)| {
        let sent = Sent { method, ..sent(path, client, tenant) };
        Step { gap, sent, lasts, fails }
    });
    prop::collection::vec(step, 1..120)
}

/// Ends the requests that end until `now`, in their order.
fn end_until(ends: &mut Vec<(u64, bool, Vec<Decided>)>, now: u64) {
    ends.sort_by_key(|(at, ..)| *at);
    let due = ends.partition_point(|(at, ..)| *at <= now);
    for (at, fails, decided) in ends.drain(..due) {
        let at = after(at);
        let outcome = if fails { Outcome::Failure { at } } else { Outcome::Success { at } };
        for Decided { permit, trial, .. } in decided {
            if let Some(trial) = trial {
                trial.finish(outcome);
            }
            if let Some(permit) = permit {
                let _transition = permit.finish(outcome);
            }
        }
    }
}

/// Returns the file with other numbers in its rules.
fn with_other_numbers(routes: &str) -> String {
    let edits = [("3/1s", "5/1s"), ("7/2s", "4/2s"), ("20/1s", "30/1s"), ("6/1s", "2/1s")];
    let more = [("5/1s, key", "8/1s, key"), ("concurrency: 3", "concurrency: 2"), ("0.5", "0.3")];
    let edit = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    edits.iter().chain(&more).fold(routes.to_owned(), edit)
}

/// Sends the same requests to two gateways of the file `old` with a preview of `new`, of which one
/// logs, to one of `old` and to one of `new`. Returns how many requests the preview decided about
/// by what the file in force had found out.
fn check(old: &str, new: &str, steps: Vec<Step>) -> Result<u64, TestCaseError> {
    let logging = TestProxy::edited(old);
    let silent = TestProxy { is_logged: false, ..TestProxy::edited(old) };
    let plain = TestProxy::edited(old);
    let second = TestProxy::new(new);
    logging.preview(new, START);
    silent.preview(new, START);
    let mut now = 0;
    let mut ends = Vec::new();
    let mut rejected = 0;
    for (arrivals, Step { gap, sent, lasts, fails }) in (1..).zip(steps) {
        now += gap;
        end_until(&mut ends, now);
        let one = logging.decide(&sent, after(now));
        let quiet = silent.decide(&sent, after(now));
        let off = plain.decide(&sent, after(now));
        let other = second.decide(&sent, after(now));
        prop_assert_eq!(one.result, off.result, "a preview changes nothing");
        let record = one.trial.as_deref().and_then(Trial::record).map(super::TrialRecord::decided);
        prop_assert_eq!(record, Some(other.result), "{:?} at {}", sent, now);
        prop_assert!(quiet.trial.as_deref().and_then(Trial::record).is_none());
        let is_rejected = |decided: &Decided| decided.permit.is_none();
        rejected += u64::from(is_rejected(&other) && !is_rejected(&one));
        let [logged, unlogged] = [&logging, &silent].map(|proxy| proxy.report(after(now)));
        prop_assert_eq!(&logged.requests, &unlogged.requests, "{:?} at {}", sent, now);
        prop_assert_eq!(logged.requests.compared, arrivals);
        prop_assert_eq!(logged.requests.would_be_rejected, rejected);
        ends.push((now + lasts, fails, vec![one, quiet, off, other]));
    }
    end_until(&mut ends, u64::MAX / 2_000_000);
    let [logged, unlogged] = [&logging, &silent].map(|proxy| proxy.report(after(now)));
    let shown = |report: &PreviewReport| {
        let mut changes: Vec<_> =
            report.changes.iter().map(|change| format!("{change:?}")).collect();
        changes.sort_unstable();
        format!("{changes:?} {:?}", report.routes)
    };
    prop_assert_eq!(shown(&logged), shown(&unlogged));
    Ok(logging.alike.get())
}

proptest! {
    // Four gateways are made for each case.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_preview_decides_as_a_second_gateway_does(steps in steps()) {
        check(&all(""), NEW, steps)?;
    }

    #[test]
    fn it_does_so_too_if_requests_are_really_rejected(steps in steps()) {
        let old = all(", flow: [{ name: few, limit: 4/1s, key: client_ip }]");
        check(&old, &rates_only(), steps)?;
    }

    #[test]
    fn it_does_so_too_if_only_numbers_differ(steps in steps()) {
        let requests = steps.len() as u64;
        prop_assert_eq!(check(NEW, NEW, steps.clone())?, requests);
        // Where the end of requests matters, a request that is really rejected has none.
        let rates = rates_only();
        prop_assert_eq!(check(&rates, &with_other_numbers(&rates), steps.clone())?, requests);
        prop_assert_eq!(check(&with_other_numbers(&rates), &rates, steps)?, requests);
    }

    #[test]
    fn it_does_so_too_if_rules_come_and_go(steps in steps()) {
        let requests = steps.len() as u64;
        let less = without(&["bucket", "dry", "fixed", "leaky", "pacing:"]);
        let to = |path: &str| steps.iter().filter(|step| step.sent.path == path).count() as u64;
        // All new rules count by the client's address or together, except one by a header. Where a rule
        // has overrides, the new file decides all by itself.
        let with_overrides = to("/cart");
        let by_header = to("/search");
        let rates = rates_only();
        let found = check(&less, &rates, steps.clone())?;
        prop_assert_eq!(found, requests - with_overrides - by_header);
        prop_assert_eq!(check(&rates, &less, steps)?, requests - with_overrides);
    }
}

#[test]
fn a_report_names_the_clients_that_a_rule_would_reject() {
    let proxy = TestProxy::new(&all(""));
    proxy.preview(
        &all(", flow: [{ name: per-tenant, limit: 2/1m, key: \"header:x-tenant\" }]"),
        START,
    );
    for at in 0..5 {
        proxy.decide(&sent("/a", 1, 7), after(at));
    }
    proxy.decide(&sent("/a", 1, 8), after(5));
    let report = proxy.report(after(1000));
    assert_eq!(report.requests.in_words(), "6 requests: 3 the same, 3 would be rejected");
    let [change] = &report.changes[..] else { panic!("{report:?}") };
    assert_eq!(
        (&*change.here, &*change.there),
        ("all: passed", "all: rejected by per-tenant (rate)")
    );
    assert_eq!((&*change.change, change.count, change.examples.len()), ("would_be_rejected", 3, 3));
    assert_eq!((&*change.examples[0].path, &*change.examples[0].client), ("/a", "192.0.2.1"));
    let [client] = &report.clients[..] else { panic!("{report:?}") };
    let by = (client.route.as_deref(), client.rule.as_deref(), &*client.client);
    assert_eq!(by, (Some("all"), Some("per-tenant"), "7"));
    assert_eq!((client.count, client.error, client.requests.would_be_rejected), (3, 0, 3));
    let [route] = &report.routes[..] else { panic!("{report:?}") };
    let rule = &route.rules[0];
    assert_eq!((rule.passed, rule.rejected.get("rate"), rule.keys), (3, Some(&3), Some(2)));
    assert_eq!(report.state, State::Running);
    assert_eq!(report.remaining_s, Some(599.0));
}

#[test]
fn a_report_names_what_else_would_differ() {
    let old = "
  - { name: a, match: { path: /a }, upstream: app, flow: [{ name: one, limit: 1/1m }] }
  - { name: b, match: { path: /b }, upstream: app }
  - { name: c, match: { path: /c }, upstream: app }
  - { name: d, match: { path: /d }, upstream: app }
  - { name: e, match: { path: /e }, upstream: app }
";
    let new = "
  - { name: a, match: { path: /a }, upstream: app }
  - { name: b, match: { path: /b }, redirect: { to: https://other.example.com/ } }
  - { name: c, match: { path: /c }, upstream: app, access: { deny: [192.0.2.0/24] } }
  - { name: e, match: { path: /e }, upstream: app, pacing: { rate: 1/1s, max_wait: 5s, max_queue: 9 } }
  - { name: f, match: { path: /f }, upstream: app }
";
    let proxy = TestProxy::new(old);
    proxy.preview(new, START);
    for path in ["/a", "/a", "/b", "/c", "/d", "/e", "/e", "/f"] {
        proxy.decide(&sent(path, 1, 0), START);
    }
    let report = proxy.report(START);
    let mut kinds: Vec<_> = report
        .changes
        .iter()
        .map(|change| format!("{}: {} → {}", change.change, change.here, change.there))
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "other_answer: b: passed → b: passed, redirect 302 https://other.example.com/",
            "would_be_delayed: e: passed → e: delayed by pacing",
            "would_be_rejected: c: passed → c: the address is not allowed (403)",
            "would_be_rejected: d: passed → no route matches",
            "would_pass: a: rejected by one (rate) → a: passed",
            "would_pass: no route matches → f: passed",
        ]
    );
    let delayed = report.changes.iter().find(|change| change.change == "would_be_delayed");
    assert_eq!(delayed.unwrap().wait_ms, Some([1000.0, 1000.0]));
}

#[test]
fn requests_wait_in_the_queue_of_the_new_file_and_share_its_room() {
    let queue = "concurrency: 1, queue: { max: 2, share_by: 'header:x-tenant' }";
    let proxy = TestProxy::new(&all(""));
    proxy.preview(&all(&format!(", flow: [{{ name: places, {queue} }}]")), START);
    // One has the place, and two of the same tenant wait.
    let mut running: Vec<Decided> = (0..3).map(|_| proxy.decide(&sent("/", 1, 1), START)).collect();
    running.push(proxy.decide(&sent("/", 1, 1), START));
    running.push(proxy.decide(&sent("/", 1, 2), START));

    let report = proxy.report(START);
    let requests = &report.requests;
    assert_eq!((requests.same, requests.would_be_delayed, requests.would_be_rejected), (1, 3, 1));
    let mut kinds: Vec<_> =
        report.changes.iter().map(|change| (change.there.clone(), change.count)).collect();
    kinds.sort_unstable();
    let expected = [("all: delayed by places", 3), ("all: rejected by places (queue)", 1)];
    assert_eq!(kinds, expected.map(|(there, count)| (there.to_owned(), count)));

    let logged = |decided: &Decided| decided.trial.as_ref()?.record()?.decided().ok();
    let logged: Vec<_> = running.iter().map(|one| logged(one).unwrap().decision).collect();
    let delayed = DecisionKind::Delayed;
    let rejected = DecisionKind::Rejected(flow::ReasonKind::Queue);
    assert_eq!(logged, [DecisionKind::Passed, delayed, delayed, rejected, delayed]);
}

#[test]
fn a_dry_run_of_the_new_file_rejects_nobody_in_the_preview_either() {
    let proxy = TestProxy::new(&all(""));
    proxy.preview(&all(", flow: [{ name: dry, limit: 1/1m, dry_run: true }]"), START);
    for _ in 0..3 {
        proxy.decide(&sent("/", 1, 0), START);
    }
    let report = proxy.report(START);
    assert_eq!(report.requests.same, 3);
    let rule = &report.routes[0].rules[0];
    assert!(rule.dry_run);
    assert_eq!((rule.passed, rule.dry_run_rejected), (1, 2));
}

#[test]
fn a_client_that_must_authenticate_by_the_new_file_is_asked_for_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, format!("alice:{}\n", bcrypt::hash("x", 4).unwrap())).unwrap();
    let auth = format!(", auth: {{ basic: {} }}", users.display());
    let proxy = TestProxy::new(&all(""));
    proxy.preview(&all(&auth), START);
    let request = sent("/", 1, 0);
    proxy.decide_as(&request, START, |same| {
        assert!(!same);
        Identified::Rejected
    });
    proxy.decide_as(&request, START, |_| {
        Identified::As(Some(Identity::of_user(Some("alice".into()))))
    });
    proxy.decide_as(&request, START, |_| Identified::Unchecked);
    let report = proxy.report(START);
    let requests = report.requests;
    assert_eq!((requests.compared, requests.same, requests.would_be_rejected), (2, 1, 1));
    assert!(report.notes[0].starts_with("1 request is not compared"), "{:?}", report.notes);
    // The same demand in both files.
    let proxy = TestProxy::new(&all(&auth));
    proxy.preview(
        &all(&format!("{auth}, flow: [{{ name: per-user, limit: 1/1m, key: user }}]")),
        START,
    );
    proxy.decide_as(&request, START, |same| {
        assert!(same);
        Identified::As(Some(Identity::of_user(Some("alice".into()))))
    });
    assert_eq!(proxy.report(START).requests.same, 1);
}

#[test]
fn the_file_that_is_applied_goes_on_with_what_its_preview_has_counted() {
    let month = "{ name: month, algorithm: fixed_window, limit: 4/month, tz: UTC, key: client_ip }";
    let old = all(&format!(", flow: [{month}, {{ name: rate, limit: 100/1m, key: client_ip }}]"));
    let new = all(&format!(
        ", flow: [{month}, {{ name: rate, limit: 2/1m, key: client_ip }}, {{ name: few, concurrency: 1, key: \"header:x-tenant\" }}]"
    ));
    let proxy = TestProxy::new(&old);
    // Before the preview.
    for _ in 0..2 {
        end(proxy.decide(&sent("/", 1, 0), START));
    }
    proxy.preview(&new, START);
    end(proxy.decide(&sent("/", 1, 0), START));
    for _ in 0..3 {
        end(proxy.decide(&sent("/", 2, 0), START));
    }
    // Under way when the file is applied.
    let long = proxy.decide(&sent("/", 3, 9), START);
    assert_eq!(proxy.report(START).requests.would_be_rejected, 1);
    let preview = proxy.previews.running().unwrap();
    let mut retired = Retired::default();
    let summary = proxy.live.apply_previewed(plan(&new), preview.snapshot(), START, &mut retired);
    assert!(summary.to_string().contains("rate 100/1m → 2/1m"), "{summary}");
    proxy.previews.end(EndCause::Applied, START);
    let counts = |name: &str| {
        let seen = proxy.live.load().routes[0].gate.observe(START);
        let rule = seen.rules.into_iter().find(|rule| *rule.name == *name).unwrap();
        (rule.counts.passed, rule.counts.rejected.total())
    };
    // What the preview would have rejected was not rejected.
    assert_eq!((counts("rate"), counts("few")), ((7, 0), (0, 0)));
    let rejected_by = |sent: &Sent| {
        let Decided { result, permit, .. } = proxy.decide(sent, START);
        let slot = result.unwrap().quota.unwrap().slot;
        permit.is_none().then(|| proxy.live.load().routes[0].rule_name(slot).to_owned())
    };
    // Twice before the preview and once in it, of four in a month; once in it, of two in a minute.
    assert_eq!(rejected_by(&sent("/", 1, 0)), None);
    assert_eq!(rejected_by(&sent("/", 1, 0)).as_deref(), Some("month"));
    // Twice in the preview.
    assert_eq!(rejected_by(&sent("/", 2, 0)).as_deref(), Some("rate"));
    // The one under way has its place, and gives it back at its end.
    assert_eq!(rejected_by(&sent("/", 4, 9)).as_deref(), Some("few"));
    end(long);
    assert_eq!(rejected_by(&sent("/", 4, 9)), None);
    assert_eq!(proxy.live.load().routes[0].gate.observe(START).in_flight, 0);
}

fn end(decided: Decided) {
    let outcome = Outcome::Success { at: START };
    if let Some(trial) = decided.trial {
        trial.finish(outcome);
    }
    if let Some(permit) = decided.permit {
        let _transition = permit.finish(outcome);
    }
}

#[test]
fn a_route_that_is_not_edited_keeps_all_its_state_when_a_preview_is_applied() {
    let few = "{ name: few, limit: 2/1m }";
    let old = all(&format!(", flow: [{few}]"));
    let more = "  - { name: more, match: { path: /more }, upstream: app, flow: [{ name: one, limit: 1/1m }] }\n";
    let proxy = TestProxy::new(&old);
    end(proxy.decide(&sent("/", 1, 0), START));
    let before = Arc::clone(&proxy.live.load().routes[0].gate);
    proxy.preview(&format!("{old}{more}"), START);
    end(proxy.decide(&sent("/more", 1, 0), START));
    let preview = proxy.previews.running().unwrap();
    let new = plan(&format!("{old}{more}"));
    proxy.live.apply_previewed(new, preview.snapshot(), START, &mut Retired::default());
    assert!(Arc::ptr_eq(&before, &proxy.live.load().routes[0].gate));
    let passes = |path| proxy.decide(&sent(path, 1, 0), START).permit.is_some();
    assert!(!passes("/more"), "the preview has let one pass");
    assert!(!passes("/"), "two have passed");
}

#[test]
fn a_preview_ends_by_itself() {
    let proxy = TestProxy::new(&all(""));
    assert_eq!(proxy.previews.is_over(START), None);
    assert!(proxy.previews.report(START).is_none());
    proxy.preview(&all(""), START);
    let last = START + UNREAD - Duration::from_nanos(1);
    assert_eq!(proxy.previews.is_over(last), None);
    assert_eq!(proxy.previews.is_over(START + UNREAD), Some(EndCause::Unread));
    // Who reads it keeps it going, but not beyond its time.
    let mut now = START;
    while now < START + Duration::from_secs(599) {
        assert_eq!(proxy.previews.is_over(now), None);
        proxy.report(now);
        now = now + Duration::from_secs(20);
    }
    assert_eq!(proxy.previews.is_over(now), Some(EndCause::Time));
    proxy.previews.end(EndCause::Time, now);
    let report = proxy.report(now);
    assert_eq!(
        (report.state, report.ended_because.as_deref()),
        (State::Ended, Some("its time is over"))
    );
    let decided = proxy.decide(&sent("/", 1, 0), now);
    assert!(decided.trial.is_none());
}

#[test]
fn requests_under_another_file_than_the_one_compared_with_are_left_alone() {
    let proxy = TestProxy::new(&all(""));
    proxy.preview(&all(""), START);
    proxy.live.apply(
        plan(&all(", flow: [{ name: r, limit: 1/1s }]")),
        START,
        &mut Retired::default(),
    );
    assert!(proxy.decide(&sent("/", 1, 0), START).trial.is_none());
}

#[test]
fn another_preview_takes_the_place_of_the_first() {
    let proxy = TestProxy::new(&all(""));
    proxy.preview(&all(""), START);
    let mut old = proxy.decide(&sent("/", 1, 0), START).trial.unwrap();
    proxy.preview(&all(", flow: [{ name: r, limit: 1/1s }]"), START);
    let here = Here { route: None, treatment: Treatment::Passed, method: &Method::GET, path: "/" };
    proxy.previews.handle(0).compare(&mut old, &here, START);
    assert_eq!(proxy.report(START).requests.compared, 0, "it is of the first");
    assert_eq!(TreatmentChange::ALL.len(), 5);
}

/// Returns the routes `a` and `b`, with a `flow` for the whole file, and budgets.
fn whole(flow: &str) -> String {
    format!(
        "
  - {{ name: a, match: {{ path: /a }}, upstream: app }}
  - {{ name: b, match: {{ path: /b }}, upstream: app }}
budgets: [{{ name: site, limit: 3/1h, burst: 3 }}]
flow: [{flow}]
"
    )
}

#[test]
fn rules_that_routes_share_are_counted_once_and_requests_without_a_route_stay_so() {
    let proxy = TestProxy::new(&whole(""));
    proxy.preview(&whole("{ budget: site }"), START);
    for path in ["/a", "/b", "/x", "/x", "/a"] {
        proxy.decide(&sent(path, 1, 0), START);
    }
    let report = proxy.report(START);
    let kinds = |report: &PreviewReport| -> Vec<String> {
        let words = |change: &super::ChangeReport| format!("{} → {}", change.here, change.there);
        let mut kinds: Vec<_> = report.changes.iter().map(words).collect();
        kinds.sort_unstable();
        kinds
    };
    assert_eq!(
        kinds(&report),
        [
            "a: passed → a: rejected by site (rate)",
            "no route matches → (no route): rejected by site (rate)",
        ]
    );
    assert_eq!(report.requests.same, 3, "with the first request that no route matches");
    let [budget] = &report.budgets[..] else { panic!("{report:?}") };
    assert_eq!((&*budget.budget, budget.rules[0].passed), ("budget site", 3));
    assert_eq!(budget.rules[0].rejected.get("rate"), Some(&2));
    assert!(report.to_string().contains("rules that routes of the new file share"));

    // A new file without such rules has one route less.
    let proxy = TestProxy::new(&whole("{ budget: site }"));
    proxy.preview(&whole(""), START);
    for path in ["/x", "/a", "/x"] {
        proxy.decide(&sent(path, 1, 0), START);
    }
    let report = proxy.report(START);
    assert_eq!((kinds(&report), report.requests.same), (Vec::new(), 3));
}
