//! A response's body that ends early: no client may take the part for the whole.
//!
//! Every way in which a server can end, in each protocol, meets a client of each protocol, whose own
//! body has ended or not.

use crate::common::{
    Gateway, PATIENCE,
    cut_bodies::{End, Network, PART, read_chunks, reset_code},
    http2::block,
    http2_server::{DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS},
    protocols::{ACK, ClientTls, PREFACE, PROTOCOLS, Protocol, folder, listen, start},
    wire::{Close, Wire},
};
use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

/// The field that says where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
    /// None: it ends with the connection, or with the stream.
    None,
}

/// What a server does.
#[derive(Clone, Copy, Debug)]
struct Plan {
    framing: Framing,
    end: End,
}

/// A server that does by the plan, whose responses end when the test has them end.
struct Server {
    address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    end: SyncSender<()>,
}

/// What its connections share.
struct Orders {
    plan: Arc<Mutex<Plan>>,
    end: Mutex<Receiver<()>>,
}

impl Server {
    fn start(folder: &Path, protocol: Protocol) -> Self {
        let plan = Arc::new(Mutex::new(Plan { framing: Framing::Length, end: End::Whole }));
        let (end, ends) = sync_channel(1);
        let orders = Orders { plan: Arc::clone(&plan), end: Mutex::new(ends) };
        let address = listen(folder, protocol, move |wire| {
            if protocol.is_http2 { serve_http2(wire, &orders) } else { serve_http1(wire, &orders) }
        });
        Self { address, plan, end }
    }
}

impl Orders {
    fn plan(&self) -> Plan {
        *self.plan.lock().expect("no panic")
    }

    fn wait(&self) {
        // The test may have failed meanwhile.
        let _asked = self.end.lock().expect("no panic").recv_timeout(PATIENCE);
    }
}

fn serve_http1(mut wire: Wire, orders: &Orders) -> io::Result<()> {
    loop {
        let head = wire.head()?;
        // What is not read would make a FIN a RST.
        if head.contains("transfer-encoding: chunked") {
            wire.read_exact::<10>()?;
        } else if head.contains("content-length: 10") {
            wire.read_exact::<5>()?;
        }

        let Plan { framing, end } = orders.plan();
        wire.write(match framing {
            Framing::Length => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf!",
            Framing::Chunked => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf!\r\n"
            }
            Framing::None => "HTTP/1.1 200 OK\r\n\r\nhalf!",
        });
        orders.wait();
        match end.send_http1(wire, framing != Framing::Length) {
            Some(open) => wire = open,
            None => return Ok(()),
        }
    }
}

fn serve_http2(mut wire: Wire, orders: &Orders) -> io::Result<()> {
    assert_eq!(&wire.read_exact::<24>()?, PREFACE);
    wire.frame(SETTINGS, 0, 0, &[]);
    loop {
        let frame = wire.read_frame()?;
        let stream = frame.stream;
        if frame.kind == SETTINGS && frame.flags & ACK == 0 {
            wire.frame(SETTINGS, ACK, 0, &[]);
        }
        if frame.kind != HEADERS {
            continue;
        }

        let Plan { framing, end } = orders.plan();
        let length: &[_] =
            if framing == Framing::Length { &[("content-length", "10")] } else { &[] };
        let head = block(&[&[(":status", "200")][..], length].concat());
        wire.frame(HEADERS, END_HEADERS, stream, &head);
        wire.frame(DATA, 0, stream, PART);
        orders.wait();
        match end.send_http2(wire, stream, stream) {
            Some(open) => wire = open,
            None => return Ok(()),
        }
    }
}

/// A client.
#[derive(Clone, Copy, Debug)]
struct ClientKind {
    protocol: Protocol,
    /// Whether it speaks HTTP/1.0.
    is_old: bool,
    /// Whether its own body does not end.
    uploads: bool,
}

/// What the client sees.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// The end of the body.
    Whole,
    Reset(u32),
    /// The end of the connection, which is not the body's.
    Closed,
}

fn ask(wire: &mut Wire, client: ClientKind, path: &str) {
    let ClientKind { protocol, is_old, uploads } = client;
    let method = if uploads { "POST" } else { "GET" };
    if protocol.is_http2 {
        wire.write(PREFACE);
        wire.frame(SETTINGS, 0, 0, &[]);
        let head = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
        let end = if uploads { 0 } else { END_STREAM };
        wire.frame(HEADERS, END_HEADERS | end, 1, &block(&head));
        if uploads {
            wire.frame(DATA, 0, 1, PART);
        }
    } else {
        let version = if is_old { "1.0" } else { "1.1" };
        let rest = match (uploads, is_old) {
            (false, _) => "\r\n",
            (true, false) => "Transfer-Encoding: chunked\r\n\r\n5\r\nhalf!\r\n",
            (true, true) => "Content-Length: 10\r\n\r\nhalf!",
        };
        wire.write(format!("{method} {path} HTTP/{version}\r\nHost: a\r\n{rest}"));
    }
}

/// Reads a response until its end; `part_came` is called when a part of its body is there.
fn read_http1(wire: &mut Wire, part_came: impl FnOnce()) -> Seen {
    let head = wire.head().expect("a head");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let is_chunked = head.contains("transfer-encoding: chunked");
    if is_chunked {
        assert_eq!(wire.line().expect("a chunk"), "5");
    }
    assert_eq!(&wire.read_exact::<5>().expect("a part"), PART);
    part_came();
    let ended = if is_chunked {
        read_chunks(wire)
    } else if head.contains("content-length: 10") {
        wire.read_exact::<5>().map(drop)
    } else {
        read_to_end(wire)
    };
    if ended.is_ok() { Seen::Whole } else { Seen::Closed }
}

