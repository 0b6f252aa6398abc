//! Plans: what is written, what is wrong with it, and the numbers that clients get.

use super::{FRAME, messages, plan, warnings};
use crate::{
    config::{
        Claims, KeySource, Live, Plan, RequestContext, Retired, Watched, describe, diff, read,
    },
    flow::{Instant, Permit, Report},
    geo::Located,
    route::{Seed, Target},
};
use http::{HeaderMap, HeaderValue, Method};
use std::{
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

const NOW: Instant = Instant::from_nanos(1_700_000_000_000_000_000);

/// Returns a file with one route that has this rule.
fn with_rule(rule: &str) -> String {
    format!(
        "{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    upstream: app\n    flow:\n      - {rule}\nend: true\n"
    )
}

fn in_folder(folder: &Path, rule: &str, plans: &str) -> std::path::PathBuf {
    let file = folder.join("gateway.yaml");
    fs::write(&file, with_rule(rule)).unwrap();
    fs::write(folder.join("accounts.csv"), plans).unwrap();
    file
}

/// A gateway in virtual time, asked by clients that send `x-key` and `x-plan`.
struct Gateway {
    live: Live,
    retired: Retired,
}

impl Gateway {
    fn start(plan: Plan) -> Self {
        Self { live: Live::start(plan, NOW), retired: Retired::default() }
    }

    fn edit(&mut self, plan: Plan) -> String {
        self.live.apply(plan, NOW, &mut self.retired).to_string()
    }

    /// Returns how many of so many requests pass at once, and the limit that they see.
    fn passes(&self, key: &str, plan: &str, count: usize) -> (usize, u64) {
        let snapshot = self.live.load_full();
        let mut headers = HeaderMap::new();
        headers.insert("x-key", HeaderValue::from_str(key).unwrap());
        if !plan.is_empty() {
            headers.insert("x-plan", HeaderValue::from_str(plan).unwrap());
        }
        let target = Target {
            listener: None,
            host: "example.com",
            path: "/a",
            query: None,
            method: &Method::GET,
            headers: (&headers).into(),
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
        };
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let seed = Seed::new([1, 2]);
        let context = RequestContext { seed: &seed, target: &target, client };
        let route = &snapshot.routes[0];

        let mut permits: Vec<Permit> = Vec::new();
        let mut limit = 0;
        for _ in 0..count {
            let mut claims = Claims::new();
            route.claim(context, |_, _| KeySource::Request, &mut claims);
            let mut report = Report::default();
            permits.extend(route.gates.decide(NOW, &claims, &mut report).ok());
            limit = report.quotas[0].limit;
        }
        (permits.len(), limit)
    }
}

const BY_HEADER: &str = "{ name: api, limit: 4/1h, key: header:x-key, plans: { by: header:x-plan, limits: { gold: 20/1h, silver: { limit: 10/1h, burst: 6 } } } }";

#[test]
fn a_client_gets_the_numbers_of_its_plan() {
    let gateway = Gateway::start(plan(&with_rule(BY_HEADER)));
    assert_eq!(gateway.passes("a", "gold", 30), (20, 20));
    assert_eq!(gateway.passes("b", "silver", 30), (6, 6));
    assert_eq!(gateway.passes("c", "bronze", 30), (4, 4), "no plan has this name");
    assert_eq!(gateway.passes("d", "", 30), (4, 4));
    assert_eq!(gateway.passes("e", "gold", 20), (20, 20), "each key has its own count");
}

#[test]
fn a_client_whose_plan_changes_keeps_its_usage() {
    let gateway = Gateway::start(plan(&with_rule(
        "{ name: api, limit: 4/1h, algorithm: fixed_window, key: header:x-key, plans: { by: header:x-plan, limits: { gold: 20/1h, silver: 10/1h } } }",
    )));
    assert_eq!(gateway.passes("a", "silver", 30), (10, 10));
    assert_eq!(gateway.passes("a", "gold", 30), (10, 20), "10 of 20 are used");
    assert_eq!(gateway.passes("a", "silver", 30), (0, 10));

    // A bucket keeps the share that is used.
    let gateway = Gateway::start(plan(&with_rule(BY_HEADER)));
    assert_eq!(gateway.passes("a", "gold", 10), (10, 20));
    assert_eq!(gateway.passes("a", "silver", 30), (3, 6));
}

#[test]
fn a_concurrency_limit_has_plans_too() {
    let gateway = Gateway::start(plan(&with_rule(
        "{ name: api, concurrency: 1, key: header:x-key, plans: { by: header:x-plan, limits: { gold: 3, silver: { concurrency: 2 } } } }",
    )));
    assert_eq!(gateway.passes("a", "gold", 5), (3, 3));
    assert_eq!(gateway.passes("a", "silver", 5), (2, 2));
    assert_eq!(gateway.passes("a", "", 5), (1, 1));
}

#[test]
fn a_file_of_plans_is_read_and_watched_and_replaced_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let rule =
        "{ name: api, limit: 4/1h, key: header:x-key, plans: { by: key, file: accounts.csv } }";
    let rows = "\u{feff}key,limit,burst\r\nann,20/1h,\r\n\"bob, inc\",10/1h,6\r\n";
    let file = in_folder(folder.path(), rule, rows);
    let first = read(&file).unwrap();
    let csv = folder.path().join("accounts.csv");
    assert!(first.files.contains(&Watched::File(csv.clone())), "{:?}", first.files);
    let mut gateway = Gateway::start(first);
    assert_eq!(gateway.passes("ann", "", 30), (20, 20));
    assert_eq!(gateway.passes("bob, inc", "", 30), (6, 6));
    assert_eq!(gateway.passes("eve", "", 30), (4, 4));

    fs::write(&csv, "key,limit\neve,40/1h\nann,10/1h\n").unwrap();
    let old = read(&file).unwrap();
    let said = gateway.edit(old);
    assert!(said.contains("converted 1"), "{said}");
    assert_eq!(gateway.passes("eve", "", 50), (0, 40), "the whole share was used");
    assert_eq!(gateway.passes("new", "", 30), (4, 4));
    assert_eq!(gateway.passes("ann", "", 30), (0, 10));
}

