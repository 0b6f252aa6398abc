//! HTTP/2 by prior knowledge, told from HTTP/1.1 by what the client begins with.

use super::{connection::Protocol, io::PREFACE};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads until it is clear which protocol the client speaks. Returns it and what was
/// read, or `None` if the client left before.
pub(super) async fn sniff(stream: &mut (impl AsyncRead + Unpin)) -> Option<(Protocol, Bytes)> {
    let mut first = [0; PREFACE.len()];
    let mut count = 0;
    loop {
        let read = stream.read(first.get_mut(count..)?).await.ok()?;
        count += read;
        let seen = first.get(..count).filter(|_| read > 0)?;
        let protocol = match PREFACE.strip_prefix(seen) {
            None => Protocol::Http1,
            Some([]) => Protocol::Http2,
            Some(_) => continue,
        };
        return Some((protocol, Bytes::copy_from_slice(seen)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use tokio::io::{AsyncWriteExt, duplex};

    /// What is told of a client that sends these parts and leaves.
    async fn told(parts: &[&[u8]]) -> Option<(Protocol, Vec<u8>)> {
        let (mut client, mut stream) = duplex(64);
        let sniffing = tokio::spawn(async move { sniff(&mut stream).await });
        for part in parts {
            client.write_all(part).await.ok();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        drop(client);
        let told = sniffing.await.expect("no panic");
        told.map(|(protocol, bytes)| (protocol, bytes.to_vec()))
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_whole_preface_is_http_2() {
        let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(told(&[preface]).await, Some((Protocol::Http2, preface.to_vec())));
        let slowly: Vec<_> = preface.chunks(1).collect();
        assert_eq!(told(&slowly).await, Some((Protocol::Http2, preface.to_vec())));
        for (parts, read) in [
            (&[b"G".as_slice()][..], "G"),
            (&[b"P", b"OST / HTTP/1.1\r\n"], "POST / HTTP/1.1\r\n"),
            (&[b"PRINT / HTTP/1.1\r\n"], "PRINT / HTTP/1.1\r\n"),
            (&[b"PRI", b" * HTTP/1.1\r\n"], "PRI * HTTP/1.1\r\n"),
        ] {
            assert_eq!(told(parts).await, Some((Protocol::Http1, read.as_bytes().to_vec())));
        }
        for parts in [&[][..], &[b"PRI * HTTP/2.0".as_slice()]] {
            assert_eq!(told(parts).await, None);
        }
    }
}
