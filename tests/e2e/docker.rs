//! `flowgate docker`: routes from the labels of containers, over a server that speaks Docker's Engine API.

use crate::common::{
    Gateway, eventually,
    http::{self, Client},
    upstream::{Script, ok},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// A server of the Engine API on a Unix socket.
struct Engine {
    folder: tempfile::TempDir,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    containers: Mutex<Value>,
    /// The connections that get events.
    followers: Mutex<Vec<UnixStream>>,
    lists: AtomicUsize,
    targets: Mutex<Vec<String>>,
    /// The response in place of a list, if it is not empty.
    instead: Mutex<Vec<u8>>,
}

impl Engine {
    fn start(containers: Value) -> Self {
        let engine = Self {
            folder: tempfile::tempdir().expect("a temporary directory"),
            state: Arc::default(),
        };
        *engine.state.containers.lock().expect("no panic") = containers;
        engine.listen();
        engine
    }

    fn listen(&self) {
        let listener = UnixListener::bind(self.socket()).expect("bound");
        let state = Arc::clone(&self.state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let state = Arc::clone(&state);
                std::thread::spawn(move || state.serve(stream));
            }
        });
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("docker.sock")
    }

    /// Changes the containers, and sends an event.
    fn change(&self, containers: Value) {
        *self.state.containers.lock().expect("no panic") = containers;
        let event = json!({ "Type": "container", "Action": "start" }).to_string() + "\n";
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        let mut followers = self.state.followers.lock().expect("no panic");
        followers.retain_mut(|stream| stream.write_all(chunk.as_bytes()).is_ok());
    }

    /// Ends the connections that get events, and stops to listen.
    fn end(&self) {
        fs::remove_file(self.socket()).expect("removed");
        for stream in self.state.followers.lock().expect("no panic").drain(..) {
            stream.shutdown(std::net::Shutdown::Both).expect("ended");
        }
    }
}

impl State {
    fn serve(&self, mut stream: UnixStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
        let mut line = String::new();
        if reader.read_line(&mut line).is_err() {
            return;
        }
        let mut field = String::new();
        while reader.read_line(&mut field).is_ok_and(|count| count > 2) {
            field.clear();
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        self.targets.lock().expect("no panic").push(target.clone());

        if target.starts_with("/events") {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            if stream.write_all(head.as_bytes()).is_ok() {
                self.followers.lock().expect("no panic").push(stream);
            }
            return;
        }
        let instead = self.instead.lock().expect("no panic").clone();
        if instead.is_empty() {
            let list = self.containers.lock().expect("no panic").to_string();
            drop(stream.write_all(&ok(&list)));
        } else {
            drop(stream.write_all(&instead));
        }
        self.lists.fetch_add(1, SeqCst);
    }
}

/// A container on the network of its host, so that its service can be one of the test's.
fn container(name: &str, port: u16, labels: &[(&str, &str)]) -> Value {
    let mut all = json!({ "flowgate.enable": "true", "flowgate.port": port.to_string() });
    for (label, value) in labels {
        all[format!("flowgate.{label}")] = json!(value);
    }
    json!({
        "Id": format!("id-{name}"), "Names": [format!("/{name}")], "Created": 1, "Labels": all, "State": "running",
        "Status": "Up 2 minutes", "Ports": [{ "PrivatePort": 1, "Type": "tcp" }],
        "HostConfig": { "NetworkMode": "host" }, "NetworkSettings": { "Networks": { "host": { "IPAddress": "" } } },
    })
}

/// The command, while it runs.
struct Docker(Child);

impl Docker {
    fn start(engine: &Engine, output: &Path) -> Self {
        let child = command(engine, output).stderr(Stdio::null()).spawn().expect("it starts");
        Self(child)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn command(engine: &Engine, output: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.arg("docker").arg("--output").arg(output).arg("--socket").arg(engine.socket());
    command.stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("RUST_LOG");
    command
}

/// Runs the command once.
fn once(engine: &Engine, output: &Path) -> Output {
    command(engine, output).arg("--once").output().expect("it runs")
}

fn gateway_file() -> String {
    "workers: 1\ninclude: [docker.yaml]\nlisteners: [{ name: web, listen: 127.0.0.1:0 }]\n\
     admin: { listen: 127.0.0.1:0 }\nroutes: [{ name: own, match: { path: /own }, respond: 204 }]\n"
        .to_owned()
}

#[test]
fn a_gateway_follows_the_containers() {
    let one = Script::answering(|_| ok("one"));
    let two = Script::answering(|_| ok("two"));
    let first = container("one", one.address.port(), &[("host", "one.test")]);
    let engine = Engine::start(json!([]));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let output = folder.path().join("docker.yaml");
    let written = once(&engine, &output);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));

    let gateway = Gateway::start_in(folder, &gateway_file(), &[]);
    let _docker = Docker::start(&engine, &output);
    let ask = |host: &str| Client::new(gateway.web()).request("GET", "/", &[("Host", host)]);
    assert_eq!(ask("one.test").status, 404);
    eventually("it follows the events", || {
        (!engine.state.followers.lock().expect("no panic").is_empty()).then_some(())
    });

