//! Chunked bodies: RFC 9112, section 7.1.

use crate::reader::lines;
use flowgate::http1::{
    HeadLimits,
    chunked::{ChunkError, ChunkSize, ChunkedDecoder, MAX_EXTENSION, MAX_EXTENSIONS, encode},
    write_trailers,
};
use proptest::prelude::*;
use std::iter::repeat_n;

const LIMITS: HeadLimits = HeadLimits { bytes: 200, fields: 3 };

/// The data and the trailers of a body, or why it is rejected; `...` if it has not ended.
fn decode(bytes: &[u8]) -> String {
    let mut decoder = ChunkedDecoder::new(LIMITS);
    let mut buffer = bytes.to_vec();
    match decoder.decode(&mut buffer) {
        Err(error) => format!("{error:?}"),
        Ok(part) if !part.is_end => "...".to_owned(),
        Ok(part) => {
            let mut text = buffer[part.data].escape_ascii().to_string();
            for (name, value) in lines(decoder.trailers().fields()) {
                text.extend([" ", &*name, "=", &*value.escape_ascii().to_string()]);
            }
            let rest = bytes.len() - part.consumed;
            if rest > 0 { format!("{text} and {rest}") } else { text }
        }
    }
}

#[test]
fn bodies_are_read_by_the_grammar() {
    for (section, bytes, expected) in [
        ("7.1", "0\r\n\r\n", ""),
        ("7.1", "3\r\nabc\r\n0\r\n\r\n", "abc"),
        ("7.1: several chunks", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc"),
        (
            "7.1: digits of any case",
            "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "01234567890123456789",
        ),
        ("7.1: what follows is left", "1\r\na\r\n0\r\n\r\nGET /", "a and 5"),
        ("7.1: zeros before a size", "0000000000000001\r\na\r\n000\r\n\r\n", "a"),
        ("7.1: not endless ones", "00000000000000001\r\na\r\n0\r\n\r\n", "TooManyDigits"),
        ("7.1", "ffffffffffffffff\r\na", "..."),
        ("7.1", "10000000000000000\r\na", "TooManyDigits"),
        ("7.1", "\r\na", "Size"),
        ("7.1", "g\r\n", "Size"),
        ("7.1", "0x1\r\na\r\n", "Size"),
        ("7.1", "+1\r\na\r\n", "Size"),
        ("7.1", " 1\r\na\r\n", "Size"),
        ("7.1", "1 1\r\na\r\n", "Size"),
        ("7.1", ";a\r\n", "Size"),
        ("7.1: blanks, that some servers write", "1  \t\r\na\r\n0 \r\n\r\n", "a"),
        ("7.1: LF ends no line", "1\na\r\n0\r\n\r\n", "LineEnd"),
        ("7.1", "1 \na\r\n0\r\n\r\n", "LineEnd"),
        ("7.1", "1;a\na\r\n0\r\n\r\n", "LineEnd"),
        ("7.1", "1\r\na\n0\r\n\r\n", "LineEnd"),
        ("7.1", "1\r\nab\r\n0\r\n\r\n", "LineEnd"),
        ("7.1", "1\r\na\r1\r\na", "LineEnd"),
        ("7.1", "1\r\r\na\r\n0\r\n\r\n", "LineEnd"),
        ("7.1: the last one too", "0\r\n\n", "Trailers(LineEnd)"),
        ("7.1.1: extensions", "1;a=b;c=\"d;\"\r\na\r\n0;e\r\n\r\n", "a"),
        ("7.1.1: blanks before them", "1 \t;a\r\na\r\n0\r\n\r\n", "a"),
        ("7.1.1", "1;a\0\r\na\r\n0\r\n\r\n", "Extension"),
        ("7.1.1", "1;a\rb\r\na\r\n0\r\n\r\n", "LineEnd"),
        ("7.1.2", "0\r\na: b\r\nC:d\r\n\r\n", " a=b c=d"),
        ("7.1.2: LF ends no line", "0\r\na: b\nc: d\r\n\r\n", "Trailers(LineEnd)"),
        ("7.1.2", "0\r\na: b\r\n\n", "Trailers(LineEnd)"),
        ("7.1.2", "0\r\na: b\rc\r\n\r\n", "Trailers(LineEnd)"),
        ("7.1.2: names are tokens", "0\r\na b: c\r\n\r\n", "Trailers(FieldName)"),
        ("7.1.2: no folded lines", "0\r\na: b\r\n c\r\n\r\n", "Trailers(FieldName)"),
        ("7.1.2", "0\r\na: b\0\r\n\r\n", "Trailers(FieldValue)"),
        ("7.1.2: as many as allowed", "0\r\na:\r\nb:\r\nc:\r\n\r\n", " a= b= c="),
        ("7.1.2", "0\r\na:\r\nb:\r\nc:\r\nd:\r\n\r\n", "Trailers(TooManyFields)"),
        ("7.1: more is to come", "", "..."),
        ("7.1", "1", "..."),
        ("7.1", "1\r\na", "..."),
        ("7.1", "0\r\n\r", "..."),
        ("7.1", "0\r\na: b\r\n\r", "..."),
    ] {
        assert_eq!(decode(bytes.as_bytes()), expected, "{section}: {bytes:?}");
    }
}

#[test]
fn what_is_no_data_is_bounded() {
    let extension = |length: u32| repeat_n('a', length as usize - 1).collect::<String>();
    let chunk = |length| format!("1;{}\r\na\r\n", extension(length));
    assert_eq!(decode(format!("{}0\r\n\r\n", chunk(MAX_EXTENSION)).as_bytes()), "a");
    assert_eq!(decode(chunk(MAX_EXTENSION + 1).as_bytes()), "ExtensionTooLong");
    let most = (MAX_EXTENSIONS / MAX_EXTENSION) as usize;
    let bytes = chunk(MAX_EXTENSION).repeat(most);
    assert_eq!(decode(format!("{bytes}0\r\n\r\n").as_bytes()), "a".repeat(most));
    assert_eq!(decode(format!("{bytes}0;\r\n\r\n").as_bytes()), "ExtensionTooLong");
    let blanks = " ".repeat(MAX_EXTENSION as usize);
    assert_eq!(decode(format!("1{blanks} \r\n").as_bytes()), "ExtensionTooLong");
    let trailer = |length: usize| format!("0\r\na:{}\r\n\r\n", "b".repeat(length));
    assert_eq!(decode(trailer(LIMITS.bytes - 6).as_bytes()).len(), LIMITS.bytes - 6 + 3);
    assert_eq!(decode(trailer(LIMITS.bytes - 5).as_bytes()), "Trailers(TooLarge)");
}

/// As [`decode`] says, but of bytes that come one at a time.
fn decode_slowly(bytes: &[u8]) -> String {
    let mut decoder = ChunkedDecoder::new(LIMITS);
    let mut data = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        let mut buffer = [*byte];
        match decoder.decode(&mut buffer) {
            Err(error) => return format!("{error:?}"),
            Ok(part) => data.extend_from_slice(&buffer[part.data]),
        }
        if decoder.is_end() {
            let rest = bytes.len() - at - 1;
            let rest = if rest > 0 { format!(" and {rest}") } else { String::new() };
            return data.escape_ascii().to_string() + &rest;
        }
    }
    "...".to_owned()
}

