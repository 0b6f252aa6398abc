//! Laws on random bodies: a reader finds the numbers that `serde_json` finds, in any pieces.

use super::{oracle, read};
use flowgate::usage::{Encoding, Format, Query, Weight};
use proptest::{collection::vec, prelude::*, sample::Index};

/// Names of members, as written; none decodes to another one.
const NAMES: &[&str] =
    &["a", "b", "n", "usage", "prompt_tokens", "", "pl\\u0061in", "x\\\"y", "é", "usage.n"];

/// Values without members.
const LEAVES: &[&str] = &[
    "0",
    "1",
    "12",
    "1.5",
    "0.125",
    "25e-2",
    "1e3",
    "-3",
    "-0",
    "1234567",
    "true",
    "false",
    "null",
    "\"\"",
    "\"n\"",
    "\"\\\\\\\"\\u00e9\\n{}[]\"",
    "\"a longer text, in which 8 bytes are read at once\"",
    "{}",
    "[]",
    " [ ] ",
];

fn query() -> Query {
    Query::sum([
        ("n", Weight::ONE),
        ("usage.n", Weight::thousandths(500)),
        ("usage.prompt_tokens", Weight::thousandths(-125)),
        ("a.b.n", Weight::thousandths(2000)),
    ])
}

/// A value as text.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(LEAVES).prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 6, |inner| {
        let space = prop::sample::select(&["", " ", "\t", "  "][..]);
        let member = (prop::sample::select(NAMES), space, inner.clone())
            .prop_map(|(name, space, value)| format!("\"{name}\"{space}:{space}{value}"));
        prop_oneof![
            2 => vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(", "))),
            1 => vec(inner, 0..4).prop_map(|values| format!("[{}]", values.join(","))),
        ]
    })
}

/// A body in each format.
fn body() -> impl Strategy<Value = (Format, Vec<u8>)> {
    let format = prop::sample::select(&[Format::Json, Format::Lines, Format::Events][..]);
    let ending = prop::sample::select(&["\n", "\r\n", "\r"][..]);
    (format, vec(value(), 1..6), ending).prop_map(|(format, values, ending)| {
        let text = match format {
            Format::Json => values.join("\n"),
            Format::Lines => values.join("\n") + "\n",
            Format::Events => {
                let line = format!(",{ending}data: ");
                let event = |value: &String| {
                    let data = value.replace(", ", &line);
                    format!("event: x{ending}data: {data}{ending}{ending}")
                };
                values.iter().map(event).collect::<Vec<String>>().concat()
            }
        };
        (format, text.into_bytes())
    })
}

/// Splits a body at each of `cuts`.
fn pieces<'a>(body: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    ends.extend([0, body.len()]);
    ends.sort_unstable();
    ends.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_finds_what_serde_finds(
        (format, body) in body(),
        cuts in vec(any::<Index>(), 0..5),
    ) {
        let (reading, events) = read(query(), format, Encoding::Identity, pieces(&body, &cuts));
        let expected = oracle::sum(&query(), format, &body);
        prop_assert_eq!(reading.sum, expected, "{}", String::from_utf8_lossy(&body));
        if format != Format::Json {
            prop_assert_eq!(events, oracle::events(format, &body));
        }
    }

    #[test]
    fn a_changed_body_is_read_as_by_serde(
        (format, mut body) in body(),
        cuts in vec(any::<Index>(), 0..5),
        place in any::<Index>(),
        byte in prop::sample::select(&b"{}[]\",:0-.e\\ \n\rdata"[..]),
    ) {
        // A byte of a longer character cannot be changed alone.
        let place = place.index(body.len());
        let Some(place) = (place..body.len()).find(|place| body[*place].is_ascii()) else {
            return Ok(());
        };
        body[place] = byte;
        let (reading, _) = read(query(), format, Encoding::Identity, pieces(&body, &cuts));
        let expected = oracle::sum(&query(), format, &body);
        prop_assert_eq!(reading.sum, expected, "{}", String::from_utf8_lossy(&body));
    }

    #[test]
    fn documents_may_follow_each_other_at_once_as_by_serde(
        values in vec(prop::sample::select(LEAVES), 1..5),
        cuts in vec(any::<Index>(), 0..5),
    ) {
        let body = format!("{{\"n\":7}}{}", values.concat()).into_bytes();
        let (reading, _) = read(query(), Format::Json, Encoding::Identity, pieces(&body, &cuts));
        let expected = oracle::sum(&query(), Format::Json, &body);
        prop_assert_eq!(reading.sum, expected, "{}", String::from_utf8_lossy(&body));
    }

    #[test]
    fn no_bytes_are_an_error(
        body in vec(any::<u8>(), 0..200),
        is_gzip in any::<bool>(),
        format in prop::sample::select(&[Format::Json, Format::Lines, Format::Events][..]),
        cuts in vec(any::<Index>(), 0..5),
    ) {
        let encoding = if is_gzip { Encoding::Gzip } else { Encoding::Identity };
        let split = read(query(), format, encoding, pieces(&body, &cuts));
        let whole = read(query(), format, encoding, [&body[..]]);
        prop_assert_eq!(split, whole);
    }
}
