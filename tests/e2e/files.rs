//! Variables in the file, and what the gateway shows of them; files that are included.

use crate::common::{Gateway, PATIENCE, eventually, http, replace, upstream, yaml};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
};

const SECRET: &str = "s3cret-Value";

fn routes(limit: &str) -> String {
    format!(
        "  - name: all\n    match: {{ path_prefix: \"/${{FG_PATH}}\" }}\n    upstream: ${{FG_UP:-up}}\n    \
         request_headers: {{ set: {{ x-token: \"Bearer ${{FG_SECRET}}\" }} }}\n    \
         flow: [{{ name: r, algorithm: fixed_window, limit: {limit}/1h, align: first_request }}]\n"
    )
}

#[test]
fn values_come_from_the_environment_and_are_shown_nowhere() {
    let upstream = upstream::echo();
    let text = yaml(upstream.address, &routes("${FG_LIMIT}"));
    let variables = [("FG_LIMIT", "3"), ("FG_SECRET", SECRET), ("FG_PATH", "s3cret-Path")]
        .map(|(name, value)| (name, Path::new(value)));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let gateway = Gateway::start_with(dir, &text, &variables);
    let path = "/s3cret-Path/x";
    assert_eq!(http::statuses(gateway.web(), path, 4), [200, 200, 200, 429]);
    assert_eq!(http::get(gateway.web(), "/other").status, 404);
    let line = gateway.edit(&text.replace("${FG_LIMIT}/1h", "${FG_MORE:-5}/1h"));
    assert!(line.contains("reloaded v2: route all (r 3/1h → 5/1h); "), "{line}");
    let answer = http::get(gateway.web(), path);
    assert!(answer.text().contains(&format!("Bearer {SECRET}")), "{}", answer.text());
    gateway.edit(&text.replace("${FG_LIMIT}/1h", "6/1h").replace("Bearer", "bearer"));
    // What is wrong is said without the value, in the log and on the admin pages.
    let seen = gateway.log_len();
    fs::write(&gateway.config, text.replace("workers: 2", "workers: ${FG_SECRET}"))
        .expect("written");
    gateway.wait_log_after(seen, "the value of `${FG_SECRET}` is not a whole number");
    gateway.wait_log_after(seen, "set it to a whole number");
    let pages = ["/routes", "/readyz?verbose", "/metrics"]
        .map(|page| http::ask(gateway.address("admin"), page).text());
    assert!(pages[0].contains("/${FG_PATH}"), "{}", pages[0]);
    let other = gateway.dir.path().join("other.yaml");
    fs::write(&other, text.replace("FG_LIMIT", "FG_MORE:-4")).expect("written");
    fs::write(&gateway.config, &text).expect("written");
    let commands = [
        vec!["check", "-c", "gateway.yaml"],
        vec!["check", "-c", "gateway.yaml", "--output", "json"],
        vec!["diff", "gateway.yaml", "other.yaml"],
        vec!["diff", "gateway.yaml", "other.yaml", "--output", "json"],
    ];
    let printed = commands.map(|arguments| {
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(&arguments)
            .envs(variables)
            .current_dir(gateway.dir.path())
            .output()
            .expect("flowgate runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(text.contains("3/1h"), "{arguments:?}: {text}");
        text
    });
    for text in pages.iter().chain(&printed).chain([&gateway.log()]) {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn no_error_shows_a_secret_that_stands_beside_it() {
    let upstream = upstream::echo();
    let headers = format!("authorization: Bearer {SECRET}, cookie: \"{SECRET}\\x07\"");
    let route = |more: &str| {
        format!(
            "  - {{ name: all, match: {{ path_prefix: / }}, upstream: up, request_headers: {{ set: {{ {more} }} }} }}\n"
        )
    };
    let good = yaml(upstream.address, &route(&format!("x-api-key: {SECRET}")));
    let bad = yaml(upstream.address, &route(&format!("{headers} }}, nonsense: {{ a: 1")))
        .replace("http://", &format!("http://me:{SECRET}@"));
    let gateway = Gateway::start(&good);
    let admin = gateway.address("admin");
    let seen = gateway.log_len();
    replace(&gateway.config, &bad);
    gateway.wait_log_after(seen, "configuration rejected");
    gateway.wait_log_after(seen, "nonsense");
    let page = http::ask(admin, "/readyz?verbose").text();
    let live = live_until(admin, "nonsense");
    let mut client = http::Client::new(admin);
    client.send(format!(
        "POST /preview HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{bad}",
        bad.len()
    ));
    let preview = client.read("POST");
    assert_eq!(preview.status, 422);
    for (name, text) in
        [("log", gateway.log()), ("readyz", page), ("live", live), ("preview", preview.text())]
    {
        assert!(text.contains("nonsense"), "{name}: {text}");
        assert!(!text.contains(SECRET), "{name}: {text}");
    }
}

/// Returns what the admin listener sends to the dashboard, up to the first `word`.
fn live_until(admin: SocketAddr, word: &str) -> String {
    let mut stream = TcpStream::connect(admin).expect("it accepts");
    stream.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut text = String::new();
    let mut lines = BufReader::new(stream);
    while !text.contains(word) {
        assert_ne!(lines.read_line(&mut text).expect("a line"), 0, "it ends: {text}");
    }
    text
}

#[test]
fn a_variable_that_is_not_set_changes_nothing() {
    let upstream = upstream::echo();
    let text = yaml(upstream.address, &routes("2"))
        .replace("${FG_PATH}", "")
        .replace("FG_SECRET", "FG_SECRET:-none");
    let gateway = Gateway::start(&text);
    let seen = gateway.log_len();
    fs::write(&gateway.config, text.replace("limit: 2/1h", "limit: ${FG_NONE}/1h"))
        .expect("written");
    gateway.wait_log_after(seen, "the variable `FG_NONE` is not set");
    assert_eq!(http::statuses(gateway.web(), "/", 3), [200, 200, 429]);
}

/// A route of an included file, which says its version.
fn site(path: &str, version: &str, limit: u32) -> String {
    format!(
        "routes:\n  - name: {path}\n    match: {{ path: /{path} }}\n    upstream: up\n    \
         response_headers: {{ set: {{ x-version: {version} }} }}\n    \
         flow: [{{ name: r, algorithm: fixed_window, limit: {limit}/1h, align: first_request }}]\n"
    )
}

fn including(upstream: SocketAddr, what: &str) -> String {
    let main = "  - { name: main, match: { path: / }, upstream: up }\n";
    format!("{}include: {what}\nend: true\n", yaml(upstream, main))
}

#[track_caller]
fn wait_version(gateway: &Gateway, path: &str, version: Option<&str>) {
    eventually(&format!("{path} is of version {version:?}"), || {
        (http::get(gateway.web(), path).header("x-version") == version).then_some(())
    });
}

#[test]
fn files_of_a_folder_come_and_go_and_a_bad_one_changes_nothing() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let conf = dir.path().join("conf.d");
    fs::create_dir(&conf).expect("made");
    fs::write(conf.join("a.yaml"), site("a", "one", 3)).expect("written");
    let gateway = Gateway::start_in(dir, &including(upstream.address, "conf.d"), &[]);
    assert_eq!(http::statuses(gateway.web(), "/a", 4), [200, 200, 200, 429]);
    assert_eq!(http::get(gateway.web(), "/b").status, 404);
    let seen = gateway.log_len();
    replace(&conf.join("b.yaml"), &site("b", "one", 100_000));
    wait_version(&gateway, "/b", Some("one"));
    let line = gateway.wait_log_after(seen, "reloaded v2");
    assert!(line.contains("reloaded v2: route b added; kept 1, converted 0, reset 0"), "{line}");
    // Of two files one is wrong: neither is taken.
    let seen = gateway.log_len();
    fs::write(conf.join("a.yaml"), site("a", "two", 5)).expect("written");
    fs::write(
        conf.join("b.yaml"),
        site("b", "two", 100_000).replace("upstream: up", "upstream: down"),
    )
    .expect("written");
    let line = gateway.wait_log_after(seen, "there is no upstream `down`");
    assert!(line.contains("conf.d/b.yaml:4:15: "), "{line}");
    assert_ne!(http::get(gateway.web(), "/b").header("x-version"), Some("two"));
    replace(&conf.join("b.yaml"), &site("b", "three", 100_000));
    wait_version(&gateway, "/b", Some("three"));
    assert_eq!(http::statuses(gateway.web(), "/a", 3), [200, 200, 429], "what was used stays used");
    // A file that is cut short, and one that is gone.
    let seen = gateway.log_len();
    fs::write(conf.join("b.yaml"), "# nothing").expect("written");
    wait_version(&gateway, "/b", None);
    fs::write(conf.join("a.yaml"), site("a", "two", 5).split_once("    flow").expect("it has").0)
        .expect("written");
    let line = gateway.wait_log_after(seen, "the file looks cut short");
    assert!(line.contains("conf.d/a.yaml:5:"), "{line}");
    assert_eq!(http::get(gateway.web(), "/a").status, 429, "the limit is in force");
    fs::remove_file(conf.join("a.yaml")).expect("removed");
    eventually("the route is gone", || {
        (http::get(gateway.web(), "/a").status == 404).then_some(())
    });
}

#[test]
fn a_file_that_is_missing_is_waited_for() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&including(upstream.address, "[]"));
    let seen = gateway.log_len();
    fs::write(&gateway.config, including(upstream.address, "sites/a.yaml")).expect("written");
    gateway.wait_log_after(seen, "cannot read the included file");
    let sites = gateway.dir.path().join("sites");
    fs::create_dir(&sites).expect("made");
    fs::write(sites.join("a.yaml"), site("a", "one", 3)).expect("written");
    wait_version(&gateway, "/a", Some("one"));
}

