//! A gateway process under test, upstreams that do as a test says, and clients
//! that see every byte.

pub(crate) mod browser;
pub(crate) mod collector;
pub(crate) mod cut_bodies;
pub(crate) mod dns;
pub(crate) mod every_algorithm;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod http2_server;
pub(crate) mod program;
pub(crate) mod protocols;
pub(crate) mod tls_server;
pub(crate) mod upstream;
pub(crate) mod wire;

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

/// How long anything may take before a test fails instead of hanging: far more than on a quiet
/// machine, as only a test that fails waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// A running gateway; killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    pub dir: tempfile::TempDir,
    pub config: PathBuf,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Gateway {
    /// Starts a gateway with `yaml`, whose listeners may say port 0, and waits
    /// until it is ready.
    pub(crate) fn start(yaml: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self::start_in(dir, yaml, &[])
    }

    /// The same in a directory that may hold certificates already.
    pub(crate) fn start_in(dir: tempfile::TempDir, yaml: &str, arguments: &[&str]) -> Self {
        let config = dir.path().join("gateway.yaml");
        fs::write(&config, yaml).expect("the configuration is written");
        let gateway = Self::spawn(dir, config, arguments);
        gateway.wait_log("ready");
        gateway
    }

    /// The same with variables in its environment.
    pub(crate) fn start_with(
        dir: tempfile::TempDir,
        yaml: &str,
        variables: &[(&str, &Path)],
    ) -> Self {
        let config = dir.path().join("gateway.yaml");
        fs::write(&config, yaml).expect("the configuration is written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["run", "-c"]).arg(&config).envs(variables.iter().copied());
        let gateway = Self::launch(dir, config, command);
        gateway.wait_log("ready");
        gateway
    }

    /// Starts a process without waiting.
    pub(crate) fn spawn(dir: tempfile::TempDir, config: PathBuf, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["run", "-c"]).arg(&config).args(arguments);
        Self::launch(dir, config, command)
    }

    /// Starts a gateway with `yaml` that may have `files` file descriptors.
    pub(crate) fn start_with_files(yaml: &str, files: u32) -> Self {
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        Self::start_under(&["sh", "-c", &script], yaml)
    }

    /// Starts a gateway with `yaml` by a program that takes the gateway's command as its last arguments.
    pub(crate) fn start_under(program: &[&str], yaml: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("gateway.yaml");
        fs::write(&config, yaml).expect("the configuration is written");
        let mut command = Command::new(program.first().expect("a program"));
        command.args(program.iter().skip(1));
        command.args([env!("CARGO_BIN_EXE_flowgate"), "run", "-c"]).arg(&config);
        let gateway = Self::launch(dir, config, command);
        gateway.wait_log("ready");
        gateway
    }

    fn launch(dir: tempfile::TempDir, config: PathBuf, mut command: Command) -> Self {
        let mut child = command
            .current_dir(dir.path())
            .env("NO_COLOR", "1")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the gateway starts");
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().expect("piped");
        let sink = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { return };
                sink.lines.lock().expect("no panic").push(line);
                sink.grown.notify_all();
            }
        });
        Self { child, dir, config, log }
    }

    /// Waits for a line of the log that has `needle`, and returns the first.
    #[track_caller]
    pub(crate) fn wait_log(&self, needle: &str) -> String {
        self.wait_log_after(0, needle)
    }

    /// The same among the lines after the first `skip`.
    #[track_caller]
    pub(crate) fn wait_log_after(&self, skip: usize, needle: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.log.lines.lock().expect("no panic");
        loop {
            if let Some(line) = lines.iter().skip(skip).find(|line| line.contains(needle)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {needle:?} in the log:\n{}", lines.join("\n"));
            lines = self.log.grown.wait_timeout(lines, left).expect("no panic").0;
        }
    }

    /// How many lines the log has.
    pub(crate) fn log_len(&self) -> usize {
        self.log.lines.lock().expect("no panic").len()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner).join("\n")
    }

    /// Where the listener (or `admin`) is.
    #[track_caller]
    pub(crate) fn address(&self, listener: &str) -> SocketAddr {
        let line = self.wait_log(&format!("listener={listener} "));
        field(&line, "address").parse().expect("an address")
    }

    /// The listener called `web`.
    #[track_caller]
    pub(crate) fn web(&self) -> SocketAddr {
        self.address("web")
    }

    /// Replaces the file as `mv` does, and waits until it is in force.
    #[track_caller]
    pub(crate) fn edit(&self, yaml: &str) -> String {
        let seen = self.log_len();
        replace(&self.config, yaml);
        self.wait_log_after(seen, "reloaded")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the process to end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the gateway does not end:\n{}", self.log());
            pause();
        }
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("--- gateway's log\n{}", self.log());
        }
    }
}

/// Replaces a file by renaming another over it.
pub(crate) fn replace(path: &Path, text: &str) {
    let aside = path.with_extension("new");
    fs::write(&aside, text).expect("written");
    fs::rename(&aside, path).expect("renamed");
}

/// The value of `name=` in a log line.
pub(crate) fn field(line: &str, name: &str) -> String {
    let start = line.find(&format!("{name}=")).expect("the field") + name.len() + 1;
    line[start..].split_whitespace().next().unwrap_or_default().trim_matches('"').to_owned()
}

/// Tries until `attempt` has an answer, or fails the test.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        pause();
    }
}

/// A breath between two looks at something that another process does.
pub(crate) fn pause() {
    std::thread::park_timeout(Duration::from_millis(5));
}

/// Connects with deadlines on reads and writes.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    stream.set_nodelay(true).expect("set");
    stream
}

/// Runs a command against the gateway, and returns what it prints.
pub(crate) fn run(gateway: &Gateway, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(arguments).args(["--admin", &gateway.address("admin").to_string()]);
    let output = command.env_remove("FLOWGATE_ADMIN_TOKEN").output().expect("it runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Runs `curl` and returns what it prints.
#[track_caller]
pub(crate) fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "300"])
        .args(arguments)
        .output()
        .expect("curl is installed");
    assert!(
        output.status.success(),
        "curl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A configuration with one listener, `web`, an admin listener, one upstream at
/// `upstream`, and `routes`, which are lines of YAML under `routes:`.
pub(crate) fn yaml(upstream: SocketAddr, routes: &str) -> String {
    format!(
        "workers: 2\n\
         listeners:\n  - {{ name: web, listen: 127.0.0.1:0 }}\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams:\n  - {{ name: up, servers: [{{ url: \"http://{upstream}\" }}] }}\n\
         routes:\n{routes}\n"
    )
}

/// The same with `web` at this port. When it is closed nobody else answers there if it is a
/// [`free_port`](crate::port::free_port).
pub(crate) fn yaml_at(port: u16, upstream: SocketAddr, routes: &str) -> String {
    yaml(upstream, routes).replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1)
}

/// Waits until every admitted request has ended and settled its costs.
#[track_caller]
pub(crate) fn await_ends(gateway: &Gateway) {
    eventually("all requests have ended", || {
        let in_flight = metrics(gateway, "flowgate_flow_in_flight");
        assert!(!in_flight.is_empty(), "the metric has a value for each route");
        in_flight.values().all(|count| *count == 0.0).then_some(())
    });
}

/// The values of a metric, by its labels as they are printed.
pub(crate) fn metrics(gateway: &Gateway, name: &str) -> HashMap<String, f64> {
    let page = http::ask(gateway.address("admin"), "/metrics").text();
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(key, _)| key.split('{').next() == Some(name))
        .filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?)))
        .collect()
}
