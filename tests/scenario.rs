//! `flowgate test`: scenarios, what they print, and how they end.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const CONFIG: &str = "\
config:
  listeners: [{ name: web, listen: 127.0.0.1:0 }]
  upstreams: [{ name: up, servers: [{ url: http://127.0.0.1:9 }] }]
  routes:
    - name: all
      match: { path_prefix: /a }
      upstream: up
      flow: [{ name: r, algorithm: fixed_window, limit: 3/1m }]
";

fn test(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .arg("test")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("it runs")
}

fn write(folder: &Path, name: &str, tests: &str) {
    fs::write(folder.join(name), format!("{CONFIG}tests:\n{tests}")).expect("written");
}

#[test]
fn the_example_passes() {
    let output = test(Path::new(env!("CARGO_MANIFEST_DIR")), &["examples/scenario.yaml"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.starts_with("running 4 tests\n"), "{printed}");
    assert_eq!(printed.matches(" ... ok\n").count(), 4, "{printed}");
    assert!(printed.ends_with("\ntest result: ok. 4 passed; 0 failed\n"), "{printed}");
}

#[test]
fn a_rule_that_does_not_exist_fails_even_where_it_should_not_decide() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tests = "  - name: t\n    steps:\n      - at 0s: GET /a -> 1 passed, 0 rejected by pre\n";
    write(folder.path(), "a.yaml", tests);
    let output = test(folder.path(), &["a.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("  no rule is named pre; there are: r\n"), "{printed}");
}

#[test]
fn a_request_that_waits_is_delayed_by_the_rule_that_asked_for_the_longest_wait() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tests = "  - name: t\n    steps:\n      - at 0s: 3 x GET /a taking 9s -> 1 passed, 2 delayed by pacing\n";
    let paced = CONFIG
        .replace("limit: 3/1m }]", "limit: 3/1m }]\n      pacing: { rate: 10/1s, max_wait: 5s }");
    fs::write(folder.path().join("a.yaml"), format!("{paced}tests:\n{tests}")).expect("written");
    let output = test(folder.path(), &["a.yaml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_failure_says_what_was_expected_and_where_the_rule_stands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tests = "  - name: too many <&>\n    steps:\n      - at 0s: 5 x GET /a -> 4 passed, 1 rejected by r\n\
        \x20     - at 1s: GET /b -> 1 passed, wait = 5ms\n      - at 0s: GET /a -> 1 rejected by r\n\
        \x20 - name: fine\n    steps:\n      - at 0s: 3 x GET /a → 3 passed\n";
    write(folder.path(), "a.yaml", tests);
    let output = test(folder.path(), &["a.yaml", "--junit", "out.xml"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "\
running 2 tests
test a.yaml: too many <&> ... FAILED
test a.yaml: fine ... ok

failures:

---- a.yaml: too many <&> ----
line 12: at 0s: 5 x GET /a -> 4 passed, 1 rejected by r
  expected 4 passed, got 3
  expected 1 rejected by r, got 2
  in use at the end: r 3 of 3
line 13: at 1s: GET /b -> 1 passed, wait = 5ms
  expected 1 passed, got 0
  not expected: 1 unrouted
  expected wait 5ms, but there was none
line 14: at 0s: GET /a -> 1 rejected by r
  it begins before the step above has ended

test result: FAILED. 1 passed; 1 failed
";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(output.stderr, b"");
    let xml = fs::read_to_string(folder.path().join("out.xml")).expect("written");
    for part in [
        "<testsuites tests=\"2\" failures=\"1\" errors=\"0\" time=\"0.",
        "<testsuite name=\"a.yaml\" tests=\"2\" failures=\"1\" errors=\"0\" time=\"0.",
        "name=\"too many &lt;&amp;&gt;\" time=\"0.",
        "\"><failure message=\"not as expected\">line 12",
        "expected 4 passed, got 3\n",
        "<testcase classname=\"a.yaml\" name=\"fine\" time=\"0.",
    ] {
        assert!(xml.contains(part), "no {part} in {xml}");
    }
}

#[test]
fn what_cannot_be_read_fails_with_its_place_while_the_rest_is_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "a.yaml", "  - name: t\n    steps:\n      - at 0s: GET /a -> 1 pased\n");
    write(
        folder.path(),
        "fine.yaml",
        "  - name: t\n    steps:\n      - at 0s: GET /a -> 1 passed\n",
    );

    let output = test(folder.path(), &["a.yaml", "fine.yaml", "--junit", "out.xml"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("a.yaml:12:28") && said.contains("did you mean `passed`?"), "{said}");
    let expected = "running 1 test\ntest fine.yaml: t ... ok\n\n\
        test result: FAILED. 1 passed; 0 failed; 1 file could not be read\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);

    let xml = fs::read_to_string(folder.path().join("out.xml")).expect("written");
    for part in [
        "<testsuites tests=\"2\" failures=\"0\" errors=\"1\"",
        "<testsuite name=\"a.yaml\" tests=\"1\" failures=\"0\" errors=\"1\"",
        "<error message=\"cannot be read\">error: `pased` is not a decision",
    ] {
        assert!(xml.contains(part), "no {part} in {xml}");
    }

    let no_config = "config: none.yaml\ntests: [{ name: t, steps: [at 0s: GET /a -> 1 passed] }]\n";
    for (text, code) in [(no_config, 2), ("tests: []\n", 1), ("[", 1)] {
        fs::write(folder.path().join("b.yaml"), text).expect("written");
        assert_eq!(test(folder.path(), &["b.yaml"]).status.code(), Some(code), "{text}");
    }
    assert_eq!(test(folder.path(), &["fine.yaml", "none.yaml"]).status.code(), Some(2));
    assert_eq!(test(folder.path(), &[]).status.code(), Some(2));
}

#[test]
fn another_configuration_is_tested_if_it_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inner = CONFIG.strip_prefix("config:\n").expect("it begins so").replace("\n  ", "\n");
    let inner = inner.strip_prefix("  ").expect("indented").replace("3/1m", "5/1m");
    fs::write(folder.path().join("five.yaml"), inner).expect("written");
    let tests =
        "  - name: t\n    steps:\n      - \"at 0s: 6 x GET /a → 5 passed, 1 rejected by r\"\n";
    write(folder.path(), "a.yaml", tests);
    fs::write(folder.path().join("b.yaml"), format!("tests:\n{tests}")).expect("written");
    assert_eq!(test(folder.path(), &["a.yaml"]).status.code(), Some(1));
    let output = test(folder.path(), &["-c", "five.yaml", "a.yaml", "b.yaml"]);
    assert!(output.status.success(), "{output:?}");
    let output = test(folder.path(), &["b.yaml"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("write `config: gateway.yaml`, or name it with `-c`"), "{said}");
}

#[test]
fn a_configuration_is_put_in_force_on_the_way() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The same configuration in files of its own, with another limit in the second.
    let inner = CONFIG.strip_prefix("config:\n").expect("it begins so").replace("\n  ", "\n");
    let inner = inner.strip_prefix("  ").expect("indented");
    fs::write(folder.path().join("one.yaml"), inner).expect("written");
    fs::write(folder.path().join("two.yaml"), inner.replace("3/1m", "5/1m")).expect("written");
    fs::write(
        folder.path().join("a.yaml"),
        "config: one.yaml\ntests:\n  - name: raised in the middle of a window\n    steps:\n\
         \x20     - at 0s: 4 x GET /a -> 3 passed, 1 rejected\n      - at 1s: reload two.yaml\n\
         \x20     - after 1s: 4 x GET /a -> 2 admitted, 2 rejected by r for rate\n      - at 60s over 3s: 6 x GET /a -> 5 passed, 1 rejected\n",
    )
    .expect("written");
    let output = test(folder.path(), &["a.yaml"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_scenario_says_who_the_client_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = CONFIG.replace(
        "      upstream: up\n      flow: [{ name: r, algorithm: fixed_window, limit: 3/1m }]\n",
        "      upstream: up\n      auth: { jwt: { jwks: keys.json } }\n      flow:\n        - name: r\n          \
         limit: 1/1m\n          key: jwt:team.id\n          except: { user: root }\n          \
         overrides: [{ when: { jwt:roles: [admin, ops] }, limit: 2/1m }]\n",
    );
    let tests = "  - name: t\n    steps:\n      \
        - at 0s: 3 x GET /a claim team.id=7 -> 1 passed, 2 rejected by r\n      \
        - at 0s: GET /a claim team.id=8 user ann -> 1 passed\n      \
        - at 0s: 4 x GET /a claim team.id=9 claim roles=dev claim roles=ops -> 2 passed, 2 rejected by r\n      \
        - at 0s: 4 x GET /a user root -> 4 passed\n      \
        - at 0s: 4 x GET /a claim sub=root -> 4 passed\n";
    fs::write(folder.path().join("a.yaml"), format!("{config}tests:\n{tests}")).expect("written");
    let output = test(folder.path(), &["a.yaml"]);
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
}
