//! A new process takes the listeners over from a running one.

use crate::{
    cluster::{self, server::Server},
    common::{
        Gateway, eventually,
        http::{self, Client},
        upstream::{self, Script},
        yaml,
    },
    port::free_port,
};
use std::{
    fs,
    net::SocketAddr,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

/// Ends a process that is no child of the test.
pub(crate) struct Stranger(u32);

impl Stranger {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.0.to_string()]).output();
        drop(sent);
    }

    pub(crate) fn is_running(&self) -> bool {
        // One that nobody has waited for still has a folder.
        let state = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pid_file = dir.path().join("flowgate.pid");
    (dir, pid_file)
}

/// A gateway that writes a pid file.
pub(crate) fn start(yaml: &str) -> (Gateway, PathBuf) {
    let (dir, pid_file) = folder();
    let path = pid_file.to_str().expect("text").to_owned();
    (Gateway::start_in(dir, yaml, &["--pid-file", &path]), pid_file)
}

fn pid_in(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Sends the signal, and returns the process that serves then.
pub(crate) fn upgrade(gateway: &Gateway, pid_file: &Path) -> Stranger {
    let failed = failures(gateway);
    let before = pid_in(pid_file).expect("a pid");
    let sent = Command::new("kill").args(["-USR2", &before.to_string()]).status();
    assert!(sent.expect("kill runs").success());
    successor(gateway, pid_file, before, failed)
}

/// Returns how many upgrades have failed.
fn failures(gateway: &Gateway) -> usize {
    gateway.log().matches("upgrade failed").count()
}

/// Waits for the process that serves after that which was `before`, and for no failure beyond those
/// that there were, `failed`.
pub(crate) fn successor(
    gateway: &Gateway,
    pid_file: &Path,
    before: u32,
    failed: usize,
) -> Stranger {
    let pid = eventually("a new process serves", || {
        assert_eq!(failures(gateway), failed, "{}", gateway.log());
        pid_in(pid_file).filter(|pid| *pid != before)
    });
    Stranger(pid)
}

fn ok() -> Script {
    Script::answering(|_| upstream::ok("done"))
}

/// Clients that ask one after the other, on kept and on new connections, until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(targets: &[(SocketAddr, &'static str)]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let client = |number: usize, address, path| {
            let stop = Arc::clone(&stop);
            let answered = Arc::clone(&answered);
            thread::spawn(move || {
                let mut kept: Option<Client> = None;
                while !stop.load(Relaxed) {
                    let was_kept = kept.is_some();
                    let mut client = kept.take().unwrap_or_else(|| Client::new(address));
                    client.send(http::head("GET", path, &[("host", "localhost")]));
                    let answer = client.try_read("GET");
                    let answer = answer.unwrap_or_else(|| {
                        panic!("no answer to client {number}, kept: {was_kept}, {path}")
                    });
                    // The admin listener rejects clients that ask too often.
                    let is_fine = answer.status == 200 || path == "/readyz" && answer.status == 429;
                    assert!(answer.complete && is_fine, "{answer:?}");
                    answered.fetch_add(1, Relaxed);
                    let closes = answer.header("connection") == Some("close");
                    // Half of the clients connect anew each time.
                    kept = Some(client).filter(|_| !closes && number.is_multiple_of(2));
                    thread::park_timeout(std::time::Duration::from_millis(1 + number as u64));
                }
            })
        };
        let numbers = 0..8;
        let clients = numbers
            .flat_map(|number| targets.iter().map(move |target| (number, *target)))
            .map(|(number, (address, path))| client(number, address, path))
            .collect();
        Self { stop, answered, clients }
    }

    fn answered(&self) -> usize {
        self.answered.load(Relaxed)
    }

    /// Waits for so many more answers.
    fn wait_for(&self, more: usize) {
        let goal = self.answered() + more;
        eventually("they are answered", || {
            let failed = self.clients.iter().any(thread::JoinHandle::is_finished);
            assert!(!failed, "a client has failed");
            (self.answered() >= goal).then_some(())
        });
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        for client in self.clients {
            client.join().expect("no request failed");
        }
    }
}

