//! A connection that uses its heads and buffers again takes no heap memory for a message.

use crate::reader::LIMITS;
use allocation_counter::measure;
use flowgate::http1::{
    BodyDecoder, FieldKind, HeadWriter, LengthField, RequestHead, RequestKind, ResponseHead,
    chunked::{LAST_CHUNK, encode},
};
use http::{HeaderValue, Method, header::VIA};

/// A message with 32 fields.
fn message(line: &str, framing: &str) -> Vec<u8> {
    let fields = (0..27).map(|number| format!("X-Field-{number}: value {number}\r\n"));
    let fields: String = fields.collect();
    let hops = "Connection: keep-alive, x-field-3\r\nKeep-Alive: timeout=5\r\nx-b:c\r\n";
    format!("{line}\r\nHost: a.example\r\n{fields}{hops}{framing}\r\n").into_bytes()
}

#[test]
fn a_request_takes_no_heap_memory() {
    let bytes = message("POST /a?b HTTP/1.1", "Content-Length: 5\r\n");
    let mut head = RequestHead::default();
    let mut out = Vec::new();
    let via = HeaderValue::from_static("1.1 flowgate");
    let mut forward = || {
        out.clear();
        assert_eq!(head.parse(&bytes, LIMITS), Ok(Some(bytes.len())));
        assert_eq!(head.fields(&bytes).len(), 32);
        assert_eq!(head.fields(&bytes).get("via"), None);
        let mut writer = HeadWriter::request(&mut out, &Method::POST, head.target(&bytes));
        writer.copy_all(head.fields(&bytes), |kind| kind != FieldKind::Host);
        writer.field(&VIA, &via);
        writer.length(LengthField::ContentLength(5));
        writer.end();
        out.len()
    };
    assert!(forward() > 600, "the first one takes memory");
    assert_eq!(
        measure(|| assert!((0..100).map(|_| forward()).all(|length| length > 600))).count_total,
        0
    );
}

#[test]
fn a_response_with_a_chunked_body_takes_no_heap_memory() {
    let bytes = message("HTTP/1.1 200 OK", "Transfer-Encoding: chunked\r\n");
    let mut head = ResponseHead::default();
    let mut out = Vec::new();
    let chunks = b"5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n";
    let mut body = *chunks;
    let mut forward = || {
        out.clear();
        body = *chunks;
        let read = head.parse(&bytes, LIMITS, RequestKind::Other);
        assert_eq!(read, Ok(Some(bytes.len())));
        let mut writer = HeadWriter::response(&mut out, head.status(), Some(head.reason(&bytes)));
        writer.copy_all(head.fields(&bytes), |kind| kind != FieldKind::TransferEncoding);
        writer.length(LengthField::Chunked);
        writer.end();
        let mut decoder = BodyDecoder::new(head.framing().body, LIMITS);
        let part = decoder.decode(&mut body).expect("a chunked body");
        encode(&body[part.data], &mut out);
        out.extend_from_slice(LAST_CHUNK);
        assert!(out.ends_with(b"\r\n\r\n6\r\nhello!\r\n0\r\n\r\n"));
    };
    forward();
    assert_eq!(measure(|| (0..100).for_each(|_| forward())).count_total, 0);
}
