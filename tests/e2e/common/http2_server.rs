//! Upstreams that speak HTTP/2: one that plays a script of frames, and one that does as it should.

use super::{
    http2::Frame,
    upstream::{Connection, Script},
};
use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use std::{
    io::Read,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    runtime,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One connection to a server of frames.
pub(crate) struct Frames {
    connection: Connection,
}

/// A server that plays `script` on each connection, which has its number, from 0. `settings` is what
/// it announces.
pub(crate) fn scripted(
    settings: &'static [u8],
    script: impl Fn(usize, Frames) + Send + Sync + 'static,
) -> Script {
    Script::start(move |number, connection| {
        let mut frames = Frames { connection };
        let mut preface = [0; 24];
        if frames.connection.stream.read_exact(&mut preface).is_err() {
            return;
        }
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames.write(SETTINGS, 0, 0, settings);
        // Room for large requests.
        frames.write(WINDOW_UPDATE, 0, 0, &(1_u32 << 24).to_be_bytes());
        script(number, frames);
    })
}

impl Frames {
    pub(crate) fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        // The other side may have gone.
        let _written = self.connection.write(frame);
    }

    /// Reads the next frame; `None` if there is none any more.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.connection.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.connection.stream.read_exact(&mut payload).ok()?;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads until one of this kind comes.
    pub(crate) fn read_kind(&mut self, kind: u8) -> Option<Frame> {
        std::iter::from_fn(|| self.read()).find(|frame| frame.kind == kind)
    }

    /// Reads a whole request, and returns its stream and its body.
    pub(crate) fn request(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut body = Vec::new();
        loop {
            let frame = self.read()?;
            if frame.kind == DATA {
                body.extend_from_slice(&frame.payload);
            }
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                return Some((frame.stream, body));
            }
        }
    }

    /// Answers 200 with `body`.
    pub(crate) fn answer(&mut self, stream: u32, body: &[u8]) {
        self.head(stream);
        self.write(DATA, END_STREAM, stream, body);
    }

    /// Begins to answer 200.
    pub(crate) fn head(&mut self, stream: u32) {
        // `:status: 200` by its index in HPACK's static table.
        self.write(HEADERS, END_HEADERS, stream, &[0x88]);
    }

    pub(crate) fn reset(&mut self, stream: u32, code: u32) {
        self.write(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    /// Announces the end, after the requests up to `last`.
    pub(crate) fn go_away(&mut self, last: u32, code: u32) {
        self.write(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat());
    }
}

/// A server that answers as it should.
pub(crate) struct Http2Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    /// The protocol of each TLS connection.
    pub chosen: Arc<Mutex<Vec<Option<Vec<u8>>>>>,
}

impl Http2Server {
    /// With `tls` over TLS.
    pub(crate) fn start(tls: Option<ServerConfig>) -> Self {
        let connections = Arc::<AtomicUsize>::default();
        let chosen = Arc::<Mutex<Vec<_>>>::default();
        let (bound, address) = std::sync::mpsc::channel();
        let counter = Arc::clone(&connections);
        let noted = Arc::clone(&chosen);
        std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
                bound.send(listener.local_addr().expect("an address")).expect("awaited");
                let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
                while let Ok((stream, _)) = listener.accept().await {
                    counter.fetch_add(1, Ordering::SeqCst);
                    let acceptor = acceptor.clone();
                    let noted = Arc::clone(&noted);
                    tokio::spawn(async move {
                        let Some(acceptor) = acceptor else { return serve(stream).await };
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
                        noted.lock().expect("no panic").push(protocol.clone());
                        if protocol.as_deref() == Some(b"h2") {
                            serve(stream).await;
                        } else {
                            serve_http1(stream).await;
                        }
                    });
                }
            });
        });
        let address = address.recv().expect("bound");
        Self { address, connections, chosen }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve<T: AsyncRead + AsyncWrite + Unpin>(stream: T) {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(async move { drop(answer(request, respond).await) });
    }
}

/// Answers with what the head was in the first line, then the body as it comes, then a trailer.
async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let fields: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?")))
        .collect();
    let first = format!("{} {} [{}]\n", head.method, head.uri, fields.join(", "));
    let mut answer = respond.send_response(Response::new(()), false)?;
    answer.send_data(first.into(), false)?;
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        answer.send_data(part, false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    let sent = body.trailers().await?.map_or(0, |trailers| trailers.len());
    trailers.insert("x-trailers", sent.into());
    answer.send_trailers(trailers)
}

/// Answers one request without a body.
async fn serve_http1<T: AsyncRead + AsyncWrite + Unpin>(mut stream: T) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let answer = if head.contains("upgrade: websocket") {
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    } else {
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nHTTP/1.1"
    };
    let _written = stream.write_all(answer.as_bytes()).await;
    let _flushed = stream.flush().await;
    if answer.contains("101") {
        let _ended = stream.read_u8().await;
    }
}
