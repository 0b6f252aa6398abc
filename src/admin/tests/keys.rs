//! Single keys: shown, reset and given more.

use super::*;

impl Fixture {
    /// Sends a request to the rule `per-client` of the route `api`, as of this address. Returns
    /// whether it passes.
    fn send(&self, address: &str) -> bool {
        let snapshot = self.snapshot();
        let api = &snapshot.routes[1];
        let rule = &api.rules[1];
        let state = &self.router.admin.state;
        let key =
            Key::Of(rule.key.read(&state.seed, &crate::route::Nat64::default(), address).unwrap());
        let claim = Claim { slot: rule.slot, key, cost: 1, patience: Duration::ZERO, plan: None };
        api.gate.enter(state.clock.now(), &[claim]).is_ok()
    }

    /// The same until it is rejected. Returns how many have passed.
    fn flood(&self, address: &str) -> usize {
        (0..1_000).take_while(|_| self.send(address)).count()
    }

    fn keys(&self) -> Value {
        let (status, text) = self.get("/keys?route=api&rule=per-client");
        assert_eq!(status, StatusCode::OK, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["rules"][0].clone()
    }

    fn post(&self, target: &str) -> (StatusCode, String) {
        read(self.ask("POST", target, &[]))
    }

    fn edit(&self, text: &str) {
        let plan = self.read(text).unwrap();
        let state = &self.router.admin.state;
        state.live.apply(plan, state.clock.now(), &mut config::Retired::default());
    }
}

#[tokio::test(start_paused = true)]
async fn the_fullest_and_the_most_rejected_keys_are_shown() {
    let fixture = Fixture::new();
    assert_eq!(fixture.flood("192.0.2.1"), 100);
    for address in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
        fixture.send(address);
    }
    let rule = fixture.keys();
    assert_eq!((&rule["route"], &rule["rule"]), (&"api".into(), &"per-client".into()));
    assert_eq!((&rule["limit"], &rule["live"]), (&100.into(), &2.into()));
    let used = |at: usize| rule["fullest"][at]["used"].clone();
    assert_eq!((used(0), used(1)), (100.into(), 1.into()));
    let rejected = &rule["rejected"];
    assert_eq!((&rejected["total"], rejected["keys"].as_array().unwrap().len()), (&3.into(), 1));
    assert_eq!(
        (&rejected["keys"][0]["rejected"], &rejected["keys"][0]["error"]),
        (&3.into(), &0.into())
    );
    let fingerprint = &rule["fullest"][0]["fingerprint"];
    assert_eq!(fingerprint, &rejected["keys"][0]["fingerprint"]);
    assert!(fingerprint.as_str().unwrap().starts_with("fp:"), "{rule}");
    let (_, routes) = fixture.get("/routes");
    let routes: Value = serde_json::from_str(&routes).unwrap();
    assert_eq!(routes["routes"][0]["rules"][1]["used"], 100);
}

