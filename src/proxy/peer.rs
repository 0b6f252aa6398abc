//! The other end of a client's connection.

use crate::proxy::{
    connections::{
        activity::Activity, limits::ClientConnection, registry::ConnectionHandle,
        upload_buffer::UploadBuffer,
    },
    message::{
        Interim, RequestHead, SpareHeads,
        hop_by_hop::{X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO},
        validate::{Invalid, canonical},
    },
    timeouts::{
        streams::Stream,
        timer::{PollTime, RequestTimer},
    },
    upstream::{proxy_header::Proxied, reservation::Reservation},
    worker::Worker,
};
use crate::{
    config::{Certificates, Snapshot},
    flow::Instant,
    http1::FieldList,
    route::{ClientCertificate, KeyPart, KeySpec, NO_ADDRESS, NO_NETWORKS, Proxies, Target},
};
use core::{
    net::{IpAddr, SocketAddr},
    task::{Context, Poll},
};
use http::HeaderValue;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The state that the requests of one connection share.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) worker: Arc<Worker>,
    /// The name that its listener had when the connection began.
    pub(super) listener: Arc<str>,
    pub(super) address: IpAddr,
    /// `address` as it stands in `X-Forwarded-For`.
    pub(super) address_value: HeaderValue,
    /// `http` or `https`.
    pub(super) scheme: HeaderValue,
    pub(super) handle: Arc<ConnectionHandle>,
    /// What the connection does, if it speaks HTTP/2.
    pub(super) http2: OnceLock<Arc<Activity>>,
    /// Of the request under way, in HTTP/1.1.
    pub(super) timer: RequestTimer,
    pub(super) poll_time: PollTime,
    pub(super) interim: Interim,
    pub(super) spare_heads: SpareHeads,
    /// The connection to a server that is for its requests alone, in HTTP/1.1.
    pub(super) reservation: Reservation,
    client: Client,
    tls: TlsSession,
    cache: RequestCache,
}

/// The facts of a client's TLS that its requests need.
#[derive(Debug, Default)]
pub(crate) struct TlsSession {
    /// The name that the client asked for, if the listener has several certificates.
    pub(crate) server_name: Option<ServerName>,
    /// The certificate that the client has shown.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    /// The address that it has connected to, if a server is to get that.
    local: Option<SocketAddr>,
    /// True if nothing that the peer says about others is believed: `address` is a load balancer's,
    /// which did not say whose connection it is.
    is_unknown: bool,
    /// Counts the connection for as long as anything needs it, if clients have a limit.
    _counted: Option<ClientConnection>,
}

impl Client {
    pub(super) fn new(
        address: SocketAddr,
        is_unknown: bool,
        counted: Option<ClientConnection>,
    ) -> Self {
        Self { address, local: None, is_unknown, _counted: counted }
    }

    /// Returns its address.
    pub(super) fn address(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }

    /// Notes the address that it has connected to.
    pub(super) fn at(self, local: Option<SocketAddr>) -> Self {
        Self { local, ..self }
    }
}

/// Values that most requests of one connection have in common.
#[derive(Debug, Default)]
struct RequestCache {
    /// The authority of the last request: most connections have one only.
    authority: Mutex<Option<Arc<Authority>>>,
    /// The fingerprint of the address by the first key that was that alone: most rules have
    /// the same, and it costs four hundred instructions.
    print: OnceLock<Option<(KeyPart, u128)>>,
}

/// The name that a TLS client asked for, and what its listener chose from. They stay
/// the connection's own, whatever an edit makes of the listener.
#[derive(Debug)]
pub(crate) struct ServerName {
    pub(super) name: String,
    pub(super) certificates: Arc<Certificates>,
}

/// An authority that a client asks for, and what all its requests for that share.
#[derive(Debug)]
pub(crate) struct Authority {
    /// With its port. A copy: the field itself would keep the whole buffer that it was read into.
    pub(super) value: HeaderValue,
    /// The host that routes know it by.
    pub(super) host: Arc<str>,
    /// The fields that name the client and what it requested to a server.
    pub(super) forwarded: FieldList,
}

impl Peer {
    pub(super) fn new(
        worker: Arc<Worker>,
        handle: Arc<ConnectionHandle>,
        client: Client,
        tls: Option<TlsSession>,
        listener: Arc<str>,
    ) -> Self {
        let address = client.address();
        let address_value = header_value(address);
        let scheme = HeaderValue::from_static(if tls.is_some() { "https" } else { "http" });

        Self {
            worker,
            listener,
            address,
            address_value,
            scheme,
            handle,
            http2: OnceLock::new(),
            timer: RequestTimer::default(),
            poll_time: PollTime::default(),
            interim: Interim::default(),
            spare_heads: SpareHeads::default(),
            reservation: Reservation::default(),
            client,
            tls: tls.unwrap_or_default(),
            cache: RequestCache::default(),
        }
    }

    /// Returns what a header of the PROXY protocol says of a request of `client`. `None`: the load balancer
    /// has not said whose connection it is, or the client has no address.
    pub(super) fn proxied(&self, client: IpAddr) -> Option<Proxied> {
        // Of a client behind a trusted proxy, only the address is known.
        let is_own = client == self.address;
        let port = if is_own { self.client.address.port() } else { 0 };
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        let to = self.client.local.unwrap_or(unspecified);
        let from = SocketAddr::new(client, port);
        let is_known = !self.client.is_unknown && client != NO_ADDRESS;
        is_known.then_some(Proxied { from, to })
    }

