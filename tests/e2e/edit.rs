//! Editing the file in the dashboard: over raw HTTP, and in a real browser.

use crate::common::{
    Gateway,
    browser::Browser,
    eventually,
    http::{Answer, Client},
    replace,
};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt};

const YAML: &str = "\
# The first line stays.
workers: 2
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0, edit: true }
routes:
  - name: login # and so does this
    match: { path: /login }
    respond: { status: 200 }
    flow:
      - { name: per-address, algorithm: sliding_log, limit: 5/1h, key: client_ip }
  - name: other
    match: { path_prefix: / }
    respond: { status: 200 }
";

const OWN: (&str, &str) = ("x-flowgate-edit", "1");

fn send(gateway: &Gateway, line: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    let length = body.len().to_string();
    let mut head = format!("{line} HTTP/1.1\r\n");
    let all = [("content-length", &*length)];
    let host = [("host", "localhost")];
    let is_named = fields.iter().any(|(name, _)| *name == "host");
    let host = if is_named { &[][..] } else { &host[..] };
    for (name, value) in host.iter().chain(&all).chain(fields) {
        head += &format!("{name}: {value}\r\n");
    }
    let mut client = Client::new(gateway.address("admin"));
    client.send(format!("{head}\r\n{body}"));
    client.read(line.split(' ').next().expect("a method"))
}

/// Returns the file as the dashboard gets it.
fn load(gateway: &Gateway) -> Value {
    let answer = send(gateway, "GET /edit", &[OWN], "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn hash(loaded: &Value) -> String {
    format!("\"{}\"", loaded["hash"].as_str().expect("a hash"))
}

#[test]
fn a_file_is_edited_without_losing_its_comments_or_its_state() {
    let gateway = Gateway::start(YAML);
    fs::set_permissions(&gateway.config, fs::Permissions::from_mode(0o640)).expect("changed");
    let mut client = Client::new(gateway.web());
    let statuses: Vec<u16> = (0..6).map(|_| client.get("/login").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);

    let loaded = load(&gateway);
    assert_eq!(loaded["text"], YAML);
    assert_eq!(loaded["file"], gateway.config.display().to_string());
    let tag = hash(&loaded);
    let new = YAML.replace("5/1h", "7/1h");
    let checked = send(&gateway, "POST /edit/check", &[OWN, ("if-match", &tag)], &new);
    assert_eq!(checked.status, 200, "{}", checked.text());
    let diff = checked.json()["diff"].as_str().expect("a text").to_owned();
    assert!(diff.contains("per-address  converted"), "{diff}");
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), YAML, "a check writes nothing");

    let saved = send(&gateway, "POST /edit/save", &[OWN, ("if-match", &tag)], &new);
    assert_eq!(saved.status, 200, "{}", saved.text());
    let summary = saved.json()["summary"].as_str().expect("a text").to_owned();
    assert!(summary.contains("5/1h → 7/1h"), "{summary}");
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), new);
    let mode = fs::metadata(&gateway.config).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(saved.json()["hash"], load(&gateway)["hash"]);
    // In force with the answer, and what was counted before still counts.
    let statuses: Vec<u16> = (0..3).map(|_| client.get("/login").status).collect();
    assert_eq!(statuses, [200, 200, 429]);

    // The hash is that of the text before.
    let late = YAML.replace("5/1h", "9/1h");
    for path in ["POST /edit/save", "POST /edit/check"] {
        let rejected = send(&gateway, path, &[OWN, ("if-match", &tag)], &late);
        assert_eq!(rejected.status, 412, "{}", rejected.text());
        assert_eq!(send(&gateway, path, &[OWN], &late).status, 428);
        assert_eq!(send(&gateway, path, &[OWN, ("if-match", "*")], &late).status, 428);
    }
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), new);
}

#[test]
fn a_broken_text_is_not_saved_and_its_errors_have_lines() {
    let gateway = Gateway::start(YAML);
    let tag = hash(&load(&gateway));
    for (text, line, message) in [
        (YAML.replace("limit:", "limt:"), 10, "a rule has no key `limt`"),
        (YAML.replace("routes:", "routes: ["), 5, ""),
    ] {
        for path in ["POST /edit/check", "POST /edit/save"] {
            let answer = send(&gateway, path, &[OWN, ("if-match", &tag)], &text);
            assert_eq!(answer.status, 422, "{}", answer.text());
            let problem = &answer.json()["problems"][0];
            let lines = problem["line"].as_u64().expect("a line");
            assert!(lines >= line, "{problem}");
            assert!(problem["message"].as_str().expect("a text").contains(message), "{problem}");
            assert!(problem["help"].is_string(), "{problem}");
        }
    }
    let not_text = send(&gateway, "POST /edit/save", &[OWN, ("if-match", &tag)], "");
    assert_eq!(not_text.status, 422, "an empty file");
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), YAML);
    // A broken file on the disk can be fixed here.
    let broken = YAML.replace("limit:", "limt:");
    replace(&gateway.config, &broken);
    gateway.wait_log("configuration rejected");
    let tag = hash(&load(&gateway));
    let fixed = YAML.replace("5/1h", "8/1h");
    let saved = send(&gateway, "POST /edit/save", &[OWN, ("if-match", &tag)], &fixed);
    assert_eq!(saved.status, 200, "{}", saved.text());
    let ready = send(&gateway, "GET /readyz?verbose", &[], "").text();
    assert!(ready.contains("last reload: taken"), "{ready}");
}