#[test]
fn check_and_diff_name_the_plans() {
    let folder = tempfile::tempdir().unwrap();
    let rule =
        "{ name: api, limit: 4/1h, key: header:x-key, plans: { by: key, file: accounts.csv } }";
    let file = in_folder(folder.path(), rule, "key,limit\nann,20/1h\n");
    let one = read(&file).unwrap();
    assert!(
        describe(&one).contains("plans by header:x-key: 1 plan of accounts.csv"),
        "{}",
        describe(&one)
    );

    fs::write(folder.path().join("accounts.csv"), "key,limit\nann,30/1h\nbob,5/1h\n").unwrap();
    let said = diff(&one, &read(&file).unwrap()).to_string();
    assert!(said.contains("api plans header:x-key: 1 plan of accounts.csv"), "{said}");
    assert!(said.contains("→ header:x-key: 2 plans of accounts.csv"), "{said}");

    let inline = plan(&with_rule(BY_HEADER));
    let words = "plans by header:x-plan: gold 20/1h, silver 10/1h burst 6";
    assert!(describe(&inline).contains(words), "{}", describe(&inline));
}

#[test]
fn faulty_plans_are_errors_that_say_what_to_write() {
    for (plans, expected) in [
        (
            "{ by: jwt:plan, limits: { gold: 20/1h } }",
            "the plans of the rule `api` are by `jwt:plan`, and its route has no `auth: { jwt }`: clients could forge it | write `auth: { jwt: { jwks: FILE } }` at the route, or a `by` that needs no proof",
        ),
        (
            "{ by: user, limits: { gold: 20/1h } }",
            "the plans of the rule `api` are by `user`, and its route has no `auth` | write `auth: { jwt: { jwks: FILE } }` at the route, or a `by` that needs no proof",
        ),
        (
            "{ by: host, limits: { gold: 20/1m } }",
            "the plan `gold` has the window 1m, and its rule 1h | write how many per 1h: all plans share the counts of the rule",
        ),
        ("{ by: host, limits: { gold: 20 } }", "the plan `gold` has no window | write `20/1h`"),
        (
            "{ by: host, limits: { gold: { concurrency: 2 } } }",
            "the rule has `limit` | write a limit, as in `1000/1m`",
        ),
        (
            "{ by: host, limits: { gold: {} } }",
            "a plan without a number | write one, as in `limit: 1000/1m`",
        ),
        (
            "{ by: host }",
            "`plans` without a plan | write `limits: { gold: 1000/1m }`, or `file: accounts.csv` with a plan a line",
        ),
        (
            "{ by: route, limits: { gold: 20/1h } }",
            "`route` names no plan | write what does, as in `by: jwt:plan`",
        ),
        (
            "{ by: host, limits: { A.example: 20/1h, a.example: 10/1h } }",
            "the plan `a.example` is there twice | remove one",
        ),
    ] {
        let rule = format!("{{ name: api, limit: 4/1h, key: header:x-key, plans: {plans} }}");
        messages(&with_rule(&rule), &[expected]);
    }
    messages(
        &with_rule("{ name: api, limit: 4/1h, plans: { by: key, limits: { gold: 20/1h } } }"),
        &[
            "`by: key` in a rule without a `key` | write the rule's `key`, or the part of a request that names the plan, as in `by: jwt:plan`",
        ],
    );
    messages(
        &with_rule(
            "{ name: api, concurrency: 4, key: header:x-key, plans: { by: host, limits: { gold: 20/1h } } }",
        ),
        &[
            "the plan `gold` has a rate, and its rule none | write how many requests may be in flight, as in `64`",
        ],
    );
}

