//! Heads as they are written: RFC 9110, section 7.6.1, and RFC 9112, sections 3 to 6.

use crate::{
    generate,
    reader::{LIMITS, Lines, lines},
};
use bytes::Bytes;
use flowgate::http1::{
    Field, FieldKind, Fields, HeadWriter, LengthField, RequestHead, RequestKind, ResponseHead,
    write_trailers,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::HOST};
use proptest::prelude::*;

/// What is written of these fields as trailers.
fn as_trailers(fields: &str) -> String {
    let bytes = format!("GET / HTTP/1.1\r\n{fields}\r\n");
    let mut head = RequestHead::default();
    head.parse(bytes.as_bytes(), LIMITS).expect("a head").expect("a whole one");
    let mut out = Vec::new();
    write_trailers(head.fields(bytes.as_bytes()), &mut out, |_| true);
    let text = String::from_utf8(out).expect("text");
    text.strip_prefix("0\r\n").expect("the last chunk").to_owned()
}

#[test]
fn trailers_have_nothing_that_is_for_one_neighbour() {
    for (section, fields, expected) in [
        ("9112 5: as it came", "X-a: a\r\nX-Y: Z\r\n", "X-a: a\r\nX-Y: Z\r\n\r\n"),
        ("9112 5: blanks are not kept", "a:b\r\nc: \td \r\ne:\r\n", "a: b\r\nc: d\r\ne: \r\n\r\n"),
        ("9112 2.2: nor a bare LF", "a: b\nc: d\n", "a: b\r\nc: d\r\n\r\n"),
        (
            "9110 7.6.1",
            "a: b\r\nConnection: keep-alive\r\nKeep-Alive: x\r\nc: d\r\n",
            "a: b\r\nc: d\r\n\r\n",
        ),
        (
            "9110 7.6.1: what it names",
            "X-A: b\r\nConnection: close, x-a\r\nx-b: c\r\n",
            "x-b: c\r\n\r\n",
        ),
        (
            "9110 7.6.1: in any line",
            "connection: x-a\r\nx-a: b\r\nconnection:\tX-B ,,\r\nx-b: c\r\n",
            "\r\n",
        ),
        (
            "9110 7.6.1: not these",
            "connection: cookie, x-forwarded-for, forwarded\r\ncookie: b\r\nx-forwarded-for: c\r\nforwarded: d\r\n",
            "cookie: b\r\nx-forwarded-for: c\r\nforwarded: d\r\n\r\n",
        ),
        ("9110 6.5.1: nor Host", "Host: a\r\na: b\r\n", "a: b\r\n\r\n"),
        ("9112 6: framing is made anew", "content-length: 5\r\na: b\r\n", "a: b\r\n\r\n"),
        ("9112 6", "transfer-encoding: chunked\r\na: b\r\n", "a: b\r\n\r\n"),
        (
            "9110 7.6.1",
            "te: trailers\r\nupgrade: h2c\r\nhttp2-settings: a\r\nproxy-connection: b\r\nproxy-authorization: c\r\nproxy-authenticate: d\r\n",
            "\r\n",
        ),
        ("9110 6.6.2: the caller's to judge", "trailer: a\r\n", "trailer: a\r\n\r\n"),
    ] {
        assert_eq!(as_trailers(fields), expected, "{section}: {fields:?}");
    }
}

#[test]
fn fields_are_added_behind_what_is_copied() {
    let bytes = b"PUT /a?b HTTP/1.1\r\nHost: a\r\nVia: b\r\nX: y\r\n\r\n";
    let mut head = RequestHead::default();
    head.parse(bytes, LIMITS).expect("a head");
    let mut out = b"before ".to_vec();
    let mut writer = HeadWriter::request(&mut out, &Method::PUT, head.target(bytes));
    writer.copy_all(head.fields(bytes), |kind| kind != FieldKind::Host);
    writer.field(&HOST, &HeaderValue::from_static("b"));
    writer.length(LengthField::ContentLength(u64::MAX));
    writer.end();
    let expected = "before PUT /a?b HTTP/1.1\r\nVia: b\r\nX: y\r\nhost: b\r\n\
        content-length: 18446744073709551615\r\n\r\n";
    assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
}

