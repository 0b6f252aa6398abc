//! The command line: how files are named, and what is said and written when.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
};

#[test]
fn check_takes_the_file_with_and_without_a_flag_but_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    for arguments in
        [["check", "gateway.yaml"].as_slice(), &["check", "-c", "gateway.yaml"], &["-t"]]
    {
        let output = flowgate(dir.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let twice = flowgate(dir.path(), &["check", "-c", "gateway.yaml", "gateway.yaml"]);
    assert_eq!(twice.status.code(), Some(2), "{twice:?}");
}

#[test]
fn check_reports_what_is_odd_and_succeeds() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    let path = dir.path().join("gateway.yaml");
    let spare = "upstreams: [{ name: spare, servers: [{ url: http://127.0.0.1:9 }] }, ";
    let text = fs::read_to_string(&path).expect("written").replace("upstreams: [", spare);
    assert!(text.contains("spare"), "{text}");
    fs::write(&path, text).expect("written");
    let output = flowgate(dir.path(), &["check"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("warning[unused-upstream]: ") && said.contains("spare"), "{said}");
}

#[test]
fn check_and_run_say_where_an_access_log_is_named_that_cannot_be_opened() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    let path = dir.path().join("gateway.yaml");
    let rest = fs::read_to_string(&path).expect("written");
    fs::write(&path, format!("access_log: logs/access.json\n{rest}")).expect("written");
    let error = "\
error: cannot open the access log `logs/access.json`: No such file or directory (os error 2)
 --> gateway.yaml:1:13
  |
1 | access_log: logs/access.json
  |             ^^^^^^^^^^^^^^^^
  |
  = help: write a file in a folder that is there and that this user may write to; relative names start from this file's folder
";
    for command in ["check", "run"] {
        let output = flowgate(dir.path(), &[command]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), error);
    }
    // Nor is it forgotten where certificates are yet to be made.
    write(dir.path(), ", tls: { certificates: [{ cert: localhost.pem, key: localhost.key }] }");
    let without = fs::read_to_string(&path).expect("written");
    fs::write(&path, format!("access_log: logs/access.json\n{without}")).expect("written");
    let output = flowgate(dir.path(), &["check"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), error);
    fs::create_dir(dir.path().join("logs")).expect("made");
    assert!(flowgate(dir.path(), &["check"]).status.success());
    assert_eq!(fs::read_dir(dir.path().join("logs")).expect("there").count(), 0);
}

#[test]
fn init_writes_a_first_file_once_and_says_what_to_do_next() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let without = flowgate(dir.path(), &["init"]);
    assert_eq!(without.status.code(), Some(2), "{without:?}");
    let said = String::from_utf8_lossy(&without.stderr);
    assert!(said.contains("`flowgate init http://127.0.0.1:3000`"), "{said}");
    let wrong = flowgate(dir.path(), &["init", "localhost:3000"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains("write `flowgate init http://localhost:3000`"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0);

    let done = flowgate(dir.path(), &["init", "http://127.0.0.1:3000"]);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let program = env!("CARGO_BIN_EXE_flowgate");
    let folder = dir.path().canonicalize().expect("there").display().to_string();
    for line in [format!("  {program} check"), format!("  cd {folder}\n"), "  curl -i http".into()]
    {
        assert!(said.contains(&line), "{line}: {said}");
    }
    let text = fs::read_to_string(dir.path().join("gateway.yaml")).expect("written");
    let checked = flowgate(dir.path(), &["check", "--deny-warnings"]);
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");

    let again = flowgate(dir.path(), &["init", "http://127.0.0.1:4000"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"), "{again:?}");
    assert_eq!(fs::read_to_string(dir.path().join("gateway.yaml")).expect("there"), text);
}

#[test]
fn every_command_says_that_a_file_is_of_another_gateway() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    fs::write(dir.path().join("nginx.conf"), "server {\n  listen 80;\n}\n").expect("written");
    fs::write(dir.path().join("log"), "{\"t\":1}\n").expect("written");
    for arguments in [
        ["check", "nginx.conf"].as_slice(),
        &["run", "nginx.conf"],
        &["nginx.conf"],
        &["-t", "-c", "nginx.conf"],
        &["replay", "-c", "nginx.conf", "log"],
        &["replay", "--against", "nginx.conf", "log"],
        &["diff", "gateway.yaml", "nginx.conf"],
        &["suggest", "-c", "nginx.conf", "log"],
    ] {
        let output = flowgate(dir.path(), arguments);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("this is a configuration of nginx"), "{arguments:?}: {said}");
        let command = "`flowgate import nginx.conf --output gateway.yaml`";
        assert!(said.contains(command), "{arguments:?}: {said}");
    }
}

#[test]
fn check_writes_no_certificate() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), ", tls: { certificates: [{ cert: localhost.pem, key: localhost.key }] }");
    let output = flowgate(dir.path(), &["check"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("localhost.pem"), "{output:?}");
    assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 1);
    write(dir.path(), ", tls: { certificates: [{ cert: shop.pem, key: shop.key }] }");
    assert_eq!(flowgate(dir.path(), &["check"]).status.code(), Some(1));
}

