//! First lines and fields: RFC 9112, sections 2 to 5.

use flowgate::http1::{HeadLimits, MAX_TARGET, RequestHead, RequestKind, ResponseHead};

const LIMITS: HeadLimits = HeadLimits { bytes: 200_000, fields: 150 };

/// What a request's head says, or why it is rejected.
fn request(bytes: &[u8], limits: HeadLimits) -> String {
    let mut head = RequestHead::default();
    match head.parse(bytes, limits) {
        Err(error) => format!("{} {error:?}", error.status().as_str()),
        Ok(None) => "incomplete".to_owned(),
        Ok(Some(length)) => {
            let method = head.method(bytes).escape_ascii();
            let target = head.target(bytes).escape_ascii();
            let mut text = format!("{method} {target}");
            for field in head.fields(bytes).iter() {
                let [name, value] =
                    [field.name, field.value].map(|part| part.escape_ascii().to_string());
                text.extend([" ", &*name, "=", &*value]);
            }
            assert!(bytes[..length].ends_with(b"\n"), "the head ends with its last line");
            text
        }
    }
}

fn response(bytes: &[u8]) -> String {
    let mut head = ResponseHead::default();
    match head.parse(bytes, LIMITS, RequestKind::Other) {
        Err(error) => format!("{error:?}"),
        Ok(None) => "incomplete".to_owned(),
        Ok(Some(_)) => {
            let reason = head.reason(bytes).escape_ascii();
            format!("{:?} {} {reason}", head.version(), head.status().as_str())
        }
    }
}

