//! A request's body that ends early: no server may take the part for the whole.
//!
//! Every way in which a client can end, in each protocol, meets a server of each protocol, before its
//! response, in the middle of it, and after it.

use crate::common::{
    Gateway, PATIENCE,
    cut_bodies::{End, Network, PART, read_chunks, reset_code},
    http2::{Frame, block},
    http2_server::{DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS},
    protocols::{ACK, ClientTls, PREFACE, PROTOCOLS, Protocol, listen},
    wire::Wire,
};
use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

/// How far the response is when the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Awaited,
    /// Its head and a part of its body have come.
    Begun,
    /// All of it has come.
    Whole,
}

/// What the server sees.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// The part that was sent first.
    Part,
    /// The end of the body.
    Whole,
    Reset(u32),
    /// The end of the connection.
    Closed,
}

/// A server that reports what becomes of each request's body.
struct Server {
    address: SocketAddr,
    stage: Arc<Mutex<Stage>>,
    seen: Receiver<Seen>,
}

impl Server {
    fn start(folder: &Path, protocol: Protocol) -> Self {
        let stage = Arc::new(Mutex::new(Stage::Awaited));
        let (sender, seen) = channel();
        let reports = Reports { stage: Arc::clone(&stage), seen: sender };
        let address = listen(folder, protocol, move |wire| {
            if protocol.is_http2 {
                serve_http2(wire, &reports)
            } else {
                serve_http1(wire, &reports)
            }
        });
        Self { address, stage, seen }
    }

    fn next(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("the server sees an end")
    }
}

/// What a connection of a server reports, and does by.
struct Reports {
    stage: Arc<Mutex<Stage>>,
    seen: Sender<Seen>,
}

impl Reports {
    fn stage(&self) -> Stage {
        *self.stage.lock().expect("no panic")
    }

    fn report(&self, seen: Seen) {
        // The test may have failed meanwhile.
        let _reported = self.seen.send(seen);
    }
}

fn serve_http1(mut wire: Wire, reports: &Reports) -> io::Result<()> {
    loop {
        let head = wire.head()?;
        let ended = read_http1_body(&mut wire, &head, reports);
        // The test continues as soon as it has the report.
        let stage = reports.stage();
        reports.report(if ended.is_ok() { Seen::Whole } else { Seen::Closed });
        ended?;
        match stage {
            Stage::Awaited => wire.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwhat"),
            Stage::Begun => wire.write("at"),
            Stage::Whole => {}
        }
    }
}

fn read_http1_body(wire: &mut Wire, head: &str, reports: &Reports) -> io::Result<()> {
    let is_chunked = head.contains("transfer-encoding: chunked");
    if is_chunked {
        assert_eq!(wire.line()?, "5");
    }
    assert_eq!(&wire.read_exact::<5>()?, PART);
    match reports.stage() {
        Stage::Awaited => {}
        Stage::Begun => wire.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwh"),
        Stage::Whole => wire.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwhat"),
    }
    reports.report(Seen::Part);
    if is_chunked { read_chunks(wire) } else { wire.read_exact::<5>().map(drop) }
}

fn serve_http2(mut wire: Wire, reports: &Reports) -> io::Result<()> {
    let preface = wire.read_exact::<24>()?;
    assert_eq!(&preface, PREFACE);
    wire.frame(SETTINGS, 0, 0, &[]);
    let mut open: Option<u32> = None;
    loop {
        let frame = match wire.read_frame() {
            Ok(frame) => frame,
            Err(error) => {
                if open.is_some() {
                    reports.report(Seen::Closed);
                }
                return Err(error);
            }
        };
        let Frame { kind, flags, stream, payload } = frame;

        let is_last = flags & END_STREAM != 0 && matches!(kind, HEADERS | DATA);
        match kind {
            SETTINGS if flags & ACK == 0 => wire.frame(SETTINGS, ACK, 0, &[]),
            HEADERS if open.is_none() => open = Some(stream),
            DATA if open == Some(stream) && payload == PART && !is_last => {
                match reports.stage() {
                    Stage::Awaited => {}
                    Stage::Begun => respond(&mut wire, stream, b"wh", false),
                    Stage::Whole => respond(&mut wire, stream, b"what", true),
                }
                reports.report(Seen::Part);
            }
            RST_STREAM if open == Some(stream) => {
                reports.report(Seen::Reset(reset_code(&payload)));
                open = None;
            }
            _ => {}
        }

        if is_last && open == Some(stream) {
            let stage = reports.stage();
            reports.report(Seen::Whole);
            open = None;
            match stage {
                Stage::Awaited => respond(&mut wire, stream, b"what", true),
                Stage::Begun => wire.frame(DATA, END_STREAM, stream, b"at"),
                Stage::Whole => {}
            }
        }
    }
}

