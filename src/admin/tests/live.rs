//! The stream that the dashboard follows.

use super::*;
use crate::admin::{live::Query, pages::live};

/// Returns the events of a stream's next piece by their names.
async fn next(pieces: &mut mpsc::Receiver<Bytes>) -> Vec<(String, Value)> {
    let piece = pieces.recv().await.unwrap();
    let text = String::from_utf8(piece.to_vec()).unwrap();
    let events = text.split("\n\n").filter_map(|event| event.strip_prefix("event: "));
    events
        .map(|event| {
            let (name, data) = event.split_once("\ndata: ").unwrap();
            (name.to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect()
}

impl Fixture {
    async fn sample(&self) {
        let admin = &self.router.admin;
        admin.sampler.sample(&admin.state.live, &admin.state.clock).await;
    }

    fn follow(&self, query: &str) -> mpsc::Receiver<Bytes> {
        let (sender, pieces) = mpsc::channel(1);
        let admin = Arc::clone(&self.router.admin);
        let fields: Vec<_> = query.split('&').filter_map(|field| field.split_once('=')).collect();
        let query = Query::read(|name| {
            let found = fields.iter().find(|(field, _)| *field == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        tokio::spawn(live::send(admin, query, sender));
        pieces
    }
}

#[tokio::test(start_paused = true)]
async fn a_sample_has_what_happened_since_the_one_before() {
    let fixture = Fixture::new();
    fixture.sample().await;
    let mut pieces = fixture.follow("sort=name");
    let first = next(&mut pieces).await;
    let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["config", "history", "sample"]);
    assert_eq!(first[0].1["version"], 1);
    assert_eq!(first[2].1["all"]["passed"], 0);
    fixture.serve_a_little().await;
    fixture.sample().await;
    let second = next(&mut pieces).await;
    let (name, sample) = second.last().unwrap();
    assert_eq!(name, "sample");
    let api = &sample["routes"]["rows"][0];
    assert_eq!((&api["name"], &api["now"]["rejected"]), (&"api".into(), &2.into()));
    assert_eq!(sample["all"]["rejected"], 3);
    assert_eq!(sample["reasons"], serde_json::json!({ "rate": 2, "breaker": 1 }));
    let rejecting = sample["rejecting"].as_array().unwrap();
    let of = |rule: &Value| (rule["route"].clone(), rule["rule"].clone(), rule["dry_run"].clone());
    assert_eq!(of(&rejecting[0]), ("api".into(), "total".into(), false.into()));
    assert_eq!(rejecting[0]["per_second"], 0.2);
    assert_eq!(api["rules"][0]["used"], 3);
    // The next second is quiet.
    fixture.sample().await;
    let third = next(&mut pieces).await;
    assert_eq!(third.last().unwrap().1["all"]["rejected"], 0);
    assert_eq!(third.last().unwrap().1["routes"]["rows"][0]["rules"][0]["rejected"], 0.2);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_edit_is_shown_with_its_problems_until_another_is_applied() {
    let fixture = Fixture::new();
    fixture.sample().await;
    let mut pieces = fixture.follow("brief=true");
    next(&mut pieces).await;
    let problems = fixture.read("listeners: []\nroute: 1\n").unwrap_err();
    let diagnostics: Vec<_> = problems.list().collect();
    let state = &fixture.router.admin.state;
    state.readiness.rejected(state.clock.wall_now(), &problems.to_string(), &diagnostics);
    fixture.sample().await;
    let (name, config) = next(&mut pieces).await.swap_remove(0);
    assert_eq!((name.as_str(), &config["is_behind"]), ("config", &true.into()));
    let problem = &config["rejected"]["problems"][0];
    assert_eq!(problem["line"], diagnostics[0].line);
    assert_eq!(problem["message"], diagnostics[0].message);
    state.readiness.reloaded(state.clock.wall_now(), "reloaded v2");
    let plan = fixture.read(&CONFIG.replace("3/1h", "4/1h")).unwrap();
    state.live.apply(plan, state.clock.now(), &mut config::Retired::default());
    fixture.sample().await;
    let (_, config) = next(&mut pieces).await.swap_remove(0);
    assert_eq!((&config["is_behind"], &config["version"]), (&false.into(), &2.into()));
    assert_eq!(config["rejected"]["problems"][0]["line"], diagnostics[0].line);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_sample_is_dropped() {
    let fixture = Fixture::new();
    fixture.sample().await;
    let pieces = fixture.follow("");
    fixture.sample().await;
    let clock = &fixture.router.admin.state.clock;
    for _ in 0..20 {
        clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
        fixture.sample().await;
    }
    assert!(pieces.is_closed(), "its sender is gone");
    assert_eq!(pieces.len(), 1, "no more than one sample waits");
}

#[tokio::test(start_paused = true)]
async fn a_search_finds_routes_and_pages_them() {
    let fixture = Fixture::new();
    fixture.sample().await;
    let shown = async |query: &str| {
        let first = next(&mut fixture.follow(query)).await;
        let routes = first.last().unwrap().1["routes"].clone();
        let rows = routes["rows"].as_array().unwrap().clone();
        let names: Vec<String> =
            rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        (names.join(" "), routes["found"].clone(), routes["pages"].clone())
    };
    assert_eq!(shown("q=PER-client").await, ("api".to_owned(), 1.into(), 1.into()));
    assert_eq!(shown("sort=name&size=1&page=1").await, ("rest".to_owned(), 2.into(), 2.into()));
    assert_eq!(shown("sort=name&size=1&page=9").await, ("rest".to_owned(), 2.into(), 2.into()));
    assert_eq!(shown("q=none").await, (String::new(), 0.into(), 1.into()));
}

#[tokio::test(start_paused = true)]
async fn a_sample_after_an_edit_shows_one_version_of_everything() {
    let fixture = Fixture::new();
    fixture.sample().await;
    // An edit is in force, and no sample was taken since.
    let state = &fixture.router.admin.state;
    let plan = fixture.read(&CONFIG.replace("name: api", "name: app")).unwrap();
    let summary = state.live.apply(plan, state.clock.now(), &mut config::Retired::default());
    state.readiness.reloaded(state.clock.wall_now(), &summary.to_string());
    let mut pieces = fixture.follow("sort=name");
    let first = next(&mut pieces).await;
    let config = &first[0].1;
    assert_eq!(config["version"], 2);
    assert!(config["changes"].as_str().unwrap().starts_with("reloaded v2"), "{config}");
    let rows = first.last().unwrap().1["routes"]["rows"].as_array().unwrap().clone();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.contains(&"app".to_owned()) && !names.contains(&"api".to_owned()), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_counted_apart_from_rejected_ones() {
    let fixture = Fixture::new();
    fixture.sample().await;
    let mut pieces = fixture.follow("sort=failed");
    let first = next(&mut pieces).await;
    assert_eq!(first.last().unwrap().1["failing"]["many"], false);
    let snapshot = fixture.snapshot();
    let rest = snapshot.routes.iter().find(|route| &*route.name == "rest").unwrap();
    for (status, is_admitted) in [(502, true), (503, false), (200, true)] {
        let status = StatusCode::from_u16(status).unwrap();
        let duration = Duration::from_millis(3);
        let at = Duration::ZERO;
        let method = &Method::GET;
        let ended = Ended { method, status, first_byte: None, duration, at, is_admitted };
        rest.meter.record(&ended, || None);
    }
    fixture.sample().await;
    let sample = next(&mut pieces).await.pop().unwrap().1;
    assert_eq!((&sample["all"]["failed"], &sample["all"]["rejected"]), (&1.into(), &0.into()));
    let failing = &sample["failing"];
    assert_eq!(failing["many"], true);
    assert_eq!(failing["routes"][0]["route"], "rest");
    assert_eq!(failing["routes"][0]["per_second"], 0.1);
    assert_eq!(failing["slowest"][0]["route"], "rest");
    let sorted = next(&mut fixture.follow("sort=failed")).await.pop().unwrap().1;
    assert_eq!(sorted["routes"]["rows"][0]["name"], "rest");
}

const SHARED: &str = "
listeners: [{ name: web, listen: 127.0.0.1:0 }]
budgets:
  - { name: org, limit: 100/1h, burst: 100 }
  - { name: site, limit: 2/1h, burst: 2, parent: org }
routes:
  - { name: one, match: { path: /one }, respond: { status: 200 }, flow: [{ budget: site }] }
  - { name: two, match: { path: /two }, respond: { status: 200 }, flow: [{ budget: site }] }
  - { name: free, match: { path: /free }, respond: { status: 200 } }
";

#[tokio::test(start_paused = true)]
async fn rules_that_routes_share_are_shown_once_with_the_routes_that_meet_them() {
    let fixture = Fixture::new();
    let state = &fixture.router.admin.state;
    let now = state.clock.now();
    state.live.apply(fixture.read(SHARED).unwrap(), now, &mut config::Retired::default());
    fixture.sample().await;

    // Two pass and one does not, through both routes.
    let snapshot = fixture.snapshot();
    for index in [0, 1, 0] {
        let route = &snapshot.routes[index];
        let claims: Vec<_> = route
            .rules
            .iter()
            .map(|rule| Claim {
                slot: rule.slot,
                key: Key::Shared,
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            })
            .collect();
        drop(route.gates.enter(now, &claims));
    }
    fixture.sample().await;

    let sample = next(&mut fixture.follow("sort=name")).await.pop().unwrap().1;
    let budgets = &sample["budgets"];
    assert_eq!(budgets["total"], 2);
    let site = &budgets["rows"][0];
    let org = &budgets["rows"][1];
    assert_eq!((&site["name"], &site["parent"]), (&"budget site".into(), &"org".into()));
    assert_eq!(site["routes"], serde_json::json!(["one", "two"]));
    assert_eq!(site["rules"][0]["used"], 2);
    assert_eq!(site["rules"][0]["rejected"], 0.1);
    assert_eq!((&org["name"], &org["rules"][0]["used"]), (&"budget org".into(), &2.into()));
    assert_eq!(sample["reasons"], serde_json::json!({ "rate": 1 }), "once, not for each route");
    let rejecting = &sample["rejecting"][0];
    assert_eq!((&rejecting["budget"], &rejecting["rule"]), (&"budget site".into(), &"site".into()));
    let one = &sample["routes"]["rows"].as_array().unwrap()[1];
    assert_eq!(one["name"], "one");
    assert_eq!(one["budgets"], serde_json::json!(["budget site", "budget org"]));

    // A search finds them by their routes, and by their names.
    let found = async |query: &str| {
        let sample = next(&mut fixture.follow(query)).await.pop().unwrap().1;
        sample["budgets"]["rows"].as_array().map_or(0, Vec::len)
    };
    assert_eq!([found("q=two").await, found("q=free").await, found("q=org").await], [2, 0, 1]);

    let page: Value =
        serde_json::from_slice(&routes::write(&snapshot, &fixture.router.admin, now).unwrap())
            .unwrap();
    assert_eq!(page["budgets"][1]["name"], "budget site");
    assert_eq!(page["budgets"][1]["rules"][0]["rejected_by_reason"]["rate"], 1);
    assert_eq!(page["routes"][0]["budgets"], serde_json::json!(["budget site", "budget org"]));
}
