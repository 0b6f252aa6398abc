use super::*;
use core::time::Duration;
use proptest::prelude::*;

fn problems(step: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.yaml");
    let text = format!(
        "config:\n  listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         \x20 upstreams: [{{ name: up, servers: [{{ url: http://127.0.0.1:9 }}] }}]\n\
         \x20 routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: up }}]\n\
         tests:\n  - name: t\n    steps:\n      - {step}\n"
    );
    std::fs::write(&path, text).unwrap();
    match read_scenario(&path, None) {
        Ok(scenario) => format!("{:?}", scenario.tests[0].steps[0].what),
        Err(problems) => problems
            .list()
            .map(|diagnostic| {
                format!(
                    "{}:{}: {} | {}",
                    diagnostic.line, diagnostic.column, diagnostic.message, diagnostic.help
                )
            })
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

#[test]
fn a_configuration_in_place_of_a_scenario_is_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    std::fs::write(&path, "admin: {}\nlisteners: []\nroutes: []\nend: true\n").unwrap();
    let problems = read_scenario(&path, None).unwrap_err();
    let diagnostics: Vec<_> = problems
        .list()
        .map(|diagnostic| format!("{}: {}", diagnostic.line, diagnostic.message))
        .collect();
    assert_eq!(diagnostics, ["2: the file is a configuration, not a scenario"]);
}

#[test]
fn a_wrong_word_is_marked_with_a_hint() {
    for (step, expected) in [
        (
            "at 0s: 5 x GET /a -> 5 pased",
            "8:32: `pased` is not a decision | did you mean `passed`?",
        ),
        (
            "at 0s: 5 x GET /a form 192.0.2.1",
            "8:27: `form` says nothing about a request | did you mean `from`?",
        ),
        ("at 0s: 5 GET /a", "8:18: `x` is missing behind the number | write `120 x GET /a`"),
        ("at 0s: get /a", "8:16: this is not a method | write `120 x GET /a`"),
        ("at 0s: GET a", "8:20: a path begins with `/` | write `120 x GET /a`"),
        ("at 5: GET /a", "8:12: `5` has no unit"),
        ("soon: GET /a", "8:9: `soon` is not a time of a step"),
        ("every 0s for 1s: GET /a", "8:15: `every` needs a time"),
        ("at 0s: GET /a from there", "8:28: this is not an address"),
        (
            "at 0s: GET /a -> 5 passed, wait < 5ms",
            "8:41: no time is compared like this | write `<=`, `>=` or `=`",
        ),
        ("at 0s: 120x GET /a", "8:16: `120x` is not a whole number | write `120 x GET /a`"),
        ("at 0s: GET /a -> all passed", "8:26: `all` is not a whole number | write `100 passed`"),
        ("\"at 0s: 5 x GET /a -> 5 pased\"", "8:33: `pased` is not a decision | did you mean"),
        ("'soon: GET /a'", "8:10: `soon` is not a time of a step"),
        ("'GET /a'", "8:9: a step is a time and a sentence"),
        ("\"at 0s: GET /\\u0061 -> 5 pased\"", "8:9: `pased` is not a decision"),
        ("at 0s: GET /a -> 1 passed by", "8:37: the rule is missing"),
        ("at 0s: GET /a -> 1 passed for rate", "8:35: only rejected requests have a reason"),
        (
            "at 0s: GET /a -> 1 rejected for rates",
            "8:41: `rates` is not a reason | did you mean `rate`?",
        ),
        (
            "at 0s: GET /a -> 1 shed",
            "8:28: `shed` is not a decision | write one of passed, delayed",
        ),
        ("at 0s: GET /a status 5", "8:30: this is not a status"),
        ("at 0s", "8:9: a step is a time and a sentence"),
        ("at 0s: [a]", "8:16: expected a sentence for `steps`, not a list"),
        ("[a]", "8:9: expected a sentence for `steps`, not a list"),
    ] {
        let said = problems(step);
        assert!(said.starts_with(expected), "{step}: {said}\nnot {expected}");
    }
}

#[test]
fn a_sentence_may_stand_in_quotes() {
    let sentence = "120 x GET /a from 192.0.2.4 → 100 passed, 20 rejected by per-client";
    let plain = problems(&format!("at 0s: {sentence}"));
    assert!(plain.contains("count: 120") && plain.contains("per-client"), "{plain}");
    for quoted in [format!("\"at 0s: {sentence}\""), format!("'at 0s: {sentence}'")] {
        assert_eq!(problems(&quoted), plain);
    }
    // A colon before a space would part a plain one.
    let addressed = problems("'at 0s: GET /a from 2001:db8:: -> 1 passed'");
    assert!(addressed.contains("2001:db8::"), "{addressed}");
}

#[test]
fn a_time_may_be_of_several_words() {
    let when = sentence::when("at 1m 30s over 1h 5m").unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let seconds = Duration::from_secs;
    assert_eq!((when.at, when.spread), (Some(seconds(90)), Spread::Over(seconds(3900))));
    let said = problems("at 1m 30s: GET /a taking 1m 30s status 503 -> 1 passed, wait <= 1m 1s");
    for part in ["takes: 90s", "Some(503)", "AtMost, 61s"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    for (step, expected) in [
        ("at 1m 30: GET /a", "8:15: `30` says nothing here"),
        ("at 1m 30x over 5s: GET /a", "8:12: `1m 30x` is not a duration"),
    ] {
        let said = problems(step);
        assert!(said.starts_with(expected), "{step}: {said}\nnot {expected}");
    }
}

#[test]
fn every_clause_is_read() {
    let said = problems(
        "at 1s over 2s: 3 × POST /a?b from 2001:db8::1 host a.example header x-a=b json o.m=7 key k cost 2 priority taking 30ms \
         with status 503 → 1 passed, 2 rejected by r, wait ≤ 5ms, retry after >= 1s",
    );
    for part in [
        "count: 3",
        "method: POST",
        "2001:db8::1",
        "x-a",
        "json: [(\"o.m\", Numbered(\"7\"))]",
        "key: Some(Numbered(\"k\"))",
        "cost: Some(2)",
        "priority: true",
        "30ms",
        "Some(503)",
        "AtMost, 5ms",
        "AtLeast, 1s",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}

#[test]
fn a_number_stands_where_it_is_asked_for() {
    let said = problems(
        "at 0s: 3 x GET /u/{n} from 2001:db8:{n}::1 header x-a=b{n} key k{n} -> 3 dry-run by r",
    );
    for part in ["/u/{n}", "2001:db8:{n}::1", "b{n}", "k{n}", "DryRun"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    let numbered = Numbered::new("a{n}b{n}");
    assert_eq!((numbered.of(1), numbered.of(20)), ("a1b1".into(), "a20b20".into()));
    let wrong = problems("at 0s: GET / from 192.0.2.{m}");
    assert!(wrong.starts_with("8:27: this is not an address"), "{wrong}");
}

proptest! {
    #[test]
    fn no_sentence_panics(when in ".{0,40}", what in ".{0,80}", words in proptest::collection::vec("at|every|over|for|5s|0s|12|x|GET|/a|->|→|,|passed|by|wait|≤|from|header|retry|after|ü", 0..12)) {
        drop(sentence::when(&when));
        drop(sentence::what(&what, Path::new("")));
        let words = words.join(" ");
        drop(sentence::when(&words));
        drop(sentence::what(&words, Path::new("")));
    }
}
