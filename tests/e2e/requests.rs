//! The requests of a running gateway as they end, and the limits that are suggested from them.

use crate::common::{
    Gateway, eventually, field,
    http::{self, Client},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const YAML: &str = "\
workers: 2
trusted_proxies: [127.0.0.1]
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0, show_keys: true }
access_log: access.log
routes:
  - name: api
    match: { path_prefix: /api }
    respond: { status: 200 }
    flow: [{ name: tenant, limit: 500/1h, burst: 500, key: \"header:x-tenant\", on_missing_key: skip }]
  - name: rest
    match: { path_prefix: / }
    respond: { status: 200 }
end: true
";

/// The window that limits are suggested for: recordings must be ten times as long.
const WINDOW: &str = "20ms";
const LONG_ENOUGH: Duration = Duration::from_millis(200);

/// Ten clients and one that asks more often send at least this many requests by each of two
/// connections, and until a limit can be suggested. Returns how many.
fn flood(web: SocketAddr, least: usize) -> usize {
    let send = |seed: usize| {
        let mut client = Client::new(web);
        let mut sent = 0;
        let mut first_answered = None;

        // The log is as long as the time between its first and its last arrival: the last request
        // is one that begins late enough.
        loop {
            let begins = Instant::now();
            let address = if sent % 3 == 0 {
                "203.0.113.9".to_owned()
            } else {
                format!("192.0.2.{}", sent % 10)
            };
            let path = if sent % 7 == 0 { "/other" } else { "/api/items" };
            let tenant = format!("t{}", (sent + seed) % 3);
            let fields = [("x-forwarded-for", &*address), ("x-tenant", &tenant)];
            client.request("GET", path, &fields);
            sent += 1;

            let first = *first_answered.get_or_insert_with(Instant::now);
            if sent >= least && begins.saturating_duration_since(first) >= LONG_ENOUGH {
                break;
            }
        }
        sent
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|seed| scope.spawn(move || send(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it sends")).sum()
    })
}

/// A client of `/requests`, and what it has read.
struct Watcher {
    text: Arc<Mutex<String>>,
    reading: thread::JoinHandle<bool>,
}

impl Watcher {
    /// Asks, and returns when requests are watched.
    fn start(gateway: &Gateway) -> Self {
        let mut client = Client::new(gateway.address("admin"));
        client.send("GET /requests?for=24h HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let head = client.read_head().expect("an answer");
        assert_eq!(head.status, 200);
        let text = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&text);
        let reading = thread::spawn(move || read_chunks(&mut client, &written).is_some());
        Self { text, reading }
    }

    fn requests(&self) -> Vec<String> {
        requests(&self.text.lock().expect("no panic"))
    }
}

/// Reads chunks until the last one; `None` if the connection ends before it.
fn read_chunks(client: &mut Client, text: &Mutex<String>) -> Option<()> {
    loop {
        let mut line = String::new();
        client.stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let size = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        client.stream.read_exact(&mut chunk).ok()?;
        if size == 0 {
            return Some(());
        }
        text.lock().expect("no panic").push_str(core::str::from_utf8(&chunk[..size]).ok()?);
    }
}

/// The whole lines of requests, sorted, as those of several workers are in any order.
fn requests(text: &str) -> Vec<String> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..whole].lines().filter(|line| !line.starts_with("{\"stream\""));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Runs a command to its end. Returns its exit code and what it prints.
fn run(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(arguments).current_dir(folder).env_remove("FLOWGATE_ADMIN_TOKEN");
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("an exit code"), String::from_utf8(text).expect("a text"))
}

/// The suggested routes, without what names the input.
fn routes(page: &str) -> String {
    let (_, routes) = page.split_once("\nroutes:\n").unwrap_or_else(|| panic!("{page}"));
    routes.replace("recording", "log")
}

#[test]
fn streams_have_the_lines_of_the_access_log_and_can_be_replayed() {
    let mut gateway = Gateway::start(YAML);
    let watchers = [Watcher::start(&gateway), Watcher::start(&gateway)];
    let sent = flood(gateway.web(), 1000);
    let log = gateway.dir.path().join("access.log");
    let logged = eventually("all requests in the log", || {
        Some(requests(&fs::read_to_string(&log).ok()?)).filter(|lines| lines.len() == sent)
    });
    for watcher in &watchers {
        eventually("all requests in the stream", || {
            (watcher.requests().len() == sent).then_some(())
        });
        assert!(watcher.requests() == logged, "the stream has other lines than the log");
    }
    gateway.signal("TERM");
    for Watcher { text, reading } in watchers {
        assert!(reading.join().expect("it reads"), "the stream breaks off:\n{}", gateway.log());
        let text = text.lock().expect("no panic");
        let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        let last = &last["stream"];
        assert_eq!((&last["requests"], &last["lost"]), (&sent.into(), &0.into()));
        assert_eq!(last["ended"], "shutdown");
        fs::write(gateway.dir.path().join("last.log"), &*text).expect("written");
    }
    assert!(gateway.wait().success());

    let folder = gateway.dir.path();
    let replay = |log: &str| run(folder, &["replay", "--strict", "--output", "decisions", log]);
    let (code, decisions) = replay("last.log");
    assert_eq!((code, decisions.lines().count()), (0, sent), "{decisions}");
    assert!(decisions.contains(r#""decision":"rejected""#) && decisions == replay("access.log").1);
    let suggest =
        |log: &str| run(folder, &["suggest", "-c", "gateway.yaml", "--window", WINDOW, log]);
    let (code, page) = suggest("last.log");
    assert_eq!(code, 0, "{page}");
    assert!(page.contains("key: client_ip"), "{page}");
    assert_eq!(routes(&page), routes(&suggest("access.log").1));
}

/// `flowgate suggest --live`, at least until it records.
struct Suggest {
    child: Child,
    messages: BufReader<std::process::ChildStderr>,
}

impl Suggest {
    fn start(gateway: &Gateway, arguments: &[&str]) -> Self {
        let admin = gateway.address("admin").to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["suggest", "--live", "--admin", &admin, "--window", WINDOW])
            .args(arguments)
            .env_remove("FLOWGATE_ADMIN_TOKEN")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut messages = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        messages.read_line(&mut line).expect("a line");
        let words = format!("recording the requests of the gateway at {admin}");
        assert!(line.starts_with(&words), "{line}");
        Self { child, messages }
    }

    /// Waits for the end. Returns the exit code, the page and the messages.
    fn finish(mut self) -> (i32, String, String) {
        let mut page = String::new();
        let mut out = self.child.stdout.take().expect("piped");
        out.read_to_string(&mut page).expect("a text");
        let mut messages = String::new();
        self.messages.read_to_string(&mut messages).expect("a text");
        let status = self.child.wait().expect("it ends");
        (status.code().unwrap_or(-1), page, messages)
    }
}

#[test]
fn limits_from_a_live_gateway_are_those_from_its_log_and_its_end_ends_the_recording() {
    let mut gateway = Gateway::start(YAML);
    let config = gateway.config.display().to_string();
    let with_routes = Suggest::start(&gateway, &["-c", &config, "--for", "24h"]);
    let by_path = Suggest::start(&gateway, &[]);
    let sent = flood(gateway.web(), 1000);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    for (suggest, arguments) in [(with_routes, &["-c", &config][..]), (by_path, &[])] {
        let (code, page, messages) = suggest.finish();
        assert_eq!(code, 0, "{page}{messages}");
        assert!(
            page.starts_with(&format!("# flowgate suggest: {sent} requests of the gateway at "))
        );
        assert!(page.contains("# note: a limit says nothing of hours and days"), "{page}");
        assert!(page.contains("key: client_ip") && !page.contains("ended early"), "{page}");
        assert!(messages.starts_with(&format!("{sent} requests in ")), "{messages}");
        let same = [&["suggest", "--window", WINDOW], arguments, &["access.log"]].concat();
        let (_, from_log) = run(gateway.dir.path(), &same);
        assert_eq!(routes(&page), routes(&from_log));
    }
}

#[test]
fn ctrl_c_ends_a_recording_in_a_terminal_and_what_came_is_looked_at() {
    let gateway = Gateway::start(YAML);
    let program = env!("CARGO_BIN_EXE_flowgate");
    let admin = gateway.address("admin");
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("exec {program} suggest --live --window {WINDOW} --admin {admin}"))
        .arg("/dev/null")
        .env_remove("FLOWGATE_ADMIN_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` is a part of bsdutils");
    let output = Arc::<Mutex<Vec<u8>>>::default();
    let written = Arc::clone(&output);
    let mut from = child.stdout.take().expect("piped");
    let reading = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            written.lock().expect("no panic").extend_from_slice(&bytes[..read]);
        }
    });
    let shown = || String::from_utf8_lossy(&output.lock().expect("no panic")).into_owned();
    eventually("it records", || shown().contains("Ctrl-C ends it early").then_some(()));
    let sent = flood(gateway.web(), 1000);
    let progress = format!("\r\u{1b}[2K{sent} requests in ");
    eventually("the progress", || shown().contains(&progress).then_some(()));
    child.stdin.as_mut().expect("piped").write_all(b"\x03").expect("written");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{}", shown());
    reading.join().expect("it reads");
    let page = shown().replace('\r', "");
    assert!(page.contains("# note: the recording was ended early: by a signal"), "{page}");
    assert!(page.contains(&format!("{sent} requests of the gateway at {admin}")), "{page}");
    assert!(page.contains("key: client_ip"), "{page}");
    let metrics = || http::ask(admin, "/requests?for=1s").status;
    eventually("room for another watcher", || (metrics() == 200).then_some(()));
}

#[test]
fn a_gateway_that_may_not_show_its_requests_says_which_setting_allows_it() {
    let gateway = Gateway::start(&YAML.replace(", show_keys: true", ""));
    let admin = field(&gateway.wait_log("listener=admin"), "address");
    let folder = gateway.dir.path();
    let (code, text) = run(folder, &["suggest", "--live", "--admin", &admin]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("write `show_keys: true` under `admin`"), "{text}");
    for wrong in [
        &["suggest"][..],
        &["suggest", "--live", "access.log"],
        &["suggest", "--for", "1m", "access.log"],
        &["suggest", "--admin", &admin, "access.log"],
        &["suggest", "--live", "--admin", &admin, "--for", "10ms"],
        &["suggest", "--live", "--admin", &admin, "--for", "2days"],
    ] {
        let (code, text) = run(folder, wrong);
        assert_eq!(code, 2, "{wrong:?}: {text}");
    }
}
