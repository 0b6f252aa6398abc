//! Begins to serve a connection: finds its client's address, and which protocol the client speaks.

use super::{
    ReadAhead, Serving,
    accept::ListenerConfig,
    http1,
    proxy_protocol::{self, Invalid},
    serve,
    tls::{Accepted, why_failed},
    unreadable::UnreadableRequest,
};
use crate::proxy::{
    connections::registry::{ConnectionHandle, ConnectionOptions, Protocol},
    io::{ClientIo, input::poll_first_read},
    message::http2_frame::PREFACE,
    peer::{Client, Peer},
    worker::Worker,
};
use crate::{clock::Clock, flow::Instant, meter, route::NO_ADDRESS};
use bytes::Bytes;
use core::{future::poll_fn, net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration};
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpStream,
};

const WITHOUT_TLS: UnreadableRequest = UnreadableRequest::malformed(
    "the client speaks HTTP without TLS to a listener with `tls`: use https://",
);

/// Returns what serves a connection, if it is to be served.
pub(super) async fn begin_connection(
    worker: Arc<Worker>,
    handle: Arc<ConnectionHandle>,
    mut stream: TcpStream,
    address: SocketAddr,
    listener_config: ListenerConfig,
) -> Option<Serving> {
    if address.ip() != NO_ADDRESS {
        // Without it a small response may wait 40 ms for an acknowledgement.
        stream.set_nodelay(true).ok()?;
    }
    let client = admit_client(&worker, &handle, &mut stream, address, &listener_config).await?;
    handshake(&worker, &handle, stream, client, listener_config).await
}

/// Finds out whose connection it is, and counts it if clients have a limit. `None` if it is to be
/// closed.
async fn admit_client(
    worker: &Arc<Worker>,
    handle: &ConnectionHandle,
    stream: &mut TcpStream,
    address: SocketAddr,
    listener_config: &ListenerConfig,
) -> Option<Client> {
    // An edit of it reaches the listener's next connection; one that renames the listener does not
    // change it for connections that are accepted meanwhile.
    let known =
        worker.live.load().listener(&listener_config.name).map(|known| known.proxy_protocol);
    let said = if known.unwrap_or(listener_config.proxy_protocol) {
        // In a box, as it is not needed later.
        Box::pin(proxied_client(worker, handle, stream, address, &listener_config.name)).await?
    } else {
        Some(address)
    };

    let is_unknown = said.is_none();
    let address = said.unwrap_or(address);
    let snapshot = worker.live.load();
    let proxies = snapshot.proxies(Some(&listener_config.name));
    let client = proxies.nat64.canonical(address.ip());
    let address = SocketAddr::new(client, address.port());

    let Some(limit) = snapshot.settings.limits.connections_per_client else {
        return Some(Client::new(address, is_unknown, None));
    };
    if proxies.is_trusted(client) || client == NO_ADDRESS {
        return Some(Client::new(address, is_unknown, None));
    }

    let counted = worker.clients.open(client, limit);
    if counted.is_none() {
        let why = "the client has as many connections as `limits.connections_per_client` allows";
        worker.closed(client, meter::HttpRejection::ConnectionsPerClient, why);
    }
    Some(Client::new(address, is_unknown, Some(counted?)))
}

/// Reads the header of the PROXY protocol that a load balancer begins a connection with. Returns the
/// client's address if the header has one, or `None` if the connection is to be closed.
async fn proxied_client(
    worker: &Arc<Worker>,
    handle: &ConnectionHandle,
    stream: &mut TcpStream,
    address: SocketAddr,
    listener: &str,
) -> Option<Option<SocketAddr>> {
    let snapshot = worker.live.load_full();
    let proxies = snapshot.proxies(Some(listener));
    let peer = proxies.nat64.canonical(address.ip());
    let close = |why| {
        worker.closed(peer, meter::HttpRejection::ProxyProtocol, why);
        None
    };
    if !proxies.is_trusted(peer) {
        return close("the listener has `proxy_protocol`, and the peer is not a trusted proxy");
    }

    let limit = snapshot.settings.timeouts.header_read;
    let header = worker.clock.timeout(limit, proxy_protocol::read(stream));
    match unless_drained(handle, header).await? {
        Ok(Ok(client)) => Some(client),
        // What tests whether the port is open leaves at once.
        Ok(Err(Invalid::Incomplete)) => None,
        Ok(Err(Invalid::Malformed)) => close("the connection begins with no valid PROXY header"),
        Err(_) => close("the PROXY header did not arrive within `timeouts.header_read`"),
    }
}