#[test]
fn request_lines_are_read_by_the_grammar() {
    for (section, bytes, expected) in [
        ("2.2: empty lines come first", "\r\nGET / HTTP/1.1\r\n\r\n", "GET /"),
        ("2.2", "\r\n\r\nGET / HTTP/1.1\r\n\r\n", "GET /"),
        ("2.2: but not many", "\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", "400 EmptyLines"),
        ("2.2: LF ends a line", "GET / HTTP/1.1\na: b\n\n", "GET / a=b"),
        ("2.2: CR does not", "GET / HTTP/1.1\rHost: a\r\n\r\n", "400 LineEnd"),
        ("2.2", "GET / HTTP/1.1\r\na: b\rc: d\r\n\r\n", "400 FieldValue"),
        ("2.2", "\rGET / HTTP/1.1\r\n\r\n", "400 LineEnd"),
        ("2.2: a blank before the first field", "GET / HTTP/1.1\r\n a: b\r\n\r\n", "400 FieldName"),
        ("2.3: another version", "GET / HTTP/2.0\r\n\r\n", "505 UnknownVersion"),
        ("2.3", "GET / HTTP/1.2\r\n\r\n", "505 UnknownVersion"),
        ("2.3", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 UnknownVersion"),
        ("2.3: case matters", "GET / http/1.1\r\n\r\n", "400 Version"),
        ("2.3", "GET / HTTP/1.10\r\n\r\n", "400 LineEnd"),
        ("2.3", "GET / HTTP/11\r\n\r\n", "400 Version"),
        ("2.3: none, as in HTTP/0.9", "GET /\r\n\r\n", "400 Version"),
        ("2.3", "GET / \r\n\r\n", "400 Version"),
        ("3.1: any token", "m!#$%&'*+-.^_`|~9 / HTTP/1.1\r\n\r\n", "m!#$%&\\'*+-.^_`|~9 /"),
        ("3.1", "G(T / HTTP/1.1\r\n\r\n", "400 Method"),
        ("3.1", " GET / HTTP/1.1\r\n\r\n", "400 Method"),
        ("3.1", "\x16\x03\x01\x02", "400 Method"),
        ("3: one blank", "GET  / HTTP/1.1\r\n\r\n", "400 Target"),
        ("3", "GET / HTTP/1.1 \r\n\r\n", "400 LineEnd"),
        ("3", "GET\t/ HTTP/1.1\r\n\r\n", "400 Method"),
        ("3.2: no blank in it", "GET /a b HTTP/1.1\r\n\r\n", "400 Version"),
        ("3.2.1: origin form", "GET /a?b#c HTTP/1.1\r\n\r\n", "GET /a?b#c"),
        (
            "3.2.1: as clients write it",
            "GET /<\"`{|}^>?<\"`{|}^> HTTP/1.1\r\n\r\n",
            "GET /<\\\"`{|}^>?<\\\"`{|}^>",
        ),
        ("3.2.1: UTF-8", "GET /\u{e9} HTTP/1.1\r\n\r\n", "GET /\\xc3\\xa9"),
        ("3.2.1", "GET /\x7f HTTP/1.1\r\n\r\n", "400 Target"),
        ("3.2.1", "GET /\0 HTTP/1.1\r\n\r\n", "400 Target"),
        ("3.2.2: absolute form", "GET http://a/b HTTP/1.1\r\n\r\n", "GET http://a/b"),
        ("3.2.3: authority form", "CONNECT a:1 HTTP/1.1\r\n\r\n", "CONNECT a:1"),
        ("3.2.4: asterisk form", "OPTIONS * HTTP/1.1\r\n\r\n", "OPTIONS *"),
    ] {
        assert_eq!(request(bytes.as_bytes(), LIMITS), expected, "{section}: {bytes:?}");
    }
    assert_eq!(request(b"GET /\xff HTTP/1.1\r\n\r\n", LIMITS), "400 Target", "3.2.1: not UTF-8");
}

#[test]
fn fields_are_read_by_the_grammar() {
    for (section, bytes, expected) in [
        ("5: case is kept", "GET / HTTP/1.1\r\nHoSt: A\r\n\r\n", "GET / HoSt=A"),
        ("5: blanks around a value", "GET / HTTP/1.1\r\na:\t b \t\r\nb:c\r\n\r\n", "GET / a=b b=c"),
        ("5: no value", "GET / HTTP/1.1\r\na:\r\nb: \r\n\r\n", "GET / a= b="),
        ("5.1: a blank before the colon", "GET / HTTP/1.1\r\na : b\r\n\r\n", "400 FieldName"),
        ("5.1: no name", "GET / HTTP/1.1\r\n: b\r\n\r\n", "400 FieldName"),
        ("5.1: no colon", "GET / HTTP/1.1\r\nab\r\n\r\n", "400 FieldName"),
        ("5.1: no token", "GET / HTTP/1.1\r\na\"b: c\r\n\r\n", "400 FieldName"),
        ("5.1", "GET / HTTP/1.1\r\na\u{e9}: c\r\n\r\n", "400 FieldName"),
        ("5.2: folded lines", "GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", "400 FieldName"),
        ("5.2", "GET / HTTP/1.1\r\na: b\r\n\tc\r\n\r\n", "400 FieldName"),
        (
            "9110 5.5: values",
            "GET / HTTP/1.1\r\na: \"\tb\u{e9}\r\n\r\n",
            "GET / a=\\\"\\tb\\xc3\\xa9",
        ),
        ("9110 5.5", "GET / HTTP/1.1\r\na: b\0c\r\n\r\n", "400 FieldValue"),
        ("9110 5.5", "GET / HTTP/1.1\r\na: b\x7fc\r\n\r\n", "400 FieldValue"),
        ("more is to come", "", "incomplete"),
        ("", "\r", "incomplete"),
        ("", "\r\n\r\n\r", "incomplete"),
        ("", "GET / HT", "incomplete"),
        ("", "GET / HTTP/1.1\r\na: b\r\n\r", "incomplete"),
        ("of fields, all are awaited", "GET / HTTP/1.1\r\n a: b\r\n", "incomplete"),
    ] {
        assert_eq!(request(bytes.as_bytes(), LIMITS), expected, "{section}: {bytes:?}");
    }
}

#[test]
fn a_head_is_bounded() {
    let small = HeadLimits { bytes: 40, fields: 2 };
    for (bytes, expected) in [
        ("GET /0123456789012345678 HTTP/1.1\r\na:\r\n\r\n".to_owned(), "431 TooLarge"),
        (
            "GET /012345678901234567 HTTP/1.1\r\na:\r\n\r\nx".to_owned(),
            "GET /012345678901234567 a=",
        ),
        ("GET /0123456789012345678901234567890123456789".to_owned(), "414 TargetTooLong"),
        ("GET / HTTP/1.1\r\na: 012345678901234567890123456789".to_owned(), "431 TooLarge"),
        ("GET / HTTP/1.1\r\na:\r\nb:\r\n\r\n".to_owned(), "GET / a= b="),
        ("GET / HTTP/1.1\r\na:\r\nb:\r\nc:\r\n\r\n".to_owned(), "431 TooManyFields"),
    ] {
        assert_eq!(request(bytes.as_bytes(), small), expected, "{bytes:?}");
    }
    for (fields, expected) in [(100, "GET /"), (150, "GET /"), (151, "431 TooManyFields")] {
        let bytes = format!("GET / HTTP/1.1\r\n{}\r\n", "a:\r\n".repeat(fields));
        let found = request(bytes.as_bytes(), LIMITS);
        assert!(found.starts_with(expected), "{fields}: {found}");
    }
    for (target, expected) in [(MAX_TARGET, "GET"), (MAX_TARGET + 1, "414 TargetTooLong")] {
        let bytes = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(target - 1));
        assert!(request(bytes.as_bytes(), LIMITS).starts_with(expected));
    }
    let name = format!("GET / HTTP/1.1\r\n{}: b\r\n\r\n", "a".repeat(65_536));
    assert_eq!(request(name.as_bytes(), LIMITS), "431 TooLarge");
}

