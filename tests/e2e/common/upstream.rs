//! Upstreams: one that answers sensibly, and one that plays a script on raw sockets.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// A server of raw connections, each served by `script` on a thread of its own.
pub(crate) struct Script {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Script {
    /// `script` gets each connection with its number, from 0.
    pub(crate) fn start(script: impl Fn(usize, Connection) + Send + Sync + 'static) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), script)
    }

    /// The same at `address`.
    pub(crate) fn start_at(
        address: SocketAddr,
        script: impl Fn(usize, Connection) + Send + Sync + 'static,
    ) -> Self {
        Self::serve(TcpListener::bind(address).expect("bound"), script)
    }

    /// The same on a listener.
    pub(crate) fn serve(
        listener: TcpListener,
        script: impl Fn(usize, Connection) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let counter = Arc::clone(&connections);
        let stopped = Arc::clone(&stop);
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let script = Arc::clone(&script);
                std::thread::spawn(move || script(number, Connection::new(stream)));
            }
        });
        Self { address, connections, stop }
    }

    /// A server that answers every request with what `answer` makes of it.
    pub(crate) fn answering(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |_, mut connection| {
            while let Some(request) = connection.read() {
                if connection.write(answer(&request)).is_none() {
                    return;
                }
            }
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

/// A request as it came over the wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// One connection of a script.
pub(crate) struct Connection {
    pub stream: BufReader<TcpStream>,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(super::PATIENCE * 3)).expect("set");
        stream.set_nodelay(true).expect("set");
        Self { stream: BufReader::new(stream) }
    }

    /// Reads one request with its body; `None` when the connection ends.
    pub(crate) fn read(&mut self) -> Option<Request> {
        let mut request = self.read_head()?;
        if request.header("transfer-encoding").is_some() {
            loop {
                let size = usize::from_str_radix(self.line()?.trim(), 16).ok()?;
                if size == 0 {
                    request.trailers = self.fields()?;
                    break;
                }
                let from = request.body.len();
                request.body.resize(from + size, 0);
                self.stream.read_exact(&mut request.body[from..]).ok()?;
                self.line()?;
            }
        } else if let Some(length) = request.header("content-length") {
            request.body = vec![0; length.parse().ok()?];
            self.stream.read_exact(&mut request.body).ok()?;
        }
        Some(request)
    }

    /// Reads a head only.
    pub(crate) fn read_head(&mut self) -> Option<Request> {
        let line = self.line()?;
        let headers = self.fields()?;
        Some(Request { line, headers, ..Request::default() })
    }

    fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(':')?;
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) -> Option<()> {
        self.stream.get_mut().write_all(bytes.as_ref()).ok()
    }
}

/// A 200 with `body`.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// An upstream that says what it was asked, as JSON: line, headers, body's length.
pub(crate) fn echo() -> Script {
    Script::answering(|request| {
        let headers: Vec<_> =
            request.headers.iter().map(|(name, value)| serde_json::json!([name, value])).collect();
        let body = serde_json::json!({
            "line": request.line, "headers": headers, "body": request.body.len(),
            "trailers": request.trailers.len(),
        });
        ok(&body.to_string())
    })
}
