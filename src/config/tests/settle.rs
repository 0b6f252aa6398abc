//! Costs that are settled after the response: how they are written, and the rules that cannot have
//! them.

use super::{messages, plan, warnings, with_rules};
use crate::{
    config::{
        ComputedReserve, CountedBytes, ReservedNumbers, ResponseEnd, Settle, SettleSource, describe,
    },
    route::MemberPath,
    usage::{Passed, Preset, Query, Reading, Weight},
};
use core::time::Duration;
use http::HeaderName;

fn with_rule(rule: &str) -> String {
    with_rules(&format!("      - {{ name: a, {rule} }}\n"))
}

/// Returns how the first rule settles, with its reserve.
fn settled(cost: &str) -> (Settle, u64) {
    let plan = plan(&with_rule(&format!("limit: 100/1m, cost: {cost}")));
    let cost = plan.routes[0].rules[0].options.cost.clone();
    (Settle::clone(cost.settle.as_ref().expect("it is settled")), cost.default)
}

#[test]
fn a_reserve_is_one_unless_the_file_has_another() {
    let (settle, reserve) = settled("{ settle: { status: { 401: 5, '500-599': 2, default: 0 } } }");
    assert_eq!(reserve, 1);
    let end = |status| ResponseEnd { status: Some(status), ..ResponseEnd::default() };
    let cost = |status| settle.cost(&end(status), 1, None).map(|cost| cost.cost);
    assert_eq!([401, 503, 200].map(cost), [Some(5), Some(2), Some(0)]);

    let (_, reserve) = settled("{ reserve: 7, settle: { status: { default: 0 } } }");
    assert_eq!(reserve, 7);
    let (_, reserve) =
        settled("{ reserve: { default: 3, POST: 10 }, settle: { status: { default: 0 } } }");
    assert_eq!(reserve, 3);
}

#[test]
fn every_source_is_read() {
    let name = HeaderName::from_static("x-cost");
    for (written, source) in [
        ("header: X-Cost", SettleSource::Header(name.clone())),
        ("trailer: x-cost", SettleSource::Trailer(name)),
        ("bytes: request", SettleSource::Bytes(CountedBytes::Request)),
        ("bytes: response", SettleSource::Bytes(CountedBytes::Response)),
        ("bytes: both", SettleSource::Bytes(CountedBytes::Both)),
        ("time: 1ms", SettleSource::Time(Duration::from_millis(1))),
    ] {
        let (settle, _) = settled(&format!("{{ settle: {{ {written} }} }}"));
        assert_eq!((settle.source, settle.reserve), (source, None), "{written}");
    }
}

#[test]
fn a_reserve_may_be_computed() {
    for (written, request_bytes, plus) in [
        ("auto", 0, None),
        ("{ request_bytes: 0.25 }", 250, Some(0)),
        ("{ request_bytes: 1.5, plus: 7 }", 1_500, Some(7)),
        ("{ request_bytes: 0.001, plus: auto }", 1, None),
    ] {
        let (settle, _) = settled(&format!("{{ reserve: {written}, settle: {{ bytes: both }} }}"));
        let expected = ComputedReserve {
            request_bytes: Weight::thousandths(request_bytes),
            json: None,
            plus,
            most: 100,
            most_of_plans: Vec::new(),
        };
        assert_eq!(settle.reserve, Some(expected), "{written}");
    }
}

