//! A WebSocket that echoes: RFC 6455 without extensions.
//!
//! Frames are sent back piece by piece as they come, so that a message of any size
//! needs one buffer. What they carry is not looked at: text is not checked to be
//! UTF-8, which the client that gets it back does anyway.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::{io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How many WebSocket connections may be open.
const MAX_TUNNELS: usize = 16_384;

/// How long a WebSocket may be silent.
const IDLE: Duration = Duration::from_hours(1);

/// What every handshake appends to the client's key: RFC 6455, section 1.3.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The status of a close frame that answers a broken frame: RFC 6455, section 7.4.1.
const PROTOCOL_ERROR: u16 = 1002;

/// The bytes that are echoed at once.
const PIECE: usize = 16 * 1024;

/// The WebSocket connections that are open.
#[derive(Clone, Debug, Default)]
pub(super) struct Tunnels {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Tunnels {
    /// Answers a handshake, and echoes on the connection once that answer is sent.
    pub(super) fn upgrade<B>(&self, mut request: Request<B>) -> Response<()> {
        let accept = match accept_key(request.headers()) {
            Ok(_) if self.tasks.len() >= MAX_TUNNELS => {
                return refusal(StatusCode::SERVICE_UNAVAILABLE);
            }
            Ok(accept) => accept,
            Err(status) => return refusal(status),
        };
        let upgraded = hyper::upgrade::on(&mut request);
        let echo = async move {
            if let Ok(upgraded) = upgraded.await {
                // A client that is gone needs no answer.
                drop(echo(BufStream::new(TokioIo::new(upgraded))).await);
            }
        };
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(echo));
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        response
    }

    /// Closes all of them.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Returns the `Sec-WebSocket-Accept` of a handshake: RFC 6455, section 4.2.2.
fn accept_key(headers: &HeaderMap) -> Result<HeaderValue, StatusCode> {
    if !has_token(headers, &header::UPGRADE, "websocket")
        || !has_token(headers, &header::CONNECTION, "upgrade")
        || headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13")
    {
        return Err(StatusCode::UPGRADE_REQUIRED);
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or(StatusCode::BAD_REQUEST)?;
    let key = key.to_str().map_err(|_| StatusCode::BAD_REQUEST)?;
    if BASE64_STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16) {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, [key, MAGIC].concat().as_bytes());
        let accept = BASE64_STANDARD.encode(hash);
        return HeaderValue::try_from(accept).map_err(|_| StatusCode::BAD_REQUEST);
    }
    Err(StatusCode::BAD_REQUEST)
}

fn has_token(headers: &HeaderMap, name: &header::HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(token))
}

fn refusal(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

/// Sends every frame back until one closes the connection.
async fn echo<S>(mut stream: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut in_message = false;
    while let Some(header) = Header::read(&mut stream).await? {
        if !header.is_sound(in_message) {
            write_header(&mut stream, Header::CLOSE, 2).await?;
            stream.write_u16(PROTOCOL_ERROR).await?;
            break;
        }
        match header.opcode() {
            Header::PONG => copy_payload(&mut stream, &header, false).await?,
            Header::PING => {
                write_header(&mut stream, Header::PONG, header.size).await?;
                copy_payload(&mut stream, &header, true).await?;
            }
            opcode => {
                write_header(&mut stream, header.first, header.size).await?;
                copy_payload(&mut stream, &header, true).await?;
                if opcode == Header::CLOSE {
                    break;
                }
                in_message = !header.is_final();
            }
        }
        stream.flush().await?;
    }
    stream.shutdown().await
}

/// The head of one frame: RFC 6455, section 5.2.
struct Header {
    /// FIN, three reserved bits and the opcode.
    first: u8,
    /// `None` if the frame is not masked, as a client's must be.
    mask: Option<[u8; 4]>,
    size: u64,
}

impl Header {
    const CONTINUATION: u8 = 0x0;
    const CLOSE: u8 = 0x8;
    const PING: u8 = 0x9;
    const PONG: u8 = 0xA;

    /// Returns `None` once the client has nothing more to send, or sends nothing.
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let Ok(first) = timeout(IDLE, stream.read_u8()).await else { return Ok(None) };
        let first = match first {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            first => first?,
        };
        let second = stream.read_u8().await?;
        let size = match second & 0x7F {
            126 => u64::from(stream.read_u16().await?),
            127 => stream.read_u64().await?,
            size => u64::from(size),
        };
        let mask = if second & 0x80 == 0 {
            None
        } else {
            let mut mask = [0; 4];
            stream.read_exact(&mut mask).await?;
            Some(mask)
        };
        Ok(Some(Self { first, mask, size }))
    }

    fn opcode(&self) -> u8 {
        self.first & 0x0F
    }

    fn is_final(&self) -> bool {
        self.first & 0x80 != 0
    }

    /// Tells whether a client may send this frame, inside a message or outside.
    fn is_sound(&self, in_message: bool) -> bool {
        let reserved = self.first & 0x70;
        let fits = match self.opcode() {
            Self::CONTINUATION => in_message,
            0x1 | 0x2 => !in_message,
            Self::CLOSE => self.is_final() && self.size <= 125 && self.size != 1,
            Self::PING | Self::PONG => self.is_final() && self.size <= 125,
            _ => false,
        };
        fits && reserved == 0 && self.mask.is_some() && i64::try_from(self.size).is_ok()
    }
}

