//! Rules that several routes share: what is written, who meets it, and what an edit keeps.

use super::{messages, plan, warnings};
use crate::{
    config::{Claims, KeySource, Live, RequestContext, Retired},
    flow::{Instant, Permit},
    geo::Located,
    route::{Seed, Target},
};
use http::{HeaderMap, Method};
use std::{net::IpAddr, time::Duration};

const NOW: Instant = Instant::from_nanos(1_700_000_000_000_000_000);

/// Returns a file with two listeners, two upstreams, and the routes `a`, `b` and `c`; `c` goes to the
/// second upstream. Each argument is text to insert.
struct File {
    top: &'static str,
    web: &'static str,
    db: &'static str,
    routes: [&'static str; 3],
}

const PLAIN: File = File { top: "", web: "", db: "", routes: [""; 3] };

impl File {
    fn text(&self) -> String {
        let Self { top, web, db, routes: [a, b, c] } = self;
        format!(
            "\
{top}
listeners:
  - {{ name: web, listen: 127.0.0.1:8080{web} }}
  - {{ name: inside, listen: 127.0.0.1:8081 }}
upstreams:
  - {{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}
  - {{ name: db, servers: [{{ url: http://127.0.0.1:9001 }}]{db} }}
routes:
  - {{ name: a, match: {{ path_prefix: /a }}, upstream: app{a} }}
  - {{ name: b, match: {{ path_prefix: /b }}, upstream: app{b} }}
  - {{ name: c, match: {{ path_prefix: /c }}, upstream: db{c} }}
"
        )
    }
}

/// A gateway in virtual time.
struct Gateway {
    live: Live,
    retired: Retired,
    now: Instant,
}

impl Gateway {
    fn start(file: &File) -> Self {
        let live = Live::start(plan(&file.text()), NOW);
        Self { live, retired: Retired::default(), now: NOW }
    }

    fn edit(&mut self, file: &File) -> String {
        let plan = plan(&file.text());
        self.live.apply(plan, self.now, &mut self.retired).to_string()
    }

    /// Returns the permit of a request to a path at a listener, or the rule that rejects it.
    fn ask(&self, listener: &str, path: &str) -> Result<Permit, String> {
        let snapshot = self.live.load_full();
        let headers = HeaderMap::new();
        let target = Target {
            listener: Some(listener),
            host: "example.com",
            path,
            query: None,
            method: &Method::GET,
            headers: (&headers).into(),
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
        };
        let route = snapshot.find(&target, path).expect("it has a route");
        let client: IpAddr = [192, 0, 2, 1].into();
        let request = RequestContext { seed: &Seed::new([1, 2]), target: &target, client };
        let mut claims = Claims::new();
        route.claim(request, |_, _| KeySource::Request, &mut claims);
        match route.gates.enter(self.now, &claims) {
            Ok(admission) => Ok(admission.permit),
            Err(rejection) => Err(route.rule_name(rejection.slot).to_owned()),
        }
    }

    /// Returns how many of these requests pass, and which rules reject the others.
    fn passed(&self, requests: &[(&str, &str)]) -> (usize, Vec<String>) {
        let mut rules = Vec::new();
        let ask = |(listener, path): &(&str, &str)| match self.ask(listener, path) {
            Ok(_) => true,
            Err(rule) => {
                rules.push(rule);
                false
            }
        };
        let passed = requests.iter().map(ask).filter(|passed| *passed).count();
        (passed, rules)
    }
}

const EACH: [(&str, &str); 3] = [("web", "/a"), ("web", "/b"), ("web", "/c")];

#[test]
fn routes_that_name_a_budget_count_together() {
    let gateway = Gateway::start(&File {
        top: "budgets: [{ name: site, limit: 3/1h, burst: 3 }]",
        routes: [", flow: [{ budget: site }]", ", flow: [{ budget: site }]", ""],
        ..PLAIN
    });
    let (passed, rules) = gateway.passed(&[EACH[0], EACH[1], EACH[0], EACH[1], EACH[2]]);
    assert_eq!((passed, rules), (4, vec!["site".to_owned()]));
}

#[test]
fn a_request_that_one_rule_rejects_is_counted_by_none() {
    let gateway = Gateway::start(&File {
        top: "budgets: [{ name: site, limit: 2/1h, burst: 2 }]",
        routes: [
            ", flow: [{ name: few, limit: 1/1h, burst: 1 }, { budget: site }]",
            ", flow: [{ budget: site }]",
            "",
        ],
        ..PLAIN
    });
    let (passed, rules) = gateway.passed(&[EACH[0], EACH[0], EACH[0], EACH[1], EACH[1]]);
    assert_eq!((passed, rules), (2, ["few", "few", "site"].map(str::to_owned).to_vec()));
}

#[test]
fn parents_count_what_their_children_count() {
    let gateway = Gateway::start(&File {
        top: "budgets:
  - { name: org, limit: 3/1h, burst: 3 }
  - { name: team, limit: 2/1h, burst: 2, parent: org }
  - { name: crew, limit: 9/1h, burst: 9, parent: org }",
        routes: [", flow: [{ budget: team }]", ", flow: [{ budget: crew }]", ""],
        ..PLAIN
    });
    let (passed, rules) = gateway.passed(&[EACH[0], EACH[0], EACH[0], EACH[1], EACH[1]]);
    assert_eq!((passed, rules), (3, ["team", "org"].map(str::to_owned).to_vec()));
}

#[test]
fn a_budget_counts_once_though_several_ways_lead_to_it() {
    let gateway = Gateway::start(&File {
        top: "budgets:
  - { name: org, limit: 2/1h, burst: 2 }
  - { name: team, limit: 9/1h, parent: org }
flow: [{ budget: org }]",
        web: ", flow: [{ budget: team }, { budget: org }]",
        db: ", flow: [{ budget: org }]",
        routes: ["", "", ", flow: [{ budget: team }]"],
    });
    let (passed, rules) = gateway.passed(&[EACH[2], EACH[2], EACH[2]]);
    assert_eq!((passed, rules), (2, vec!["org".to_owned()]));
}

#[test]
fn the_files_flow_holds_for_all_routes_but_those_that_are_exempt() {
    let gateway = Gateway::start(&File {
        top: "budgets: [{ name: site, limit: 9/1h }]
flow: [{ budget: site }, { name: total, limit: 2/1h, burst: 2 }, { name: hour, limit: 9/1h }]",
        routes: ["", ", exempt_from: [total]", ""],
        ..PLAIN
    });
    let (passed, rules) = gateway.passed(&[EACH[0], EACH[2], EACH[1], EACH[0], EACH[1]]);
    assert_eq!((passed, rules), (4, vec!["total".to_owned()]));
}

#[test]
fn a_route_that_is_exempt_from_a_budget_is_not_counted_by_its_parents() {
    let gateway = Gateway::start(&File {
        top: "budgets: [{ name: org, limit: 1/1h, burst: 1 }, { name: site, limit: 9/1h, parent: org }]
flow: [{ budget: site }]",
        routes: ["", ", exempt_from: [site]", ""],
        ..PLAIN
    });
    assert_eq!(gateway.passed(&[EACH[1], EACH[1], EACH[0], EACH[2]]).0, 3);
}

#[test]
fn a_listeners_flow_holds_for_its_requests_alone() {
    let gateway = Gateway::start(&File {
        top: "budgets: [{ name: site, limit: 2/1h, burst: 2 }]",
        web: ", flow: [{ budget: site }]",
        ..PLAIN
    });
    let inside = ("inside", "/a");
    let (passed, rules) = gateway.passed(&[inside, inside, EACH[0], EACH[1], inside, EACH[2]]);
    assert_eq!((passed, rules), (5, vec!["site".to_owned()]));
}

#[test]
fn an_upstreams_flow_holds_for_every_route_that_leads_there() {
    let gateway =
        Gateway::start(&File { db: ", flow: [{ name: places, concurrency: 1 }]", ..PLAIN });
    let first = gateway.ask("web", "/c").expect("a place is free");
    assert_eq!(gateway.ask("inside", "/c").err().as_deref(), Some("places"));
    assert!(gateway.ask("web", "/a").is_ok());
    drop(first);
    assert!(gateway.ask("web", "/c").is_ok(), "the place is given back");
}

#[test]
fn the_state_of_a_budget_outlives_edits_of_routes_and_numbers() {
    let file = |top, a, b| File { top, routes: [a, b, ""], ..PLAIN };
    let named = ", flow: [{ budget: site }]";
    let mut gateway = Gateway::start(&file(
        "budgets: [{ name: site, algorithm: sliding_window, limit: 2/1h }]",
        named,
        "",
    ));
    assert_eq!(gateway.passed(&[EACH[0], EACH[0], EACH[0]]).0, 2);

    // Another route uses it, and the first one no more.
    gateway.edit(&file(
        "budgets: [{ name: site, algorithm: sliding_window, limit: 2/1h }]",
        "",
        named,
    ));
    assert_eq!(gateway.passed(&[EACH[1], EACH[0]]).0, 1);

    gateway.edit(&file(
        "budgets: [{ name: site, algorithm: sliding_window, limit: 3/1h }]",
        "",
        named,
    ));
    assert_eq!(gateway.passed(&[EACH[1], EACH[1]]).0, 1, "one more than before");

    let summary = gateway.edit(&file(
        "budgets: [{ name: site, algorithm: sliding_log, limit: 3/1h }]",
        "",
        named,
    ));
    assert!(summary.contains("reset 1"), "{summary}");
    assert_eq!(gateway.passed(&[EACH[1], EACH[1], EACH[1], EACH[1]]).0, 3);
}

#[test]
fn a_parent_that_is_added_counts_from_the_next_request_on() {
    let file = |team| File { top: team, routes: [", flow: [{ budget: team }]", "", ""], ..PLAIN };
    let mut gateway = Gateway::start(&file("budgets: [{ name: team, limit: 9/1h }]"));
    assert_eq!(gateway.passed(&[EACH[0], EACH[0]]).0, 2);
    gateway.edit(&file(
        "budgets: [{ name: org, limit: 1/1h, burst: 1 }, { name: team, limit: 9/1h, parent: org }]",
    ));
    let (passed, rules) = gateway.passed(&[EACH[0], EACH[0]]);
    assert_eq!((passed, rules), (1, vec!["org".to_owned()]));
}

#[test]
fn a_wait_is_the_longest_of_all_rules() {
    let gateway = Gateway::start(&File {
        top: "budgets: [{ name: even, algorithm: pacing, limit: 1/100ms, max_wait: 1s }]",
        routes: [", flow: [{ budget: even }]", ", flow: [{ budget: even }]", ""],
        ..PLAIN
    });
    let starts = [EACH[0], EACH[1], EACH[0]].map(|(listener, path)| {
        let permit = gateway.ask(listener, path).expect("it may wait");
        permit.start().since(gateway.now)
    });
    assert_eq!(starts, [0, 100, 200].map(Duration::from_millis));
}

#[test]
fn budgets_that_cannot_work_are_rejected() {
    let with = |top, a| File { top, routes: [a, "", ""], ..PLAIN }.text();
    messages(
        &with("budgets: [{ name: site, limit: 1/1s }]", ", flow: [{ budget: sites }]"),
        &["no budget is named `sites` | did you mean `site`?"],
    );
    messages(
        &with("", ", flow: [{ budget: site, limit: 1/1s }]"),
        &[
            "`limit` beside `budget` | write `{ budget: NAME }` alone, and the numbers where `budgets` has it",
            "no budget is named `site` | write the budget under `budgets`",
        ],
    );
    messages(
        &with("budgets: [{ limit: 1/1s }]", ", flow: [{ limit: 1/1s }]"),
        &[
            "a budget needs `name` | write `name: per-client`",
            "a rule needs `name` | write `name: per-client`",
        ],
    );
    messages(
        &with("", ", flow: [{ name: x, limit: 1/1s, parent: y }]"),
        &[
            "`parent` at a rule that is not a budget | write the rule under `budgets`, or name both budgets in this `flow`",
        ],
    );
    messages(
        &with(
            "budgets: [{ name: x, limit: 1/1s, parent: y }, { name: y, limit: 1/1s, parent: x }]",
            "",
        ),
        &[
            "the budgets `x`, `y`, `x` form a circle | remove one `parent`: the last budget of a chain has none",
        ],
    );
    messages(
        &with(
            "budgets: [{ name: x, limit: 1/1s }]",
            ", flow: [{ name: x, limit: 1/1s }, { budget: x }]",
        ),
        &[
            "a request meets two rules that are called `x` | write another name: headers, logs and metrics name the rule",
        ],
    );
    messages(
        &with(
            "budgets: [{ name: x, limit: 1/1s }, { name: x, limit: 1/1s }]",
            ", flow: [{ budget: x }]",
        ),
        &[
            "two budgets share the name `x` | write another name: it distinguishes them in logs, metrics and reloads",
        ],
    );
    messages(
        &with("flow: [{ name: total, limit: 1/1s }]", ", exempt_from: [totl]"),
        &["no budget or shared rule is named `totl` | did you mean `total`?"],
    );
}

#[test]
fn sixteen_rules_are_the_most_that_a_request_meets() {
    let many: Vec<_> = (0..16).map(|at| format!("{{ name: b{at}, limit: 1/1s }}")).collect();
    let named: Vec<_> = (0..16).map(|at| format!("{{ budget: b{at} }}")).collect();
    let text = |own: &str| {
        let top = format!("budgets: [{}]\nflow: [{}]", many.join(", "), named.join(", "));
        PLAIN.text().replacen("upstream: app }", &format!("upstream: app{own} }}"), 1) + &top
    };
    plan(&text(""));
    messages(
        &text(", flow: [{ name: own, limit: 1/1s }]"),
        &[
            "the requests of the route `a` meet 17 rules | let them meet at most 16, with budgets, their parents, overrides, and the rules of the file, the listener and the upstream; `exempt_from` leaves some out",
        ],
    );
}

#[test]
fn check_warns_of_budgets_without_use_and_without_their_key() {
    warnings(
        &File { top: "budgets: [{ name: x, limit: 1/1s }]", ..PLAIN }.text(),
        &["nothing uses the budget `x`"],
    );
    warnings(
        &File {
            top: "budgets: [{ name: x, limit: 1/1s, key: user }]\nflow: [{ budget: x }]",
            ..PLAIN
        }
        .text(),
        &["`x` counts by `user`"],
    );
}

#[test]
fn a_budget_counts_by_a_segment_of_each_routes_path() {
    let file = |key: &str| {
        format!(
            "\
budgets: [{{ name: org, limit: 1/1h, burst: 1, key: {key} }}]
listeners: [{{ name: web, listen: 127.0.0.1:8080 }}]
routes:
  - {{ name: a, match: {{ path_prefix: '/a/{{org}}' }}, respond: {{ status: 200 }}, flow: [{{ budget: org }}] }}
  - {{ name: b, match: {{ path_prefix: '/x/b/{{org}}' }}, respond: {{ status: 200 }}, flow: [{{ budget: org }}] }}
  - {{ name: c, match: {{ path: /c }}, respond: {{ status: 200 }}, flow: [{{ budget: org }}] }}
"
        )
    };
    let live = Live::start(plan(&file("path:org")), NOW);
    let gateway = Gateway { live, retired: Retired::default(), now: NOW };
    let ask = |path| gateway.ask("web", path).is_ok();
    assert_eq!(["/a/one", "/x/b/one", "/x/b/two", "/a/two/x"].map(ask), [true, false, true, false]);
    warnings(&file("path:org"), &["`org` counts by `path:org`"]);
}

#[test]
fn requests_without_a_route_meet_the_rules_of_the_file_and_of_their_listener() {
    let mut gateway = Gateway::start(&File {
        top: "flow: [{ name: all, limit: 3/1h, burst: 3 }]",
        web: ", flow: [{ name: few, limit: 1/1h, burst: 1 }]",
        ..PLAIN
    });
    let (passed, rules) = gateway.passed(&[("web", "/x"), ("web", "/y"), ("inside", "/x")]);
    assert_eq!((passed, rules), (2, vec!["few".to_owned()]));
    let (passed, rules) = gateway.passed(&[("inside", "/a"), ("inside", "/b"), ("inside", "/x")]);
    assert_eq!((passed, rules), (1, vec!["all".to_owned(); 2]), "with all routes");

    // An edit keeps the counts, and does not speak of a route that the file does not have.
    let log = gateway.edit(&File { top: "flow: [{ name: all, limit: 4/1h, burst: 4 }]", ..PLAIN });
    assert!(!log.contains("no route"), "{log}");
    assert_eq!(gateway.passed(&[("web", "/x")]), (0, vec!["all".to_owned()]), "used up before");
}

#[test]
fn a_diff_and_a_reload_say_reset_where_an_edit_moves_counts_in_the_store() {
    let shared = "scope: cluster, on_store_error: deny";
    let file = |flow: &str| {
        format!(
            "store: {{ redis: redis://127.0.0.1 }}
budgets:
  - {{ name: first, limit: 9/1h, {shared} }}
  - {{ name: second, limit: 9/1h, {shared} }}
listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
routes:
  - {{ name: a, match: {{ path: /a }}, respond: {{ status: 200 }}, flow: [{{ budget: first }}] }}
  - {{ name: b, match: {{ path: /b }}, respond: {{ status: 200 }}, flow: [{flow}] }}
"
        )
    };
    let apart = file("{ budget: second }");
    // A request meets both, so that one node must decide about them: they get the tag of the first.
    let together = file("{ budget: second }, { budget: first }");

    let said = crate::config::diff(&plan(&apart), &plan(&together)).to_string();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("reset")).collect();
    assert!(lines.iter().any(|line| line.contains("second")), "{said}");
    assert!(!lines.iter().any(|line| line.contains("first")), "{said}");

    let live = Live::start(plan(&apart), NOW);
    let summary = live.apply(plan(&together), NOW, &mut Retired::default());
    assert_eq!(summary.moved, ["budget second/second"]);
}