    /// Reads the clock, for this and for [`Self::now`].
    pub(super) fn read_clock(&self) -> Instant {
        self.poll_time.read(&self.worker.clock)
    }

    /// Keeps the memory of a request's head for the next one. In HTTP/2 the library makes the heads.
    pub(super) fn keep_head(&self, head: Box<RequestHead>) {
        if self.http2.get().is_none() {
            self.spare_heads.give_request(head);
        }
    }

    /// Returns the time, as it was read last in the poll under way: see [`PollTime`].
    pub(super) fn now(&self) -> Instant {
        self.poll_time.get(&self.worker.clock)
    }

    /// Returns the value of the field `Date`.
    pub(super) fn date(&self) -> HeaderValue {
        self.worker.dates.at(self.worker.clock.wall(self.now()))
    }

    /// Notes that a request has come.
    pub(super) fn on_request(&self) {
        self.handle.on_request();
        if let Some(activity) = self.http2.get() {
            activity.on_request();
        }
    }

    /// Notes the stream of a request that has come, in HTTP/2.
    pub(super) fn on_stream(&self) -> Option<Arc<Stream>> {
        self.http2.get().map(|activity| activity.on_stream())
    }

    /// Waits for `deadline` of a request, in its task, without a timer of its own. `stream` is the
    /// request's, in HTTP/2.
    pub(super) fn poll_deadline(
        &self,
        stream: Option<&Arc<Stream>>,
        deadline: Instant,
        context: &Context<'_>,
    ) -> Poll<()> {
        match (self.http2.get(), stream) {
            (Some(activity), Some(stream)) => activity.poll_deadline(stream, deadline, context),
            _ => self.timer.poll(deadline),
        }
    }

    /// Returns what an HTTP/2 connection holds of uploads; `None` with HTTP/1.1.
    pub(super) fn upload_buffer(&self) -> Option<&Arc<UploadBuffer>> {
        self.http2.get().map(|activity| activity.upload_buffer())
    }

    /// Returns the values that requests for an authority share.
    pub(super) fn authority(&self, asked: &[u8]) -> Result<Arc<Authority>, Invalid> {
        let mut last = self.cache.authority.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.value.as_bytes() == asked) {
            return Ok(Arc::clone(last));
        }
        let (value, host) = canonical(asked)?;
        let mut forwarded = FieldList::with_spare();
        if self.address != NO_ADDRESS {
            forwarded.append(X_FORWARDED_FOR, &self.address_value);
        }
        forwarded.append(X_FORWARDED_PROTO, &self.scheme);
        // A request of HTTP/1.0 may name no host.
        if !value.is_empty() {
            forwarded.append(X_FORWARDED_HOST, &value);
        }
        let authority = Arc::new(Authority { value, host, forwarded });
        *last = Some(Arc::clone(&authority));
        Ok(authority)
    }

    /// Returns the fingerprint of a request's key if that is this peer's address and is
    /// remembered, or `None` if it must be made.
    pub(super) fn fingerprint(
        &self,
        key: &KeySpec,
        target: &Target<'_>,
        client: IpAddr,
    ) -> Option<u128> {
        let [part @ KeyPart::ClientIp { .. }] = key.parts() else { return None };
        if client != self.address {
            return None;
        }
        let make =
            || Some((part.clone(), key.fingerprint(&self.worker.seed, target, client).ok()?));
        let (of, print) = self.cache.print.get_or_init(make).as_ref()?;
        (of == part).then_some(*print)
    }

    /// Drops the values of earlier requests: memory that stays for long among buffers that come and go
    /// keeps the allocator from using their room again.
    pub(super) fn forget(&self) {
        *self.cache.authority.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.spare_heads.forget();
    }

    /// Returns whether `host` may be asked for on this connection: with several certificates,
    /// a client that trusts one of them for its connection must not get from it what
    /// another stands for (RFC 9110, 7.4).
    pub(super) fn may_ask_for(&self, host: &str) -> bool {
        self.tls
            .server_name
            .as_ref()
            .is_none_or(|ServerName { name, certificates }| certificates.agree(name, host))
    }

    /// Returns the client's certificate, if it has shown one.
    pub(super) const fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.tls.certificate.as_ref()
    }

    /// Returns whose word about clients is believed, and how addresses are read.
    pub(super) fn proxies<'s>(&self, snapshot: &'s Snapshot) -> Proxies<'s> {
        let proxies = snapshot.proxies(Some(&self.listener));
        if self.client.is_unknown { Proxies { trusted: &NO_NETWORKS, ..proxies } } else { proxies }
    }

    /// Returns whether what it says about others is believed.
    pub(super) fn is_trusted(&self, snapshot: &Snapshot) -> bool {
        self.proxies(snapshot).is_trusted(self.address)
    }
}

/// Returns an address as it stands in a field. For IPv4 the standard library takes ten times as long.
fn header_value(address: IpAddr) -> HeaderValue {
    let mut text = SmallVec::<[u8; 39]>::new();
    match address {
        IpAddr::V4(address) => {
            for octet in address.octets() {
                text.extend(itoa::Buffer::new().format(octet).bytes());
                text.push(b'.');
            }
            text.pop();
        }
        IpAddr::V6(address) => text.extend_from_slice(address.to_string().as_bytes()),
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_the_standard_library_does() {
        for text in ["0.0.0.0", "9.10.99.100", "255.255.255.255", "::", "2001:db8::a:0:1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(header_value(address), text);
        }
    }
}
