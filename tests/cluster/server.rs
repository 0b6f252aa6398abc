//! A redis-server of a test's own.

use crate::port::free_port;
use std::{
    io::{BufRead, BufReader},
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
        let mut child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--dir"])
            .arg(directory.path())
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server, of Debian's package of this name, is on the path");
        let log = BufReader::new(child.stdout.take().expect("its log"));
        let mut said = Vec::new();
        // Nobody but this process writes there: what is ready is no other server.
        let is_ready = log.lines().map_while(Result::ok).any(|line| {
            let is_ready = line.contains("Ready to accept connections");
            said.push(line);
            is_ready
        });
        assert!(is_ready, "redis-server ended before it was ready:\n{}", said.join("\n"));
        Self { port, child, _directory: directory }
    }

    /// Returns a connection.
    pub(crate) fn connection(&self) -> redis::Connection {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let client = redis::Client::open(url).expect("a URL");
        client.get_connection().expect("redis-server takes connections")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}
