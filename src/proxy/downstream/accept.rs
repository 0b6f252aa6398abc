//! Binds sockets, accepts connections, and closes those that are too many.

use super::{begin::begin_connection, tls::Acceptor};
use crate::meter;
use crate::proxy::{
    connections::registry::ConnectionHandle, request_log::LogLimit, worker::Worker,
};
use core::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};
use std::{io, os::fd::AsRawFd, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Connections accepted before everything else has its turn: of a thousand that come at
/// once, those accepted in one go would hold up whatever is due meanwhile.
const ACCEPTED_AT_ONCE: u32 = 8;

/// The wait when the kernel has no descriptor or memory for a connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);

/// The time that a listener that closes waits for those, all in all: half of what a drain leaves to
/// the connections that it takes meanwhile.
const EXHAUSTED_PATIENCE: Duration = Duration::from_millis(500);

/// Accepts connections until nothing is left that could change the listener, then what the
/// kernel has accepted already.
pub(crate) async fn accept(worker: Arc<Worker>, bound: Bound) {
    let Bound { socket, listener_config } = bound;
    let mut closing = listener_config.clone();
    let mut task = ListenerTask { worker, listener_config, log_limit: LogLimit::default() };
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => {
            let name = task.name();
            tracing::error!(listener = %name, %error, "cannot accept");
            return;
        }
    };

    let mut turns = Turns::default();
    loop {
        // The end is asked for before each connection, not only while there is none: under
        // load the next one is always there.
        let accepted = tokio::select! {
            biased;
            _closed = closing.wait_for(|listener_config| listener_config.is_handed_over) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                if let Some(stream) = task.keep(stream) {
                    task.admit(stream, address);
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => task.pause(&error).await,
        }
        turns.next().await;
    }

    if task.listener_config.borrow().is_handed_over {
        return;
    }
    // Without tokio, which may not know yet that there is something in the queue.
    let Ok(listener) = listener.into_std() else { return };
    let queued = task.take_queued(|| listener.accept(), &mut turns).await;

    // Before any is answered, whose client would come again.
    drop(listener);
    for (stream, address) in queued {
        let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
        if let Ok(stream) = stream {
            task.admit(stream, address);
        }
        turns.next().await;
    }
}

/// Lets everything else have its turn.
#[derive(Default)]
struct Turns(u32);

impl Turns {
    /// Notes another connection.
    async fn next(&mut self) {
        self.0 += 1;
        if self.0 == ACCEPTED_AT_ONCE {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Where the connections of one listener come in.
struct ListenerTask {
    worker: Arc<Worker>,
    listener_config: watch::Receiver<ListenerConfig>,
    log_limit: LogLimit,
}

impl ListenerTask {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.listener_config.borrow().name)
    }

    /// Closes a connection that takes a descriptor which is needed elsewhere.
    fn keep<S: AsRawFd>(&mut self, stream: S) -> Option<S> {
        let Self { worker, listener_config, log_limit } = self;
        if worker.descriptors.has_room_for(&stream) {
            return Some(stream);
        }
        drop(stream);
        worker.counters.count_rejection(meter::HttpRejection::Connections);
        if let Some(count) = log_limit.due(worker.clock.now()) {
            let name = Arc::clone(&listener_config.borrow().name);
            let most = worker.descriptors.most();
            tracing::warn!(listener = %name, count, most, "too few file descriptors: connections closed");
        }
        None
    }

    /// Takes what is in a listener's queue: no more than one holds, as under a flood it never
    /// gets empty. What cannot be taken in time is reset when the listener closes.
    async fn take_queued<S: AsRawFd>(
        &mut self,
        mut accept: impl FnMut() -> io::Result<(S, SocketAddr)>,
        turns: &mut Turns,
    ) -> Vec<(S, SocketAddr)> {
        let until = self.worker.clock.now() + EXHAUSTED_PATIENCE;

        let mut queued = Vec::new();
        // The kernel keeps one more than it is asked to.
        let mut left = BACKLOG + 1;
        while left > 0 {
            match accept() {
                Ok((stream, address)) => {
                    queued.extend(self.keep(stream).map(|stream| (stream, address)));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if self.worker.clock.now() < until => {
                    self.pause(&error).await;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(listener = %self.name(), %error, "cannot accept; closing the listener");
                    break;
                }
            }
            left -= 1;
            turns.next().await;
        }
        queued
    }

    fn admit(&self, stream: TcpStream, address: SocketAddr) {
        let listener_config = self.listener_config.borrow().clone();
        admit(&self.worker, stream, address, listener_config);
    }

    /// Waits until the kernel may have again what it lacked.
    async fn pause(&mut self, error: &io::Error) {
        let clock = &self.worker.clock;
        let now = clock.now();
        if let Some(count) = self.log_limit.due(now) {
            tracing::warn!(listener = %self.name(), count, %error, "cannot accept; trying again");
        }
        clock.sleep_until(now + EXHAUSTED_PAUSE).await;
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Begins to serve a connection, unless there are too many.
fn admit(
    worker: &Arc<Worker>,
    stream: TcpStream,
    address: SocketAddr,
    listener_config: ListenerConfig,
) {
    let limit = worker.live.load().settings.limits.connections as u64;
    let Some(open) = worker.counters.connection(limit) else {
        worker.counters.count_rejection(meter::HttpRejection::Connections);
        return;
    };

    let handle = ConnectionHandle::new(&worker.clock, open);
    let worker = Arc::clone(worker);
    let tasks = worker.tasks.clone();
    let beginning = begin_connection(
        Arc::clone(&worker),
        Arc::clone(&handle),
        stream,
        address,
        listener_config,
    );

    // Each of the two in a box: an open connection holds no more than what serves it.
    let beginning = Box::pin(beginning);
    tasks.spawn(async move {
        let place = worker.connections.enter(&handle);
        let serving = beginning.await;
        if let Some(serving) = serving {
            serving.await;
        }
        worker.connections.leave(place);
    });
}

/// Connections that the kernel keeps until they are accepted. Ten thousand clients
/// that come at once took 12 s with the usual 1024.
pub(super) const BACKLOG: i32 = 4096;

/// One worker's socket of a listener.
#[derive(Debug)]
pub struct Bound {
    /// The socket.
    pub socket: std::net::TcpListener,
    /// As what it accepts connections. It is closed once nothing is left that could change it.
    pub listener_config: watch::Receiver<ListenerConfig>,
}

/// The properties of a listener that its clients see. An edit may change it while the socket stays. All
/// connections that are accepted from then on have the new properties, also those that clients opened before.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// As configured.
    pub name: Arc<str>,
    /// TLS, if the listener has it.
    pub tls: Option<Acceptor>,
    /// True if each connection begins with the header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// True if another process accepts on the same sockets, so that this one stops.
    pub is_handed_over: bool,
}

/// Binds `count` sockets to one address, between which the kernel shares out
/// connections. Port 0 is replaced by a free one. With `shared` this process listens
/// there already, and does so beside the new sockets until it closes the old ones.
///
/// # Errors
///
/// The address is not one of this machine, in use by another process, or not
/// permitted.
pub fn bind(
    address: SocketAddr,
    count: usize,
    shared: bool,
) -> io::Result<(SocketAddr, Vec<std::net::TcpListener>)> {
    let mut address = address;
    let mut sockets = Vec::new();
    if address.port() == 0 {
        // The kernel picks a port of its own for this socket, which keeps it from then on.
        let first = open(address, true)?;
        address.set_port(local_address(&first)?.port());
        sockets.push(first);
    } else if !shared {
        // SO_REUSEPORT would share the port with another process silently.
        drop(open(address, false)?);
    }
    while sockets.len() < count.max(1) {
        sockets.push(open(address, true)?);
    }
    Ok((address, sockets.into_iter().map(Into::into).collect()))
}

/// Opens a socket that listens on `address`.
fn open(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    open_at(address, shared).or_else(|error| match without_ipv6(address, &error) {
        Some(address) => open_at(address, shared),
        None => Err(error),
    })
}

/// Returns the IPv4 form of `[::]`, if `error` says that the machine has no IPv6.
fn without_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let has_no_ipv6 = error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
    let is_every_address = address.ip() == Ipv6Addr::UNSPECIFIED;
    (has_no_ipv6 && is_every_address)
        .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
}

fn open_at(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tests::TestProxy;
    use std::os::fd::RawFd;

    fn task(proxy: &TestProxy) -> ListenerTask {
        let (_, listener_config) = watch::channel(ListenerConfig {
            name: "web".into(),
            tls: None,
            proxy_protocol: false,
            is_handed_over: false,
        });
        ListenerTask {
            worker: Arc::clone(&proxy.worker),
            listener_config,
            log_limit: LogLimit::default(),
        }
    }

    /// Takes the descriptors that `accept` returns out of a queue.
    async fn take(proxy: &TestProxy, mut accept: impl FnMut() -> io::Result<RawFd>) -> Vec<RawFd> {
        let address = "192.0.2.1:4000".parse().expect("an address");
        let accept = || accept().map(|stream| (stream, address));
        let queued = task(proxy).take_queued(accept, &mut Turns::default()).await;
        queued.into_iter().map(|(stream, _)| stream).collect()
    }

    #[tokio::test]
    async fn of_a_queue_that_never_gets_empty_no_more_is_taken_than_it_holds() {
        let taken = take(&TestProxy::new(""), || Ok(1)).await;
        assert_eq!(taken.len(), BACKLOG as usize + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_taken_to_its_end_past_clients_that_left_and_a_want_of_descriptors() {
        let proxy = TestProxy::new("");
        let aborted = || Err(io::ErrorKind::ConnectionAborted.into());
        let full = || Err(Errno::MFILE.into());
        let mut queue = [Ok(1), aborted(), full(), full(), full(), Ok(2)].into_iter();
        let accept = || queue.next().unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()));
        let before = proxy.now();
        assert_eq!(take(&proxy, accept).await, [1, 2]);
        assert_eq!(proxy.now().since(before), 3 * EXHAUSTED_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_closes_does_not_wait_for_descriptors_for_ever() {
        let proxy = TestProxy::new("");
        let mut queue = [Ok(1), Ok(2)].into_iter();
        let accept = || queue.next().unwrap_or_else(|| Err(Errno::NFILE.into()));
        let before = proxy.now();
        assert_eq!(take(&proxy, accept).await, [1, 2]);
        assert_eq!(proxy.now().since(before), EXHAUSTED_PATIENCE);
    }

    #[test]
    fn a_machine_without_ipv6_listens_on_every_address_of_ipv4() {
        let missing = io::Error::from(Errno::AFNOSUPPORT);
        let in_use = io::Error::from(Errno::ADDRINUSE);
        for (address, error, expected) in [
            ("[::]:80", &missing, Some("0.0.0.0:80")),
            ("[::]:80", &in_use, None),
            ("[::1]:80", &missing, None),
            ("0.0.0.0:80", &missing, None),
        ] {
            let address = address.parse().expect("an address");
            let expected = expected.map(|text| text.parse().expect("an address"));
            assert_eq!(without_ipv6(address, error), expected, "{address}: {error}");
        }
    }
}