/// Does the handshake of TLS, if the listener has TLS. Returns what serves the connection, if it goes on.
async fn handshake(
    worker: &Arc<Worker>,
    handle: &Arc<ConnectionHandle>,
    stream: TcpStream,
    client: Client,
    ListenerConfig { name: listener, tls, .. }: ListenerConfig,
) -> Option<Serving> {
    let (options, client) = {
        let snapshot = worker.live.load();
        let local = if snapshot.sends_proxy_protocol { stream.local_addr().ok() } else { None };
        (ConnectionOptions::of(&snapshot.settings), client.at(local))
    };
    let address = client.address();
    let peer = |tls| {
        let worker = Arc::clone(worker);
        let handle = Arc::clone(handle);
        Arc::new(Peer::new(worker, handle, client, tls, Arc::clone(&listener)))
    };

    let Some(acceptor) = tls else {
        return detect_and_serve(stream, peer(None), options).await;
    };

    let limit = options.timeouts.tls_handshake;
    // In a box, as is what a cleartext client begins with: what it needs is not needed later.
    let accepting =
        Box::pin(worker.clock.timeout(limit, acceptor.accept(stream, &worker.challenges)));
    let accepted = unless_drained(handle, accepting).await;
    if let Some(Ok(Ok(Accepted::Secured(stream, protocol, session)))) = accepted {
        worker.counters.tls_handshakes.fetch_add(1, Relaxed);
        return Some(serve(stream, ReadAhead::default(), protocol, peer(Some(session)), options));
    }

    if let Some(Ok(Ok(Accepted::Challenged))) = accepted {
        worker.counters.tls_handshakes.fetch_add(1, Relaxed);
        return None;
    }
    worker.counters.tls_failures.fetch_add(1, Relaxed);
    match accepted? {
        Ok(Ok(Accepted::Cleartext(stream))) => {
            Some(Box::pin(http1::reject(stream, peer(None), options, WITHOUT_TLS)))
        }
        Ok(Err(error)) => {
            if let Some(why) = why_failed(&error) {
                worker.failed_handshake(address, &listener, &why);
            }
            None
        }
        // A client that is late, or that a drain does not wait for.
        Ok(Ok(_)) | Err(_) => None,
    }
}

/// Returns what serves a connection without TLS: the client's first bytes show the protocol.
pub(crate) async fn detect_and_serve<T>(
    mut stream: T,
    peer: Arc<Peer>,
    options: ConnectionOptions,
) -> Option<Serving>
where
    T: ClientIo + 'static,
{
    let limit = options.timeouts.header_read;
    let detecting = Box::pin(detect(&mut stream, &peer.worker.clock, limit));
    match unless_drained(&peer.handle, detecting).await? {
        Ok(Beginning { protocol, ahead, since }) => {
            let read_ahead = ReadAhead { ahead, since: Some(since) };
            Some(serve(stream, read_ahead, protocol, peer, options))
        }
        Err(Unclear::Late) => {
            UnreadableRequest::LATE.note(&peer);
            None
        }
        Err(Unclear::Unasked) => None,
    }
}

/// `None` if the gateway is to end: it need not wait for a client that has not sent a
/// request yet.
async fn unless_drained<F: Future>(handle: &ConnectionHandle, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = handle.drained() => None,
    }
}

/// The protocol of a client, and the first bytes that it sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) protocol: Protocol,
    /// The bytes that were read to find out.
    pub(crate) ahead: Bytes,
    /// The time when the first byte came.
    pub(crate) since: Instant,
}

/// Why it is not known which protocol a client speaks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unclear {
    /// It left, or said nothing.
    Unasked,
    /// It stopped within what may be the preface of HTTP/2 or a request.
    Late,
}