#[test]
fn responses_are_read_by_the_grammar() {
    for (section, bytes, expected) in [
        ("4", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK"),
        ("4: interim ones too", "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 103 Early Hints"),
        ("4: any phrase", "HTTP/1.0 404 a\t\"b\r\n\r\n", "HTTP/1.0 404 a\\t\\\"b"),
        ("4: no phrase", "HTTP/1.1 200 \r\n\r\n", "HTTP/1.1 200 "),
        ("4: nor a blank", "HTTP/1.1 200\r\n\r\n", "HTTP/1.1 200 "),
        ("4: not ASCII", "HTTP/1.1 200 \u{e9}\r\n\r\n", "HTTP/1.1 200 "),
        ("4: a status beyond the known", "HTTP/1.1 999 x\r\n\r\n", "HTTP/1.1 999 x"),
        ("4", "HTTP/1.1 099 x\r\n\r\n", "Status"),
        ("4", "HTTP/1.1 20 x\r\n\r\n", "Status"),
        ("4", "HTTP/1.1 2000 x\r\n\r\n", "Status"),
        ("4", "HTTP/1.1 -20 x\r\n\r\n", "Status"),
        ("4", "HTTP/1.1 200 a\0b\r\n\r\n", "Status"),
        ("4", "HTTP/1.1 200 a\rb\r\n\r\n", "Status"),
        ("4: one blank", "HTTP/1.1  200 OK\r\n\r\n", "Status"),
        ("2.3", "HTTP/2 200 OK\r\n\r\n", "Version"),
        ("2.3", "HTTP/2.0 200 OK\r\n\r\n", "UnknownVersion"),
        ("2.3", "SSH-2.0-x\r\n\r\n", "Version"),
        ("2.3", "<html>", "Version"),
        ("5.1", "HTTP/1.1 200 OK\r\na : b\r\n\r\n", "FieldName"),
        ("5.2", "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n", "FieldName"),
        ("", "HTTP/1.1 200 OK\r\na: b\r\n", "incomplete"),
    ] {
        assert_eq!(response(bytes.as_bytes()), expected, "{section}: {bytes:?}");
    }
}

#[test]
fn a_head_is_used_again() {
    let mut head = RequestHead::default();
    let first = b"POST /first HTTP/1.0\r\nhost: a\r\ncontent-length: 5\r\n\r\n";
    let second = b"GET / HTTP/1.1\r\nhost: b\r\n\r\n";
    for end in 0..first.len() {
        assert_eq!(head.parse(&first[..end], LIMITS), Ok(None));
    }
    assert_eq!(head.parse(first, LIMITS), Ok(Some(first.len())));
    for end in 0..second.len() {
        assert_eq!(head.parse(&second[..end], LIMITS), Ok(None));
    }
    assert_eq!(head.parse(second, LIMITS), Ok(Some(second.len())));
    assert_eq!(head.target(second), b"/");
    assert_eq!(head.fields(second).len(), 1);
    assert_eq!(head.framing().declared, None);
}
