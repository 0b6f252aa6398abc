//! Bodies that mean harm: deep, long, cut, inflating without end.

use super::{fixtures::gzip, read, reader, sum};
use flowgate::usage::{Encoding, Format, Query, Reading, Weight};

fn query() -> Query {
    Query::sum([("n", Weight::ONE)])
}

fn plain(format: Format, body: &[u8]) -> Reading {
    read(query(), format, Encoding::Identity, body.chunks(4096)).0
}

#[test]
fn nesting_has_a_bound() {
    let nested =
        |depth: usize| format!("{{\"m\":{}{},\"n\":1}}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(sum(query(), Format::Json, &nested(127)), Some(1));
    assert_eq!(sum(query(), Format::Json, &nested(128)), None);
    assert_eq!(sum(query(), Format::Json, &nested(100_000)), None);
    assert_eq!(sum(query(), Format::Json, &"{\"n\":".repeat(100_000)), None);
}

#[test]
fn names_texts_and_numbers_may_have_any_length() {
    let long = "x".repeat(3_000_000);
    assert_eq!(sum(query(), Format::Json, &format!("{{\"{long}\":\"{long}\",\"n\":2}}")), Some(2));
    let digits = "9".repeat(1_000_000);
    assert_eq!(sum(query(), Format::Json, &format!("{{\"n\":0.{digits}}}")), Some(1));
    assert_eq!(
        sum(query(), Format::Json, &format!("{{\"n\":1e{digits}}}")),
        Some(1_000_000_000_000)
    );
    assert_eq!(sum(query(), Format::Json, &format!("{{\"n\":1e-{digits}}}")), Some(1));
    assert_eq!(
        sum(query(), Format::Events, &format!("{long}: data\n\ndata: {{\"n\":3}}\n\n")),
        Some(3)
    );
    assert_eq!(plain(Format::Events, format!("data: {long}").as_bytes()).sum, None);
}

#[test]
fn a_reader_takes_no_memory_for_a_long_body() {
    let line = format!("{{\"m\":\"{}\",\"n\":5}}\n", "x".repeat(100_000));
    let mut reader = reader(query(), Format::Lines, Encoding::Identity);
    let allocated = allocation_counter::measure(|| {
        for _ in 0..50 {
            line.as_bytes().chunks(1000).for_each(|piece| reader.push(piece));
        }
        reader.finish();
    });
    assert_eq!(reader.reading(0).sum, Some(5));
    assert_eq!(allocated.count_total, 0);
    assert!(size_of_val(&reader) <= 4096, "{} bytes", size_of_val(&reader));
}

#[test]
fn the_memory_of_gzip_is_its_window() {
    let body = gzip("{\"n\":1}\n".repeat(100_000).as_bytes());
    let mut sum = None;
    let allocated = allocation_counter::measure(|| {
        sum = read(query(), Format::Lines, Encoding::Gzip, body.chunks(1000)).0.sum;
    });
    assert_eq!(sum, Some(1));
    assert!(allocated.bytes_max < 64 * 1024, "{} bytes", allocated.bytes_max);
}

#[test]
fn strings_may_have_any_bytes_but_control_characters() {
    let body = |inner: &[u8]| [b"{\"m\":\"", inner, b"\",\"n\":1}"].concat();
    assert_eq!(plain(Format::Json, &body(b"\xff\xfe\x80\x7f")).sum, Some(1));
    for control in [0, 1, b'\n', 0x1F] {
        for before in 0..20 {
            let text = [&b"abcdefghijklmnopqrst"[..before], &[control]].concat();
            assert_eq!(plain(Format::Json, &body(&text)).sum, None, "{control} after {before}");
        }
    }
    for escape in ["\\x", "\\u12g4", "\\U0041", "\\"] {
        assert_eq!(plain(Format::Json, &body(escape.as_bytes())).sum, None, "{escape}");
    }
}

#[test]
fn a_bomb_inflates_within_bounds() {
    // 400 MB of white space, in 390 KB.
    let bomb = gzip_of_spaces(400);
    let mut reader = reader(query(), Format::Json, Encoding::Gzip);
    bomb.chunks(16 * 1024).for_each(|piece| reader.push(piece));
    reader.finish();
    assert_eq!(reader.reading(0).sum, None, "the number behind it is not reached");

    // Of what is no JSON, only the first piece is inflated, and 100 MB are no bomb.
    assert_eq!(
        read(query(), Format::Json, Encoding::Gzip, [&gzip_of_spaces(50)[..]]).0.sum,
        Some(1)
    );
}

/// Returns so many million spaces and a number, in gzip.
fn gzip_of_spaces(millions: usize) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let spaces = vec![b' '; 1_000_000];
    for _ in 0..millions {
        encoder.write_all(&spaces).expect("a vector takes everything");
    }
    encoder.write_all(b"{\"n\":1}").expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}

#[test]
fn gzip_with_every_optional_part_and_two_members_is_read() {
    let member = gzip(b"{\"n\":1}\n");
    let data = &member[10..];
    let with = |flags: u8, optional: &[u8]| {
        let head = [0x1F, 0x8B, 8, flags, 0, 0, 0, 0, 0, 3];
        [&head, optional, data].concat()
    };
    let both = [gzip(b"{\"n\":1}\n{\"n\""), gzip(b":2}\n")].concat();
    let padded = [&member[..], &[0; 40]].concat();
    for (body, expected) in [
        (with(0b0_0100, b"\x05\x00extra"), Some(1)),
        (with(0b0_0100, b"\x00\x00"), Some(1)),
        (with(0b0_1000, b"name.json\0"), Some(1)),
        (with(0b1_1110, b"\x01\x00xname\0comment\0cs"), Some(1)),
        (both, Some(2)),
        (padded, Some(1)),
    ] {
        for size in [1, 2, 7, 4096] {
            let read = read(query(), Format::Lines, Encoding::Gzip, body.chunks(size)).0;
            assert_eq!(read.sum, expected, "{body:?} in pieces of {size}");
        }
    }
}

#[test]
fn gzip_that_breaks_has_no_number() {
    let mut body = gzip("{\"n\":1}\n".repeat(1000).as_bytes());
    for at in [0, 1, 2] {
        let mut wrong = body.clone();
        wrong[at] ^= 0x40;
        assert_eq!(read(query(), Format::Lines, Encoding::Gzip, [&wrong[..]]).0.sum, None);
    }
    // A block of the type that does not exist.
    body[10] = 0b111;
    assert_eq!(read(query(), Format::Lines, Encoding::Gzip, [&body[..]]).0.sum, None);
    assert_eq!(read(query(), Format::Lines, Encoding::Gzip, [&b"{\"n\":1}\n"[..]]).0.sum, None);
}
