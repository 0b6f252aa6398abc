//! `flowgate top` in a terminal of its own.

use crate::common::{
    Gateway, PATIENCE, eventually,
    http::{self, Client},
    pause,
    upstream::Script,
};
use flowgate::worst_paths;
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};

const YAML: &str = "\
workers: 2
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
routes:
  - name: login
    match: { path: /login }
    respond: { status: 200 }
    flow: [{ name: per-address, algorithm: sliding_log, limit: 2/1h, key: client_ip }]
  - name: other
    match: { path_prefix: / }
    respond: { status: 200 }
";

/// A shell in a terminal, in which `flowgate top` runs, by `script` of util-linux.
struct Terminal {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs `flowgate top`. The settings of the terminal stand before and after it, and its exit code.
    fn start(gateway: &Gateway, environment: &[(&str, &str)]) -> Self {
        let program = env!("CARGO_BIN_EXE_flowgate");
        let admin = gateway.address("admin");
        let shell = format!(
            "stty cols 100 rows 30; echo before=$(stty -g) on=$(tty); \
             sh -c \"echo pid=\\$\\$; exec {program} top --admin {admin}\"; echo code=$?; \
             echo after=$(stty -g); read -r line && fg; echo end=$?; read -r line"
        );
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command"])
            .arg(format!("exec bash -mc '{shell}'"))
            .arg("/dev/null")
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("`script` is a part of bsdutils");
        let output = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&output);
        let mut from = child.stdout.take().expect("piped");
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                let mut all = written.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend_from_slice(&bytes[..read]);
            }
        });
        Self { child, output }
    }

    fn text(&self) -> String {
        let bytes = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the terminal was sent this text, and returns what follows it to the line's end.
    #[track_caller]
    fn wait_sent(&self, words: &str) -> String {
        self.wait(words, |text, _| {
            let (_, after) = text.split_once(words)?;
            let (line, _) = after.split_once('\r')?;
            Some(line.to_owned())
        })
    }

    /// Waits until a line of the screen has all of these words.
    #[track_caller]
    fn wait_line(&self, words: &[&str]) {
        self.wait(&words.join(" "), |_, screen| {
            let mut lines = screen.iter();
            lines.any(|line| words.iter().all(|word| line.contains(word))).then_some(())
        });
    }

    #[track_caller]
    fn wait<T>(&self, what: &str, found: impl Fn(&str, &[String]) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            let screen = screen(&text);
            if let Some(found) = found(&text, &screen) {
                return found;
            }
            assert!(Instant::now() < deadline, "never: {what}\n{}\n{text:?}", screen.join("\n"));
            pause();
        }
    }

    fn press(&mut self, keys: &str) {
        let to = self.child.stdin.as_mut().expect("piped");
        to.write_all(keys.as_bytes()).and_then(|()| to.flush()).expect("written");
    }

    /// Waits for the end, and checks that the terminal is as it was.
    #[track_caller]
    fn is_restored(&self, code: i32) {
        assert_eq!(self.wait_sent("code="), code.to_string());
        let before = self.wait_sent("before=");
        let after = self.wait_sent("after=");
        assert_eq!(before.split(' ').next(), Some(&*after));
        let text = self.text();
        assert!(text.contains("\x1b[?1049l") && text.contains("\x1b[?25h"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the lines that a terminal shows after it was sent this.
fn screen(text: &str) -> Vec<String> {
    let mut cells: BTreeMap<(usize, usize), char> = BTreeMap::new();
    let mut at = (0, 0);
    let mut rest = text.chars();
    while let Some(sign) = rest.next() {
        match sign {
            '\x1b' => {
                rest.next();
                let mut numbers = String::new();
                let last = rest.find(|sign| {
                    numbers.push(*sign);
                    sign.is_ascii_alphabetic()
                });
                numbers.pop();
                match last {
                    Some('H') => {
                        let (row, column) = numbers.split_once(';').unwrap_or(("1", "1"));
                        let number = |text: &str| text.parse::<usize>().unwrap_or(1) - 1;
                        at = (number(row), number(column));
                    }
                    Some('J' | 'h' | 'l') if numbers != "?25" => cells.clear(),
                    _ => {}
                }
            }
            '\r' => at.1 = 0,
            '\n' => at.0 += 1,
            sign => {
                cells.insert(at, sign);
                at.1 += 1;
            }
        }
    }
    let mut lines = Vec::new();
    for ((row, column), sign) in cells {
        lines.resize(lines.len().max(row + 1), String::new());
        let line: &mut String = &mut lines[row];
        let missing = column.saturating_sub(line.chars().count());
        line.extend(std::iter::repeat_n(' ', missing));
        line.push(sign);
    }
    lines
}

fn flood(gateway: &Gateway) {
    let mut client = Client::new(gateway.web());
    for _ in 0..30 {
        client.get("/login");
    }
}

#[test]
fn top_shows_a_gateway_and_gives_the_terminal_back() {
    let gateway = Gateway::start(YAML);
    let mut terminal = Terminal::start(&gateway, &[]);
    terminal.wait_line(&["● live", "ready"]);
    terminal.wait_line(&["rules of login", "most rejected"]);
    flood(&gateway);
    terminal.wait_line(&["✕ per-address", "rejected", "(rate)"]);
    terminal.press("?");
    terminal.wait_line(&["Ctrl-Z", "fg"]);
    terminal.press("?");
    terminal.press("/oth\r");
    terminal.wait_line(&["rules of other"]);
    terminal.wait_line(&["this route has no limit"]);
    terminal.press("c");
    terminal.wait_line(&["version 1, hash "]);
    gateway.edit(&YAML.replace("2/1h", "3/1h"));
    terminal.wait_line(&["last change", "2/1h → 3/1h"]);

    // Another size is drawn when the terminal has it.
    let pid = terminal.wait_sent("pid=");
    let on = terminal.wait_sent(" on=");
    let resized = Command::new("stty").args(["-F", &on, "cols", "60", "rows", "20"]).status();
    assert!(resized.expect("stty runs").success());
    let last = |screen: &[String]| screen.len() == 20 && screen[19].contains("q quit");
    terminal.wait("20 lines", |_, screen| last(screen).then_some(()));
    assert!(pid.parse::<u32>().is_ok(), "{pid}");
    terminal.press("q");
    terminal.is_restored(0);
}

#[test]
fn a_signal_ends_top_and_the_terminal_is_as_it_was() {
    let gateway = Gateway::start(YAML);
    let terminal = Terminal::start(&gateway, &[("NO_COLOR", "1")]);
    terminal.wait_line(&["rules of login"]);
    let colours = ["\x1b[0;3", ";31m", ";32m", ";33m", ";36m"];
    let text = terminal.text();
    assert!(!colours.iter().any(|code| text.contains(code)), "{text:?}");
    let pid = terminal.wait_sent("pid=");
    let ended = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(ended.expect("kill runs").success());
    terminal.is_restored(0);
}

#[test]
fn top_says_when_the_gateway_goes_away_and_finds_it_again() {
    let gateway = Gateway::start(YAML);
    let mut terminal = Terminal::start(&gateway, &[]);
    terminal.wait_line(&["● live"]);
    // Nothing is read and nothing answered any more.
    gateway.signal("STOP");
    terminal.wait_line(&["✕ no connection, trying again"]);
    gateway.signal("CONT");
    terminal.wait_line(&["● live"]);
    drop(gateway);
    terminal.wait_line(&["✕ no connection, trying again: cannot connect"]);
    terminal.press("\x03");
    terminal.is_restored(0);
}

#[test]
fn top_stops_as_a_job_and_goes_on() {
    let gateway = Gateway::start(YAML);
    let mut terminal = Terminal::start(&gateway, &[]);
    terminal.wait_line(&["● live"]);
    terminal.press("\x1a");
    // The shell has the terminal again, and continues with its next command: 128 + 19.
    terminal.is_restored(147);
    terminal.press("\r");
    terminal.wait_line(&["● live", "ready"]);
    terminal.press("q");
    assert_eq!(terminal.wait_sent("end="), "0");
}

#[test]
fn without_a_terminal_one_sample_is_written() {
    let gateway = Gateway::start(YAML);
    let admin = gateway.address("admin").to_string();
    let top = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_flowgate");
        let mut command = Command::new(program);
        command.arg("top").args(["--admin", &admin]).args(arguments).stdin(Stdio::null());
        command.output().expect("flowgate runs")
    };
    for arguments in [&["--once"][..], &[], &["--sort", "name", "--filter", "login"]] {
        let output = top(arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("● live") && text.contains("rules of login"), "{text}");
        assert_eq!(text.contains("\n  other"), !arguments.contains(&"--filter"), "{text}");
        assert!(!text.contains('\x1b'));
    }
    drop(gateway);
    let output = top(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is the gateway running"));
}

/// A file with a service that is reached at `address`.
fn service(address: std::net::SocketAddr) -> String {
    format!(
        "\
workers: 2
listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
admin: {{ listen: 127.0.0.1:0 }}
upstreams: [{{ name: shop, servers: [{{ url: http://{address} }}] }}]
routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: shop, rewrite: {{ strip_prefix: /api }} }}]
"
    )
}

/// Returns what `top --once` prints.
pub(crate) fn once(gateway: &Gateway) -> String {
    let admin = gateway.address("admin").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    let output = command.args(["top", "--once", "--admin", &admin]).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_paths_that_fail_or_are_slow_and_a_failing_server_are_shown() {
    let upstream = Script::answering(|request| {
        if request.line.contains(" /slow") {
            let came = Instant::now();
            while came.elapsed() < worst_paths::SLOW {
                pause();
            }
        }
        let status =
            if request.line.contains(" /fine") { "200 OK" } else { "500 Internal Server Error" };
        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    });
    let gateway = Gateway::start(&service(upstream.address));
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/api/fine?q=1").status, 200);
    for _ in 0..3 {
        assert_eq!(client.get("/api/pay?card=secret").status, 500);
    }
    assert_eq!(client.get(&format!("/api/{}", "x".repeat(300))).status, 500);
    assert_eq!(client.get("/api/slow").status, 500);

    let paths = http::ask(gateway.address("admin"), "/paths").json();
    let failed = paths["failed"].as_array().expect("a list");
    assert_eq!(failed.len(), 3, "{paths}");
    let first = serde_json::json!(
        { "route": "all", "path": "/api/pay", "count": 3, "status": 500, "longest_ms": failed[0]["longest_ms"] }
    );
    assert_eq!(failed[0], first);
    let slow = paths["slow"].as_array().expect("a list");
    assert_eq!((slow.len(), &slow[0]["path"]), (1, &"/api/slow".into()), "{paths}");
    assert!(slow[0]["longest_ms"].as_u64() >= Some(1000), "{paths}");
    assert!(!paths.to_string().contains("secret"), "{paths}");

    let shown = eventually("the server is seen to fail", || {
        let shown = once(&gateway);
        shown.contains("failing 83 %").then_some(shown)
    });
    for part in [
        "3 failed, latest 500  all  /api/pay\n",
        "1 slow, up to 1.0s  all  /api/slow\n",
        "  /api/*\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let routes = http::ask(gateway.address("admin"), "/routes").json();
    let server = &routes["upstreams"][0]["servers"][0];
    assert_eq!((&server["health"], &server["server_errors"]), (&"healthy".into(), &5.into()));
    assert!(server["failing"].as_f64() > Some(0.8), "{server}");
    let ready = http::ask(gateway.address("admin"), "/readyz?verbose").text();
    assert!(ready.contains("upstream shop: 1 healthy, but at least half of"), "{ready}");
}

#[test]
fn a_limit_that_routes_share_is_shown_once() {
    let gateway = Gateway::start(
        "\
workers: 1
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
budgets: [{ name: site, limit: 5/1h, burst: 5 }]
flow: [{ budget: site }]
routes:
  - { name: login, match: { path: /login }, respond: { status: 200 } }
  - { name: other, match: { path: /other }, respond: { status: 200 } }
",
    );
    flood(&gateway);
    let text = eventually("the flood is shown", || {
        let text = once(&gateway);
        text.contains("5 of 5 full").then_some(text)
    });
    let (_, shared) = text.split_once("limits that routes share\n").expect("the section");
    assert!(shared.starts_with("  budget site: login, other, (no route)\n"), "{text}");
    assert_eq!(text.matches("token_bucket 5/1h").count(), 1, "{text}");
}
