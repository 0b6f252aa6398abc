//! Listeners on Unix sockets, and listeners with several addresses.

use crate::{
    binary_upgrade,
    common::{
        Gateway, eventually,
        http::{Answer, Client, get},
        replace, upstream,
    },
};
use std::{
    fs,
    io::BufReader,
    net::TcpStream,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream},
    },
    path::Path,
    process::Command,
};

/// A client of a Unix socket. Its connection is read and written like one of TCP.
fn client(path: &Path) -> Client {
    let stream = UnixStream::connect(path).expect("it listens");
    Client { stream: BufReader::new(TcpStream::from(OwnedFd::from(stream))) }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// A folder with the file of a gateway whose listener `web` has these keys and whose route these rules.
struct Site {
    upstream: upstream::Script,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        Self { upstream: upstream::echo(), folder: tempfile::tempdir().expect("a folder") }
    }

    fn yaml(&self, listener: &str, flow: &str) -> String {
        let folder = self.folder.path().display();
        let listener = listener.replace("FOLDER", &folder.to_string());
        format!(
            "workers: 2\n\
             access_log: access.log\n\
             listeners: [{{ name: web, {listener} }}]\n\
             admin: {{ listen: 127.0.0.1:0 }}\n\
             upstreams: [{{ name: up, servers: [{{ url: 'http://{}' }}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up, flow: [{flow}] }}]\n",
            self.upstream.address
        )
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

/// The fields that the server got.
fn echoed(answer: &Answer) -> String {
    answer.text().to_ascii_lowercase()
}

#[test]
fn a_listener_has_addresses_and_sockets_and_each_client_meets_the_same_rules() {
    let site = Site::new();
    let rule = "{ name: each, limit: 3/1h, burst: 3, key: host }";
    let listen = "listen: ['127.0.0.1:0', 'unix:FOLDER/web.sock'], unix_mode: '0600'";
    let gateway = Gateway::start(&site.yaml(listen, rule));
    let path = site.path("web.sock");
    assert_eq!(mode(&path), 0o600);

    let mut near = client(&path);
    assert_eq!(near.get("/a").status, 200);
    assert_eq!(get(gateway.web(), "/a").status, 200);
    assert_eq!(near.get("/a").status, 200, "a connection is kept");
    assert_eq!([near.get("/a").status, get(gateway.web(), "/a").status], [429; 2]);

    // A real client.
    let curl = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket"])
        .args([path.to_str().expect("text"), "http://other.test/b"])
        .output()
        .expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&curl.stdout), "200");
}

