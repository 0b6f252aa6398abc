//! Accepts connections, and closes those that are too many.

use super::{
    begin::begin_connection,
    bind::{BACKLOG, ListenSocket, of_unix},
    tls::Acceptor,
};
use crate::meter;
use crate::proxy::{
    connections::registry::ConnectionHandle, request_log::LogLimit, worker::Worker,
};
use core::{net::SocketAddr, time::Duration};
use std::{io, os::fd::AsRawFd, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener},
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
    let listener = match Listening::new(socket) {
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

/// A socket that waits for connections.
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    fn new(socket: ListenSocket) -> io::Result<Self> {
        match socket {
            ListenSocket::Tcp(socket) => TcpListener::from_std(socket).map(Self::Tcp),
            ListenSocket::Unix(socket) => UnixListener::from_std(socket).map(Self::Unix),
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await,
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let (stream, address) = of_unix(stream.into_std()?);
                Ok((TcpStream::from_std(stream)?, address))
            }
        }
    }

    /// Returns the socket without tokio.
    fn into_std(self) -> io::Result<ListenSocket> {
        match self {
            Self::Tcp(listener) => listener.into_std().map(ListenSocket::Tcp),
            Self::Unix(listener) => listener.into_std().map(ListenSocket::Unix),
        }
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

/// One worker's socket of a listener.
#[derive(Debug)]
pub struct Bound {
    /// The socket.
    pub socket: ListenSocket,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tests::TestProxy;
    use rustix::io::Errno;
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
}