    engine.change(json!([first]));
    eventually("the container has a route", || (ask("one.test").text() == "one").then_some(()));
    let labels = [("host", "two.test"), ("limit", "1/1h"), ("key", "client_ip")];
    engine.change(json!([first, container("two", two.address.port(), &labels)]));
    eventually("the second one has a route", || (ask("two.test").status == 200).then_some(()));
    assert_eq!(ask("two.test").status, 429, "it has its limit");
    engine.change(json!([first]));
    eventually("a container that has ended has none", || {
        (ask("two.test").status == 404).then_some(())
    });
    assert_eq!(http::get(gateway.web(), "/own").status, 204);

    let targets = engine.state.targets.lock().expect("no panic");
    let list = "/containers/json?filters=%7B%22label%22%3A%5B%22flowgate.enable%3Dtrue%22%5D%7D";
    assert!(targets.iter().any(|target| target == list), "{targets:?}");
}

#[test]
fn labels_stay_within_their_values() {
    let values = [
        "a\" }, upstream: \"other",
        "a\nroutes:\n  - { name: evil, match: { path_prefix: / }, respond: 200 }",
        "${PATH}",
        "$${PATH}",
        "*anchor",
        "&anchor",
        "!!binary aGk=",
        "a # comment",
        "\u{2028}end: true",
        "- a",
        "{ a: b }",
        "'a'",
        "null",
        "\0",
        "a: b",
        "\u{feff}",
        "%TAG ! x",
        "<<: *a",
        "é",
        "..",
    ];
    let labels =
        ["name", "host", "path_prefix", "limit", "burst", "key", "network", "scheme", "weight"];
    let mut containers = vec![container("good", 80, &[("host", "good.test")])];
    for (number, value) in values.iter().enumerate() {
        for label in labels {
            let usual = format!("h{number}-{label}.test");
            let mut all = vec![("host", usual.as_str())];
            if matches!(label, "burst" | "key") {
                all.push(("limit", "1/1s"));
            }
            all.push((label, value));
            let mut made = container(&format!("c{number}-{label}"), 80, &all);
            made["Created"] = json!(2);
            containers.push(made);
        }
        let mut named = container(value, 80, &[("host", &format!("n{number}.test"))]);
        named["Created"] = json!(3);
        containers.push(named);
    }
    let engine = Engine::start(Value::Array(containers));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let output = folder.path().join("docker.yaml");
    let written = once(&engine, &output);
    let log = String::from_utf8_lossy(&written.stderr).into_owned();
    assert!(written.status.success(), "{log}");
    assert!(log.chars().all(|sign| sign == '\n' || !sign.is_control()), "{log:?}");

    let text = fs::read_to_string(&output).expect("written");
    assert!(text.contains("\"docker-good\"") && text.ends_with("end: true\n"), "{text}");
    assert!(!text.contains("evil") && !text.contains('$') && !text.contains("other"), "{text}");
    let gateway = Gateway::start_in(folder, &gateway_file(), &[]);
    let page = http::ask(gateway.address("admin"), "/routes").json();
    let routes = page["routes"].as_array().expect("a list");
    for route in routes {
        let name = route["name"].as_str().expect("a name");
        assert!(name == "own" || route["upstream"] == name, "{route}");
    }
    assert_eq!(Client::new(gateway.web()).request("GET", "/", &[("Host", "x.test")]).status, 404);
}

#[test]
fn a_docker_that_is_gone_changes_nothing_until_it_is_back() {
    let up = Script::answering(|_| ok("up"));
    let containers = json!([container("up", up.address.port(), &[("host", "up.test")])]);
    let engine = Engine::start(containers.clone());
    let folder = tempfile::tempdir().expect("a temporary directory");
    let output = folder.path().join("docker.yaml");
    let _docker = Docker::start(&engine, &output);
    let text = eventually("the file is there", || fs::read_to_string(&output).ok());
    assert!(text.contains("up.test"));

    engine.end();
    assert_eq!(fs::read_to_string(&output).expect("it stays"), text);
    *engine.state.containers.lock().expect("no panic") = json!([]);
    engine.listen();
    eventually("it is up to date again", || {
        let text = fs::read_to_string(&output).expect("it is there");
        text.contains("routes: []").then_some(())
    });
}

#[test]
fn what_is_no_list_is_an_error_and_leaves_the_file() {
    let engine = Engine::start(json!([]));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let output = folder.path().join("docker.yaml");
    fs::write(&output, "routes: []\n").expect("written");
    for (instead, expected) in [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec(), "status 500"),
        (ok("{}"), "cannot be read"),
        (ok("[{ \"Id\": 5 }]"), "cannot be read"),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), "no valid response"),
    ] {
        *engine.state.instead.lock().expect("no panic") = instead;
        let output_of = once(&engine, &output);
        let log = String::from_utf8_lossy(&output_of.stderr).into_owned();
        assert_eq!(output_of.status.code(), Some(2), "{log}");
        assert!(log.contains(expected), "{expected}: {log}");
        assert_eq!(fs::read_to_string(&output).expect("it stays"), "routes: []\n");
    }
    engine.end();
    let missing = once(&engine, &output);
    let log = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        missing.status.code() == Some(2) && log.contains("cannot connect to Docker at"),
        "{log}"
    );
}