/// Writes the head of an unmasked frame; `first` lacks FIN only in a message's middle.
async fn write_header(
    stream: &mut (impl AsyncWrite + Unpin),
    first: u8,
    size: u64,
) -> io::Result<()> {
    // Control frames are always final, and named here by their opcode alone.
    let first = if first & 0x08 == 0 { first } else { first | 0x80 };
    stream.write_u8(first).await?;
    match (u8::try_from(size), u16::try_from(size)) {
        (Ok(size @ 0..=125), _) => stream.write_u8(size).await,
        (_, Ok(size)) => {
            stream.write_u8(126).await?;
            stream.write_u16(size).await
        }
        _ => {
            stream.write_u8(127).await?;
            stream.write_u64(size).await
        }
    }
}

/// Reads a frame's payload, and writes it unmasked if `back`.
async fn copy_payload<S>(stream: &mut S, header: &Header, back: bool) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Every piece but the last is a multiple of the mask's four bytes long.
    let mask = header.mask.unwrap_or_default();
    let mut left = header.size;
    let mut piece = Vec::new();
    while left > 0 {
        piece.resize(usize::try_from(left).map_or(PIECE, |left| left.min(PIECE)), 0);
        stream.read_exact(&mut piece).await?;
        left -= piece.len() as u64;
        if back {
            piece.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
            stream.write_all(&piece).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_answers_the_example_of_the_rfc() {
        let headers = handshake("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept_key(&headers).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_handshake_that_lacks_something_is_refused() {
        assert_eq!(accept_key(&handshake("c2hvcnQ=")), Err(StatusCode::BAD_REQUEST));
        for missing in [header::UPGRADE, header::CONNECTION, header::SEC_WEBSOCKET_VERSION] {
            let mut headers = handshake("dGhlIHNhbXBsZSBub25jZQ==");
            headers.remove(missing);
            assert_eq!(accept_key(&headers), Err(StatusCode::UPGRADE_REQUIRED));
        }
    }

    #[tokio::test]
    async fn a_message_comes_back_unmasked_with_its_fragments() {
        // "Hel" and "lo" as two masked fragments, a ping between them, then the end.
        let sent = [
            &[0x01, 0x83, 1, 2, 3, 4, b'H' ^ 1, b'e' ^ 2, b'l' ^ 3][..],
            &[0x89, 0x81, 9, 9, 9, 9, b'?' ^ 9],
            &[0x80, 0x82, 5, 6, 7, 8, b'l' ^ 5, b'o' ^ 6],
            &[0x88, 0x80, 0, 0, 0, 0],
        ];
        let expected = [&b"\x01\x03Hel"[..], b"\x8A\x01?", b"\x80\x02lo", b"\x88\x00"];
        assert_eq!(talk(&sent.concat()).await, expected.concat());
    }

    #[tokio::test]
    async fn sizes_are_written_in_their_shortest_form() {
        for (size, head) in [
            (125, vec![0x82, 125]),
            (126, vec![0x82, 126, 0, 126]),
            (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut sent = head.clone();
            sent[1] |= 0x80;
            sent.extend([0; 4]);
            sent.resize(sent.len() + size, b'x');
            let mut expected = head;
            expected.resize(expected.len() + size, b'x');
            assert_eq!(talk(&sent).await, expected);
        }
    }

    #[tokio::test]
    async fn a_broken_frame_ends_the_connection_with_1002() {
        let unmasked = [0x81, 0x01, b'x'];
        let reserved = [0xC1, 0x80, 0, 0, 0, 0];
        let endless = [0x80, 0x80, 0, 0, 0, 0];
        let unknown = [0x83, 0x80, 0, 0, 0, 0];
        let open_ping = [0x09, 0x80, 0, 0, 0, 0];
        let interrupted = [0x01, 0x80, 0, 0, 0, 0, 0x81, 0x80, 0, 0, 0, 0];
        let close = b"\x88\x02\x03\xEA";
        for broken in [&unmasked[..], &reserved, &endless, &unknown, &open_ping] {
            assert_eq!(talk(broken).await, close);
        }
        assert_eq!(talk(&interrupted).await, [b"\x01\x00", &close[..]].concat());
    }

    /// Sends bytes and the end, and returns all that comes back.
    async fn talk(sent: &[u8]) -> Vec<u8> {
        let (client, server) = tokio::io::duplex(256 * 1024);
        let (mut from, mut to) = tokio::io::split(client);
        let server = tokio::spawn(echo(server));
        to.write_all(sent).await.unwrap();
        to.shutdown().await.unwrap();
        let mut received = Vec::new();
        from.read_to_end(&mut received).await.unwrap();
        server.await.unwrap().unwrap();
        received
    }

    fn handshake(key: &str) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        HeaderMap::from_iter([
            (header::UPGRADE, value("WebSocket")),
            (header::CONNECTION, value("keep-alive, Upgrade")),
            (header::SEC_WEBSOCKET_VERSION, value("13")),
            (header::SEC_WEBSOCKET_KEY, value(key)),
        ])
    }
}