#[test]
fn commands_follow_the_include() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let upstream = SocketAddr::from(([127, 0, 0, 1], 9));
    let text = including(upstream, "'*.inc'");
    fs::write(dir.path().join("gateway.yaml"), &text).expect("written");
    fs::write(dir.path().join("a.inc"), site("a", "one", 3) + "end: true\n").expect("written");
    let old = dir.path().join("old");
    fs::create_dir(&old).expect("made");
    fs::write(old.join("gateway.yaml"), &text).expect("written");
    fs::write(old.join("a.inc"), site("a", "one", 2)).expect("written");
    let run = |arguments: &str| {
        let script = format!("{} {arguments}", env!("CARGO_BIN_EXE_flowgate"));
        let output = Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output();
        let output = output.expect("sh runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let checked = run("check -c gateway.yaml");
    assert!(checked.contains("gateway.yaml with 1 included file: 1 listener"), "{checked}");
    assert!(checked.contains("fixed_window 3/1h"), "{checked}");
    let piped = run("check - < gateway.yaml");
    assert!(piped.contains("<stdin> with 1 included file"), "{piped}");
    let json = run("check -c old/gateway.yaml --output json");
    assert!(json.contains("\"file\": \"old/a.inc\""), "the note is of that file: {json}");
    let diff = run("diff old/gateway.yaml gateway.yaml");
    assert!(diff.contains("route a  edited (r 2/1h → 3/1h)"), "{diff}");
}
