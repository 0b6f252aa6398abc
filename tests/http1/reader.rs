//! Reads whole connections by the codec, as a server or as a client does.

use flowgate::http1::{
    BodyDecoder, BodyLength, Fields, HeadLimits, RequestHead, RequestKind, ResponseHead,
};
use http::Version;

/// Bounds that hyper has too, so that both read the same.
pub(crate) const LIMITS: HeadLimits = HeadLimits { bytes: 16 * 1024 - 1, fields: 100 };

/// Lines of fields, names in lower case.
pub(crate) type Lines = Vec<(String, Vec<u8>)>;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Method and target, or status and nothing.
    pub(crate) line: (String, Vec<u8>),
    pub(crate) version: Version,
    pub(crate) fields: Lines,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Lines,
    pub(crate) keeps_alive: bool,
}

/// What a connection ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All bytes were messages.
    Clean,
    /// A message was not whole.
    Incomplete,
    /// A message is the last one.
    Closed,
    /// A message was rejected, with this error.
    Rejected(String),
}

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Server,
    /// With the kind of its request.
    Client(RequestKind),
}

/// Reads what comes in `pieces`.
pub(crate) fn read(pieces: &[&[u8]], role: Role) -> (Vec<Message>, End) {
    let mut messages = Vec::new();
    let mut source = pieces.iter();
    let mut buffer = Vec::new();
    loop {
        let read = match role {
            Role::Server => read_request(&mut buffer, &mut source),
            Role::Client(kind) => read_response(&mut buffer, &mut source, kind),
        };
        match read {
            Err(end) => return (messages, end),
            Ok(message) => {
                let is_last = !message.keeps_alive;
                // A client reads one final response.
                let is_final = !message.line.0.starts_with('1');
                messages.push(message);
                if is_last || (matches!(role, Role::Client(_)) && is_final) {
                    return (messages, End::Closed);
                }
            }
        }
    }
}

type Source<'a> = core::slice::Iter<'a, &'a [u8]>;

fn read_request(buffer: &mut Vec<u8>, source: &mut Source<'_>) -> Result<Message, End> {
    let mut head = RequestHead::default();
    let length = fill(buffer, source, |buffer| {
        head.parse(buffer, LIMITS).map_err(|error| format!("{error:?}"))
    })?;
    let method = String::from_utf8(head.method(buffer).to_vec()).expect("a token");
    let mut message = Message {
        line: (method, head.target(buffer).to_vec()),
        version: head.version(),
        fields: lines(head.fields(buffer)),
        body: Vec::new(),
        trailers: Vec::new(),
        keeps_alive: head.framing().keeps_alive,
    };
    buffer.drain(..length);
    read_body(buffer, source, head.framing().body, &mut message)?;
    Ok(message)
}

fn read_response(
    buffer: &mut Vec<u8>,
    source: &mut Source<'_>,
    kind: RequestKind,
) -> Result<Message, End> {
    let mut head = ResponseHead::default();
    let length = fill(buffer, source, |buffer| {
        head.parse(buffer, LIMITS, kind).map_err(|error| format!("{error:?}"))
    })?;
    let is_tunnel = head.status() == 101;
    let mut message = Message {
        line: (head.status().as_str().to_owned(), Vec::new()),
        version: head.version(),
        fields: lines(head.fields(buffer)),
        body: Vec::new(),
        trailers: Vec::new(),
        keeps_alive: (head.framing().keeps_alive || head.status().is_informational()) && !is_tunnel,
    };
    buffer.drain(..length);
    read_body(buffer, source, head.framing().body, &mut message)?;
    Ok(message)
}

/// Calls `parse` with more and more of the source, until it has a head.
fn fill(
    buffer: &mut Vec<u8>,
    source: &mut Source<'_>,
    mut parse: impl FnMut(&[u8]) -> Result<Option<usize>, String>,
) -> Result<usize, End> {
    loop {
        if let Some(length) = parse(buffer).map_err(End::Rejected)? {
            return Ok(length);
        }
        let Some(piece) = source.next() else {
            let is_clean = buffer.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
            return Err(if is_clean { End::Clean } else { End::Incomplete });
        };
        buffer.extend_from_slice(piece);
    }
}

fn read_body(
    buffer: &mut Vec<u8>,
    source: &mut Source<'_>,
    length: BodyLength,
    message: &mut Message,
) -> Result<(), End> {
    let mut decoder = BodyDecoder::new(length, LIMITS);
    while !decoder.is_end() {
        let part = decoder.decode(buffer).map_err(|error| End::Rejected(format!("{error:?}")))?;
        message.body.extend_from_slice(&buffer[part.data]);
        buffer.drain(..part.consumed);
        assert!(part.is_end || buffer.is_empty(), "bytes were left behind");
        assert_eq!(part.is_end, decoder.is_end());
        if part.is_end {
            break;
        }
        match source.next() {
            Some(piece) => buffer.extend_from_slice(piece),
            None => decoder.end().map_err(|_| End::Incomplete)?,
        }
    }
    if let Some(trailers) = decoder.trailers() {
        message.trailers = lines(trailers.fields());
    }
    Ok(())
}

pub(crate) fn lines(fields: Fields<'_>) -> Lines {
    let text = |name: &[u8]| String::from_utf8(name.to_ascii_lowercase()).expect("a token");
    fields.iter().map(|field| (text(field.name), field.value.to_vec())).collect()
}
