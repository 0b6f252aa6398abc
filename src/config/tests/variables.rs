//! `${NAME}` in values: read as if it were written there, and never shown.

use super::{FRAME, Source, parse};
use crate::config::{Diagnostics, Plan, TemplateText as Text, describe, diff, promises};
use std::{ffi::OsString, path::Path};

const SECRET: &str = "s3cret, value";

fn environment(name: &str) -> Option<OsString> {
    let value = match name {
        "LIMIT" => "7",
        "SIZE" => "64KiB",
        "TRUE" => "true",
        "WEIGHT" => "3",
        "HOST" => "http://10.1.2.3:99",
        "SECRET" => SECRET,
        "LOGIN" => "http://user:s3cret@10.1.2.3",
        "LONG" => &"long-secret ".repeat(20),
        "MANY" => "a\nworkers: 99\n- b: ${LIMIT}",
        _ => return None,
    };
    Some(value.into())
}

fn parsed(text: &str) -> Result<Plan, Diagnostics> {
    parse(&Source { environment, ..Source::new(Path::new("gateway.yaml"), text) })
}

fn file(rest: &str) -> String {
    format!("{FRAME}{rest}routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n")
}

#[test]
fn values_of_every_kind_are_read_as_if_they_were_written() {
    let plan = parsed(
        "\
workers: ${LIMIT}
explain_headers: \"${TRUE}\"
limits: { body: ${SIZE}, headers: \"1${LIMIT}\" }
headers: ${WORD:-legacy}
listeners: [{ name: web, listen: \"127.0.0.1:${PORT:-8080}\" }]
upstreams: [{ name: app, servers: [{ url: ${HOST}, weight: ${WEIGHT} }, { url: 'http://a' }] }]
routes:
  - name: r
    match: { path: \"/users/{id}\" }
    upstream: ${APP:-app}
    flow: [{ name: a, limit: ${LIMIT}/1m }]
    request_headers: { set: { x-many: \"$${A}\" } }
    reject: { body: \"${MANY}\" }
",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((plan.settings.workers.get(), plan.settings.explain_headers), (7, true));
    assert_eq!((plan.settings.limits.body, plan.settings.limits.headers), (65_536, 17));
    let words = describe(&plan);
    for shown in ["127.0.0.1:8080", "http://10.1.2.3:99  weight 3", "7/1m", "headers legacy"] {
        assert!(words.contains(shown), "{shown} in {words}");
    }
    let options = &plan.routes[0].options;
    let text = Text::Plain("${A}".parse().unwrap());
    assert_eq!(options.request_headers.set[0].1, text);
    let body = options.reject.as_ref().and_then(|reject| reject.body().cloned()).unwrap();
    let text = Text::Plain("a\nworkers: 99\n- b: ${LIMIT}".into());
    assert_eq!(body.text, text, "one text, whatever it holds");
}

#[test]
fn a_variable_that_is_not_set_is_an_error_where_it_stands_and_the_only_one() {
    let text = file("workers: ${A}\ndrain_timeout: 1${B}s\ntrusted_proxies: [ \"${C}\" ]\n");
    let problems = parsed(&text).unwrap_err();
    let found: Vec<_> = problems.list().map(|d| (d.line, d.column, d.end_column)).collect();
    assert_eq!(found, [(3, 10, 14), (4, 17, 21), (5, 21, 25)], "{problems}");
    let first = problems.to_string();
    assert!(
        first.starts_with(
            "\
error: the variable `A` is not set
 --> gateway.yaml:3:10
  |
3 | workers: ${A}
  |          ^^^^
  |
  = help: set it in the environment that flowgate starts in, or write a default: `${A:-DEFAULT}`"
        ),
        "{first}"
    );
}

#[test]
fn a_wrong_value_is_described_and_not_shown() {
    for (line, message, help) in [
        ("workers: ${SECRET}", "is not a whole number", "set it to a whole number; what"),
        ("workers: 1${LIMIT}00", "is out of bounds for `workers`", "a number from 1 to 1024;"),
        ("headers: ${SECRET}", "is not one of `draft`, `legacy`, `off`", "set it to one of"),
        ("explain_headers: ${SECRET}", "is not `true` or `false`", "set it to `true`"),
        ("limits: { body: ${SECRET} }", "is not a size", "set it to a size;"),
        ("trusted_proxies: [${SECRET}, ::1]", "is not a network", "set it to a network;"),
        ("access_log: \"${SECRET}\\0\"", "is not `off`, `stdout`", "set it to `off`, `stdout`"),
    ] {
        let problems = parsed(&file(&format!("{line}\n"))).unwrap_err();
        let text = problems.to_string();
        let diagnostic = problems.list().next().unwrap();
        assert!(diagnostic.message.starts_with("the value of `"), "{text}");
        assert!(diagnostic.message.contains(message) && diagnostic.help.contains(help), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn what_does_not_fit_together_is_said_without_the_values() {
    let text = format!(
        "{FRAME}\
routes:
  - {{ name: r, match: {{ path: \"${{SECRET}}\" }}, upstream: \"${{NAME:-no-such}}\" }}
  - {{ name: s, match: {{ path_regex: \"(${{LONG}}\" }}, upstream: app, flow: [{{ name: a, limit: 1/s, key: \"${{SECRET}}\" }}] }}
  - {{ name: t, match: {{ host: \"${{SECRET}}\" }}, upstream: app, timeout: \"${{LIMIT}}s\" }}
"
    );
    let problems = parsed(&text).unwrap_err();
    let text = problems.to_string();
    assert!(problems.count() >= 4, "{text}");
    assert!(text.contains("there is no upstream `${NAME:-no-such}`"), "{text}");
    assert!(!text.contains("s3cret") && !text.contains("long-secret"), "{text}");
}

#[test]
fn what_a_variable_says_of_requests_is_not_shown() {
    let route = |limit: &str| {
        format!(
            "{FRAME}\
routes:
  - name: r
    match: {{ path_prefix: \"/hook/${{TOKEN:-sEcret}}\", host: \"${{TOKEN:-sEcret}}.org\", header: {{ x: ${{SECRET}} }}, query: {{ q: {{ regex: \"${{LONG}}\" }} }} }}
    upstream: app
    request_headers: {{ set: {{ authorization: \"Bearer ${{SECRET}}\" }} }}
    flow:
      - {{ name: a, limit: {limit}, overrides: [{{ when: {{ 'header:x': \"${{SECRET}}\" }}, limit: 9/s }}] }}
      - {{ name: b, limit: 2/s, except: {{ header: {{ x: \"${{SECRET}}\" }}, path_prefix: \"/${{TOKEN:-sEcret}}\" }} }}
      - {{ name: c, limit: 3/s, algorithm: fixed_window, priority: {{ header: x, equals: \"${{SECRET}}\" }} }}
    reject: {{ body: \"${{LONG}}\" }}
  - {{ name: s, match: {{ path: /s }}, redirect: \"https://${{TOKEN:-sEcret}}.org/\" }}
  - {{ name: t, match: {{ path: /t }}, upstream: app, rewrite: {{ add_prefix: \"/${{TOKEN:-sEcret}}\", host: \"${{TOKEN:-sEcret}}.org\" }} }}
"
        )
    };
    let [old, new] = ["5/s", "6/s"]
        .map(|limit| parsed(&route(limit)).unwrap_or_else(|problems| panic!("{problems}")));
    let shown = [
        describe(&old),
        format!("{:?}", promises(&old)),
        diff(&old, &new).to_string(),
        old.remarks_at(crate::flow::Instant::EPOCH).to_string(),
        format!("{:?}", old.warnings),
    ];
    for text in &shown {
        assert!(!text.to_lowercase().contains("s3cret"), "{text}");
        assert!(!text.contains("long-secret"), "{text}");
    }
    assert!(shown[0].contains("/hook/${TOKEN:-sEcret}"), "{}", shown[0]);
    assert!(!shown[0].contains("/hook/sEcret"), "{}", shown[0]);
    assert!(shown[0].contains("redirect 302 https://${TOKEN:-sEcret}.org/"), "{}", shown[0]);
    let rewrite = "rewrite  add /${TOKEN:-sEcret}, host ${TOKEN:-sEcret}.org";
    assert!(shown[0].contains(rewrite), "{}", shown[0]);
    assert!(shown[0].contains("a when header:x=${SECRET}"), "{}", shown[0]);
}

#[test]
fn what_a_variable_says_of_servers_and_numbers_is_shown() {
    let file = |url: &str, limit: &str| {
        format!(
            "\
listeners: [{{ name: web, listen: 127.0.0.1:8080 }}]
upstreams: [{{ name: app, servers: [{{ url: \"{url}\", weight: \"${{WEIGHT}}\" }}] }}]
routes: [{{ name: \"r${{LIMIT}}\", match: {{ path: / }}, upstream: app, flow: [{{ name: a, limit: {limit} }}] }}]
"
        )
    };
    let [old, new] = [("http://a", "5/s"), ("${HOST}", "${LIMIT}/s")].map(|(url, limit)| {
        parsed(&file(url, limit)).unwrap_or_else(|problems| panic!("{problems}"))
    });
    let words = describe(&new);
    for shown in ["http://10.1.2.3:99  weight 3", "r7", "7/1s"] {
        assert!(words.contains(shown), "{shown} in {words}");
    }
    let change = diff(&old, &new).to_string();
    assert!(change.contains("route r7  edited (a 5/1s → 7/1s)"), "{change}");
    // No password can be shown with a server: its URL has none.
    let problems = parsed(&file("${LOGIN}", "5/s")).unwrap_err().to_string();
    assert!(problems.contains("the value of `${LOGIN}` is not"), "{problems}");
    assert!(!problems.contains("s3cret"), "{problems}");
}
