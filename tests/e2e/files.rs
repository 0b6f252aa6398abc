//! Variables in the file, and what the gateway shows of them.

use crate::common::{Gateway, http, upstream, yaml};
use std::{path::Path, process::Command};

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
    std::fs::write(&gateway.config, text.replace("workers: 2", "workers: ${FG_SECRET}"))
        .expect("written");
    gateway.wait_log_after(seen, "the value of `${FG_SECRET}` is not a whole number");
    gateway.wait_log_after(seen, "set it to a whole number");
    let pages = ["/routes", "/readyz?verbose", "/metrics"]
        .map(|page| http::get(gateway.address("admin"), page).text());
    assert!(pages[0].contains("/${FG_PATH}"), "{}", pages[0]);
    let other = gateway.dir.path().join("other.yaml");
    std::fs::write(&other, text.replace("FG_LIMIT", "FG_MORE:-4")).expect("written");
    std::fs::write(&gateway.config, &text).expect("written");
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
fn a_variable_that_is_not_set_changes_nothing() {
    let upstream = upstream::echo();
    let text = yaml(upstream.address, &routes("2"))
        .replace("${FG_PATH}", "")
        .replace("FG_SECRET", "FG_SECRET:-none");
    let gateway = Gateway::start(&text);
    let seen = gateway.log_len();
    std::fs::write(&gateway.config, text.replace("limit: 2/1h", "limit: ${FG_NONE}/1h"))
        .expect("written");
    gateway.wait_log_after(seen, "the variable `FG_NONE` is not set");
    assert_eq!(http::statuses(gateway.web(), "/", 3), [200, 200, 429]);
}
