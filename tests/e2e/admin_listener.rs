//! The admin listener: found by commands while the file is broken, and added, moved and removed by
//! edits.

use crate::{
    common::{
        Gateway, PATIENCE, eventually,
        http::{self, Client},
        replace, upstream, yaml,
    },
    port::free_port,
};
use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
};

const ROUTES: &str = "  - name: login
    match: { path_prefix: / }
    upstream: up
    flow: [{ name: per-address, limit: 5/6h, burst: 5, key: client_ip }]
";

/// Every command that needs only the admin listener.
const COMMANDS: &[&[&str]] = &[
    &["top", "--once"],
    &["keys"],
    &["explain", "GET", "/login"],
    &["rejections"],
    &["reset", "login", "per-address", "--all"],
    &["grant", "login", "per-address", "127.0.0.1", "5", "--for", "1m"],
];

fn with_admin(upstream: SocketAddr, admin: &str) -> String {
    yaml(upstream, ROUTES).replace("admin: { listen: 127.0.0.1:0 }\n", admin)
}

fn at(port: u16) -> String {
    format!("admin: {{ listen: 127.0.0.1:{port}, show_keys: true }}\n")
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Returns whether the admin listener is at a port. A socket that closes resets the connections that
/// nobody has accepted yet.
fn is_admin(port: u16) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect(local(port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|text| text.ends_with("ok\n"))
}

/// Runs a command in a folder.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("FLOWGATE_ADMIN_TOKEN")
        .output()
        .expect("it runs")
}

#[test]
fn every_command_works_while_the_file_is_broken() {
    let upstream = upstream::echo();
    let text = with_admin(upstream.address, &at(free_port()));
    let gateway = Gateway::start(&text);
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let admin = text.find("admin:").expect("written");
    let end = admin + text[admin..].find('\n').expect("written") + 1;
    let broken = [
        format!("{text}more: [1\n"),
        text.replace("    upstream: up", "\tupstream: up"),
        text.replace("limit: 5/6h", "limit: \"5/6h"),
        text[..end].to_owned(),
        text[..end + 20].to_owned(),
    ];
    for broken in broken {
        let seen = gateway.log_len();
        replace(&gateway.config, &broken);
        gateway.wait_log_after(seen, "rejected");
        for command in COMMANDS {
            let output = run(gateway.dir.path(), command);
            assert!(output.status.success(), "{command:?}: {output:?}\n{broken}");
            assert!(output.stderr.is_empty(), "{command:?}: {output:?}");
        }
    }
}

#[test]
fn commands_say_where_they_looked_for_the_listener() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("gateway.yaml"), "routes: [\n").expect("written");
    // Whether something listens at the default address is not known here.
    let output = run(folder.path(), &["keys"]);
    let said = String::from_utf8_lossy(&output.stderr);
    for part in [
        "no admin listener found in these files:\n  gateway.yaml:1:9: the `[` that opens here is never closed",
        "\n  /etc/flowgate/gateway.yaml",
        "\nusing the ",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // A name that is mistyped is no file that is broken.
    let output = run(folder.path(), &["keys", "-c", "gatway.yaml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No such file") && !said.contains("/etc/"), "{said}");
}

#[test]
fn an_edit_adds_moves_and_removes_the_listener() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&with_admin(upstream.address, ""));
    let [first, second] = [(); 2].map(|()| free_port());
    let line = gateway.edit(&with_admin(upstream.address, &at(first)));
    assert!(line.contains(&format!("admin off → 127.0.0.1:{first}")), "{line}");
    assert!(!gateway.log().contains("next start"), "{}", gateway.log());
    assert!(http::ask(local(first), "/readyz").text().contains("ready"));

    // A request in flight ends, and its connection with it.
    let mut open = Client::new(local(first));
    open.send("GET /readyz?verbose HTTP/1.1\r\n");
    gateway.edit(&with_admin(upstream.address, &at(second)));
    assert!(http::ask(local(second), "/readyz?verbose").text().contains("v3"));
    open.send("host: localhost\r\n\r\n");
    let ended = open.read("GET");
    assert_eq!((ended.status, ended.header("connection")), (200, Some("close")));
    assert!(open.is_closed());
    eventually("the old address is closed", || TcpStream::connect(local(first)).err());

    // Commands find it where the file has it.
    let output = run(gateway.dir.path(), &["explain", "GET", "/"]);
    assert!(output.status.success(), "{output:?}");
    gateway.edit(&with_admin(upstream.address, ""));
    eventually("the listener is closed", || TcpStream::connect(local(second)).err());
    assert_eq!(http::get(gateway.web(), "/").status, 200);
}

#[test]
fn a_new_address_that_cannot_be_opened_keeps_the_old_one() {
    let upstream = upstream::echo();
    let port = free_port();
    let gateway = Gateway::start(&with_admin(upstream.address, &at(port)));
    let other = TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = other.local_addr().expect("an address").port();
    let seen = gateway.log_len();
    replace(&gateway.config, &with_admin(upstream.address, &at(taken)));
    let line = gateway.wait_log_after(seen, "rejected");
    assert!(line.contains("gateway.yaml:") && line.contains("listener admin"), "{line}");
    let page = http::ask(local(port), "/readyz?verbose").text();
    assert!(page.contains("rejected at") && page.contains("v1"), "{page}");
    // When the address is free, flowgate moves there without another edit.
    drop(other);
    gateway.wait_log_after(seen, "reloaded v2");
    assert!(http::ask(local(taken), "/readyz").text().contains("ready"));
}

#[test]
fn the_listener_may_take_the_address_of_another_and_overlap_its_own() {
    let upstream = upstream::echo();
    let [web, admin] = [(); 2].map(|()| free_port());
    let text = |web: u16, admin: &str| {
        let text = with_admin(
            upstream.address,
            &format!("admin: {{ listen: '{admin}', token: 0123456789abcdef }}\n"),
        );
        text.replacen("listen: 127.0.0.1:0", &format!("listen: 127.0.0.1:{web}"), 1)
    };
    let gateway = Gateway::start(&text(web, &format!("127.0.0.1:{admin}")));
    assert!(is_admin(admin) && !is_admin(web));
    gateway.edit(&text(web, &format!("0.0.0.0:{admin}")));
    eventually("the new socket alone", || is_admin(admin).then_some(()));
    // Both change places.
    gateway.edit(&text(admin, &format!("127.0.0.1:{web}")));
    eventually("they have changed places", || (is_admin(web) && !is_admin(admin)).then_some(()));
}
