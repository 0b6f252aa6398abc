//! The gateway's own log, when nobody reads it.

use crate::common::{
    eventually, field,
    http::{ask, get},
    replace, upstream, yaml,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, PipeReader, Write, pipe},
    mem,
    net::SocketAddr,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    process::{Child, Command, Stdio},
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

/// A gateway whose log this test reads when it likes; killed when dropped.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up_and_says_how_much_is_lost() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("gateway.yaml");
    fs::write(&config, yaml(upstream.address, ALL)).expect("written");
    let (reader, writer) = pipe().expect("a pipe");
    let mut gateway = Unread(
        Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["run", "-c"])
            .arg(&config)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stderr(Stdio::from(OwnedFd::from(writer)))
            .spawn()
            .expect("it starts"),
    );
    let mut log = BufReader::new(reopen(&reader));
    let admin = address(&wait_for(&mut log, "listener=admin "));
    let web = address(&wait_for(&mut log, "listener=web "));
    wait_for(&mut log, "ready");
    fill(log.get_ref());
    // The errors of one such file are more than the buffer of the log.
    for edit in 1..=4 {
        let words: Vec<_> = (0..3_000).map(|at| format!("word-{edit}-{at}: 1\n")).collect();
        replace(&config, &words.concat());
        eventually("the edit is rejected", || {
            let page = ask(admin, "/metrics").text();
            page.contains(&format!("reloads_total{{result=\"failed\"}} {edit}")).then_some(())
        });
    }
    assert_eq!(get(web, "/").status, 200);
    assert_eq!(ask(admin, "/readyz?verbose").status, 200);
    let page = ask(admin, "/metrics").text();
    let lost = page.lines().find_map(|line| line.strip_prefix("flowgate_log_dropped_total "));
    let lost = lost.expect("a counter");
    assert!(lost != "0");
    let line = wait_for(&mut log, "lines of this log were lost since the start");
    assert_eq!(field(&line, "lines"), lost);
    fill(log.get_ref());
    let ended = Command::new("kill").arg(gateway.0.id().to_string()).status();
    assert!(ended.expect("kill runs").success());
    let status = eventually("it ends", || gateway.0.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
}

/// Reads the log up to the line that has `needle`.
#[track_caller]
fn wait_for(log: &mut BufReader<File>, needle: &str) -> String {
    let mut line = Vec::new();
    eventually(needle, || {
        while log.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&mem::take(&mut line)).into_owned();
            if text.contains(needle) {
                return Some(text);
            }
        }
        None
    })
}

fn address(line: &str) -> SocketAddr {
    field(line, "address").parse().expect("an address")
}

/// Opens both ends of a pipe once more, to read what is there and write what goes in.
fn reopen(pipe: &PipeReader) -> File {
    let at_once = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(at_once)
        .open(format!("/proc/self/fd/{}", pipe.as_raw_fd()))
        .expect("the pipe")
}

/// Writes into the pipe until nothing more goes in.
fn fill(mut pipe: &File) {
    for size in [4096, 1] {
        let lines = vec![b'\n'; size];
        while pipe.write(&lines).is_ok() {}
    }
}
