//! Begins to serve a connection: finds its client's address, and which protocol the client speaks.

use super::bind::ListenerConfig;
use crate::meter;
use crate::proxy::{
    connections::{
        handle::ConnectionHandle, options::ConnectionOptions, per_client::ClientConnection,
    },
    downstream::{
        connection::{ReadAhead, Serving, serve},
        http1,
        protocol::{Beginning, Unclear, detect},
        proxy_protocol::{self, Invalid},
        tls::Accepted,
        unreadable::UnreadableRequest,
    },
    io::client_io::ClientIo,
    peer::Peer,
    worker::Worker,
};
use core::{net::SocketAddr, sync::atomic::Ordering::Relaxed};
use std::sync::Arc;
use tokio::net::TcpStream;

const WITHOUT_TLS: UnreadableRequest = UnreadableRequest::malformed(
    "the client speaks HTTP without TLS to a listener with `tls`: use https://",
);

/// Whose connection it is.
struct Client {
    address: SocketAddr,
    /// Whether `address` is a load balancer's that did not say whose connection it is.
    is_unknown: bool,
    counted: Option<ClientConnection>,
}

/// Returns what serves a connection, if it is to be served.
pub(super) async fn begin_connection(
    worker: Arc<Worker>,
    handle: Arc<ConnectionHandle>,
    mut stream: TcpStream,
    address: SocketAddr,
    listener_config: ListenerConfig,
) -> Option<Serving> {
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
        return Some(Client { address, is_unknown, counted: None });
    };
    if proxies.is_trusted(client) {
        return Some(Client { address, is_unknown, counted: None });
    }
    let counted = worker.clients.open(client, limit);
    if counted.is_none() {
        let why = "the client has as many connections as `limits.connections_per_client` allows";
        worker.closed(client, meter::HttpRejection::ConnectionsPerClient, why);
    }
    Some(Client { address, is_unknown, counted: Some(counted?) })
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
    let Client { address, is_unknown, counted } = client;
    // Without it a small answer may wait 40 ms for an acknowledgement.
    stream.set_nodelay(true).ok()?;
    let options = ConnectionOptions::of(&worker.live.load().settings);
    let peer = |name, tls| {
        let worker = Arc::clone(worker);
        let handle = Arc::clone(handle);
        let peer = Peer::new(worker, handle, address, name, (listener, tls));
        Arc::new(peer.counted(counted).without_trust(is_unknown))
    };
    let Some(acceptor) = tls else {
        return detect_and_serve(stream, peer(None, false), options).await;
    };
    let limit = options.timeouts.tls_handshake;
    // In a box, as is what a cleartext client begins with: what it needs is not needed later.
    let accepting = Box::pin(worker.clock.timeout(limit, acceptor.accept(stream)));
    let accepted = unless_drained(handle, accepting).await;
    if let Some(Ok(Ok(Accepted::Secured(stream, protocol, name)))) = accepted {
        worker.counters.tls_handshakes.fetch_add(1, Relaxed);
        return Some(serve(stream, ReadAhead::default(), protocol, peer(name, true), options));
    }
    worker.counters.tls_failures.fetch_add(1, Relaxed);
    let Some(Ok(Ok(Accepted::Cleartext(stream)))) = accepted else { return None };
    Some(Box::pin(http1::reject(stream, peer(None, false), options, WITHOUT_TLS)))
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