#[test]
fn a_new_process_takes_over_and_no_request_is_lost() {
    let upstream = ok();
    let (mut gateway, pid_file) = start(&yaml(upstream.address, ALL));
    let web = gateway.web();
    let admin = gateway.address("admin");
    let load = Load::start(&[(web, "/"), (admin, "/readyz")]);
    load.wait_for(100);
    let first = upgrade(&gateway, &pid_file);
    load.wait_for(100);
    assert_eq!(gateway.wait().code(), Some(0), "the old process ends");
    load.wait_for(100);
    // The new one can be replaced as well.
    let second = upgrade(&gateway, &pid_file);
    load.wait_for(100);
    eventually("the first new process ends", || (!first.is_running()).then_some(()));
    load.end();
    assert!(second.is_running());
    second.signal("TERM");
    eventually("the last one ends", || (!second.is_running()).then_some(()));
    assert!(!pid_file.exists(), "it removes its file");
    assert!(std::net::TcpStream::connect(web).is_err());
}

#[test]
fn other_numbers_of_workers_lose_no_queue() {
    let upstream = ok();
    let text = yaml(upstream.address, ALL);
    let workers = |count: u32| text.replace("workers: 2", &format!("workers: {count}"));
    let (mut gateway, pid_file) = start(&workers(3));
    let load = Load::start(&[(gateway.web(), "/")]);
    gateway.edit(&workers(1));
    let fewer = upgrade(&gateway, &pid_file);
    load.wait_for(200);
    assert_eq!(gateway.wait().code(), Some(0));
    gateway.edit(&workers(4));
    let _more = upgrade(&gateway, &pid_file);
    load.wait_for(200);
    eventually("the process between ends", || (!fewer.is_running()).then_some(()));
    load.wait_for(50);
    load.end();
}

#[test]
fn a_configuration_with_errors_leaves_the_old_process_in_place() {
    let upstream = ok();
    let text = yaml(upstream.address, ALL);
    let (mut gateway, pid_file) = start(&text);
    let web = gateway.web();
    let mut kept = Client::new(web);
    assert_eq!(kept.get("/").status, 200);
    gateway.signal("HUP");
    crate::common::replace(&gateway.config, &text.replace("upstream: up", "upstream: nowhere"));
    gateway.wait_log("configuration rejected");
    gateway.signal("USR2");
    let line = gateway.wait_log("upgrade failed");
    assert!(line.contains("nowhere") || line.contains("error"), "{line}");
    assert_eq!((kept.get("/").status, http::get(web, "/").status), (200, 200));
    assert_eq!(pid_in(&pid_file), Some(gateway.pid()));
    // With a good one the next attempt succeeds.
    gateway.edit(&text);
    let new = upgrade(&gateway, &pid_file);
    assert_eq!(http::get(web, "/").status, 200);
    assert_eq!(kept.get("/").header("connection"), Some("close"));
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(new.is_running());
}

#[test]
fn a_program_that_does_not_run_leaves_the_old_process_in_place() {
    let upstream = ok();
    let (dir, _) = folder();
    let program = dir.path().join("flowgate");
    fs::copy(env!("CARGO_BIN_EXE_flowgate"), &program).expect("copied");
    let script = "#!/bin/sh\nexit 7\n";
    let gateway = Gateway::start_under(
        &["sh", "-c", "shift; exec \"$0\" \"$@\"", program.to_str().expect("text")],
        &yaml(upstream.address, ALL),
    );
    let web = gateway.web();
    crate::common::replace(&program, script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).expect("set");
    gateway.signal("USR2");
    assert!(gateway.wait_log("upgrade failed").contains("exit status: 7"));
    assert_eq!(http::get(web, "/").status, 200);
    fs::remove_file(&program).expect("removed");
    let seen = gateway.log_len();
    gateway.signal("USR2");
    assert!(gateway.wait_log_after(seen, "upgrade failed").contains("cannot start"));
    assert_eq!(http::get(web, "/").status, 200);
}