fn read_to_end(wire: &mut Wire) -> io::Result<()> {
    while wire.read_byte()?.is_some() {}
    Ok(())
}

fn read_http2(wire: &mut Wire, part_came: impl FnOnce()) -> Seen {
    let mut part_came = Some(part_came);
    loop {
        let Ok(frame) = wire.read_frame() else { return Seen::Closed };
        if frame.stream != 1 {
            continue;
        }
        if frame.kind == RST_STREAM {
            return Seen::Reset(reset_code(&frame.payload));
        }
        if frame.flags & END_STREAM != 0 && matches!(frame.kind, HEADERS | DATA) {
            return Seen::Whole;
        }
        if frame.kind == DATA
            && let Some(part_came) = part_came.take()
        {
            part_came();
        }
    }
}

/// Returns what a server of `protocol` can do.
fn plans(protocol: Protocol) -> Vec<Plan> {
    let framings: &[_] = if protocol.is_http2 {
        &[Framing::Length, Framing::None]
    } else {
        &[Framing::Length, Framing::Chunked, Framing::None]
    };
    let mut plans = Vec::new();
    for &framing in framings {
        let mut ends = End::closed(protocol);
        if protocol.is_http2 {
            ends.extend([End::Whole, End::WholeAndReset]);
            ends.extend([0, 1, 2, 3, 5, 8, 11, 13, 99].map(End::Reset));
            ends.extend([0, 2].map(End::GoAway));
        }
        match framing {
            Framing::Length if protocol.is_http2 => ends.push(End::Short),
            Framing::Length => ends.push(End::Whole),
            Framing::Chunked => ends.extend([End::Whole, End::Malformed]),
            Framing::None => {}
        }
        plans.extend(ends.into_iter().map(|end| Plan { framing, end }));
    }
    plans
}

/// Whether a body that ends so is whole.
fn is_whole(server: Protocol, plan: Plan) -> bool {
    let ends_with_connection = !server.is_http2 && plan.framing == Framing::None;
    match plan.end {
        End::Whole | End::WholeAndReset => true,
        End::Closed(Close::Fin) => ends_with_connection && !server.is_tls,
        End::Closed(Close::Notified) => ends_with_connection,
        End::Closed(Close::Rst) | End::Malformed | End::Reset(_) | End::GoAway(_) | End::Short => {
            false
        }
    }
}

fn clients() -> Vec<ClientKind> {
    let mut clients = Vec::new();
    for protocol in PROTOCOLS {
        for is_old in [false, true] {
            for uploads in [false, true] {
                if !(protocol.is_http2 && is_old) {
                    clients.push(ClientKind { protocol, is_old, uploads });
                }
            }
        }
    }
    clients
}

/// Returns what `client` sees of a response of a server of `protocol`.
fn seen(
    gateway: &Gateway,
    tls: &ClientTls,
    client: ClientKind,
    protocol: Protocol,
    server: &Server,
) -> Seen {
    let mut wire = tls.connect(gateway, client.protocol);
    ask(&mut wire, client, &format!("/{}", protocol.name()));
    let end = || server.end.send(()).expect("the server waits");
    if client.protocol.is_http2 { read_http2(&mut wire, end) } else { read_http1(&mut wire, end) }
}

#[test]
fn a_setting_accepts_a_response_that_ends_with_tls_without_notice_and_no_other() {
    let folder = folder();
    let tls = ClientTls::new(folder.path());
    let server_protocol = Protocol { is_http2: false, is_tls: true };
    let server = Server::start(folder.path(), server_protocol);
    let more = ", without_close_notify: true";
    let gateway = start(folder, &[(server_protocol, server.address)], more);
    for framing in [Framing::None, Framing::Length, Framing::Chunked] {
        for close in [Close::Fin, Close::Rst] {
            let end = End::Closed(close);
            *server.plan.lock().expect("no panic") = Plan { framing, end };
            for client in clients() {
                let seen = seen(&gateway, &tls, client, server_protocol, &server);
                let is_accepted = framing == Framing::None && close == Close::Fin;
                assert_eq!(seen == Seen::Whole, is_accepted, "{framing:?} {close:?} {client:?}");
            }
        }
    }
}

#[test]
fn a_response_that_ends_early_is_cut_off_for_its_client_too() {
    let Network { gateway, tls, servers } = Network::start(Server::start, |server| server.address);

    let mut wrong = Vec::new();
    let mut count = 0;
    for (protocol, server) in &servers {
        for plan in plans(*protocol) {
            *server.plan.lock().expect("no panic") = plan;
            for client in clients() {
                let seen = seen(&gateway, &tls, client, *protocol, server);
                let is_right = match seen {
                    Seen::Whole => is_whole(*protocol, plan),
                    Seen::Closed => !is_whole(*protocol, plan),
                    Seen::Reset(code) => code != 0 && !is_whole(*protocol, plan),
                };
                count += 1;
                if !is_right {
                    wrong.push(format!("{protocol:?}, {plan:?}, {client:?}: {seen:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
}
