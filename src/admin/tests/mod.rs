//! Every page by a gateway whose routes have seen a little.

mod keys;
mod listed;
mod live;
mod openmetrics;
mod replies;
mod requests;

use super::{context::PAGES, reply::Reply, router::all, *};
use crate::{
    access_log::{Output, Sink},
    clock::Clock,
    config::{self, AccessLog, Live, Snapshot},
    flow::{Claim, Instant, Key, Outcome},
    meter::{AdminRejection, Counters, Ended, ExemplarId, HttpRejection, RouteMeter},
    route::Seed,
};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use std::{fs, num::NonZeroUsize, path::PathBuf, sync::atomic::Ordering::Relaxed};
use tempfile::TempDir;
use tokio::sync::mpsc;

const CONFIG: &str = "
listeners: [{ name: web, listen: 127.0.0.1:0 }]
store: { redis: redis://127.0.0.1 }
upstreams:
  - { name: one, servers: [{ url: 'http://127.0.0.1:9001', weight: 3 }, { url: 'http://[::1]:9002' }] }
  - { name: two, servers: [{ url: 'http://127.0.0.1:9001', weight: 3 }] }
routes:
  - name: rest
    match: { path_prefix: / }
    upstream: two
    flow: [{ name: synced, limit: 1000/1s, scope: cluster, sync_interval: 50ms }]
    breaker: { errors: 1 }
  - name: api
    match: { path_prefix: /api }
    upstream: one
    flow:
      - { name: total, algorithm: fixed_window, limit: 3/1h }
      - { name: per-client, algorithm: token_bucket, limit: 100/1s, key: client_ip }
      - { name: together, concurrency: 1, dry_run: true }
    pacing: { rate: 10/1s, max_wait: 10s }
";

struct Fixture {
    router: Router,
    /// Writes nothing.
    access_log: Sink,
    /// The other end of `/reload`.
    requested: mpsc::Receiver<()>,
    directory: TempDir,
}

#[tokio::test(start_paused = true)]
async fn metrics_are_strictly_in_their_format_and_count_what_happened() {
    let fixture = Fixture::new();
    fixture.serve_a_little().await;
    let page = fixture.openmetrics();
    let samples = openmetrics::read(&page);
    for (sample, value) in [
        (
            r#"flowgate_flow_decisions_total{decision="passed",reason="",route="api",rule="total"}"#,
            3.0,
        ),
        (
            r#"flowgate_flow_decisions_total{decision="rejected",reason="rate",route="api",rule="total"}"#,
            2.0,
        ),
        (
            r#"flowgate_flow_dry_run_rejections_total{reason="concurrency",route="api",rule="together"}"#,
            1.0,
        ),
        (
            r#"flowgate_flow_decisions_total{decision="delayed",reason="",route="api",rule="pacing"}"#,
            2.0,
        ),
        (
            r#"flowgate_flow_decisions_total{decision="rejected",reason="breaker",route="rest",rule="breaker"}"#,
            1.0,
        ),
        (r#"flowgate_breaker_state{route="rest"}"#, 2.0),
        (r#"flowgate_breaker_transitions_total{route="rest",to="open"}"#, 1.0),
        (r#"flowgate_breaker_transitions_total{route="rest",to="closed"}"#, 0.0),
        (r#"flowgate_flow_keys{route="api",rule="per-client"}"#, 3.0),
        (r#"flowgate_flow_keys_evicted_total{route="api",rule="per-client"}"#, 0.0),
        (r#"flowgate_flow_keys_restored_total{route="api",rule="per-client"}"#, 0.0),
        (r#"flowgate_flow_keys_overflow_total{route="api",rule="per-client"}"#, 0.0),
        (r#"flowgate_flow_in_flight{route="api"}"#, 2.0),
        (r#"flowgate_flow_in_flight{route="rest"}"#, 0.0),
        (r#"flowgate_flow_queue_depth{route="api"}"#, 1.0),
        (r#"flowgate_flow_ends_total{outcome="completed",route="api"}"#, 1.0),
        (r#"flowgate_flow_wait_seconds_count{route="api"}"#, 2.0),
        (r#"flowgate_flow_wait_seconds_bucket{le="0.1",route="api"}"#, 1.0),
        (r#"flowgate_flow_wait_seconds_sum{route="api"}"#, 0.3),
        (r#"flowgate_http_requests_total{code="429",method="GET",route="api"}"#, 2.0),
        (r#"flowgate_http_requests_total{code="200",method="POST",route="api"}"#, 1.0),
        (r#"flowgate_http_request_duration_seconds_bucket{le="0.0005",route="api"}"#, 2.0),
        (r#"flowgate_http_request_duration_seconds_sum{route="api"}"#, 0.25),
        (r#"flowgate_http_rejected_total{reason="no_route"}"#, 1.0),
        (r#"flowgate_upstream_requests_total{server="127.0.0.1:9001"}"#, 7.0),
        (r#"flowgate_upstream_in_flight{server="[::1]:9002"}"#, 4.0),
        (r#"flowgate_upstream_server_weight{server="127.0.0.1:9001",upstream="two"}"#, 3.0),
        (r#"flowgate_config_reloads_total{result="failed"}"#, 5.0),
        ("flowgate_connections_accepted_total{}", 1.0),
        ("flowgate_connections_active{}", 0.0),
        ("flowgate_upload_buffer_bytes{}", 7.0),
        ("flowgate_panics_total{}", 0.0),
    ] {
        assert_eq!(samples.get(sample), Some(&value), "{sample}\n{page}");
    }
    let hash = &fixture.snapshot().hash;
    assert!(samples.contains_key(&format!(r#"flowgate_config_info{{hash="{hash}"}}"#)));
    assert!(samples["process_resident_memory_bytes{}"] > 1e6);
}

#[tokio::test(start_paused = true)]
async fn without_openmetrics_a_client_gets_the_same_samples_in_the_older_format() {
    let fixture = Fixture::new();
    fixture.serve_a_little().await;
    let samples = |page: &str| -> Vec<String> {
        let lines = page.lines().filter(|line| !line.starts_with(['#', 'p']));
        lines.map(str::to_owned).collect()
    };
    let response = fixture.ask("GET", "/metrics", &[("accept", "*/*")]);
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let page = fixture.get("/metrics").1;
    assert!(page.contains("# TYPE flowgate_flow_decisions_total counter\n"), "{page}");
    assert!(!page.contains("# EOF") && !page.contains("# UNIT"), "{page}");
    let openmetrics = samples(&fixture.openmetrics());
    let without_exemplars = openmetrics.iter().map(|line| line.split(" # ").next().unwrap());
    assert!(samples(&page).iter().eq(without_exemplars), "{page}");
}

#[tokio::test(start_paused = true)]
async fn each_bucket_of_the_durations_has_its_exemplar_in_openmetrics() {
    let fixture = Fixture::new();
    fixture.serve_a_little().await;
    let page = fixture.openmetrics();
    let with: Vec<&str> = page.lines().filter(|line| line.contains(" # {")).collect();
    let bucket = "flowgate_http_request_duration_seconds_bucket";
    let samples = openmetrics::read(&page);
    let first_byte = "flowgate_http_time_to_first_byte_seconds";
    let to_125_ms = format!(r#"{first_byte}_bucket{{le="0.25",route="api"}}"#);
    assert_eq!(samples[&to_125_ms].to_bits(), 3_f64.to_bits());
    assert_eq!(samples[&to_125_ms.replace("0.25", "0.1")].to_bits(), 2_f64.to_bits());
    let exemplar = r#"# {trace_id="00000000000000000000000000000abc"}"#;
    assert_eq!(
        with,
        [
            format!(r#"{bucket}{{le="0.0001",route="api"}} 2 {exemplar} 0 1000000000.000"#),
            format!(r#"{bucket}{{le="0.25",route="api"}} 3 {exemplar} 0.25 1000000000.000"#),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_metric_has_no_labels_but_these() {
    let fixture = Fixture::new();
    fixture.serve_a_little().await;
    let allowed = [
        "code", "decision", "hash", "le", "method", "outcome", "reason", "result", "route", "rule",
        "server", "to", "upstream", "version",
    ];
    for sample in openmetrics::read(&fixture.openmetrics()).into_keys() {
        let labels = sample.split_once('{').unwrap().1.trim_end_matches('}');
        for label in labels.split(',').filter_map(|pair| pair.split_once('=')) {
            assert!(allowed.contains(&label.0), "{sample}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn routes_are_listed_as_they_match_with_what_they_have_seen() {
    let fixture = Fixture::new();
    fixture.serve_a_little().await;
    let (_, page) = fixture.get("/routes");
    let page: Value = serde_json::from_str(&page).unwrap();
    let names: Vec<_> = page["routes"].as_array().unwrap().iter().map(|r| &r["name"]).collect();
    assert_eq!(names, ["api", "rest"]);
    let api = &page["routes"][0];
    assert_eq!(api["upstream"], "one");
    assert_eq!(api["in_flight"], 2);
    assert_eq!(api["total"]["passed"], 1);
    assert_eq!(api["total"]["delayed"], 2);
    assert_eq!(api["total"]["rejected"], 2);
    assert_eq!(api["total"]["wait_mean_ms"], 150.0);
    let rules = api["rules"].as_array().unwrap();
    let names: Vec<_> = rules.iter().map(|rule| &rule["name"]).collect();
    assert_eq!(names, ["total", "per-client", "together", "pacing"]);
    assert_eq!(rules[0]["limit"], "3/1h");
    assert_eq!(rules[0]["used"], 3);
    assert_eq!((&rules[0]["rejected"], &rules[0]["dry_run_rejected"]), (&2.into(), &0.into()));
    assert_eq!(rules[0]["rejected_by_reason"], serde_json::json!({ "rate": 2 }));
    assert!(rules[1].get("rejected_by_reason").is_none());
    assert_eq!(rules[1]["keys"]["live"], 3);
    assert_eq!(rules[2]["dry_run"], true);
    assert!(rules[1]["key"].as_str().unwrap().contains("client_ip"));
    assert!(rules[0].get("key").is_none() && rules[3].get("key").is_none());
    let breaker = &page["routes"][1]["rules"][1]["breaker"];
    assert_eq!((&breaker["state"], &breaker["opened"]), (&"open".into(), &1.into()));
    assert!(rules[0].get("breaker").is_none());
    assert_eq!(page["upstreams"][0]["servers"][1]["address"], "[::1]:9002");
}

/// A swap puts the rules into the gates before it puts the snapshot in force.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_reset_is_shown_without_the_old_words_during_a_swap() {
    let fixture = Fixture::new();
    fixture.serve_a_little().await;
    let before = fixture.snapshot();
    let now = fixture.router.admin.state.clock.now();
    let text = CONFIG.replace(
        "algorithm: fixed_window, limit: 3/1h",
        "algorithm: sliding_window, limit: 5/1h, key: client_ip",
    );
    let plan = fixture.read(&text).unwrap();
    let summary = fixture.router.admin.state.live.apply(plan, now, &mut config::Retired::default());
    assert_eq!(summary.reset, ["api/total"]);
    let total = |snapshot: &Snapshot| -> Value {
        let page: Value =
            serde_json::from_slice(&routes::write(snapshot, &fixture.router.admin, now).unwrap())
                .unwrap();
        page["routes"][0]["rules"][0].clone()
    };
    for rule in [total(&before), total(&fixture.snapshot())] {
        assert_eq!(rule["name"], "total");
        assert_eq!(rule["algorithm"], "sliding_window");
        assert_eq!((&rule["most"], &rule["used"]), (&5.into(), &0.into()));
        assert_eq!(rule["passed"], 3, "what was decided stays counted");
    }
    let during = total(&before);
    assert!(during.get("limit").is_none() && during.get("key").is_none(), "{during}");
    let after = total(&fixture.snapshot());
    assert_eq!(after["limit"], "5/1h");
    assert!(after["key"].as_str().unwrap().contains("client_ip"));
}

#[test]
fn readiness_is_as_it_was_set() {
    let fixture = Fixture::new();
    let readiness = &fixture.router.admin.state.readiness;
    assert_eq!(fixture.get("/readyz").0, StatusCode::SERVICE_UNAVAILABLE);
    readiness.set_ready(true);
    assert_eq!(fixture.get("/readyz"), (StatusCode::OK, "ready\n".to_owned()));
    readiness.set_ready(false);
    assert_eq!(fixture.get("/readyz").0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fixture.get("/healthz"), (StatusCode::OK, "ok\n".to_owned()));
}

#[test]
fn a_rejected_edit_is_reported_completely_and_does_not_make_unready() {
    let fixture = Fixture::new();
    let readiness = &fixture.router.admin.state.readiness;
    readiness.set_ready(true);
    assert!(fixture.get("/readyz?verbose").1.contains("no reload since the start"));
    let at = Instant::from_nanos(1_795_237_200_000_000_000);
    let broken =
        CONFIG.replace("limit: 3/1h", "limitt: 3/1h").replace("max_wait: 10s", "max_wait: ten");
    let problems = fixture.read(&broken).unwrap_err();
    let diagnostics: Vec<_> = problems.list().collect();
    readiness.rejected(at, &problems.to_string(), &diagnostics);
    let (status, page) = fixture.get("/readyz?verbose");
    assert_eq!(status, StatusCode::OK);
    for part in
        ["configuration v1, hash ", "rejected at 2026-11-21T05:00:00Z; v1 stays", "limitt", "ten"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let plan = fixture.read(&CONFIG.replace("3/1h", "4/1h")).unwrap();
    let summary = fixture.router.admin.state.live.apply(plan, at, &mut config::Retired::default());
    readiness.reloaded(at, &summary.to_string());
    let page = fixture.get("/readyz?verbose").1;
    for part in ["configuration v2", "taken at 2026-11-21T05:00:00Z", " 3/1h → 4/1h)"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[test]
fn a_reload_is_asked_for_once_until_it_is_taken() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.ask("POST", "/reload", &[]).status(), StatusCode::ACCEPTED);
    assert_eq!(fixture.ask("POST", "/reload", &[]).status(), StatusCode::ACCEPTED);
    assert_eq!(fixture.requested.try_recv(), Ok(()));
    fixture.requested.try_recv().unwrap_err();
    let from_a_page = fixture.ask("POST", "/reload", &[("origin", "http://evil.example")]);
    assert_eq!(from_a_page.status(), StatusCode::FORBIDDEN);
    fixture.requested.close();
    assert_eq!(fixture.ask("POST", "/reload", &[]).status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn a_wrong_method_gets_the_allowed_ones_and_a_wrong_path_a_404() {
    let fixture = Fixture::new();
    for (method, path, allowed) in [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("GET", "/reload", "POST"),
        ("OPTIONS", "/reload", "POST"),
    ] {
        let response = fixture.ask(method, path, &[]);
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        assert_eq!(response.headers()[header::ALLOW], allowed);
    }
    for path in ["/metrics/", "/nothing", "//"] {
        assert_eq!(fixture.ask("GET", path, &[]).status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn a_rule_and_its_overrides_are_one_series_and_several_on_the_page_of_routes() {
    let fixture = Fixture::new();
    let rule = "{ name: a, limit: 2/1h, burst: 2, overrides: [{ when: { header:x: y }, burst: 1 }, { when: { method: PUT }, limit: 9/1h }] }";
    let text = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]
routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app, flow: [{rule}] }}]\n"
    );
    let now = fixture.router.admin.state.clock.now();
    let live = &fixture.router.admin.state.live;
    live.apply(fixture.read(&text).unwrap(), now, &mut config::Retired::default());
    let snapshot = fixture.snapshot();
    for rule in &snapshot.routes[0].rules {
        for _ in 0..2 {
            let claim = Claim {
                slot: rule.slot,
                key: Key::Shared,
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            };
            drop(snapshot.routes[0].gate.enter(now, &[claim]));
        }
    }
    let counted = |decision: &str, reason: &str, count: u64| {
        let (_, page) = fixture.get("/metrics");
        let series = r#"flowgate_flow_decisions_total{route="r",rule="a""#;
        let series = format!("{series},decision=\"{decision}\",reason=\"{reason}\"}} ");
        assert_eq!(page.matches(&series).count(), 1, "{page}");
        assert!(page.contains(&format!("{series}{count}\n")), "{page}");
    };
    counted("passed", "", 5);
    counted("rejected", "rate", 1);
    let (_, page) = fixture.get("/routes");
    let page: Value = serde_json::from_str(&page).unwrap();
    let rules = page["routes"][0]["rules"].as_array().unwrap();
    let of = |key: &str| rules.iter().map(|rule| rule[key].to_string()).collect::<Vec<_>>();
    assert_eq!(of("name"), [r#""a""#; 3]);
    assert_eq!(of("when"), [r#""header:x=y""#, r#""method=PUT""#, "null"]);
    assert_eq!(of("limit"), [r#""2/1h""#, r#""9/1h""#, r#""2/1h""#]);
    // Prometheus takes a decreasing counter for a reset.
    let without = text.replace("{ when: { header:x: y }, burst: 1 }, ", "");
    assert_ne!(without, text);
    live.apply(fixture.read(&without).unwrap(), now, &mut config::Retired::default());
    counted("passed", "", 5);
    counted("rejected", "rate", 1);
}

#[test]
fn the_index_lists_every_page() {
    let (status, page) = Fixture::new().get("/");
    assert_eq!(status, StatusCode::OK);
    let mut listed = all().filter(|endpoint| !endpoint.about.is_empty());
    assert!(listed.all(|endpoint| page.contains(endpoint.path)), "{page}");
}

#[test]
fn pages_that_are_not_read_do_not_pile_up() {
    let fixture = Fixture::new();
    let mut unread: Vec<_> = (0..PAGES).map(|_| fixture.ask("GET", "/metrics", &[])).collect();
    assert_eq!(fixture.get("/routes").0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fixture.get("/healthz").0, StatusCode::OK);
    unread.pop();
    assert_eq!(fixture.get("/routes").0, StatusCode::OK);
}

/// Counts a request that ended in the year 2001. Its answer began after half of its time.
fn record(meter: &RouteMeter, method: &Method, status: StatusCode, duration: Duration) {
    let at = Duration::from_secs(1_000_000_000);
    let ended =
        Ended { method, status, first_byte: Some(duration / 2), duration, at, is_admitted: true };
    meter.record(&ended, || Some(ExemplarId::Trace(0xabc)));
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.yaml");
        fs::write(&path, CONFIG).unwrap();
        let clock = Clock::start();
        let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
        let (reload, requested) = mpsc::channel(1);
        let counters = Arc::<Counters>::default();
        let output = Output::open(&AccessLog::Off).unwrap();
        let access_log = Sink::start(output, NonZeroUsize::MIN, Arc::clone(&counters)).unwrap();
        let state = State {
            previews: Arc::default(),
            preview: mpsc::channel(1).0,
            saves: mpsc::channel(1).0,
            rejections: Arc::default(),
            worst_paths: Arc::default(),
            live: Arc::new(Live::start(plan, clock.now())),
            counters,
            watching: access_log.watching(),
            readiness: Arc::default(),
            store: None,
            reload,
            started: clock.now(),
            clock,
            seed: Seed::new([1, 2]),
            key_names: Arc::default(),
            acme: Arc::default(),
        };
        let address = "127.0.0.1:9901".parse().unwrap();
        let router = Router::new(Admin::new(state, address));
        Self { router, access_log, requested, directory }
    }

    fn read(&self, text: &str) -> Result<config::Plan, config::Diagnostics> {
        let path: PathBuf = self.directory.path().join("next.yaml");
        fs::write(&path, text).unwrap();
        config::read(&path)
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.router.admin.state.live.load())
    }

    /// Five arrivals at the route `api`, of which three pass: one ends, two do not,
    /// and one of those has yet to start. Two at `rest`: one fails, so that the other
    /// is rejected.
    async fn serve_a_little(&self) {
        let snapshot = self.snapshot();
        let api = &snapshot.routes[1];
        let claim = |slot, key| Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None };
        let clock = &self.router.admin.state.clock;
        let arrival = clock.now();
        for client in 0..5 {
            let claims = [
                claim(api.rules[0].slot, Key::Shared),
                claim(api.rules[1].slot, Key::Of(client)),
                claim(api.rules[2].slot, Key::Shared),
                claim(api.pacing.unwrap(), Key::Shared),
            ];
            match api.gate.enter(arrival, &claims) {
                Ok(admission) if client == 0 => {
                    admission.permit.finish(Outcome::Success { at: arrival });
                }
                Ok(admission) => std::mem::forget(admission),
                Err(_) => {
                    record(&api.meter, &Method::GET, StatusCode::TOO_MANY_REQUESTS, Duration::ZERO);
                }
            }
        }
        let rest = &snapshot.routes[0];
        let claims = [claim(rest.breaker.unwrap(), Key::Shared)];
        let first = rest.gate.enter(arrival, &claims).unwrap().permit;
        assert!(first.finish(Outcome::Failure { at: arrival }).is_some());
        rest.gate.enter(arrival, &claims).unwrap_err();
        record(&api.meter, &Method::POST, StatusCode::OK, Duration::from_millis(250));
        let servers = snapshot.upstreams[0].servers();
        servers[0].meter.requests.store(7, Relaxed);
        servers[1].in_flight.store(4, Relaxed);
        let counters = &self.router.admin.state.counters;
        counters.count_rejection(HttpRejection::NoRoute);
        counters.reloads_failed.store(5, Relaxed);
        counters.upload_buffers.store(7, Relaxed);
        drop(counters.connection(1));
        // By then the second has started, and the third has not.
        clock.sleep_until(arrival + Duration::from_millis(110)).await;
    }

    fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Reply {
        let request = Request::builder().method(method).uri(target);
        let request =
            fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Full::new(Bytes::new())).unwrap();
        self.router.answer(request).now_or_never().unwrap()
    }

    fn get(&self, target: &str) -> (StatusCode, String) {
        read(self.ask("GET", target, &[]))
    }

    fn openmetrics(&self) -> String {
        read(self.ask("GET", "/metrics", &[("accept", "application/openmetrics-text")])).1
    }
}

fn read(response: Reply) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().now_or_never();
    let bytes = body.unwrap().unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}