#[tokio::test(start_paused = true)]
async fn keys_have_names_only_if_the_file_says_so() {
    let fixture = Fixture::new();
    fixture.flood("192.0.2.1");
    let key = |rule: &Value| rule["fullest"][0].clone();
    let fingerprint = key(&fixture.keys())["fingerprint"].as_str().unwrap().to_owned();
    let number = u128::from_str_radix(fingerprint.trim_start_matches("fp:"), 16).unwrap();
    fixture.router.admin.state.key_names.keep(number, "192.0.2.1");
    assert!(key(&fixture.keys()).get("name").is_none());
    fixture.edit(&format!("admin: {{ show_keys: true }}\n{CONFIG}"));
    assert_eq!(key(&fixture.keys())["name"], "192.0.2.1");
    assert_eq!(fixture.keys()["rejected"]["keys"][0]["name"], "192.0.2.1");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_reset_by_name_and_by_fingerprint() {
    let fixture = Fixture::new();
    for key in ["192.0.2.1", &fixture_key(&fixture)] {
        fixture.flood("192.0.2.1");
        assert!(!fixture.send("192.0.2.1"));
        let (status, text) =
            fixture.post(&format!("/keys/reset?route=api&rule=per-client&key={key}"));
        assert_eq!(status, StatusCode::OK, "{text}");
        assert!(
            text.contains("has its whole budget again") && !text.contains("192.0.2.1"),
            "{text}"
        );
        assert_eq!(fixture.flood("192.0.2.1"), 100);
    }
    fixture.flood("192.0.2.2");
    let (_, text) = fixture.post("/keys/reset?route=api&rule=per-client&all");
    assert!(text.contains("every key has its whole budget again"), "{text}");
    assert_eq!((fixture.flood("192.0.2.1"), fixture.flood("192.0.2.2")), (100, 100));
    let (_, text) = fixture.post("/keys/reset?route=api&rule=per-client&key=192.0.2.9");
    assert!(text.contains("has used nothing"), "{text}");
}

/// Returns the fingerprint of a key that the rule has seen.
fn fixture_key(fixture: &Fixture) -> String {
    fixture.send("192.0.2.1");
    fixture.keys()["fullest"][0]["fingerprint"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_for_one_key_and_some_time() {
    let fixture = Fixture::new();
    fixture.flood("192.0.2.1");
    let (status, text) =
        fixture.post("/keys/grant?route=api&rule=per-client&key=192.0.2.1&count=5&for=10m");
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains("has 5 more for 10m"), "{text}");
    assert_eq!(fixture.flood("192.0.2.1"), 5);
    let grants = "/keys/grant?route=api&rule=total&key=all&count=7&for=10m";
    assert_eq!(fixture.post(grants).0, StatusCode::OK);
    let (_, page) = fixture.get("/keys?route=api&rule=total");
    let page: Value = serde_json::from_str(&page).unwrap();
    let grant = &page["rules"][0]["grants"][0];
    assert_eq!((&grant["left"], &grant["seconds"]), (&7.into(), &600.into()));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_says_why() {
    let fixture = Fixture::new();
    for (target, status, part) in [
        ("reset?rule=total&key=all", 400, "write `route=ROUTE` and `rule=RULE`"),
        ("reset?route=api&rule=total", 400, "write `key=KEY`, or `all`"),
        ("reset?route=none&rule=total&key=all", 404, "there is no route `none`"),
        ("reset?route=api&rule=none&key=all", 404, "the route `api` has no rule `none`"),
        ("reset?route=api&rule=total&key=x", 400, "the rule has no keys: write `all`"),
        ("reset?route=api&rule=per-client&key=x", 400, "`x` is not an address; write it as"),
        ("reset?route=api&rule=together&key=all", 409, "the rule counts running requests"),
        ("reset?route=rest&rule=synced&key=all", 409, "the gateway has no store until"),
        ("reset?route=rest&rule=synced&all", 409, "gateways share the keys of this rule"),
        ("grant?route=api&rule=total&key=all", 400, "write `count=N` and `for=DURATION`"),
        ("grant?route=api&rule=total&key=all&count=1&for=2d", 400, "lasts a day at most"),
        ("grant?route=api&rule=total&key=all&count=0&for=1m", 400, "a grant is from 1 to"),
        ("grant?route=api&rule=total&count=1&for=1m", 400, "a grant is for one key"),
    ] {
        let (found, text) = fixture.post(&format!("/keys/{target}"));
        assert_eq!(found.as_u16(), status, "{target}: {text}");
        assert!(text.contains(part), "{target}: {text}");
    }
    let target = "/keys/reset?route=api&rule=total&key=all";
    assert_eq!(fixture.ask("GET", target, &[]).status(), StatusCode::METHOD_NOT_ALLOWED);
    let from_a_page = fixture.ask("POST", target, &[("origin", "http://evil.example")]);
    assert_eq!(from_a_page.status(), StatusCode::FORBIDDEN);
    assert_eq!(fixture.get("/keys?route=none").0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.get("/keys?top=21").0, StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn a_grant_has_room_for_so_many_keys() {
    let fixture = Fixture::new();
    let grant = |number: usize| {
        let rule = "/keys/grant?route=api&rule=per-client&count=1&for=10m";
        fixture.post(&format!("{rule}&key=192.0.2.{number}")).0
    };
    assert!((0..crate::flow::MOST_GRANTS).all(|number| grant(number) == StatusCode::OK));
    assert_eq!(grant(200), StatusCode::CONFLICT);
}