#[test]
fn check_without_certificates_reads_all_else() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), ", tls: { certificates: [{ cert: shop.pem, key: shop.key }] }");
    let check = || flowgate(dir.path(), &["check", "--without-certificates"]);
    let output = check();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("all"), "the routes are printed: {printed}");

    // What is not about files of certificates is an error as ever.
    write(dir.path(), ", tls: { certificates: [{ cert: shop.pem }] }");
    assert_eq!(check().status.code(), Some(1), "a certificate needs its key");
    write(
        dir.path(),
        ", no_such_key: 1, tls: { certificates: [{ cert: shop.pem, key: shop.key }] }",
    );
    let output = check();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no_such_key"), "{output:?}");
}

#[test]
fn check_distinguishes_certificates_whose_names_begin_alike() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let folder = "long".repeat(20);
    let pair = |name: &str| format!("{{ cert: {folder}/{name}.pem, key: {folder}/{name}.key }}");
    let both = format!("{}, {}", pair("localhost"), pair("shop"));
    write(dir.path(), &format!(", tls: {{ certificates: [{both}] }}"));
    let output = flowgate(dir.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1), "`run` makes no shop.pem: {output:?}");
}

#[test]
fn the_standard_input_is_read_once_and_beside_files() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    fs::write(dir.path().join("events"), "{\"t\":1}\n").expect("written");
    let twice = flowgate(dir.path(), &["replay", "-", "-"]);
    assert_eq!(twice.status.code(), Some(2), "{twice:?}");
    assert!(String::from_utf8_lossy(&twice.stderr).contains("can be read once"), "{twice:?}");
    for inputs in [["-", "events"], ["events", "-"]] {
        let mut replay = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["replay", "--output", "decisions"])
            .args(inputs)
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut stdin = replay.stdin.take().expect("piped");
        stdin.write_all(b"{\"t\":0}\n{\"t\":2}\n").expect("written");
        drop(stdin);
        let output = replay.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        let times: Vec<_> = text.lines().map(|line| &line[..12]).collect();
        assert_eq!(times, [r#"{"i":0,"t":0"#, r#"{"i":1,"t":1"#, r#"{"i":2,"t":2"#]);
    }
}

#[test]
fn what_cannot_be_printed_is_a_problem() {
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let status = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .arg("reference")
        .stdout(full)
        .status()
        .expect("it runs");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_demo_whose_port_is_taken_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound").to_string();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let output = flowgate(dir.path(), &["demo", "--upstream", &address]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&address) && said.contains("the first server"), "{said}");
}

