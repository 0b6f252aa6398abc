//! Random messages: most of them nearly valid, as those are the interesting ones.

use bytes::Bytes;
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

/// What servers disagree about.
pub(crate) const TOKENS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "\n\n",
    " ",
    "\t",
    "\0",
    ":",
    ",",
    ";",
    "0",
    "1",
    "5",
    "a",
    "\x7f",
    "\u{e9}",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/2.0",
    "GET / HTTP/1.1\r\n",
    "POST /a?b HTTP/1.1\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.0 204\r\n",
    "Host: a\r\n",
    "Content-Length: 5\r\n",
    "content-length: 0\r\n",
    "Content-Length: 1, 1\r\n",
    "content-length: +1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "Transfer-Encoding: x\r\n",
    "transfer-encoding:chunked\r\n",
    "Connection: close\r\n",
    "connection: keep-alive\r\n",
    "connection: x-a, te\r\n",
    "x-a: b\r\n",
    " folded\r\n",
    "a : b\r\n",
    "Upgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "1\r\na\r\n",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nt: u\r\n\r\n",
    "A;b=c\r\n",
    "00000000000000000",
    "ffffffffffffffff",
    "hello",
];

const REQUEST_LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /a HTTP/1.1\r\n",
    "PUT /a/%41?b=c HTTP/1.1\r\n",
    "HEAD /h HTTP/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "GET http://a.example/b HTTP/1.1\r\n",
    "GET / HTTP/1.0\r\n",
    "\r\nDELETE /d HTTP/1.1\r\n",
    "GET /\"<>`{|}?\"<>`{|} HTTP/1.1\r\n",
    "x!y / HTTP/1.1\r\n",
    "GET /\u{e9}#f HTTP/1.1\r\n",
];

const STATUS_LINES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 404 \r\n",
    "HTTP/1.1 500\r\n",
    "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 \r\n\r\nHTTP/1.1 100 \r\n\r\nHTTP/1.1 201 x\r\n",
    "HTTP/1.1 599 \u{e9}\r\n",
];

const FIELDS: &[&str] = &[
    "Host: a.example\r\n",
    "content-length: 5\r\n",
    "Content-Length: 0\r\n",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "connection: keep-alive\r\n",
    "Connection: x-a\r\n",
    "X-A: b\r\n",
    "cookie: a=b; c=d\r\n",
    "accept:*/*\r\n",
    "x-empty:\r\n",
    "x-blank: \t v \r\n",
    "te: trailers\r\n",
    "trailer: t\r\n",
    "expect: 100-continue\r\n",
    "upgrade: websocket\r\n",
    "keep-alive: 5\r\n",
    "x-a: \u{e9}\r\n",
];

const BODIES: &[&str] = &[
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "1\r\na\r\n1;x=y\r\nb\r\n0\r\n\r\n",
    "0\r\n\r\n",
    "3 \r\nabc\r\n000\r\nt: u\r\nv: w\r\n\r\n",
    "A\r\n0123456789\r\n0\r\nT:\r\n\r\n",
];

#[derive(Clone, Debug)]
enum Change {
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Replace(Index, u8),
    Repeat(Index, usize),
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let token = select(TOKENS).prop_map(|token| token.as_bytes().to_vec());
    prop_oneof![
        2 => (any::<Index>(), 1..9_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        4 => (any::<Index>(), token).prop_map(|(at, token)| Change::Insert(at, token)),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        1 => (any::<Index>(), 1..30_usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        1 => any::<Index>().prop_map(Change::Cut),
    ]
}

impl Change {
    fn apply(self, bytes: &mut Vec<u8>) {
        let (index, length) = match &self {
            Self::Remove(at, length) | Self::Repeat(at, length) => (at, *length),
            Self::Insert(at, _) | Self::Replace(at, _) | Self::Cut(at) => (at, 0),
        };
        let at = index.index(bytes.len() + 1);
        let end = (at + length).min(bytes.len());
        match self {
            Self::Remove(..) => drop(bytes.drain(at..end)),
            Self::Insert(_, token) => drop(bytes.splice(at..at, token)),
            Self::Replace(_, byte) => {
                if let Some(old) = bytes.get_mut(at) {
                    *old = byte;
                }
            }
            Self::Repeat(..) => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            Self::Cut(_) => bytes.truncate(at),
        }
    }
}

/// Some messages with these first lines, changed here and there.
fn messages(lines: &'static [&'static str]) -> impl Strategy<Value = Bytes> {
    let message = (select(lines), vec(select(FIELDS), 0..5), select(BODIES)).prop_map(
        |(line, fields, body)| {
            // One kind of framing, that fits the body more often than not.
            let framing = match body {
                "" => "",
                "hello" => "content-length: 5\r\n",
                _ => "transfer-encoding: chunked\r\n",
            };
            let is_framing = |field: &&&str| {
                field.to_ascii_lowercase().starts_with("content-length")
                    || field.starts_with(['t', 'T'])
            };
            let fields: String = fields
                .iter()
                .filter(|field| !is_framing(field) || framing.is_empty())
                .copied()
                .collect();
            format!("{line}{framing}{fields}\r\n{body}").into_bytes()
        },
    );
    let changes = prop_oneof![1 => Just(Vec::new()), 3 => vec(change(), 1..5)];
    (vec(message, 1..3), changes).prop_map(|(messages, changes)| {
        let mut bytes = messages.concat();
        for change in changes {
            change.apply(&mut bytes);
        }
        Bytes::from(bytes)
    })
}

/// Bytes by chance: nothing else, after a first line, or after a whole header.
fn bytes(lines: &'static [&'static str]) -> impl Strategy<Value = Bytes> {
    const STARTS: &[&str] = &["", "\r\n", "transfer-encoding: chunked\r\n\r\n"];
    let start = (select(lines), select(STARTS)).prop_map(|(line, rest)| format!("{line}{rest}"));
    let start = prop_oneof![Just(String::new()), start];
    (start, vec(any::<u8>(), 0..300))
        .prop_map(|(start, bytes)| [start.as_bytes(), &bytes].concat().into())
}

pub(crate) fn requests() -> impl Strategy<Value = Bytes> {
    prop_oneof![5 => messages(REQUEST_LINES), 1 => bytes(REQUEST_LINES)]
}

pub(crate) fn responses() -> impl Strategy<Value = Bytes> {
    prop_oneof![5 => messages(STATUS_LINES), 1 => bytes(STATUS_LINES)]
}

/// Chunked bodies.
pub(crate) fn chunked() -> impl Strategy<Value = Bytes> {
    let part = prop_oneof![
        select(
            &[
                "1\r\na\r\n",
                "5\r\nhello\r\n",
                "2;x=\"y\"\r\nbc\r\n",
                "3 \t\r\nabc\r\n",
                "0a\r\n0123456789\r\n"
            ][..]
        )
        .prop_map(|part| part.as_bytes().to_vec()),
        vec(any::<u8>(), 1..40).prop_map(|data| {
            [format!("{:X}\r\n", data.len()).as_bytes(), &data, b"\r\n"].concat()
        }),
    ];
    let end = select(&["0\r\n\r\n", "000\r\na: b\r\nC:d\r\n\r\n", "0;e\r\n\r\nGET", ""][..]);
    let changes = prop_oneof![1 => Just(Vec::new()), 2 => vec(change(), 1..4)];
    (vec(part, 0..6), end, changes).prop_map(|(parts, end, changes)| {
        let mut bytes = [parts.concat().as_slice(), end.as_bytes()].concat();
        for change in changes {
            change.apply(&mut bytes);
        }
        Bytes::from(bytes)
    })
}
