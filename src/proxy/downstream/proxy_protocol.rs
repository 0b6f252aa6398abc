//! The PROXY protocol, by which a load balancer names the client for which it has opened a connection: versions 1
//! and 2, as HAProxy specifies them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a header of version 2 begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The longest header of version 1, its end included.
const LONGEST_LINE: usize = 107;

/// The most bytes that follow the first 16 of version 2: addresses and extensions.
const MOST_BYTES: usize = 4096;

/// Why there is no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// The connection ended within the header.
    Incomplete,
    /// It does not begin with a header, or with one that names no address of TCP.
    Malformed,
}

/// Reads the header that a connection begins with, and no byte more: what follows may be TLS.
/// Returns the client, or `None` if the load balancer speaks for itself or for one that it does not
/// know.
///
/// # Errors
///
/// The connection ended within the header, or does not begin with one that names an address of TCP.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<SocketAddr>, Invalid> {
    // Both versions have at least 15 bytes.
    let mut line = [0; LONGEST_LINE];
    fill(stream, &mut line[..SIGNATURE.len()]).await?;
    if line.starts_with(&SIGNATURE) {
        return read_binary(stream).await;
    }
    if !line.starts_with(b"PROXY ") {
        return Err(Invalid::Malformed);
    }

    let mut end = SIGNATURE.len();
    while !line[..end].ends_with(b"\r\n") {
        // Two bytes are missing at least, or one behind a CR.
        let next = end + if line[..end].ends_with(b"\r") { 1 } else { 2 };
        fill(stream, line.get_mut(end..next).ok_or(Invalid::Malformed)?).await?;
        end = next;
    }

    let line = str::from_utf8(&line[..end - 2]).map_err(|_| Invalid::Malformed)?;
    if line == "PROXY UNKNOWN" || line.starts_with("PROXY UNKNOWN ") {
        return Ok(None);
    }
    of_line(line).map(Some).ok_or(Invalid::Malformed)
}