#[test]
fn a_response_is_written_for_its_client() {
    for (status, reason, add, expected) in [
        (200, None, "length", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"),
        (
            404,
            Some(&b"Gone Fishing"[..]),
            "chunked",
            "HTTP/1.1 404 Gone Fishing\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (599, None, "none", "HTTP/1.1 599 \r\n\r\n"),
        (200, Some(b""), "close", "HTTP/1.1 200 \r\nconnection: close\r\n\r\n"),
        (200, None, "keep-alive", "HTTP/1.1 200 OK\r\nconnection: keep-alive\r\n\r\n"),
    ] {
        let mut out = Vec::new();
        let status = StatusCode::from_u16(status).expect("a status");
        let mut writer = HeadWriter::response(&mut out, status, reason);
        match add {
            "length" => writer.length(LengthField::ContentLength(3)),
            "chunked" => writer.length(LengthField::Chunked),
            "close" => writer.close(),
            "keep-alive" => writer.keep_alive(),
            _ => writer.length(LengthField::None),
        }
        writer.end();
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
    }
}

#[test]
fn both_kinds_of_fields_answer_alike() {
    let bytes =
        Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-b: 2\r\nx-a: 3\r\n\r\n");
    let mut head = RequestHead::default();
    head.parse(&bytes, LIMITS).expect("a head");
    let map = map_of(head.fields(&bytes));
    for fields in [head.fields(&bytes), Fields::Map(&map)] {
        assert_eq!(fields.get("x-a"), Some(&b"1"[..]));
        assert_eq!(fields.get("via"), None);
        let all: Vec<&[u8]> = fields.get_all("x-a").collect();
        assert_eq!(all, [b"1", b"3"]);
        assert_eq!(fields.get_all("x-a").next_back(), Some(&b"3"[..]));
        assert_eq!((fields.get_only("x-a"), fields.get_only("x-b")), (None, Some(&b"2"[..])));
        assert_eq!(fields.get_all("via").count(), 0);
        assert_eq!((fields.len(), fields.is_empty()), (4, false));
        let kinds = fields.iter().filter(|field| field.kind == FieldKind::Host).count();
        assert_eq!((fields.iter().count(), kinds), (4, 1));
    }
    assert!(Fields::Map(&HeaderMap::new()).is_empty());
}

proptest! {
    /// What is written says the same, without what framed the message.
    #[test]
    fn what_is_forwarded_is_read_as_it_was_meant(bytes in generate::requests()) {
        let mut head = RequestHead::default();
        let Ok(Some(_)) = head.parse(&bytes, LIMITS) else { return Ok(()) };
        let method = Method::from_bytes(head.method(&bytes)).expect("a token");
        let mut expected = unframed(head.fields(&bytes));
        let map = map_of(head.fields(&bytes));
        for fields in [head.fields(&bytes), Fields::Map(&map)] {
            let mut out = Vec::new();
            let mut writer = HeadWriter::request(&mut out, &method, head.target(&bytes));
            writer.copy_all(fields, is_kept);
            writer.end();
            let mut again = RequestHead::default();
            prop_assert_eq!(again.parse(&out, LIMITS), Ok(Some(out.len())));
            prop_assert_eq!(again.method(&out), head.method(&bytes));
            prop_assert_eq!(again.target(&out), head.target(&bytes));
            let mut found = lines(again.fields(&out));
            if matches!(fields, Fields::Map(_)) {
                // A map has equal names together.
                found.sort();
                expected.sort();
            }
            prop_assert_eq!(&found, &expected);
        }
    }

    #[test]
    fn a_response_is_forwarded_as_it_was_meant(bytes in generate::responses()) {
        let mut head = ResponseHead::default();
        let Ok(Some(_)) = head.parse(&bytes, LIMITS, RequestKind::Other) else { return Ok(()) };
        let mut out = Vec::new();
        let mut writer = HeadWriter::response(&mut out, head.status(), Some(head.reason(&bytes)));
        writer.copy_all(head.fields(&bytes), is_kept);
        writer.end();
        let mut again = ResponseHead::default();
        prop_assert_eq!(again.parse(&out, LIMITS, RequestKind::Other), Ok(Some(out.len())));
        prop_assert_eq!(again.status(), head.status());
        prop_assert_eq!(again.reason(&out), head.reason(&bytes));
        prop_assert_eq!(lines(again.fields(&out)), unframed(head.fields(&bytes)));
    }

    #[test]
    fn trailers_are_what_the_naive_answer_says(bytes in generate::requests()) {
        let mut head = RequestHead::default();
        let Ok(Some(_)) = head.parse(&bytes, LIMITS) else { return Ok(()) };
        let map = map_of(head.fields(&bytes));
        for fields in [head.fields(&bytes), Fields::Map(&map)] {
            let mut out = Vec::new();
            write_trailers(fields, &mut out, |_| true);
            // Read as a head's fields.
            let out = [b"GET / HTTP/1.1\r\n", &out[b"0\r\n".len()..]].concat();
            let mut again = RequestHead::default();
            prop_assert_eq!(again.parse(&out, LIMITS), Ok(Some(out.len())));
            prop_assert_eq!(lines(again.fields(&out)), trailers(fields));
        }
    }
}

/// Whether a field does not frame the message.
fn is_kept(kind: FieldKind) -> bool {
    !matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding)
}

fn unframed(fields: Fields<'_>) -> Lines {
    let mut lines = lines(fields);
    lines.retain(|(name, _)| !["content-length", "transfer-encoding"].contains(&&**name));
    lines
}

fn map_of(fields: Fields<'_>) -> HeaderMap {
    let valid = |field: Field<'_>| {
        let name = HeaderName::from_bytes(field.name).expect("a name");
        (name, HeaderValue::from_bytes(field.value).expect("a value"))
    };
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().map(valid) {
        map.append(name, value);
    }
    map
}

/// The naive answer to which fields are trailers.
fn trailers(fields: Fields<'_>) -> Lines {
    const NO_TRAILERS: [&str; 11] = [
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "content-length",
    ];
    const PROTECTED: [&str; 6] =
        ["host", "cookie", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
    let all = lines(fields);
    let lists = all.iter().filter(|(name, _)| name == "connection");
    let named: Vec<String> = lists
        .flat_map(|(_, list)| {
            String::from_utf8_lossy(list)
                .split(',')
                .map(|option| option.trim_matches([' ', '\t']).to_ascii_lowercase())
                .collect::<Vec<_>>()
        })
        .filter(|option| {
            !["close", "keep-alive"].contains(&&**option) && !PROTECTED.contains(&&**option)
        })
        .collect();
    all.into_iter()
        .filter(|(name, _)| !NO_TRAILERS.contains(&&**name) && !named.contains(name))
        .collect()
}
