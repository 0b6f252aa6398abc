//! Where bodies end: RFC 9112, sections 6 and 9.3.

use flowgate::http1::{
    BodyLength::{self, Chunked, Exactly, None, UntilClose},
    HeadLimits, LengthField, RequestHead, RequestKind, ResponseHead,
    framing::{MAX_CONNECTION_OPTIONS, MAX_CONTENT_LENGTH, for_request, for_response},
};
use http::{Method, StatusCode, Version};

const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 100 };

fn request(version: &str, fields: &str) -> Result<(BodyLength, bool), String> {
    let bytes = format!("POST / HTTP/{version}\r\n{fields}\r\n");
    let mut head = RequestHead::default();
    head.parse(bytes.as_bytes(), LIMITS)
        .map(|length| assert_eq!(length, Some(bytes.len())))
        .map_err(|error| format!("{} {error}", error.status().as_str()))?;
    Ok((head.framing().body, head.framing().keeps_alive))
}

fn response(
    kind: RequestKind,
    line: &str,
    fields: &str,
) -> Result<(BodyLength, Option<u64>, bool), String> {
    let bytes = format!("HTTP/{line}\r\n{fields}\r\n");
    let mut head = ResponseHead::default();
    head.parse(bytes.as_bytes(), LIMITS, kind)
        .map(|length| assert_eq!(length, Some(bytes.len())))
        .map_err(|error| error.to_string())?;
    let framing = head.framing();
    Ok((framing.body, framing.declared, framing.keeps_alive))
}

const NOT_A_NUMBER: &str = "400 Content-Length is not a number, or too large";
const DIFFER: &str = "400 Content-Length is given several times with different values";
const BOTH: &str = "400 Content-Length and Transfer-Encoding are both given";
const IN_1_0: &str = "400 Transfer-Encoding is given in an HTTP/1.0 message";
const NOT_CHUNKED: &str = "400 Transfer-Encoding does not end with chunked, once";
const UNKNOWN: &str = "501 the only transfer coding served is chunked";
const OPTIONS: &str = "431 Connection has too many options";