fn respond(wire: &mut Wire, stream: u32, body: &[u8], is_whole: bool) {
    let head = block(&[(":status", "200"), ("content-length", "4")]);
    wire.frame(HEADERS, END_HEADERS, stream, &head);
    wire.frame(DATA, if is_whole { END_STREAM } else { 0 }, stream, body);
}

/// A client of either protocol.
struct Client {
    wire: Wire,
    is_http2: bool,
    is_declared: bool,
}

impl Client {
    /// Sends the head of a request to `path` and the first part of its body, whose length is declared
    /// or not.
    fn begin(mut wire: Wire, is_http2: bool, path: &str, is_declared: bool) -> Self {
        if is_http2 {
            wire.write(PREFACE);
            wire.frame(SETTINGS, 0, 0, &[]);
            let head =
                [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", path)];
            let length: &[_] = if is_declared { &[("content-length", "10")] } else { &[] };
            wire.frame(HEADERS, END_HEADERS, 1, &block(&[&head[..], length].concat()));
            wire.frame(DATA, 0, 1, PART);
        } else {
            let [length, part] = if is_declared {
                ["Content-Length: 10", "half!"]
            } else {
                ["Transfer-Encoding: chunked", "5\r\nhalf!\r\n"]
            };
            wire.write(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n{part}"));
        }
        Self { wire, is_http2, is_declared }
    }

    /// Reads until a part of the response has come.
    fn read_response(&mut self) {
        if self.is_http2 {
            while self.wire.read_frame().expect("a frame").kind != DATA {}
        } else {
            let head = self.wire.head().expect("a head");
            assert!(head.starts_with("http/1.1 200"), "{head}");
            assert_eq!(&self.wire.read_exact::<2>().expect("a part"), b"wh");
        }
    }

    /// Ends the body. Returns the connection if it is still open.
    fn end(self, end: End) -> Option<Wire> {
        if self.is_http2 {
            end.send_http2(self.wire, 1, 0)
        } else {
            end.send_http1(self.wire, !self.is_declared)
        }
    }
}

/// Returns how a client of `protocol` can end.
fn ends(protocol: Protocol, is_declared: bool) -> Vec<End> {
    let mut ends = End::closed(protocol);
    ends.push(End::Whole);
    if protocol.is_http2 {
        ends.extend([0, 1, 2, 3, 5, 7, 8, 11, 13, 99].map(End::Reset));
        ends.extend([0, 2].map(End::GoAway));
        if is_declared {
            ends.push(End::Short);
        }
    } else if !is_declared {
        ends.push(End::Malformed);
    }
    ends
}

/// Sends one request that ends so, and returns what the server sees at its end.
fn seen(gateway: &Gateway, tls: &ClientTls, server: &Server, case: &Case) -> Seen {
    *server.stage.lock().expect("no panic") = case.stage;
    let Case { client, is_declared, .. } = *case;
    let wire = tls.connect(gateway, client);
    let path = format!("/{}", case.server.name());
    let mut client = Client::begin(wire, client.is_http2, &path, is_declared);
    assert_eq!(server.next(), Seen::Part, "{case:?}");
    if case.stage != Stage::Awaited {
        client.read_response();
    }
    let connection = client.end(case.end);
    let seen = server.next();
    drop(connection);
    seen
}

/// One of all.
#[derive(Debug)]
struct Case {
    client: Protocol,
    server: Protocol,
    is_declared: bool,
    stage: Stage,
    end: End,
}

fn cases(server: Protocol) -> Vec<Case> {
    let mut cases = Vec::new();
    for client in PROTOCOLS {
        for is_declared in [false, true] {
            for end in ends(client, is_declared) {
                for stage in [Stage::Awaited, Stage::Begun, Stage::Whole] {
                    // flowgate ends an upload itself once its response is whole.
                    if (end, stage) != (End::Whole, Stage::Whole) {
                        cases.push(Case { client, server, is_declared, stage, end });
                    }
                }
            }
        }
    }
    cases
}

#[test]
fn a_body_that_ends_early_is_cut_off_for_its_server_too() {
    let Network { gateway, tls, servers } = Network::start(Server::start, |server| server.address);

    let mut wrong = Vec::new();
    let mut count = 0;
    for (protocol, server) in &servers {
        for case in cases(*protocol) {
            let seen = seen(&gateway, &tls, server, &case);
            let is_right = match (case.end, &seen) {
                (End::Whole, seen) => *seen == Seen::Whole,
                (_, Seen::Closed) => true,
                (_, Seen::Reset(code)) => *code != 0,
                (_, Seen::Part | Seen::Whole) => false,
            };
            count += 1;
            if !is_right {
                wrong.push(format!("{case:?}: {seen:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
}