#[test]
fn a_reserve_may_have_numbers_of_the_body() {
    let path = |text| MemberPath::parse(text).unwrap();
    let one = vec![(path("max_tokens"), Weight::ONE)];
    let both = vec![(path("o.n"), Weight::thousandths(500)), (path("max_tokens"), Weight::ONE)];
    for (written, terms, otherwise, words) in [
        ("{ json: max_tokens }", &one, None, "reserve: (json:max_tokens, else auto);"),
        (
            "{ json: max_tokens, otherwise: 7, plus: 3 }",
            &one,
            Some(7),
            "reserve: (json:max_tokens, else 7) + 3;",
        ),
        (
            "{ json: { o.n: 0.5, max_tokens: 1 }, otherwise: auto, request_bytes: 0.25 }",
            &both,
            None,
            "reserve: (0.5 × json:o.n + json:max_tokens, without any of them at least auto) + 0.25 × bytes of the request;",
        ),
    ] {
        let cost = format!("{{ reserve: {written}, settle: {{ bytes: both }} }}");
        let (settle, _) = settled(&cost);
        let json = settle.reserve.and_then(|reserve| reserve.json);
        assert_eq!(json, Some(ReservedNumbers { terms: terms.clone(), otherwise }), "{written}");
        let shown = describe(&plan(&with_rule(&format!("limit: 100/1m, cost: {cost}"))));
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn a_computed_reserve_that_cannot_be_read_is_rejected() {
    for (rule, message) in [
        (
            "limit: 10/1s, cost: { settle: { header: x-a, bytes: both } }",
            "a settlement has one source, and this has `header` and `bytes` | remove one, or write another rule that settles by it",
        ),
        (
            "limit: 10/1s, cost: { reserve: { request_bytes: 0.0001 }, settle: { bytes: both } }",
            "`0.0001` is not a weight | write a number from 0 to 1000000 with at most three decimals, as in `0.25`",
        ),
        (
            "limit: 10/1s, cost: { reserve: { otherwise: 5 }, settle: { bytes: both } }",
            "`otherwise` without `json` | write `plus`: only a number in the body may be missing",
        ),
        (
            "limit: 10/1s, cost: { reserve: { json: n, plus: auto }, settle: { bytes: both } }",
            "`plus: auto` beside `json` | write a number: what is learned stands in for `json`, by `otherwise: auto`",
        ),
        (
            "limit: 10/1s, cost: { reserve: { json: a..b }, settle: { bytes: both } }",
            "`a..b` is not the path of a member | write the name of a member, or names with dots between them, as in `options.seed`",
        ),
        (
            "limit: 10/1s, cost: { reserve: { json: { n: -1 } }, settle: { bytes: both } }",
            "`-1` would make a cost smaller | write a number from 0 to 1000000, as in `0.25`",
        ),
        (
            "limit: 10/1s, cost: { reserve: many, settle: { bytes: both } }",
            "`many` is not a number | write a number, or `auto`",
        ),
    ] {
        messages(&with_rule(rule), &[message]);
    }
}

#[test]
fn a_rule_that_gateways_share_may_settle() {
    for more in ["", ", sync_interval: 1s"] {
        let rule = format!(
            "limit: 10/1s, scope: cluster, on_store_error: deny{more}, cost: {{ settle: {{ bytes: both }} }}"
        );
        let text = format!("store: {{ redis: redis://127.0.0.1:6379 }}\n{}", with_rule(&rule));
        let plan = plan(&text);
        assert!(plan.routes[0].rules[0].options.cost.settle.is_some(), "{rule}");
    }
}

#[test]
fn a_settled_cost_that_cannot_work_is_rejected() {
    const STATUS: &str = "settle: { status: { 401: 1, default: 0 } }";
    for (rule, message) in [
        (
            format!("limit: 10/1s, cost: {{ reserve: 11, {STATUS} }}"),
            "nothing can ever pass: a request costs 11 of limit 10 | write a cost of at most 10, or a larger limit",
        ),
        (
            format!("limit: 10/1s, burst: 3, cost: {{ reserve: 4, {STATUS} }}"),
            "nothing can ever pass: a request costs 4 of burst 3 | write a cost of at most 3, or a larger burst",
        ),
        (
            format!("limit: 10/1s, cost: {{ reserve: {{ POST: 11 }}, {STATUS} }}"),
            "no POST can ever pass: POST costs 11 of limit 10 | write a cost of at most 10, or a larger limit",
        ),
        (
            format!("limit: 10/1s, cost: {{ reserve: 0, {STATUS} }}"),
            "`reserve` cannot be 0 | write a number from 1 to 1000000000000",
        ),
        (
            format!("concurrency: 3, cost: {{ {STATUS} }}"),
            "`reserve` and `settle` in a rule with `concurrency` | write a plain cost, as in `cost: 5`: it counts requests only while they run",
        ),
        (
            format!("limit: 10/1s, algorithm: pacing, cost: {{ {STATUS} }}"),
            "`reserve` and `settle` in a rule with `algorithm: pacing` | write a plain cost, as in `cost: 5`: a start that is over cannot be moved",
        ),
        (
            format!(
                "limit: 10/1s, algorithm: fixed_window, priority: {{ header: x-a }}, cost: {{ {STATUS} }}"
            ),
            "`reserve` and `settle` in a rule with `priority` | write a plain cost, as in `cost: 5`: what a request has borrowed is not given back",
        ),
        (
            "limit: 10/1s, cost: { settle: {} }".to_owned(),
            "a settlement without a source | write what the cost is, as in `settle: { status: { 401: 1, default: 0 } }`, or an API, as in `settle: openai`",
        ),
        (
            "limit: 10/1s, cost: { reserve: 2 }".to_owned(),
            "a cost that is settled needs `settle` | write `settle: openai`",
        ),
        (
            "limit: 10/1s, cost: { settle: { status: { 99: 1 } } }".to_owned(),
            "`99` is not a status or a range of them | write statuses from 100 to 599, as in `200` or `200-399`",
        ),
        (
            "limit: 10/1s, cost: { settle: { status: { 401: 1000000000001 } } }".to_owned(),
            "`status` cannot be 1000000000001 | write a number from 0 to 1000000000000",
        ),
    ] {
        messages(&with_rule(&rule), &[message]);
    }
}

#[test]
fn a_response_may_be_charged_while_it_passes() {
    for source in [
        "openai",
        "{ json: { n: 1 }, otherwise: { events: 1 } }",
        "{ bytes: both }",
        "{ time: 1ms }",
    ] {
        let cost = |is: &str| format!("{{ settle: {source}, settle_while_streaming: {is} }}");
        assert!(settled(&cost("true")).0.while_streaming, "{source}");
        assert!(!settled(&cost("false")).0.while_streaming, "{source}");
    }
    let rule =
        with_rule("limit: 10/1s, cost: { settle: { bytes: both }, settle_while_streaming: true }");
    let described = describe(&plan(&rule));
    let expected = "reserve: else 1; costs by bytes of both bodies, charged while it passes";
    assert!(described.contains(expected), "{described}");

    let shared = |more: &str| {
        let rule = "limit: 10/1s, scope: cluster, on_store_error: deny";
        let cost = "cost: { settle: { bytes: both }, settle_while_streaming: true }";
        let rules = with_rule(&format!("{rule}{more}, {cost}"));
        format!("store: {{ redis: redis://127.0.0.1:6379 }}\n{rules}")
    };
    assert!(
        plan(&shared(", sync_interval: 1s")).routes[0].rules[0]
            .options
            .cost
            .settles_while_streaming()
    );
    messages(
        &shared(""),
        &[
            "`settle_while_streaming` with `scope: cluster` and no `sync_interval` | write `sync_interval: 100ms` beside `scope`, or remove it: the store would get a command for each charge",
        ],
    );
    for (source, name) in [
        ("status: { default: 0 }", "status"),
        ("header: x-cost", "header"),
        ("trailer: x-cost", "trailer"),
    ] {
        let rule = format!(
            "limit: 10/1s, cost: {{ settle: {{ {source} }}, settle_while_streaming: true }}"
        );
        let message = format!(
            "`settle_while_streaming` with `{name}` | remove it: only numbers in the body, bytes and time grow while a response passes"
        );
        messages(&with_rule(&rule), &[&message]);
    }
}

#[test]
fn numbers_of_a_response_are_written_as_paths_or_as_an_api() {
    let (settle, reserve) = settled("{ reserve: 40, settle: openai }");
    assert_eq!((settle.query(), reserve), (Some(&Preset::OpenAi.query()), 40));
    let end = ResponseEnd {
        status: Some(200),
        passed: Passed { request_bytes: 400, events: 9, is_whole: true, ..Passed::default() },
        ..ResponseEnd::default()
    };
    let number = |sum| Some(Reading { sum: Some(sum), is_final: true, is_streamed: true });
    let cost = |settle: &Settle, end: ResponseEnd, reserve, reading| {
        settle.cost(&end, reserve, reading).map(|cost| cost.cost)
    };
    assert_eq!(cost(&settle, end, 40, number(7)), Some(7));
    assert_eq!(cost(&settle, end, 40, None), Some(109));
    assert_eq!(cost(&settle, ResponseEnd { is_failure: true, ..end }, 40, None), Some(0));

    let (settle, _) = settled(
        "{ settle: { json: { usage.a: 1, usage.b: 0.25, $.c: -2.5 }, otherwise: { events: 3, response_bytes: 0.001 } } }",
    );
    let paths = [("usage.a", 1000), ("usage.b", 250), ("c", -2500)];
    let paths = paths.map(|(path, thousandths)| (path, Weight::thousandths(thousandths)));
    assert_eq!(settle.query(), Some(&Query::sum(paths)));
    assert_eq!(cost(&settle, end, 1, None), Some(27));
    let (settle, _) = settled("{ settle: { json: { n: 1 }, otherwise: refund } }");
    assert_eq!(cost(&settle, end, 5, None), Some(0));
}

#[test]
fn numbers_of_a_response_that_cannot_be_read_are_rejected() {
    let with = |settle: &str| with_rule(&format!("limit: 10/1s, cost: {{ settle: {settle} }}"));
    for (settle, message) in [
        (
            "open_ai",
            "`open_ai` is not an API whose responses are known | write one of openai, openai_responses, anthropic, gemini, ollama, or where the numbers are, as in `settle: { json: { usage.total_tokens: 1 }, otherwise: { events: 1 } }`",
        ),
        (
            "{ json: { n: 1 }, status: { 200: 1 } }",
            "a settlement has one source, and this has `status` and `json` | remove one, or write another rule that settles by it",
        ),
        (
            "{ status: { 200: 1 }, otherwise: refund }",
            "`otherwise` without `json` | remove it: only numbers in a response may be missing",
        ),
        (
            "{ json: { n: 0.0005 }, otherwise: refund }",
            "`0.0005` is not a factor | write a number of at most 1000000 with up to three decimals, as in `0.25`",
        ),
        (
            "{ json: { n: 1000000.001 }, otherwise: refund }",
            "`1000000.001` is not a factor | write a number of at most 1000000 with up to three decimals, as in `0.25`",
        ),
        (
            "{ json: { n: 1 }, otherwise: { events: -1 } }",
            "`-1` would make a cost smaller | write a number from 0 to 1000000, as in `0.25`",
        ),
        (
            "{ json: { n: 1 }, otherwise: nothing }",
            "`nothing` is not a cost | write `refund` to give the reserve back, or weights, as in `{ request_bytes: 0.25, events: 1 }`",
        ),
        (
            "{ json: { 'choices[0].n': 1 }, otherwise: refund }",
            "`choices[0].n` is not a path of member names | write names with dots between them, as in `usage.total_tokens`; the elements of arrays are read without an index",
        ),
        (
            "{ json: { a..b: 1 }, otherwise: refund }",
            "the path `a..b` has a member without a name | write names with dots between them, as in `usage.total_tokens`",
        ),
        (
            "{ json: { n: 1, $.n: 2 }, otherwise: refund }",
            "`n` twice | write each path once: a factor of 2 counts it twice",
        ),
    ] {
        messages(&with(settle), &[message]);
    }
}

#[test]
fn a_cost_by_the_response_warns_of_what_clients_may_do() {
    const GZIP: &str = "request_headers: { set: { accept-encoding: gzip } }";
    const REMOVED: &str = "request_headers: { remove: accept-encoding }";
    let route = |headers: &str, settle: &str| {
        format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]
routes:
  - name: all
    match: {{ path_prefix: / }}
    upstream: app
    {headers}
    flow: [{{ name: tokens, limit: 1000/1m, cost: {{ settle: {settle} }} }}]
end: true
"
        )
    };
    warnings(&route(GZIP, "openai"), &[]);
    warnings(&route(REMOVED, "{ json: { n: 1 }, otherwise: refund }"), &[]);
    warnings(
        &route("", "openai"),
        &[
            "the rule `tokens` reads responses, and clients of the route `all` may ask for encodings that flowgate cannot read",
        ],
    );
    warnings(
        &route(GZIP, "{ json: { n: 1 } }"),
        &["a client that leaves before these numbers come pays the reserve only"],
    );
}
