//! The PROXY protocol towards servers: what a header says, and which requests may use its connection.

use crate::{
    common::{
        Gateway, connect, eventually,
        http::{self, Client},
        upstream::{Connection, Script, ok},
    },
    port::free_port,
};
use std::{
    fs,
    io::BufRead,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

fn yaml(servers: &str, more: &str) -> String {
    format!(
        "workers: 1\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams: [{{ name: up, servers: [{servers}]{more} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
    )
}

/// A server that answers with the line that its connection began with, and keeps all of them.
fn listing() -> (Script, Arc<Mutex<Vec<String>>>) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&lines);
    let script = Script::start(move |_, mut connection: Connection| {
        let mut line = String::new();
        if connection.stream.read_line(&mut line).is_err() {
            return;
        }
        let line = line.trim_end().to_owned();
        seen.lock().expect("no panic").push(line.clone());
        while connection.read().is_some() {
            if connection.write(ok(&line)).is_none() {
                return;
            }
        }
    });
    (script, lines)
}

fn line_of(client: &Client, gateway: SocketAddr) -> String {
    let port = client.stream.get_ref().local_addr().expect("an address").port();
    format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}", gateway.port())
}

#[test]
fn each_client_has_connections_of_its_own() {
    let (server, lines) = listing();
    let url = format!("{{ url: \"http://{}\" }}", server.address);
    let gateway = Gateway::start(&yaml(&url, ", send_proxy_protocol: v1"));
    let mut clients = [(); 3].map(|()| Client::new(gateway.web()));
    for _ in 0..3 {
        for client in &mut clients {
            let expected = line_of(client, gateway.web());
            assert_eq!(client.get("/").text(), expected);
        }
    }
    assert_eq!(server.connections(), 3, "{:?}", lines.lock());

    // Two clients behind a trusted proxy share no connection, not even with themselves.
    let trusting = yaml(&url, ", send_proxy_protocol: v1")
        .replace("admin:", "trusted_proxies: [127.0.0.1]\nadmin:");
    gateway.edit(&trusting);
    let mut proxy = Client::new(gateway.web());
    for client in ["192.0.2.1", "192.0.2.2", "192.0.2.2", "2001:db8::1"] {
        let answer = proxy.request("GET", "/", &[("X-Forwarded-For", client)]);
        let (family, to) =
            if client.contains(':') { ("TCP6", "::ffff:127.0.0.1") } else { ("TCP4", "127.0.0.1") };
        let port = gateway.web().port();
        assert_eq!(answer.text(), format!("PROXY {family} {client} {to} 0 {port}"));
    }
    assert_eq!(server.connections(), 7);
}

#[test]
fn connections_that_began_otherwise_are_not_used() {
    let (server, lines) = listing();
    let url = format!("{{ url: \"http://{}\" }}", server.address);
    let gateway = Gateway::start(&yaml(&url, ", send_proxy_protocol: v1"));
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/").text(), line_of(&client, gateway.web()));

    // Without the header, the server takes the request's line for it, and waits for another request.
    gateway.edit(&yaml(&url, ""));
    client.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("a connection without the header", || {
        let lines = lines.lock().expect("no panic");
        lines.iter().any(|line| line == "GET /first HTTP/1.1").then_some(())
    });
}

#[test]
fn checks_are_flowgates_own() {
    let (server, lines) = listing();
    let url = format!("{{ url: \"http://{}\" }}", server.address);
    let more = ", send_proxy_protocol: v1, health: { path: /healthz, interval: 50ms }";
    let _gateway = Gateway::start(&yaml(&url, more));
    eventually("a check", || {
        let lines = lines.lock().expect("no panic");
        lines.first().map(|line| assert_eq!(line, "PROXY UNKNOWN"))
    });
}

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// nginx, which says who the client is by the header, in cleartext and over TLS.
fn nginx(folder: &Path, plain: u16, tls: u16) -> Nginx {
    let path = folder.display();
    let names = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = names.map(|name| format!("{name}_temp_path {path}/{name}; ")).concat();
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["127.0.0.1".to_owned()];
    let params = rcgen::CertificateParams::new(names).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(folder.join("cert.pem"), certificate.pem()).expect("written");
    fs::write(folder.join("key.pem"), key.serialize_pem()).expect("written");
    let text = format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr; events {{}}
        http {{ access_log off; {temporary} server {{
            listen 127.0.0.1:{plain} proxy_protocol; listen 127.0.0.1:{tls} ssl proxy_protocol;
            ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;
            location / {{ return 200 '$scheme $proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port'; }}
        }} }}"
    );
    fs::write(folder.join("nginx.conf"), text).expect("written");
    let child = Command::new("nginx")
        .args(["-e", "stderr", "-p", &path.to_string(), "-c", "nginx.conf"])
        .stdin(Stdio::null())
        .spawn()
        .expect("nginx is installed");
    let process = Nginx(child);
    for port in [plain, tls] {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        eventually("nginx listens", || TcpStream::connect(address).ok());
    }
    process
}

#[test]
fn nginx_reads_both_versions_also_before_tls() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let plain = free_port();
    let tls = free_port();
    let _nginx = nginx(folder.path(), plain, tls);
    for version in ["v1", "v2"] {
        for (scheme, port, more) in
            [("http", plain, ""), ("https", tls, ", tls: { insecure: true }")]
        {
            let url = format!("{{ url: \"{scheme}://127.0.0.1:{port}\" }}");
            let more = format!(
                ", send_proxy_protocol: {version}{more}, health: {{ path: /, interval: 50ms }}"
            );
            let gateway = Gateway::start(&yaml(&url, &more));
            let mut client = Client::new(gateway.web());
            for _ in 0..2 {
                let own = client.stream.get_ref().local_addr().expect("an address").port();
                let expected = format!("{scheme} 127.0.0.1 {own} {}", gateway.web().port());
                assert_eq!(client.get("/").text(), expected, "{version}");
            }
            eventually("a check has passed", || {
                let page = http::ask(gateway.address("admin"), "/routes").json();
                (page["upstreams"][0]["servers"][0]["health"] == "healthy").then_some(())
            });
            // One whose client has not begun.
            drop(connect(gateway.web()));
            assert!(!gateway.log().contains("fails its health checks"), "{}", gateway.log());
        }
    }
}