#[test]
fn a_faulty_file_of_plans_is_an_error_with_its_line() {
    let rule =
        "{ name: api, limit: 4/1h, key: header:x-key, plans: { by: key, file: accounts.csv } }";
    for (rows, expected) in [
        ("", "is empty"),
        ("name,limit\n", "cannot be used: line 1: it does not name the columns"),
        ("key,limit\nann\n", "cannot be used: line 2: 1 column in place of 2"),
        ("key,limit\nann,20/1h\n,1/1h\n", "cannot be used: line 3: no key"),
        ("key,limit\nann,20/1h\nbob,many\n", "line 3 of FILE: `many` is not a rate"),
        (
            "key,limit\nann,20/1h\nbob,9/1m\n",
            "line 3 of FILE: the plan `bob` has the window 1m, and its rule 1h",
        ),
        (
            "key,limit\nann,20/1h\n\nann,9/1h\n",
            "line 4 of FILE: the plan `ann` is there twice, first in line 2",
        ),
        ("key,limit,burst\nann,20/1h,0\n", "line 2 of FILE: 0 is not"),
        ("key,limit\nann,0/1h\n", "line 2 of FILE: "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = in_folder(folder.path(), rule, rows);
        let said = read(&file).expect_err(rows).to_string();
        let csv = folder.path().join("accounts.csv").display().to_string();
        assert!(said.contains(&expected.replace("FILE", &csv)), "{rows}: {said}");
    }

    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<_> = (0..50).map(|n| format!("k{n},many\n")).collect();
    let file = in_folder(folder.path(), rule, &format!("key,limit\n{}", rows.concat()));
    let said = read(&file).expect_err("50 faulty rows").to_string();
    assert_eq!(said.matches("is not a rate").count(), 20, "{said}");
}

#[test]
fn check_warns_of_plans_that_clients_choose() {
    warnings(
        &with_rule(BY_HEADER),
        &[
            "a client gets more of `api` by sending another key",
            "any client chooses its plan of `api`",
        ],
    );
    warnings(
        &with_rule(
            "{ name: api, limit: 4/1h, key: client_ip, plans: { by: host, limits: { a.example: 20/1h } } }",
        ),
        &[],
    );
}

#[test]
fn a_hundred_thousand_plans_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let rule =
        "{ name: api, limit: 4/1h, key: header:x-key, plans: { by: key, file: accounts.csv } }";
    let mut rows = String::from("key,limit\n");
    for n in 0..100_000 {
        writeln!(rows, "key{n},{}/1h", n % 500 + 1).unwrap();
    }
    let file = in_folder(folder.path(), rule, &rows);
    let gateway = Gateway::start(read(&file).unwrap());
    assert_eq!(gateway.passes("key99999", "", 600), (500, 500));
    assert_eq!(gateway.passes("key0", "", 3), (1, 1));
    assert_eq!(gateway.passes("key100000", "", 9), (4, 4));
}