#[test]
fn a_demo_that_cannot_listen_names_no_address_to_try() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound").to_string();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let copy = dir.path().join("flowgate-demo");
    fs::create_dir(&copy).expect("made");
    write(&copy, "");
    let file = copy.join("gateway.yaml");
    let text = fs::read_to_string(&file).expect("there");
    fs::write(&file, text.replace("127.0.0.1:0", &address)).expect("written");
    let output = flowgate(dir.path(), &["demo", "--upstream", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot listen"), "{said}");
}

#[test]
fn the_log_is_json_if_asked_for() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), ", tls: { certificates: [{ cert: localhost.pem, key: localhost.key }] }");
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port();
    let file = dir.path().join("gateway.yaml");
    let text = fs::read_to_string(&file).expect("there");
    fs::write(&file, text.replace("127.0.0.1:0", &format!("127.0.0.1:{port}"))).expect("written");
    // It logs that it made a certificate, and ends because the port is taken.
    let output = flowgate(dir.path(), &["run", "--log-format", "json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = said.lines().next().expect("a line");
    let line: serde_json::Value = serde_json::from_str(first).expect("JSON");
    assert_eq!(line["level"], "INFO", "{said}");
}

#[test]
fn check_prints_json_for_programs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    let path = dir.path().join("gateway.yaml");
    let fine = fs::read_to_string(&path).expect("there");
    let page = |text: &str, code: i32| -> serde_json::Value {
        fs::write(&path, text).expect("written");
        let output = flowgate(dir.path(), &["check", "--output", "json"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(output.stderr, b"");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let limited =
        fine.replace("upstream: up }]", "upstream: up, flow: [{ name: r, concurrency: 5 }] }]");
    let found = page(&format!("{limited}end: true\n"), 0);
    assert_eq!(found["ok"], true);
    assert_eq!(found["problems"], serde_json::json!([]));
    let rule = &found["promises"][0]["rules"][0];
    assert_eq!(rule["promise"], "concurrency 5: at most 5 in flight at any instant", "{found}");
    let found = page(&fine, 0);
    assert_eq!(found["problems"][0]["severity"], "note", "{found}");
    assert_eq!(found["problems"][0]["name"], "missing-end", "{found}");
    let found = page(&fine.replace("upstream: up }", "upstream: upp }"), 1);
    let problem = &found["problems"][0];
    assert_eq!(problem["severity"], "error");
    assert_eq!(problem["name"], serde_json::Value::Null);
    assert_eq!(problem["message"], "there is no upstream `upp`");
    assert_eq!(problem["help"], "did you mean `up`?");
    let place = ["line", "column", "end_line", "end_column"].map(|key| problem[key].as_u64());
    assert_eq!(place, [3, 60, 3, 63].map(Some), "{problem}");
    assert_eq!((&found["ok"], &found["promises"]), (&false.into(), &serde_json::Value::Null));
}

#[test]
fn notes_are_in_the_json_too_and_are_no_warnings() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    let text = fs::read_to_string(dir.path().join("gateway.yaml")).expect("there");
    let slow = text.replace("upstream: up", "upstream: up, flow: [{ name: a, limit: 5/1m }]");
    assert_ne!(slow, text);
    let output = fed(dir.path(), &["check", "--deny-warnings", "--output", "json", "-"], &slow);
    assert!(output.status.success(), "{output:?}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let problems = found["problems"].as_array().expect("a list");
    assert!(problems.iter().all(|problem| problem["severity"] == "note"), "{found}");
    let mut messages: Vec<_> =
        problems.iter().filter_map(|problem| problem["message"].as_str()).collect();
    messages.sort_unstable();
    let expected = [
        "`a` may pass 10 in 1m, because its bucket refills while it empties",
        "the file does not end with `end: true`",
    ];
    assert_eq!(messages, expected);
    assert_eq!(found["ok"], true);
}

#[test]
fn check_reads_the_standard_input_and_can_deny_warnings() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    let text = fs::read_to_string(dir.path().join("gateway.yaml")).expect("there");
    let output = fed(dir.path(), &["check", "-"], &text);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(b"<stdin>: 1 listener"), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.starts_with("note[missing-end]: the file does not end with `end: true`"),
        "{said}"
    );
    let output = fed(dir.path(), &["check", "--deny-warnings", "-"], &text);
    assert!(output.status.success(), "a note is no warning: {output:?}");
    let useless = "[{ name: a, limit: 5/1s }, { name: b, limit: 9/1s, burst: 9 }]";
    let odd = text.replace("upstream: up", &format!("upstream: up, flow: {useless}"));
    assert_ne!(odd, text);
    for (arguments, code) in [(&["check", "-"][..], 0), (&["check", "--deny-warnings", "-"], 1)] {
        let output = fed(dir.path(), arguments, &odd);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("warning[never-rejects]: "), "{said}");
    }
    for end in ["true", "false"] {
        let whole = format!("{text}end: {end}\n");
        let output = fed(dir.path(), &["check", "--deny-warnings", "-"], &whole);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    let output = fed(dir.path(), &["check", "-"], "upstreams: [\n");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--> <stdin>:"), "{output:?}");
}

#[test]
fn exit_codes_distinguish_problems_from_what_could_not_be_done() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "");
    let old = fs::read_to_string(dir.path().join("gateway.yaml")).expect("there");
    fs::write(dir.path().join("new.yaml"), old.replace("name: all", "name: each"))
        .expect("written");
    fs::write(dir.path().join("bad.yaml"), "nonsense").expect("written");
    fs::write(dir.path().join("lines"), "{\"t\":1}\nnonsense\n").expect("written");
    for (arguments, code) in [
        (["check"].as_slice(), 0),
        (&["check", "bad.yaml"], 1),
        (&["check", "none.yaml"], 2),
        (&["run", "bad.yaml"], 1),
        (&["bad.yaml"], 1),
        (&["run", "none.yaml"], 2),
        (&["none.yaml"], 2),
        (&["-t", "none.yaml"], 2),
        (&["diff", "gateway.yaml", "gateway.yaml"], 0),
        (&["diff", "gateway.yaml", "new.yaml"], 1),
        (&["diff", "gateway.yaml", "bad.yaml"], 2),
        (&["diff", "gateway.yaml", "none.yaml"], 2),
        (&["diff", "-", "-"], 2),
        (&["replay", "lines"], 0),
        (&["replay", "--strict", "lines"], 1),
        (&["replay", "-c", "bad.yaml", "lines"], 1),
        (&["replay", "-c", "none.yaml", "lines"], 2),
        (&["replay", "none"], 2),
        (&["replay", "--route", "none", "lines"], 2),
        (&["test"], 2),
        (&["schema"], 0),
        (&["schema", "-c", "gateway.yaml"], 2),
        (&["-c", "gateway.yaml", "diff", "gateway.yaml", "gateway.yaml"], 2),
        (&["gateway.yaml", "check"], 2),
        (&["check", "--nonsense"], 2),
    ] {
        let output = flowgate(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    }
    let output = fed(dir.path(), &["diff", "-", "gateway.yaml"], &old);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_missing_file_has_a_hint_that_fits_the_command() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (arguments, has_demo) in [
        (["check"].as_slice(), true),
        (&["run"], true),
        (&["check", "none.yaml"], false),
        (&["diff", "HEAD", "new.yaml"], false),
    ] {
        let output = flowgate(dir.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("another") && !said.contains("-c FILE"), "{said}");
        assert_eq!(said.contains("`flowgate demo`"), has_demo, "{arguments:?}: {said}");
    }
}

