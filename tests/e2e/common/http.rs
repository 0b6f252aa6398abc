//! An HTTP/1.1 client that hides nothing.

use super::connect;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// Whether the end of the body was seen.
    pub complete: bool,
}

impl Answer {
    /// The first value of a field.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }
}

/// A connection that is kept open between requests.
pub(crate) struct Client {
    pub stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { stream: BufReader::new(connect(address)) }
    }

    /// Sends `bytes` as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("sent");
    }

    /// Sends a request without a body and reads the answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(head(method, path, fields));
        self.read(method)
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    /// Reads the answer to a request of `method`; interim ones are passed over.
    #[track_caller]
    pub(crate) fn read(&mut self, method: &str) -> Answer {
        self.try_read(method).expect("an answer")
    }

    /// `None` if the connection ended before the head of an answer was whole.
    pub(crate) fn try_read(&mut self, method: &str) -> Option<Answer> {
        loop {
            let answer = self.read_head()?;
            if answer.status == 101 || answer.status >= 200 {
                return Some(self.read_body(answer, method));
            }
        }
    }

    /// Reads one head, interim or not.
    pub(crate) fn read_head(&mut self) -> Option<Answer> {
        let line = self.line()?;
        let mut words = line.splitn(3, ' ');
        assert!(words.next()?.starts_with("HTTP/1."), "not HTTP: {line:?}");
        let status = words.next()?.parse().ok()?;
        let headers = self.fields()?;
        Some(Answer { status, headers, ..Answer::default() })
    }

    fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(':')?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).ok()?;
        (read > 0 && line.ends_with('\n')).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Reads the body after a head.
    pub(crate) fn read_body(&mut self, mut answer: Answer, method: &str) -> Answer {
        if method == "HEAD" || matches!(answer.status, 101 | 204 | 304) {
            answer.complete = true;
        } else if answer.header("transfer-encoding").is_some() {
            answer.complete = self.read_chunks(&mut answer).is_some();
        } else if let Some(length) = answer.header("content-length") {
            let length: u64 = length.parse().expect("a length");
            let stream = self.stream.by_ref();
            drop(stream.take(length).read_to_end(&mut answer.body));
            answer.complete = answer.body.len() as u64 == length;
        } else {
            answer.complete = self.stream.read_to_end(&mut answer.body).is_ok();
        }
        answer
    }

    /// Reads one chunk of a body; `None` after the last.
    pub(crate) fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(self.line()?.split(';').next()?.trim(), 16).ok()?;
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk).ok()?;
        self.line()?;
        (size > 0).then_some(chunk)
    }

    fn read_chunks(&mut self, answer: &mut Answer) -> Option<()> {
        loop {
            let size = self.line()?;
            let size = u64::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
            if size == 0 {
                answer.trailers = self.fields()?;
                return Some(());
            }
            let before = answer.body.len() as u64;
            self.stream.by_ref().take(size).read_to_end(&mut answer.body).ok()?;
            if answer.body.len() as u64 - before != size || !self.line()?.is_empty() {
                return None;
            }
        }
    }

    /// Whether the other side closes without sending anything more.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.stream.read(&mut byte), Ok(0) | Err(_))
    }
}

/// A request's head; `Host` is added unless given.
pub(crate) fn head(method: &str, path: &str, fields: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str("Host: gateway.test\r\n");
    }
    for (name, value) in fields {
        head += name;
        head += ": ";
        head += value;
        head += "\r\n";
    }
    head.push_str("\r\n");
    head
}

/// One GET on a connection of its own.
#[track_caller]
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    Client::new(address).get(path)
}

/// One GET of the admin listener, by a name that it takes for its own. A test that asks too often
/// asks again.
#[track_caller]
pub(crate) fn ask(admin: SocketAddr, path: &str) -> Answer {
    loop {
        let answer = Client::new(admin).request("GET", path, &[("host", "localhost")]);
        if answer.status != 429 {
            return answer;
        }
        super::pause();
    }
}

/// Sends raw bytes on a connection of its own and reads one answer.
pub(crate) fn raw(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Option<Answer> {
    let mut client = Client::new(address);
    client.send(bytes);
    client.try_read("GET")
}

/// The statuses of `count` GETs over one connection.
#[track_caller]
pub(crate) fn statuses(address: SocketAddr, path: &str, count: usize) -> Vec<u16> {
    let mut client = Client::new(address);
    (0..count).map(|_| client.get(path).status).collect()
}