#[test]
fn a_listener_that_the_new_configuration_lacks_is_closed_and_a_new_one_opened() {
    let upstream = ok();
    let text = yaml(upstream.address, ALL);
    let first = free_port();
    let second = free_port();
    let third = free_port();
    let listeners = |more: &str| {
        text.replacen(
            "  - { name: web, listen: 127.0.0.1:0 }",
            &format!("  - {{ name: web, listen: 127.0.0.1:{first} }}\n{more}"),
            1,
        )
    };
    let entry = |port| format!("  - {{ name: more, listen: 127.0.0.1:{port} }}");
    let (mut gateway, pid_file) = start(&listeners(&entry(second)));
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(http::get(at(second), "/").status, 200);
    // The old process must not see the edit.
    gateway.signal("STOP");
    fs::write(&gateway.config, listeners(&entry(third))).expect("written");
    gateway.signal("USR2");
    gateway.signal("CONT");
    let _new = successor(&gateway, &pid_file, gateway.pid(), 0);
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!((http::get(at(first), "/").status, http::get(at(third), "/").status), (200, 200));
    assert!(std::net::TcpStream::connect(at(second)).is_err());
}

/// Receives what the program reports to the service manager.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(crate::common::PATIENCE)).expect("set");
        Self { socket, path }
    }

    fn received(&self) -> String {
        let mut words = [0; 200];
        let length = self.socket.recv(&mut words).expect("a word");
        String::from_utf8_lossy(&words[..length]).into_owned()
    }
}

#[test]
fn systemd_follows_reloads_upgrades_and_the_end() {
    let upstream = ok();
    let (dir, _) = folder();
    let other = tempfile::tempdir().expect("a temporary directory");
    let manager = Manager::new(other.path());
    let mut gateway =
        Gateway::start_with(dir, &yaml(upstream.address, ALL), &[("NOTIFY_SOCKET", &manager.path)]);
    assert_eq!(manager.received(), "READY=1");
    gateway.signal("HUP");
    assert!(manager.received().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.received(), "READY=1");
    gateway.signal("USR2");
    let word = manager.received();
    let pid = word.strip_prefix("MAINPID=").expect(&word).parse().expect("a pid");
    let new = Stranger(pid);
    assert_ne!(pid, gateway.pid());
    assert_eq!(manager.received(), "READY=1");
    assert_eq!(gateway.wait().code(), Some(0));
    new.signal("TERM");
    assert_eq!(manager.received(), "STOPPING=1");
}