#[test]
fn a_mistyped_command_is_not_taken_for_a_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for arguments in [["chekc"].as_slice(), &["chekc", "gateway.yaml"]] {
        let output = flowgate(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("did you mean `flowgate check`?"), "{said}");
    }
}

#[test]
fn the_help_of_each_command_says_which_file_is_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (command, says, says_not) in [
        ("check", "Default: `gateway.yaml`", "most commands"),
        ("demo", "Default: `flowgate-demo/gateway.yaml`", "Default: `gateway.yaml`"),
        ("test", "in place of those that the scenarios name", "Default: `gateway.yaml`"),
        ("suggest", "The configuration whose routes get limits", "most commands"),
        ("keys", "which names its admin listener. Default: `gateway.yaml`", "most commands"),
        ("schema", "Usage: flowgate schema", "--config"),
        ("diff", "Usage: flowgate diff", "--config"),
        ("import", "Usage: flowgate import", "--config"),
    ] {
        let output = flowgate(dir.path(), &["help", command]);
        let help = String::from_utf8_lossy(&output.stdout);
        let words: Vec<_> = help.split_whitespace().collect();
        let help = words.join(" ");
        assert!(help.contains(says) && !help.contains(says_not), "{help}");
    }
}

/// Runs it with `input` on the standard input.
fn fed(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("written");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn flowgate(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("it runs")
}

/// Writes a `gateway.yaml` whose listener has `more`.
fn write(folder: &Path, more: &str) {
    let text = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0{more} }}]\n\
         upstreams: [{{ name: up, servers: [{{ url: http://127.0.0.1:9 }}] }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
    );
    fs::write(folder.join("gateway.yaml"), text).expect("written");
}
