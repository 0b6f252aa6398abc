//! Lines of `text/event-stream` and NDJSON, by the rules of their standards.

use super::{read, sum};
use flowgate::usage::{Encoding, Format, Query, Weight};

fn query() -> Query {
    Query::sum([("n", Weight::ONE)])
}

#[track_caller]
fn check(format: Format, body: &str, expected: Option<u64>, events: u64) {
    for size in 1..=body.len() {
        let pieces = body.as_bytes().chunks(size);
        let (reading, counted) = read(query(), format, Encoding::Identity, pieces);
        assert_eq!((reading.sum, counted), (expected, events), "{body:?} in pieces of {size}");
    }
}

#[test]
fn lines_end_with_any_of_three_endings() {
    for ending in ["\n", "\r", "\r\n"] {
        let body = "data: {\"n\":1}||data: {\"n\":2}||".replace('|', ending);
        check(Format::Events, &body, Some(2), 2);
    }
    check(Format::Events, "data: {\"n\":1}\r\n\ndata: {\"n\":2}\n\r\n", Some(2), 2);
    check(Format::Events, "data: {\"n\":1}\n\r\n\rdata: {\"n\":\r\ndata: 2}\r\n", Some(2), 2);
}

#[test]
fn data_in_several_lines_is_one_document() {
    check(Format::Events, "data: {\"n\":\ndata\ndata:3\ndata: }\n\n", Some(3), 1);
    check(Format::Events, "data: {\"n\":\nid: 5\ndata:4}\n\n", Some(4), 1);
    check(Format::Events, "data: {\"n\":1\ndata: 2}\n\n", None, 1);
    check(Format::Events, "data: {\"a\":\"\ndata: \",\"n\":1}\n\n", None, 1);
}

#[test]
fn everything_but_data_is_skipped() {
    check(Format::Events, ": data: {\"n\":1}\n\n:\n\nevent: x\nid: data\nretry: 3\n\n", None, 0);
    check(
        Format::Events,
        "Data: {\"n\":1}\ndatax: {\"n\":1}\ndat: {\"n\":1}\n data: 1\n\n",
        None,
        0,
    );
    check(Format::Events, ": ping\nevent: y\ndata:{\"n\":7}\n\n", Some(7), 1);
    check(Format::Events, "\u{feff}data: {\"n\":7}\n\n", Some(7), 1);
    check(Format::Events, "data\n\ndata:\n\ndata: \n\n", None, 3);
}

#[test]
fn a_malformed_event_counts_nothing_and_harms_no_other() {
    check(Format::Events, "data: {\"n\":1}\n\ndata: {\"n\":2}}\n\n", Some(1), 2);
    check(Format::Events, "data: {\"n\":2\n\ndata: {\"n\":1}\n\n", Some(1), 2);
    check(Format::Events, "data: hello\n\ndata: {\"n\":1}\n\ndata: \"n\"\n\n", Some(1), 3);
    check(Format::Lines, "{\"n\":1}\n{\"n\":2} x\n{\"n\":3\n\n[}\n", Some(1), 4);
}

#[test]
fn the_last_event_and_line_need_no_ending() {
    check(Format::Events, "data: {\"n\":1}\n\ndata: {\"n\":2}", Some(2), 2);
    check(Format::Events, "data: {\"n\":1}\n\ndata: {\"n\":2", Some(1), 2);
    check(Format::Lines, "{\"n\":1}\n{\"n\":2}", Some(2), 2);
    check(Format::Lines, "{\"n\":1}\r\n  {\"n\":2}\r\n \r\n\n", Some(2), 2);
}

#[test]
fn the_event_done_makes_the_number_final() {
    for (end, is_final) in [
        ("data: [DONE]\n\n", true),
        ("data:[DONE]\n\n", true),
        ("data: [DONE]", true),
        ("data: [DONE] \n\n", false),
        ("data: [DON\n\n", false),
        ("data: [DONE\ndata: ]\n\n", false),
        (": [DONE]\n\n", false),
    ] {
        let body = format!("data: {{\"n\":1}}\n\n{end}");
        for size in 1..=body.len() {
            let pieces = body.as_bytes().chunks(size);
            let (reading, _) = read(query(), Format::Events, Encoding::Identity, pieces);
            assert_eq!(reading.is_final, is_final, "{end:?} in pieces of {size}");
        }
    }
}

#[test]
fn json_may_be_an_array_or_several_documents() {
    check(Format::Json, "[{\"n\":1},{\"n\":2},{\"m\":3}]", Some(2), 3);
    check(Format::Json, "[[{\"n\":1}],{\"n\":2}, 4]", Some(2), 1);
    check(Format::Json, "{\"a\":[{\"n\":1}]}", None, 0);
    check(Format::Json, "{\"n\":1}\n{\"n\":2}\n{}\n", Some(2), 3);
    check(Format::Json, "{\"n\":1} x", None, 2);
    check(Format::Json, "{\"n\":1}{\"n\":2", Some(1), 2);
    check(Format::Json, "", None, 0);
    check(Format::Json, "<html>", None, 0);
}

#[test]
fn the_content_type_names_the_form() {
    let of = |value: &str| Format::of(Some(value));
    assert_eq!(of("text/event-stream"), Format::Events);
    assert_eq!(of("Text/Event-Stream; charset=utf-8"), Format::Events);
    assert_eq!(of("application/x-ndjson"), Format::Lines);
    assert_eq!(of("application/jsonl ;charset=UTF-8"), Format::Lines);
    assert_eq!(of("application/json"), Format::Json);
    assert_eq!(of("text/plain"), Format::Json);
    assert_eq!(Format::of(None), Format::Json);
    assert_eq!(sum(query(), Format::Json, "n: 1"), None);
}
