//! A redis-server of a test's own.

use core::time::Duration;
use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
    _directory: TempDir,
}

impl Server {
    /// Starts one on a free port, without files.
    pub(crate) fn start() -> Self {
        Self::start_on(free_port(), &[])
    }

    /// Starts one with more of its options.
    pub(crate) fn start_on(port: u16, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--dir"])
            .arg(directory.path())
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server, of Debian's package of this name, is on the path");
        let server = Self { port, child, _directory: directory };
        server.connection();
        server
    }

    /// Returns a connection, as soon as there can be one.
    pub(crate) fn connection(&self) -> redis::Connection {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let client = redis::Client::open(url).expect("a URL");
        let connect = || {
            let mut connection = client.get_connection().ok()?;
            redis::cmd("PING").exec(&mut connection).ok().map(|()| connection)
        };
        let tries = (0..500).find_map(|_| {
            let connection = connect();
            if connection.is_none() {
                pause();
            }
            connection
        });
        tries.expect("redis-server answers within five seconds")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Returns a port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[expect(clippy::disallowed_methods, reason = "another process has no virtual time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}