#[test]
fn requests_end_where_6_3_says() {
    for (section, fields, expected) in [
        ("6.3 (7)", "", Ok(None)),
        ("6.3 (6)", "content-length: 5\r\n", Ok(Exactly(5))),
        ("6.3 (6)", "CONTENT-LENGTH:\t005 \r\n", Ok(Exactly(5))),
        ("6.3 (6)", "content-length: 0\r\n", Ok(Exactly(0))),
        ("6.3 (5): equal lines", "content-length: 5\r\nContent-Length: 5\r\n", Ok(Exactly(5))),
        ("6.3 (5)", "content-length: 5\r\ncontent-length: 6\r\n", Err(DIFFER)),
        ("6.3 (5): a list", "content-length: 5, 5\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: 5,6\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length:\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: +5\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: -5\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: 0x5\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: 5 5\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: 5.0\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: \"5\"\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: ٥\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: 9223372036854775807\r\n", Ok(Exactly(MAX_CONTENT_LENGTH))),
        ("6.3 (5)", "content-length: 9223372036854775808\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (5)", "content-length: 18446744073709551621\r\n", Err(NOT_A_NUMBER)),
        ("6.3 (4)", "transfer-encoding: chunked\r\n", Ok(Chunked)),
        ("6.1: any case", "Transfer-Encoding: CHUNKED\r\n", Ok(Chunked)),
        ("6.1: another coding", "transfer-encoding: gzip, chunked\r\n", Err(UNKNOWN)),
        ("6.1", "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", Err(UNKNOWN)),
        ("6.3 (4): chunked is not last", "transfer-encoding: chunked, gzip\r\n", Err(NOT_CHUNKED)),
        ("6.3 (4)", "transfer-encoding: gzip\r\n", Err(NOT_CHUNKED)),
        ("6.3 (4)", "transfer-encoding: identity\r\n", Err(NOT_CHUNKED)),
        ("6.3 (4)", "transfer-encoding: xchunked\r\n", Err(NOT_CHUNKED)),
        ("6.3 (4)", "transfer-encoding: chunked;a=b\r\n", Err(NOT_CHUNKED)),
        ("6.3 (4)", "transfer-encoding: \"chunked\"\r\n", Err(NOT_CHUNKED)),
        (
            "6.3 (4)",
            "transfer-encoding: \x0bchunked\r\n",
            Err("400 a field value has control characters"),
        ),
        ("6.3 (4)", "transfer-encoding:\r\n", Err(NOT_CHUNKED)),
        ("6.3 (4)", "transfer-encoding: ,chunked\r\n", Err(NOT_CHUNKED)),
        ("6.1: chunked twice", "transfer-encoding: chunked, chunked\r\n", Err(NOT_CHUNKED)),
        ("6.1", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", Err(NOT_CHUNKED)),
        ("6.3 (3)", "content-length: 5\r\ntransfer-encoding: chunked\r\n", Err(BOTH)),
        ("6.3 (3)", "transfer-encoding: chunked\r\ncontent-length: 5\r\n", Err(BOTH)),
        (
            "5.1",
            "transfer-encoding : chunked\r\n",
            Err("400 a field name is not a token with a colon behind it"),
        ),
    ] {
        let expected = expected.map(|body| (body, true)).map_err(str::to_owned);
        assert_eq!(request("1.1", fields), expected, "{section}: {fields:?}");
    }
    for (section, fields, expected) in [
        ("6.1", "transfer-encoding: chunked\r\n", Err(IN_1_0)),
        ("6.1", "transfer-encoding: identity\r\n", Err(IN_1_0)),
        ("6.3 (6)", "content-length: 5\r\n", Ok(Exactly(5))),
    ] {
        let expected = expected.map(|body| (body, false)).map_err(str::to_owned);
        assert_eq!(request("1.0", fields), expected, "{section}: {fields:?}");
    }
}

#[test]
fn responses_end_where_6_3_says() {
    use RequestKind::{Connect, Head, Other};
    for (section, kind, line, fields, expected) in [
        ("6.3 (1)", Head, "1.1 200 OK", "content-length: 5\r\n", (None, Some(5), true)),
        (
            "6.3 (1)",
            Head,
            "1.1 200 OK",
            "transfer-encoding: chunked\r\n",
            (None, Option::None, true),
        ),
        ("6.3 (1)", Other, "1.1 103 x", "", (None, Option::None, true)),
        ("6.3 (1)", Other, "1.1 204 x", "content-length: 5\r\n", (None, Some(5), true)),
        ("6.3 (1)", Other, "1.1 304 x", "content-length: 5\r\n", (None, Some(5), true)),
        ("6.3 (2)", Connect, "1.1 200 OK", "content-length: 5\r\n", (None, Some(5), true)),
        ("6.3 (2)", Connect, "1.1 407 x", "content-length: 5\r\n", (Exactly(5), Some(5), true)),
        (
            "6.3 (4)",
            Other,
            "1.1 200 OK",
            "transfer-encoding: chunked\r\n",
            (Chunked, Option::None, true),
        ),
        (
            "6.3 (5): a list",
            Other,
            "1.1 200 OK",
            "content-length: 5, 5\r\n",
            (Exactly(5), Some(5), true),
        ),
        ("6.3 (6)", Other, "1.1 200 OK", "content-length: 5\r\n", (Exactly(5), Some(5), true)),
        ("6.3 (6)", Other, "1.1 205 x", "content-length: 0\r\n", (Exactly(0), Some(0), true)),
        ("6.3 (8)", Other, "1.1 200 OK", "", (UntilClose, Option::None, false)),
        (
            "6.3 (8)",
            Other,
            "1.0 200 OK",
            "connection: keep-alive\r\n",
            (UntilClose, Option::None, false),
        ),
    ] {
        assert_eq!(response(kind, line, fields), Ok(expected), "{section}: {line} {fields:?}");
    }
    for (section, line, fields, expected) in [
        ("6.3 (5)", "1.1 200 OK", "content-length: 5,\r\n", NOT_A_NUMBER),
        ("6.3 (5)", "1.1 200 OK", "content-length: 5, 6\r\n", DIFFER),
        ("6.3 (5)", "1.1 304 x", "content-length: x\r\n", NOT_A_NUMBER),
        ("6.3 (3)", "1.1 200 OK", "content-length: 5\r\ntransfer-encoding: chunked\r\n", BOTH),
        ("6.1", "1.0 200 OK", "transfer-encoding: chunked\r\n", IN_1_0),
        ("6.1", "1.1 200 OK", "transfer-encoding: gzip, chunked\r\n", UNKNOWN),
        ("6.3 (4)", "1.1 200 OK", "transfer-encoding: gzip\r\n", NOT_CHUNKED),
    ] {
        let found = response(Other, line, fields).expect_err("it is ambiguous");
        assert_eq!(Some(&*found), expected.get(4..), "{section}: {line} {fields:?}");
    }
}

#[test]
fn connections_persist_as_9_3_says() {
    for (version, fields, expected) in [
        ("1.1", "", true),
        ("1.1", "connection: keep-alive\r\n", true),
        ("1.1", "connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "connection: x,\tclose \r\n", false),
        ("1.1", "connection: close\r\nconnection: keep-alive\r\n", false),
        ("1.1", "connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "connection: Keep-Alive\r\n", true),
        ("1.0", "connection: keep-alive, close\r\n", false),
        ("1.0", "proxy-connection: keep-alive\r\n", false),
    ] {
        assert_eq!(request(version, fields), Ok((None, expected)), "{version} {fields:?}");
        let fields = format!("{fields}content-length: 0\r\n");
        let found = response(RequestKind::Other, &format!("{version} 200 OK"), &fields);
        assert_eq!(found, Ok((Exactly(0), Some(0), expected)), "{version} {fields:?}");
    }
    let options = |count| format!("connection: {}\r\n", vec!["a"; count].join(","));
    assert!(request("1.1", &options(MAX_CONNECTION_OPTIONS)).is_ok());
    assert_eq!(request("1.1", &options(MAX_CONNECTION_OPTIONS + 1)), Err(OPTIONS.to_owned()));
    assert_eq!(request("1.1", &options(33).repeat(2)), Err(OPTIONS.to_owned()));
}

#[test]
fn a_request_says_where_its_body_ends() {
    for (section, method, body, expected) in [
        ("9110 8.6", Method::GET, None, LengthField::None),
        ("9110 8.6", Method::DELETE, None, LengthField::None),
        ("9110 8.6", Method::POST, None, LengthField::ContentLength(0)),
        ("9110 8.6", Method::PUT, None, LengthField::ContentLength(0)),
        ("6.2", Method::GET, Exactly(0), LengthField::ContentLength(0)),
        ("6.2", Method::PUT, Exactly(5), LengthField::ContentLength(5)),
        ("6.1", Method::GET, Chunked, LengthField::Chunked),
        ("6.3 (7)", Method::PUT, UntilClose, LengthField::Chunked),
    ] {
        assert_eq!(for_request(&method, body), expected, "{section}: {method} {body:?}");
    }
}

#[test]
fn a_response_says_where_its_body_ends() {
    use RequestKind::{Connect, Head, Other};
    let new = Version::HTTP_11;
    let old = Version::HTTP_10;
    for (section, kind, line, fields, version, expected) in [
        ("6.1", Other, "1.1 103 x", "", new, LengthField::None),
        ("9110 8.6", Other, "1.1 204 x", "content-length: 5\r\n", new, LengthField::None),
        (
            "9110 8.6",
            Other,
            "1.1 304 x",
            "content-length: 5\r\n",
            new,
            LengthField::ContentLength(5),
        ),
        (
            "9110 8.6",
            Head,
            "1.1 200 x",
            "content-length: 5\r\n",
            new,
            LengthField::ContentLength(5),
        ),
        ("9110 8.6", Head, "1.1 200 x", "transfer-encoding: chunked\r\n", new, LengthField::None),
        ("9110 9.3.6", Connect, "1.1 200 x", "content-length: 5\r\n", new, LengthField::None),
        ("6.2", Other, "1.1 200 x", "content-length: 5\r\n", old, LengthField::ContentLength(5)),
        ("6.1", Other, "1.1 200 x", "transfer-encoding: chunked\r\n", new, LengthField::Chunked),
        ("6.1", Other, "1.1 200 x", "transfer-encoding: chunked\r\n", old, LengthField::None),
        ("6.1", Other, "1.0 200 x", "", new, LengthField::Chunked),
        ("6.3 (8)", Other, "1.0 200 x", "", old, LengthField::None),
    ] {
        let bytes = format!("HTTP/{line}\r\n{fields}\r\n");
        let mut head = ResponseHead::default();
        head.parse(bytes.as_bytes(), LIMITS, kind).expect("a head");
        let found = for_response(head.status(), kind, version, head.framing());
        assert_eq!(found, expected, "{section}: {line} {fields:?} for {version:?}");
    }
    let mut answered = ResponseHead::default();
    answered.parse(b"HTTP/1.1 204 x\r\n\r\n", LIMITS, Other).expect("a head");
    let own = for_response(StatusCode::OK, Other, new, answered.framing());
    assert_eq!(own, LengthField::ContentLength(0), "an own response without a body");
}
