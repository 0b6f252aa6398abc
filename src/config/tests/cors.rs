//! `cors` of routes: what it takes, and what it warns of.

use super::{FRAME, messages, plan, rejected, warnings};
use crate::config::describe;

fn file(cors: &str) -> String {
    format!(
        "{FRAME}routes:\n  - name: r\n    match: {{ path: /a }}\n    upstream: app\n    cors: {cors}\n"
    )
}

#[test]
fn what_scripts_may_do_is_kept_as_responses_say_it() {
    let cors = |keys: &str| {
        let plan = plan(&file(keys));
        let cors = plan.routes[0].options.cors.clone().expect("it has `cors`");
        let text = |value: Option<http::HeaderValue>| {
            value.map(|value| value.to_str().expect("text").to_owned())
        };
        let [methods, headers, expose, max_age] =
            [cors.methods, cors.headers, cors.expose, cors.max_age].map(text);
        (methods, headers, expose, max_age)
    };
    let some = |text: &str| Some(text.to_owned());
    let usual = some("GET, HEAD, POST, PUT, PATCH, DELETE");
    let origin = "origins: https://a.test";
    assert_eq!(cors(&format!("{{ {origin} }}")), (usual.clone(), None, None, None));
    assert_eq!(
        cors(&format!(
            "{{ {origin}, methods: [GET, PURGE], headers: [X-Key, range], expose: ['*'], max_age: 90m }}"
        )),
        (some("GET, PURGE"), some("x-key, range"), some("*"), some("5400"))
    );
    assert_eq!(
        cors(&format!("{{ {origin}, methods: '*', headers: '*', max_age: 0s }}")),
        (None, None, None, some("0"))
    );
    assert_eq!(cors(&format!("{{ {origin}, headers: [] }}")), (usual, some(""), None, None));

    let words = describe(&plan(&file(
        "{ origins: ['https://*.a.test', http://b.test:80], credentials: true }",
    )));
    assert!(
        words.contains("    cors  https://*.a.test, http://b.test, with credentials\n"),
        "{words}"
    );
}

#[test]
fn an_origin_for_all_sites_takes_no_credentials() {
    rejected(
        &file("{ origins: '*', credentials: true }"),
        "
error: `*` beside `credentials: true`
 --> gateway.yaml:7:22
  |
7 |     cors: { origins: '*', credentials: true }
  |                      ^^^               ---- here
  |                      |
  |                      any site could act for its visitors here
  |
  = help: write the origins, as in `https://app.example.com`
",
    );
    let usual = "origins: https://a.test";
    for (keys, message) in [
        (
            "{ origins: [] }",
            "`origins` is empty | write at least one: `origins: https://app.example.com`",
        ),
        ("{ origins: a.test }", "`a.test` is not an origin | write `https://a.test`"),
        (
            "{ origins: https://a.test, methods: [] }",
            "`methods` is empty | write the methods, as in `[GET, POST]`, or remove `methods`",
        ),
        (
            "{ origins: https://a.test, methods: get }",
            "`get` is not upper-case, as methods are | write `GET`",
        ),
        (
            "{ origins: https://a.test, expose: '*', credentials: true }",
            "with `credentials`, browsers take `*` for the name of a field | write the fields, as in `[retry-after, ratelimit]`",
        ),
    ] {
        messages(&file(keys), &[message]);
    }
    let many: Vec<_> = (0..=100).map(|number| format!("https://a{number}.test")).collect();
    messages(
        &file(&format!("{{ origins: [{}] }}", many.join(", "))),
        &[
            "`origins` has 101 entries | write at most 100; `https://*.example.com` stands for all hosts below it",
        ],
    );
    messages(
        &file("{ allow_origin: https://a.test }"),
        &["CORS has no key `allow_origin`; did you mean `origins`? | write `origins`"],
    );
    warnings(&file(&format!("{{ {usual} }}")), &[]);
    warnings(&file("{ origins: ['*', https://a.test] }"), &["`*` allows this origin too"]);
    let set = "\n    response_headers: { set: { Access-Control-Allow-Origin: a, x-b: c } }";
    warnings(
        &file(&format!("{{ {usual} }}{set}")),
        &["`cors` writes `access-control-allow-origin` itself"],
    );
}