async fn fill(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> Result<(), Invalid> {
    stream.read_exact(buffer).await.map(|_| ()).map_err(|_| Invalid::Incomplete)
}

/// Reads the rest of a header of version 2.
async fn read_binary(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<SocketAddr>, Invalid> {
    let mut fixed = [0; 4];
    fill(stream, &mut fixed).await?;
    let [command, family, high, low] = fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    // The version is the upper half of the command.
    if !matches!(command, 0x20 | 0x21) || length > MOST_BYTES {
        return Err(Invalid::Malformed);
    }
    let mut rest = vec![0; length];
    fill(stream, &mut rest).await?;
    // What load balancers open for themselves, as health checks, or for a family without addresses.
    if command == 0x20 || family == 0x00 {
        return Ok(None);
    }
    of_bytes(family, &rest).map(Some).ok_or(Invalid::Malformed)
}

/// Returns the client of a line without its end; `None` if it is malformed.
fn of_line(line: &str) -> Option<SocketAddr> {
    let mut words = line.strip_prefix("PROXY ")?.split(' ');
    let family = words.next()?;
    let read = |word: Option<&str>| -> Option<IpAddr> {
        match family {
            "TCP4" => word?.parse().ok().map(IpAddr::V4),
            "TCP6" => word?.parse().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let client = read(words.next())?;
    read(words.next())?;
    let from = port(words.next()?)?;
    port(words.next()?)?;
    words.next().is_none().then_some(SocketAddr::new(client, from))
}

fn port(word: &str) -> Option<u16> {
    word.parse().ok().filter(|_| word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the client of addresses in version 2; `None` if they are malformed.
fn of_bytes(family: u8, bytes: &[u8]) -> Option<SocketAddr> {
    let (client, port): (IpAddr, &[u8]) = match family {
        0x11 => {
            (Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?).into(), bytes.get(8..12)?)
        }
        0x21 => (
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?).into(),
            bytes.get(32..36)?,
        ),
        _ => return None,
    };
    let port = u16::from_be_bytes(<[u8; 2]>::try_from(port.get(..2)?).ok()?);
    Some(SocketAddr::new(client, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::task::{Context, Poll, Waker};
    use tokio::io::{AsyncWriteExt, duplex};

    /// Returns what is read of these bytes, which come in parts of so many, and what is left.
    async fn parts(bytes: &[u8], size: usize) -> (Result<Option<SocketAddr>, Invalid>, Vec<u8>) {
        let (mut client, mut stream) = duplex(size.max(1));
        let write = async {
            drop(client.write_all(bytes).await);
            drop(client);
        };
        let read = async {
            let read = read(&mut stream).await;
            let mut left = Vec::new();
            drop(stream.read_to_end(&mut left).await);
            (read, left)
        };
        tokio::join!(write, read).1
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    fn v4() -> Vec<u8> {
        vec![192, 0, 2, 7, 10, 0, 0, 1, 0x0f, 0xa0, 0, 80]
    }

    #[tokio::test]
    async fn a_header_that_is_split_anywhere_names_the_client_and_takes_no_byte_more() {
        let v6 =
            [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1], &[0; 16], &[0x0f, 0xa0, 0, 80]].concat();
        let extended = [v4(), vec![4, 0, 1, 0]].concat();
        let longest = "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n";
        for (header, client) in [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 4000 80\r\n".to_vec(), Some("192.0.2.7:4000")),
            (b"PROXY TCP6 2001:db8::1 ::1 4000 80\r\n".to_vec(), Some("[2001:db8::1]:4000")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (longest.as_bytes().to_vec(), None),
            (binary(0x21, 0x11, &v4()), Some("192.0.2.7:4000")),
            (binary(0x21, 0x11, &extended), Some("192.0.2.7:4000")),
            (binary(0x21, 0x21, &v6), Some("[2001:db8::1]:4000")),
            (binary(0x20, 0x00, &[]), None),
            (binary(0x20, 0x11, &v4()), None),
            (binary(0x21, 0x00, &[1, 2, 3]), None),
        ] {
            let client = client.map(|client| client.parse().unwrap());
            for rest in [&b""[..], b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"] {
                let bytes = [&header, rest].concat();
                for size in 1..=header.len() + 1 {
                    assert_eq!(parts(&bytes, size).await, (Ok(client), rest.to_vec()), "{bytes:?}");
                }
            }
            for end in 0..header.len() {
                assert_eq!(parts(&header[..end], 7).await.0, Err(Invalid::Incomplete), "{end}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_malformed() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107));
        let spaces = "PROXY TCP4  192.0.2.7 10.0.0.1 4000 80\r\n";
        for bytes in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4000\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4000 80 1\r\n".to_vec(),
            b"PROXY TCP4 ::1 10.0.0.1 4000 80\r\n".to_vec(),
            b"PROXY TCP6 192.0.2.7 10.0.0.1 4000 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 +400 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4000 65536\r\n".to_vec(),
            b"PROXY UDP4 192.0.2.7 10.0.0.1 4000 80\r\n".to_vec(),
            b"proxy tcp4 192.0.2.7 10.0.0.1 4000 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7\n10.0.0.1 4000 80\r\n".to_vec(),
            spaces.as_bytes().to_vec(),
            long.into_bytes(),
            binary(0x11, 0x11, &v4()),
            binary(0x22, 0x11, &v4()),
            binary(0x21, 0x12, &v4()),
            binary(0x21, 0x31, &[0; 216]),
            binary(0x21, 0x11, &v4()[..11]),
            binary(0x21, 0x21, &[0; 35]),
            binary(0x21, 0x11, &[0; 4097]),
        ] {
            assert_eq!(parts(&bytes, 1000).await.0, Err(Invalid::Malformed), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(head in 0..3_usize, bytes in vec(any::<u8>(), 0..300)) {
            let begin: [&[u8]; 3] = [b"", b"PROXY TCP4 ", &SIGNATURE];
            let bytes = [begin[head], &bytes].concat();
            let mut slice = &bytes[..];
            let future = core::pin::pin!(read(&mut slice));
            let done = future.poll(&mut Context::from_waker(Waker::noop()));
            prop_assert!(matches!(done, Poll::Ready(_)));
        }
    }
}