#[test]
fn sockets_of_systemd_are_taken_by_name_and_by_address() {
    let upstream = ok();
    let sockets = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("bound"));
    let [web, admin] = [0, 1].map(|at: usize| sockets[at].local_addr().expect("an address"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("gateway.yaml");
    // `web` is found by its name, whatever its address, and the admin listener by its address.
    let text = yaml(upstream.address, ALL).replacen("127.0.0.1:0", "127.0.0.1:1", 1).replacen(
        "admin: { listen: 127.0.0.1:0 }",
        &format!("admin: {{ listen: \"{admin}\" }}"),
        1,
    );
    fs::write(&config, text).expect("written");
    let script = "export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:other; \
                  exec \"$0\" run -c \"$1\" 3<&0 4<&1 0</dev/null 1>/dev/null";
    let [first, second] = sockets;
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_flowgate")])
        .arg(&config)
        .stdin(std::os::fd::OwnedFd::from(first))
        .stdout(std::os::fd::OwnedFd::from(second))
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    assert_eq!(http::get(web, "/").status, 200);
    assert_eq!(http::ask(admin, "/healthz").status, 200);
    child.kill().expect("killed");
    child.wait().expect("ended");
}

const LIMITS: &str = "  - { name: window, match: { path: /window }, upstream: up, flow: [ { name: r, algorithm: fixed_window, limit: 3/1d, key: \"header:x-team\" } ] }
  - { name: month, match: { path: /month }, upstream: up, flow: [ { name: r, algorithm: fixed_window, limit: 3/month, tz: Europe/Berlin } ] }
  - { name: bucket, match: { path: /bucket }, upstream: up, flow: [ { name: r, limit: 3/1h, burst: 3, key: \"header:x-team\" } ] }
  - { name: log, match: { path: /log }, upstream: up, flow: [ { name: r, algorithm: sliding_log, limit: 3/1h } ] }
  - { name: sliding, match: { path: /sliding }, upstream: up, flow: [ { name: r, algorithm: sliding_window, limit: 3/1h } ] }
  - { name: counter, match: { path: /counter }, upstream: up, flow: [ { name: r, algorithm: sliding_counter, limit: 3/1d } ] }
  - { name: paced, match: { path: /paced }, upstream: up, pacing: { rate: 1/1h, max_wait: 1s } }
  - { name: slow, match: { path: /slow }, upstream: up, flow: [ { name: r, concurrency: 1 } ] }
  - { name: all, match: { path_prefix: / }, upstream: up }";

/// An upstream whose `/slow` answers once a test says so.
fn slow() -> (Script, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Script::answering(move |request| {
        if request.path() == "/slow" {
            _ = wait.lock().expect("no panic").recv_timeout(crate::common::PATIENCE);
        }
        upstream::ok("done")
    });
    (upstream, go)
}

/// How many of five requests pass, of a team.
fn passed(web: SocketAddr, path: &str, team: &str) -> usize {
    let ask = |_| Client::new(web).request("GET", path, &[("X-Team", team)]).status == 200;
    (0..5).filter(|number| ask(*number)).count()
}

/// Waits until a request is with the upstream. To send another one and see it rejected would not do: it
/// may come first, and take the place.
fn await_upstream(gateway: &Gateway) {
    let metric = "flowgate_upstream_in_flight";
    eventually("it is in flight", || {
        (crate::common::metrics(gateway, metric).values().sum::<f64>() >= 1.0).then_some(())
    });
}

#[test]
fn an_upgrade_gives_nobody_a_new_budget() {
    let (upstream, go) = slow();
    let (mut gateway, pid_file) = start(&yaml(upstream.address, LIMITS));
    let web = gateway.web();
    let paths = ["/window", "/month", "/bucket", "/log", "/sliding", "/counter"];
    for path in paths {
        assert_eq!(passed(web, path, "red"), 3, "{path}");
    }
    assert_eq!(passed(web, "/paced", "red"), 1);
    let mut busy = Client::new(web);
    busy.send(http::head("GET", "/slow", &[]));
    await_upstream(&gateway);
    let _new = upgrade(&gateway, &pid_file);
    assert!(gateway.wait_log("took the state over").contains("reset 0"), "{}", gateway.log());
    for path in paths {
        assert_eq!(passed(web, path, "red"), 0, "{path}");
    }
    assert_eq!(passed(web, "/paced", "red"), 0);
    // Others have theirs.
    assert_eq!((passed(web, "/window", "blue"), passed(web, "/bucket", "blue")), (3, 3));
    // The place is taken until the old process's request ends.
    assert_ne!(http::get(web, "/slow").status, 200);
    go.send(()).expect("the upstream waits");
    assert_eq!(busy.read("GET").text(), "done");
    assert_eq!(gateway.wait().code(), Some(0));
    go.send(()).expect("the upstream waits");
    eventually("the place is free", || (http::get(web, "/slow").status == 200).then_some(()));
}

#[test]
fn a_store_that_fails_during_an_upgrade_divides_no_rule_that_is_exported() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules =
        "    flow: [{ name: r, limit: 3/1h, burst: 3, scope: cluster, sync_interval: 100ms }]";
    let store = "timeout: 300ms, connect_timeout: 1s";
    let (gateway, pid_file) = start(&cluster::config(upstream.address, server.port, store, rules));
    gateway.wait_log("the store decides");
    assert_eq!(passed(gateway.web(), "/", "red"), 3);
    // The new process waits for the store, while the old one finds that it fails.
    let redis = cluster::pid(&server);
    cluster::signal(&redis, "STOP");
    let new = upgrade(&gateway, &pid_file);
    assert!(gateway.log().contains("the store fails"), "{}", gateway.log());
    assert_eq!(passed(gateway.web(), "/", "red"), 0);
    cluster::signal(&redis, "CONT");
    drop(new);
}

#[test]
fn a_process_that_dies_while_it_drains_frees_the_places_of_its_requests() {
    let (upstream, go) = slow();
    let (mut gateway, pid_file) = start(&yaml(upstream.address, LIMITS));
    let web = gateway.web();
    let mut busy = Client::new(web);
    busy.send(http::head("GET", "/slow", &[]));
    await_upstream(&gateway);
    let _new = upgrade(&gateway, &pid_file);
    assert_ne!(http::get(web, "/slow").status, 200);
    gateway.signal("KILL");
    gateway.wait();
    gateway.wait_log("ended without notice");
    go.send(()).expect("the upstream waits");
    go.send(()).expect("the upstream waits");
    eventually("the place is free", || (http::get(web, "/slow").status == 200).then_some(()));
}

#[test]
fn the_old_process_leaves_the_pid_file_to_the_new_one() {
    let (arrived, arrival) = mpsc::channel();
    let (answer, answers) = mpsc::channel::<()>();
    let upstream_ends = Mutex::new((arrived, answers));
    let upstream = Script::answering(move |_| {
        let (arrived, answers) = &*upstream_ends.lock().expect("no panic");
        _ = arrived.send(());
        _ = answers.recv();
        upstream::ok("done")
    });
    let route = "  - { name: all, match: { path_prefix: / }, upstream: up }";
    let (mut gateway, pid_file) = start(&yaml(upstream.address, route));
    let mut busy = Client::new(gateway.web());
    busy.send(http::head("GET", "/", &[]));
    arrival.recv().expect("the request arrives");
    let _new = upgrade(&gateway, &pid_file);
    // As if the new process were about to write it.
    fs::write(&pid_file, format!("{}\n", gateway.pid())).expect("written");
    answer.send(()).expect("the upstream waits");
    assert_eq!(busy.read("GET").text(), "done");
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(pid_in(&pid_file), Some(gateway.pid()));
}

#[test]
fn other_numbers_and_algorithms_of_the_new_configuration_apply_to_the_state() {
    let upstream = ok();
    let text = yaml(upstream.address, LIMITS);
    let (gateway, pid_file) = start(&text);
    let web = gateway.web();
    assert_eq!((passed(web, "/window", "red"), passed(web, "/log", "red")), (3, 3));
    // The old process must not see the edit.
    gateway.signal("STOP");
    let text = text.replace("limit: 3/1d, key", "limit: 5/1d, key");
    fs::write(&gateway.config, text.replace("algorithm: sliding_log,", "")).expect("written");
    gateway.signal("USR2");
    gateway.signal("CONT");
    let _new = successor(&gateway, &pid_file, gateway.pid(), 0);
    let line = gateway.wait_log("took the state over");
    assert!(line.contains("converted 1, reset 1"), "{line}");
    assert_eq!((passed(web, "/window", "red"), passed(web, "/log", "red")), (2, 3));
}

#[test]
fn under_load_a_window_passes_what_its_limit_says() {
    const LIMIT: usize = 1500;
    let upstream = ok();
    let route = format!(
        "  - {{ name: all, match: {{ path_prefix: / }}, upstream: up, flow: [ {{ name: r, algorithm: fixed_window, align: first_request, limit: {LIMIT}/1h }} ] }}"
    );
    let (mut gateway, pid_file) = start(&yaml(upstream.address, &route));
    let web = gateway.web();
    let counts = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let counts = Arc::clone(&counts);
            thread::spawn(move || {
                let mut kept: Option<Client> = None;
                // Until the limit has rejected each of them some times.
                let mut rejected = 0;
                while rejected < 20 {
                    let mut client = kept.take().unwrap_or_else(|| Client::new(web));
                    let answer = client.get("/");
                    assert!(matches!(answer.status, 200 | 429), "{answer:?}");
                    let is_rejected = usize::from(answer.status == 429);
                    rejected += is_rejected;
                    counts[is_rejected].fetch_add(1, Relaxed);
                    let closes = answer.header("connection") == Some("close");
                    kept = Some(client).filter(|_| !closes && number % 4 != 0);
                    thread::park_timeout(std::time::Duration::from_millis(8));
                }
            })
        })
        .collect();
    eventually("it is under load", || (counts[0].load(Relaxed) > LIMIT / 3).then_some(()));
    let _new = upgrade(&gateway, &pid_file);
    for client in clients {
        client.join().expect("no request failed");
    }
    // Each kept connection of the old process may bring one request that it decides alone.
    let passed = counts[0].load(Relaxed);
    assert!((LIMIT..=LIMIT + 12).contains(&passed), "{passed}");
    assert_eq!(gateway.wait().code(), Some(0));
}