#[test]
fn a_client_of_a_socket_has_no_address_unless_a_trusted_proxy_names_one() {
    let site = Site::new();
    let rule = "{ name: each, limit: 2/1h, burst: 2, key: client_ip, on_missing_key: skip }";
    let listen = "listen: 'unix:FOLDER/web.sock'";
    let gateway = Gateway::start(&site.yaml(listen, rule));
    let path = site.path("web.sock");
    assert_eq!(mode(&path), 0o660);

    let mut near = client(&path);
    let forged = [("X-Forwarded-For", "192.0.2.1")];
    for _ in 0..3 {
        let answer = near.request("GET", "/a", &forged);
        assert_eq!(answer.status, 200, "no address is counted");
        assert!(!echoed(&answer).contains("x-forwarded-for"), "{}", answer.text());
    }
    drop(near);

    gateway.edit(&site.yaml(&format!("{listen}, trusted_proxies: [unix]"), rule));
    let mut near = client(&path);
    let from = |address: &'static str| [("X-Forwarded-For", address)];
    let statuses = [(); 3].map(|()| near.request("GET", "/a", &from("192.0.2.1")).status);
    assert_eq!(statuses, [200, 200, 429]);
    let answer = near.request("GET", "/a", &from("192.0.2.2"));
    assert_eq!(answer.status, 200);
    assert!(echoed(&answer).contains(r#"["x-forwarded-for","192.0.2.2"]"#), "{}", answer.text());
    assert_eq!([(); 3].map(|()| near.get("/a").status), [200; 3], "the proxy itself has none");

    let log = site_log(&gateway, 10);
    let clients: Vec<&str> = log.iter().filter_map(|line| line["client_ip"].as_str()).collect();
    assert_eq!(clients.iter().filter(|client| **client == "::").count(), 6, "{clients:?}");
    assert_eq!(clients.iter().filter(|client| **client == "192.0.2.1").count(), 3);
}

fn site_log(gateway: &Gateway, count: usize) -> Vec<serde_json::Value> {
    let path = gateway.dir.path().join("access.log");
    eventually("every line", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines: Result<Vec<_>, _> = text.lines().map(serde_json::from_str).collect();
        lines.ok().filter(|lines| lines.len() == count)
    })
}

#[test]
fn an_edit_adds_moves_and_removes_sockets_and_a_client_keeps_its_connection() {
    let site = Site::new();
    let gateway = Gateway::start(&site.yaml("listen: '127.0.0.1:0'", ""));
    let web = gateway.web();
    let [first, second] = ["first.sock", "second.sock"].map(|name| site.path(name));
    assert!(!first.exists());

    gateway.edit(&site.yaml("listen: ['127.0.0.1:0', 'unix:FOLDER/first.sock']", ""));
    let mut kept = client(&first);
    assert_eq!([kept.get("/").status, get(web, "/").status], [200; 2], "the port stays");

    let both = "listen: ['unix:FOLDER/first.sock', 'unix:FOLDER/second.sock'], unix_mode: '0666'";
    gateway.edit(&site.yaml(both, ""));
    assert_eq!([mode(&first), mode(&second)], [0o666; 2]);
    assert_eq!([kept.get("/").status, client(&second).get("/").status], [200; 2]);
    eventually("the port is closed", || TcpStream::connect(web).is_err().then_some(()));

    gateway.edit(&site.yaml("listen: 'unix:FOLDER/second.sock'", ""));
    assert!(!first.exists(), "its path goes with it");
    assert_eq!(client(&second).get("/").status, 200);
    assert_eq!(mode(&second), 0o660);
}

#[test]
fn a_path_that_is_taken_is_an_error_of_the_file_and_a_dead_socket_is_replaced() {
    let site = Site::new();
    let listen = "listen: 'unix:FOLDER/web.sock'";
    let path = site.path("web.sock");
    let mut gateway = Gateway::start(&site.yaml(listen, ""));

    let other = Gateway::start(&site.yaml("listen: '127.0.0.1:0'", ""));
    let seen = other.log_len();
    replace(&other.config, &site.yaml(listen, ""));
    let line = other.wait_log_after(seen, "configuration rejected");
    assert!(line.contains("in use") || other.log().contains("in use"), "{}", other.log());
    assert_eq!(get(other.web(), "/").status, 200);
    assert_eq!(client(&path).get("/").status, 200, "the first one still has it");

    // Without a chance to remove it.
    gateway.signal("KILL");
    gateway.wait();
    assert!(path.exists());
    let mut next = Gateway::start(&site.yaml(listen, ""));
    assert_eq!(client(&path).get("/").status, 200);
    next.signal("TERM");
    assert!(next.wait().success());
    assert!(!path.exists(), "a gateway that ends removes its path");

    // What another process has put there since is not removed.
    let mut last = Gateway::start(&site.yaml(listen, ""));
    fs::remove_file(&path).expect("removed");
    let _foreign = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    last.signal("TERM");
    assert!(last.wait().success());
    assert!(path.exists(), "it is another process's");
}

#[test]
fn a_socket_of_systemd_is_kept_at_the_end() {
    let site = Site::new();
    let path = site.path("web.sock");
    let socket = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let config = site.path("gateway.yaml");
    fs::write(&config, site.yaml("listen: 'unix:FOLDER/web.sock'", "")).expect("written");
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web; \
                  exec \"$0\" run -c \"$1\" 3<&0 0</dev/null";
    let mut gateway = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_flowgate")])
        .arg(&config)
        .stdin(OwnedFd::from(socket))
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    assert_eq!(client(&path).get("/").status, 200);
    let pid = gateway.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().expect("it runs");
    assert!(killed.success());
    assert!(gateway.wait().expect("ended").success());
    assert!(path.exists(), "it is systemd's, whose next process gets it");
}

#[test]
fn an_upgrade_hands_the_socket_over() {
    let site = Site::new();
    let rule = "{ name: all, limit: 3/1h, burst: 3 }";
    let yaml = site.yaml("listen: ['127.0.0.1:0', 'unix:FOLDER/web.sock']", rule);
    let (mut gateway, pid_file) = binary_upgrade::start(&yaml);
    let path = site.path("web.sock");
    let mut waiting = client(&path);
    assert_eq!(waiting.get("/").status, 200);
    let text =
        site.yaml("listen: ['127.0.0.1:0', 'unix:FOLDER/web.sock'], unix_mode: '0600'", rule);
    fs::write(&gateway.config, text).expect("written");
    let _new = binary_upgrade::upgrade(&gateway, &pid_file);
    assert_eq!(mode(&path), 0o600, "as the file says by now");
    drop(waiting);
    assert!(gateway.wait().success());
    assert!(path.exists(), "the old process leaves the path to the new one");
    let mut near = client(&path);
    assert_eq!([(); 3].map(|()| near.get("/").status), [200, 200, 429], "with its counts");
}

#[test]
fn a_socket_serves_http2() {
    let site = Site::new();
    let _gateway = Gateway::start(&site.yaml("listen: 'unix:FOLDER/web.sock'", ""));
    let path = site.path("web.sock");
    let curl = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"])
        .args(["--http2-prior-knowledge", "--unix-socket", path.to_str().expect("text")])
        .arg("http://site.test/")
        .output()
        .expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&curl.stdout), "2 200");
}
