//! HTTP/2 by prior knowledge, distinguished from HTTP/1.1 by the first bytes of the client.

use crate::proxy::{
    connections::options::Protocol, io::first_read::poll_first_read, message::http2_frame::PREFACE,
};
use crate::{clock::Clock, flow::Instant};
use bytes::Bytes;
use core::{future::poll_fn, time::Duration};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a client began with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) protocol: Protocol,
    /// What was read to find out.
    pub(crate) ahead: Bytes,
    /// When the first byte came.
    pub(crate) since: Instant,
}

/// Why it is not known which protocol a client speaks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unclear {
    /// It left, or said nothing.
    Unasked,
    /// It stopped within what may be the preface of HTTP/2 or a request.
    Late,
}

/// Reads until it is clear which protocol the client speaks. Its first byte may take as long as
/// `limit`, and the others as long from there, as those of a head.
///
/// # Errors
///
/// The client left, said nothing, or stopped before it was clear.
pub(crate) async fn detect(
    stream: &mut (impl AsyncRead + Unpin),
    clock: &Clock,
    limit: Duration,
) -> Result<Beginning, Unclear> {
    let first = clock.timeout(limit, poll_fn(|context| poll_first_read(stream, context))).await;
    let first = first.ok().and_then(Result::ok).filter(|first| !first.is_empty());
    let mut ahead = first.ok_or(Unclear::Unasked)?;
    let since = clock.now();
    let rest = async {
        let mut part = [0; PREFACE.len()];
        while ahead.len() < PREFACE.len() && PREFACE.starts_with(&ahead) {
            let missing = PREFACE.len() - ahead.len();
            let count = stream.read(&mut part[..missing]).await.ok()?;
            let came = Some(&part[..count]).filter(|came| !came.is_empty())?;
            ahead = Bytes::from([&ahead, came].concat());
        }
        let is_http2 = ahead.starts_with(PREFACE);
        let protocol = if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Some(Beginning { protocol, ahead, since })
    };
    match clock.timeout(limit, rest).await {
        Ok(beginning) => beginning.ok_or(Unclear::Unasked),
        Err(_) => Err(Unclear::Late),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    const LIMIT: Duration = Duration::from_secs(10);

    /// Returns what is found of a client that sends these parts, a second apart, and leaves.
    async fn detected(parts: &[&[u8]]) -> Option<(Protocol, Vec<u8>)> {
        let (mut client, mut stream) = duplex(64);
        let clock = Clock::start();
        let detecting =
            tokio::spawn(async move { detect(&mut stream, &clock, Duration::MAX).await });
        for part in parts {
            client.write_all(part).await.ok();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        drop(client);
        let detected = detecting.await.expect("no panic").ok()?;
        Some((detected.protocol, detected.ahead.to_vec()))
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_shows_the_protocol_is_due_in_one_time_from_its_first_byte() {
        let clock = Clock::start();
        let start = clock.now();
        let wait = |seconds| clock.sleep_until(clock.now() + Duration::from_secs(seconds));
        let (mut client, mut stream) = duplex(64);
        let dripping = async {
            for byte in PREFACE.chunks(1) {
                wait(4).await;
                client.write_all(byte).await.expect("sent");
            }
        };
        let detected = tokio::select! {
            detected = detect(&mut stream, &clock, LIMIT) => detected,
            () = dripping => panic!("the preface may not take 96 s"),
        };
        assert_eq!(detected, Err(Unclear::Late));
        assert_eq!(clock.now().since(start).as_secs(), 4 + LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_in_time_has_not_asked() {
        let clock = Clock::start();
        let start = clock.now();
        let (_client, mut stream) = duplex(64);
        assert_eq!(detect(&mut stream, &clock, LIMIT).await, Err(Unclear::Unasked));
        assert_eq!(clock.now().since(start), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_whole_preface_is_http_2() {
        let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(detected(&[preface]).await, Some((Protocol::Http2, preface.to_vec())));
        let slowly: Vec<_> = preface.chunks(1).collect();
        assert_eq!(detected(&slowly).await, Some((Protocol::Http2, preface.to_vec())));
        for (parts, read) in [
            (&[b"G".as_slice()][..], "G"),
            (&[b"P", b"OST / HTTP/1.1\r\n"], "POST / HTTP/1.1\r\n"),
            (&[b"PRINT / HTTP/1.1\r\n"], "PRINT / HTTP/1.1\r\n"),
            (&[b"PRI", b" * HTTP/1.1\r\n"], "PRI * HTTP/1.1\r\n"),
        ] {
            assert_eq!(detected(parts).await, Some((Protocol::Http1, read.as_bytes().to_vec())));
        }
        for parts in [&[][..], &[b"PRI * HTTP/2.0".as_slice()]] {
            assert_eq!(detected(parts).await, None);
        }
    }
}