#[test]
fn many_small_chunks_are_read_as_one_after_the_other() {
    let mut body = Vec::new();
    for at in 0..13u8 {
        encode(&[b'a' + at], &mut body);
    }
    body.extend_from_slice(b"2\r\nno\r\n");
    encode(b"p", &mut body);
    body.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(decode(&body), "abcdefghijklmnop");
    for at in 0..body.len() {
        for byte in *b"\r\n012x" {
            let mut changed = body.clone();
            changed[at] = byte;
            let text = String::from_utf8_lossy(&changed);
            assert_eq!(decode(&changed), decode_slowly(&changed), "{text:?}");
        }
    }
}

#[test]
fn a_size_is_written_without_zeros() {
    for (length, expected) in [
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (8192, "2000\r\n"),
        (usize::MAX, "ffffffffffffffff\r\n"),
    ] {
        assert_eq!(ChunkSize::new(length).as_bytes(), expected.as_bytes());
    }
    let mut out = Vec::new();
    encode(b"", &mut out);
    assert_eq!(out, b"", "an empty chunk would end the body");
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 0..20),
        trailers in proptest::collection::vec(("[a-z]{1,9}", "[!-~]{0,20}"), 0..3),
    ) {
        let head = trailers.iter().map(|(name, value)| format!("x-{name}: {value}\r\n"));
        let mut announced = ChunkedDecoder::new(LIMITS);
        let mut head = format!("0\r\n{}\r\n", head.collect::<String>()).into_bytes();
        announced.decode(&mut head).expect("trailers");
        let mut bytes = Vec::new();
        for part in &parts {
            encode(part, &mut bytes);
        }
        write_trailers(announced.trailers().fields(), &mut bytes, |_| true);
        let mut decoder = ChunkedDecoder::new(LIMITS);
        let read = decoder.decode(&mut bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(read.is_end && read.consumed == bytes.len());
        prop_assert_eq!(&bytes[read.data], &parts.concat());
        prop_assert_eq!(
            lines(decoder.trailers().fields()),
            lines(announced.trailers().fields())
        );
    }
}

#[test]
fn an_error_is_one_sentence() {
    let error = ChunkError::Trailers(flowgate::http1::HeadError::FieldName);
    assert_eq!(
        error.to_string(),
        "the trailers are malformed: a field name is not a token with a colon behind it"
    );
}
