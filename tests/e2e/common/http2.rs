//! A client of HTTP/2 in cleartext that sends any frames. Fields are written without compression.

use super::connect;
use std::{
    io::{Read, Write},
    iter,
    net::{SocketAddr, TcpStream},
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut client = Self { stream: connect(address) };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("sent");
        client.send(4, 0, 0, &[]);
        client
    }

    /// Sends any frame.
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).expect("sent");
    }

    /// Sends fields: a head or trailers. With `end` they are the last.
    pub(crate) fn fields(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) {
        let block = block(fields);
        let mut parts = block.chunks(16_000).peekable();
        let mut kind = HEADERS;
        let mut flags = if end { END_STREAM } else { 0 };
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
            self.send(kind, flags | last, stream, part);
            kind = CONTINUATION;
            flags = 0;
        }
    }

    /// Sends the head of a request without a body, to which `fields` are added.
    pub(crate) fn get(&mut self, stream: u32, path: &str, fields: &[(&str, &str)]) {
        let head = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path)];
        self.fields(stream, &[&head, fields].concat(), true);
    }

    /// Sends the head of a request with a body of `length` bytes.
    pub(crate) fn post(&mut self, stream: u32, path: &str, length: &str) {
        let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", path)];
        self.fields(stream, &[&head[..], &[("content-length", length)]].concat(), false);
    }

    pub(crate) fn data(&mut self, stream: u32, bytes: &[u8]) {
        self.send(DATA, 0, stream, bytes);
    }

    /// Sends the last bytes of a body.
    pub(crate) fn last_data(&mut self, stream: u32, bytes: &[u8]) {
        self.send(DATA, END_STREAM, stream, bytes);
    }

    /// Resets a stream.
    pub(crate) fn reset(&mut self, stream: u32, code: u32) {
        self.send(3, 0, stream, &code.to_be_bytes());
    }

    /// Says that it opens no more streams, and returns when the gateway has read that.
    pub(crate) fn go_away(&mut self) {
        const MARK: &[u8] = b"8 bytes.";
        self.send(GOAWAY, 0, 0, &[0; 8]);
        self.send(PING, 0, 0, MARK);
        let mut frames = iter::from_fn(|| self.read());
        let answer = frames.find(|frame| frame.kind == PING && frame.payload == MARK);
        assert!(answer.is_some(), "the ping is not answered");
    }

    /// Reads the next frame; `None` if there is none any more.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads the next frame of a stream.
    pub(crate) fn read_of(&mut self, stream: u32) -> Option<Frame> {
        iter::from_fn(|| self.read()).find(|frame| frame.stream == stream)
    }

    /// Reads until a stream has ended, and returns its frames.
    pub(crate) fn answer(&mut self, stream: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.read() {
            if frame.stream != stream {
                continue;
            }
            let is_last = match frame.kind {
                DATA | HEADERS => frame.flags & END_STREAM != 0,
                kind => kind == 3,
            };
            frames.push(frame);
            if is_last {
                break;
            }
        }
        frames
    }
}

/// The text of an answer's body.
pub(crate) fn body(frames: &[Frame]) -> String {
    let data = frames.iter().filter(|frame| frame.kind == DATA);
    let bytes: Vec<u8> = data.flat_map(|frame| frame.payload.clone()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Encodes fields without compression (RFC 7541, 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length(text.len(), &mut block);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Writes the length of a text that is not compressed (RFC 7541, 5.1).
fn length(length: usize, block: &mut Vec<u8>) {
    if length < 127 {
        block.push(u8::try_from(length).expect("short"));
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("short") | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("short"));
}
