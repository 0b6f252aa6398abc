//! What it costs to read and write HTTP/1.1 messages.
//!
//! `cargo bench --manifest-path fuzz/Cargo.toml --bench http1` prints the tables; it builds the codec
//! alone, in seconds. Each figure is the best of some rounds of one
//! thread, which other work on the machine disturbs the least.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use core::{hint::black_box, time::Duration};
use flowgate::http1::{
    FieldKind, HeadLimits, HeadWriter, LengthField, RequestHead, RequestKind, ResponseHead,
    chunked::{ChunkedDecoder, encode},
};
use http::{HeaderValue, Method, header::HOST};

/// Rounds to take the best of.
const ROUNDS: usize = 25;

/// Heads in a round.
const HEADS: u32 = 20_000;

const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 100 };

const SMALL: &str = "GET /api/orders/17 HTTP/1.1\r\nHost: gateway.example.com\r\nUser-Agent: curl/8.5.0\r\n\
    Accept: */*\r\n\r\n";

const BROWSER: &str = "GET /api/orders/17?expand=items HTTP/1.1\r\nHost: gateway.example.com\r\n\
    Connection: keep-alive\r\nsec-ch-ua: \"Chromium\";v=\"124\", \"Not-A.Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/124.0.0.0 Safari/537.36\r\nAccept: application/json, text/plain, */*\r\n\
    Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\nReferer: https://gateway.example.com/orders\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n";

const RESPONSE: &str = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
    Content-Type: application/json\r\nContent-Length: 512\r\nConnection: keep-alive\r\n\
    ETag: \"65920080-200\"\r\nCache-Control: no-cache\r\n\r\n";

fn main() {
    println!("{:<44}{:>10}{:>10}{:>12}", "ns a head", "read", "write", "byte by byte");
    heads("request, 3 fields", SMALL);
    heads("request, 12 fields", BROWSER);
    let read = response_read();
    let write = response_write();
    println!("{:<44}{read:>10.0}{write:>10.0}", "response, 7 fields");
    println!("\n{:<44}{:>10}{:>12}", "chunked, of data", "MB/s", "ms a MiB");
    for (name, size) in [("1 byte", 1), ("16 bytes", 16), ("1 KiB", 1024), ("16 KiB", 16 * 1024)] {
        decoding(name, size);
    }
    let data = vec![b'a'; 16 * 1024];
    let mut out = Vec::with_capacity(32 * 1024);
    throughput("encoding chunks of 16 KiB", || {
        out.clear();
        encode(black_box(&data), &mut out);
        data.len()
    });
}

fn heads(name: &str, text: &str) {
    let bytes = text.as_bytes();
    let mut head = RequestHead::default();
    let read = best(|| head.parse(black_box(bytes), LIMITS).expect("a head"));
    let mut out = Vec::new();
    let host = HeaderValue::from_static("gateway.example.com");
    let write = best(|| {
        out.clear();
        let mut writer = HeadWriter::request(&mut out, &Method::GET, head.target(bytes));
        writer.copy_all(head.fields(black_box(bytes)), |kind| kind != FieldKind::Host);
        writer.field(&HOST, &host);
        writer.length(LengthField::None);
        writer.end();
        black_box(out.len())
    });
    let pieces = best(|| {
        for end in 1..bytes.len() {
            assert_eq!(head.parse(black_box(&bytes[..end]), LIMITS), Ok(None));
        }
        head.parse(bytes, LIMITS).expect("a head")
    });
    println!("{name:<44}{read:>10.0}{write:>10.0}{pieces:>12.0}");
}

fn response_read() -> f64 {
    let mut head = ResponseHead::default();
    let bytes = RESPONSE.as_bytes();
    best(|| head.parse(black_box(bytes), LIMITS, RequestKind::Other).expect("a head"))
}

fn response_write() -> f64 {
    let mut head = ResponseHead::default();
    let bytes = RESPONSE.as_bytes();
    head.parse(bytes, LIMITS, RequestKind::Other).expect("a head");
    let mut out = Vec::new();
    best(|| {
        out.clear();
        let mut writer = HeadWriter::response(&mut out, head.status(), Some(head.reason(bytes)));
        writer.copy_all(head.fields(black_box(bytes)), |kind| kind != FieldKind::ContentLength);
        writer.length(LengthField::ContentLength(512));
        writer.end();
        black_box(out.len())
    })
}

/// Decodes chunks of `size` bytes, in parts as large as a read.
fn decoding(name: &str, size: usize) {
    let mut encoded = Vec::new();
    while encoded.len() < 256 * 1024 {
        encode(&vec![b'a'; size], &mut encoded);
    }
    let mut buffer = [0; 16 * 1024];
    let name = format!("decoding chunks of {name}");
    throughput(&name, || {
        let mut decoder = ChunkedDecoder::new(LIMITS);
        let mut data = 0;
        for part in encoded.chunks(buffer.len()) {
            let buffer = &mut buffer[..part.len()];
            buffer.copy_from_slice(part);
            data += decoder.decode(buffer).expect("chunks").data.len();
        }
        data
    });
}

/// Prints how fast `work` is, which returns how many bytes it did.
fn throughput(name: &str, mut work: impl FnMut() -> usize) {
    let bytes = work();
    let mut fastest = Duration::MAX;
    for _ in 0..ROUNDS {
        let ten = elapsed(|| {
            for _ in 0..10 {
                black_box(work());
            }
        });
        fastest = fastest.min(ten / 10);
    }
    let rate = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / fastest.as_secs_f64();
    println!("{name:<44}{:>10.0}{:>12.2}", rate / 1e6, 1024.0 * 1024.0 / rate * 1e3);
}

/// Returns the nanoseconds of one call.
fn best<T>(mut work: impl FnMut() -> T) -> f64 {
    let mut fastest = Duration::MAX;
    for _ in 0..ROUNDS {
        fastest = fastest.min(elapsed(|| (0..HEADS).for_each(|_| drop(black_box(work())))));
    }
    fastest.as_secs_f64() * 1e9 / f64::from(HEADS)
}

#[expect(clippy::disallowed_types, reason = "a benchmark measures by the machine's clock")]
fn elapsed(round: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    round();
    start.elapsed()
}