#[test]
fn no_other_page_can_edit_and_nobody_where_it_is_off() {
    let gateway = Gateway::start(YAML);
    let tag = hash(&load(&gateway));
    let match_ = ("if-match", &*tag);
    let new = YAML.replace("5/1h", "7/1h");
    for (fields, words) in [
        (vec![match_], "x-flowgate-edit"),
        (vec![OWN, match_, ("origin", "http://evil.example")], "another site"),
        (vec![OWN, match_, ("origin", "null")], "another site"),
        (vec![OWN, match_, ("sec-fetch-site", "cross-site")], "another site"),
        (vec![OWN, match_, ("host", "evil.example")], "name"),
    ] {
        for line in ["GET /edit", "GET /edit/schema", "POST /edit/check", "POST /edit/save"] {
            let body = if line.starts_with("GET") { "" } else { &*new };
            let answer = send(&gateway, line, &fields, body);
            assert_eq!(answer.status, 403, "{line} {fields:?}");
            assert!(answer.text().contains(words), "{}", answer.text());
        }
    }
    // A browser asks before it sends such a field for another site.
    let asked = send(
        &gateway,
        "OPTIONS /edit/save",
        &[("origin", "http://evil.example"), ("access-control-request-headers", "x-flowgate-edit")],
        "",
    );
    assert_eq!(asked.status, 403);
    assert_eq!(asked.header("access-control-allow-origin"), None);
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), YAML);

    gateway.edit(&YAML.replace(", edit: true", ""));
    for line in ["GET /edit", "GET /edit/schema", "POST /edit/check", "POST /edit/save"] {
        let answer = send(&gateway, line, &[OWN, match_], "");
        assert_eq!(answer.status, 403, "{line}");
        assert!(answer.text().contains("`edit: true`"), "{}", answer.text());
    }
}

#[test]
fn a_file_with_a_secret_is_not_shown() {
    let token = "0123456789abcdef0123";
    let with = YAML.replace("edit: true", &format!("edit: true, token: {token}"));
    let gateway = Gateway::start(&with);
    let bearer = format!("Bearer {token}");
    let fields = [OWN, ("authorization", &*bearer)];
    assert_eq!(send(&gateway, "GET /edit", &[OWN], "").status, 401);
    let answer = send(&gateway, "GET /edit", &fields, "");
    assert_eq!(answer.status, 409);
    assert!(answer.text().starts_with("line 4 of the file has a secret"), "{}", answer.text());
    assert!(!answer.text().contains(token));
    assert_eq!(send(&gateway, "GET /edit/schema", &fields, "").status, 200);
}

#[test]
fn an_edit_in_the_browser_is_completed_checked_compared_and_saved() {
    let gateway = Gateway::start(YAML);
    let mut browser = Browser::start();
    browser.resize(1280);
    browser.open(&format!("http://{}/dashboard", gateway.address("admin")));
    browser.wait("!document.querySelector('#edit').hidden");
    browser.value("document.querySelector('#edit-load').click()");
    let area = "document.querySelector('#edit-text')";
    browser.wait(&format!("{area}.value.includes('per-address')"));

    // A key that does not exist, typed by hand.
    let at = |word: &str| {
        format!(
            "{area}.focus(), {area}.setSelectionRange({area}.value.indexOf('{word}'), {area}.value.indexOf('{word}') + '{word}'.length)"
        )
    };
    browser.value(&at("limit: 5/1h"));
    browser.call("Input.insertText", &json!({ "text": "limt: 9/1h" }));
    let problems = "document.querySelector('#edit-problems').innerText";
    browser.wait(&format!("{problems}.includes('a rule has no key `limt`')"));
    browser.wait("document.querySelector('#edit-lines b').textContent.includes('10')");
    browser.wait("document.querySelector('#edit-save').disabled");
    // The error leads to its place.
    browser.value("document.querySelector('#edit-problems button').click()");
    browser.wait(&format!(
        "{area}.value.slice({area}.selectionStart, {area}.selectionEnd) === 'limt'"
    ));

    // Fixed by a suggestion, by keyboard.
    browser.call("Input.insertText", &json!({ "text": "limi" }));
    browser.wait("[...document.querySelectorAll('#edit-words li')].map((one) => one.textContent).join() === 'limit'");
    browser.value(&format!(
        "{area}.dispatchEvent(new KeyboardEvent('keydown', {{ key: ' ', ctrlKey: true, bubbles: true }}))"
    ));
    browser
        .wait("document.querySelector('#edit-words [aria-selected=true]').textContent === 'limit'");
    browser.press("Enter", "\r");
    browser.wait(&format!("{area}.value.includes('sliding_log, limit: 9/1h,')"));
    browser.wait("!document.querySelector('#edit-save').disabled");
    browser.wait(
        "document.querySelector('#edit-diff').textContent.includes('per-address  converted')",
    );
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), YAML, "nothing is saved yet");

    browser.value("document.querySelector('#edit-save').click()");
    browser.wait("document.querySelector('#edit-status').textContent.includes('✓ saved')");
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), YAML.replace("5/1h", "9/1h"));
    browser.wait("document.querySelector('#force').innerText.includes('5/1h → 9/1h')");

    // Another editor was faster.
    browser.value(&at("9/1h"));
    browser.call("Input.insertText", &json!({ "text": "3/1h" }));
    browser.wait("!document.querySelector('#edit-save').disabled");
    let other = YAML.replace("5/1h", "4/1h");
    gateway.edit(&other);
    browser.value("document.querySelector('#edit-save').click()");
    browser.wait("document.querySelector('#edit-status').textContent.includes('has changed')");
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), other);
}