/// Reads until it is clear which protocol the client speaks. Its first byte may take as long as
/// `limit`, and the others as long from there, as those of a head.
///
/// # Errors
///
/// The client left, said nothing, or stopped before it was clear.
pub(crate) async fn detect(
    stream: &mut (impl AsyncRead + Unpin),
    clock: &Clock,
    limit: Duration,
) -> Result<Beginning, Unclear> {
    let first = clock.timeout(limit, poll_fn(|context| poll_first_read(stream, context))).await;
    let first = first.ok().and_then(Result::ok).filter(|first| !first.is_empty());
    let mut ahead = first.ok_or(Unclear::Unasked)?;
    let since = clock.now();

    let rest = async {
        let mut part = [0; PREFACE.len()];
        while ahead.len() < PREFACE.len() && PREFACE.starts_with(&ahead) {
            let missing = PREFACE.len() - ahead.len();
            let count = stream.read(&mut part[..missing]).await.ok()?;
            let came = Some(&part[..count]).filter(|came| !came.is_empty())?;
            ahead = Bytes::from([&ahead, came].concat());
        }
        let is_http2 = ahead.starts_with(PREFACE);
        let protocol = if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Some(Beginning { protocol, ahead, since })
    };

    match clock.timeout(limit, rest).await {
        Ok(beginning) => beginning.ok_or(Unclear::Unasked),
        Err(_) => Err(Unclear::Late),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    const LIMIT: Duration = Duration::from_secs(10);

    /// Returns what is found of a client that sends these parts, a second apart, and leaves.
    async fn detected(parts: &[&[u8]]) -> Option<(Protocol, Vec<u8>)> {
        let (mut client, mut stream) = duplex(64);
        let clock = Clock::start();
        let detecting =
            tokio::spawn(async move { detect(&mut stream, &clock, Duration::MAX).await });
        for part in parts {
            client.write_all(part).await.ok();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        drop(client);
        let detected = detecting.await.expect("no panic").ok()?;
        Some((detected.protocol, detected.ahead.to_vec()))
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_shows_the_protocol_is_due_in_one_time_from_its_first_byte() {
        let clock = Clock::start();
        let start = clock.now();
        let wait = |seconds| clock.sleep_until(clock.now() + Duration::from_secs(seconds));
        let (mut client, mut stream) = duplex(64);
        let dripping = async {
            for byte in PREFACE.chunks(1) {
                wait(4).await;
                client.write_all(byte).await.expect("sent");
            }
        };
        let detected = tokio::select! {
            detected = detect(&mut stream, &clock, LIMIT) => detected,
            () = dripping => panic!("the preface may not take 96 s"),
        };
        assert_eq!(detected, Err(Unclear::Late));
        assert_eq!(clock.now().since(start).as_secs(), 4 + LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_in_time_has_not_asked() {
        let clock = Clock::start();
        let start = clock.now();
        let (_client, mut stream) = duplex(64);
        assert_eq!(detect(&mut stream, &clock, LIMIT).await, Err(Unclear::Unasked));
        assert_eq!(clock.now().since(start), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_whole_preface_is_http_2() {
        let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(detected(&[preface]).await, Some((Protocol::Http2, preface.to_vec())));
        let slowly: Vec<_> = preface.chunks(1).collect();
        assert_eq!(detected(&slowly).await, Some((Protocol::Http2, preface.to_vec())));
        for (parts, read) in [
            (&[b"G".as_slice()][..], "G"),
            (&[b"P", b"OST / HTTP/1.1\r\n"], "POST / HTTP/1.1\r\n"),
            (&[b"PRINT / HTTP/1.1\r\n"], "PRINT / HTTP/1.1\r\n"),
            (&[b"PRI", b" * HTTP/1.1\r\n"], "PRI * HTTP/1.1\r\n"),
        ] {
            assert_eq!(detected(parts).await, Some((Protocol::Http1, read.as_bytes().to_vec())));
        }
        for parts in [&[][..], &[b"PRI * HTTP/2.0".as_slice()]] {
            assert_eq!(detected(parts).await, None);
        }
    }
}