#[test]
fn an_edit_in_the_browser_is_previewed_and_applied_on_a_phone() {
    let gateway = Gateway::start(YAML);
    let mut browser = Browser::start();
    browser.resize(360);
    browser.open(&format!("http://{}/dashboard#edit", gateway.address("admin")));
    browser.wait("!document.querySelector('#edit').hidden");
    browser.value("document.querySelector('#edit-load').click()");
    let area = "document.querySelector('#edit-text')";
    browser.wait(&format!("{area}.value.includes('per-address')"));
    let edit = format!(
        "{area}.focus(), {area}.setSelectionRange({area}.value.indexOf('5/1h'), {area}.value.indexOf('5/1h') + 4)"
    );
    browser.value(&edit);
    browser.call("Input.insertText", &json!({ "text": "2/1h" }));
    browser.wait("!document.querySelector('#edit-preview').disabled");
    browser.value("document.querySelector('#edit-preview').click()");
    let report = "document.querySelector('#edit-report-text').textContent";
    // Nothing begins before the person has seen what it takes.
    browser.wait(&format!("/takes up to \\d+\\.\\d MiB of memory/.test({report})"));
    let begin = "document.querySelector('#edit-begin')";
    browser.wait(&format!("!{begin}.hidden"));
    let before =
        Client::new(gateway.address("admin")).request("GET", "/preview", &[("host", "localhost")]);
    assert_eq!(before.status, 404);
    // What was asked for another text cannot begin.
    browser.call("Input.insertText", &json!({ "text": " " }));
    browser.wait(&format!("{begin}.hidden"));
    browser.wait("!document.querySelector('#edit-preview').disabled");
    browser.value("document.querySelector('#edit-preview').click()");
    browser.wait(&format!("!{begin}.hidden"));
    browser.value(&format!("{begin}.click()"));
    browser.wait(&format!("{report}.includes('The preview runs')"));
    let mut client = Client::new(gateway.web());
    for _ in 0..4 {
        assert_eq!(client.get("/login").status, 200);
    }
    browser.wait(&format!("{report}.includes('2 would be rejected')"));
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
    browser.value("document.querySelector('#edit-apply').click()");
    browser.wait("document.querySelector('#edit-status').textContent.includes('✓ applied')");
    assert_eq!(fs::read_to_string(&gateway.config).expect("read"), YAML.replace("5/1h", "2/1h "));
    // With what the preview has counted.
    eventually("the preview's state is in force", || {
        (client.get("/login").status == 429).then_some(())
    });
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn suggestions_know_where_in_the_file_the_cursor_is() {
    let gateway = Gateway::start(YAML);
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/dashboard", gateway.address("admin")));
    browser.wait("!document.querySelector('#edit').hidden");
    browser.value("document.querySelector('#edit-load').click()");
    browser.wait("document.querySelector('#edit-text').value.includes('per-address')");
    for (text, path, first) in [
        ("", "", "listeners"),
        ("ro", "", "routes"),
        ("routes:\n  - name: a\n    flow:\n      - al", "routes flow", "algorithm"),
        (
            "routes:\n- name: a\n  flow:\n  - { name: b, algorithm: tok",
            "routes flow algorithm",
            "token_bucket",
        ),
        ("routes:\n  - name: a\n    match: { path: /x, me", "routes match", "method"),
        (
            "routes:\n  - flow: [{ name: x }]\n    breaker:\n      er",
            "routes breaker",
            "error_ratio",
        ),
        ("routes:\n  - flow:\n      - name: x\n        dry_run: ", "routes flow dry_run", "true"),
        ("admin: {\n  ed", "admin", "edit"),
        ("admin:\n  # a comment: with a colon\n\n  tls:\n    c", "admin tls", "cert"),
        ("# ro", "null", ""),
    ] {
        let json = Value::from(text).to_string();
        let found = browser.value(&format!(
            "(() => {{ const at = Completion.place({json}); return at && [at.path.join(' '), ...Completion.suggestions(at).map((one) => one.name)]; }})()"
        ));
        if path == "null" {
            assert!(found.is_null(), "{text}: {found}");
            continue;
        }
        assert_eq!(found[0], path, "{text}: {found}");
        assert_eq!(found[1], first, "{text}: {found}");
    }
}
