//! Numbers as JSON may write them, paths, and weights.

use super::sum;
use flowgate::usage::{Format, MAX_COST, Preset, Queries, Query, QueryError, Term, Weight};

#[track_caller]
fn number(text: &str, expected: Option<u64>) {
    let body = format!("{{\"n\":{text}}}");
    assert_eq!(sum(Query::sum([("n", Weight::ONE)]), Format::Json, &body), expected, "{text}");
}

#[test]
fn a_number_counts_however_it_is_written() {
    for (text, expected) in [
        ("0", 0),
        ("-0", 0),
        ("-0.0e5", 0),
        ("12", 12),
        ("12.0", 12),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("1.5e1", 15),
        ("1200e-2", 12),
        ("12.000000000000000000000000000000000000000000000000", 12),
        ("1000000000000000000000000000000000000000000000e-44", 10),
        ("0.00000000000000000000000000000000000000000000001e47", 1),
        ("0e999999999999", 0),
    ] {
        number(text, Some(expected));
    }
}

#[test]
fn fractions_round_up_once() {
    number("12.000000000001", Some(13));
    number("12.0000000000000000000000000000000000000000000000001", Some(13));
    number("1e-999999999999", Some(1));
    number("0.1", Some(1));
    let query = || Query::sum([("a", Weight::thousandths(100)), ("b", Weight::thousandths(250))]);
    assert_eq!(sum(query(), Format::Json, "{\"a\":3,\"b\":2}"), Some(1));
    assert_eq!(sum(query(), Format::Json, "{\"a\":10,\"b\":4}"), Some(2));
    assert_eq!(sum(query(), Format::Json, "{\"a\":10.001,\"b\":4}"), Some(3));
    let money = || Query::sum([("cost", Weight::MAX)]);
    assert_eq!(sum(money(), Format::Json, "{\"cost\":0.001234}"), Some(1234));
    assert_eq!(sum(money(), Format::Json, "{\"cost\":0.0012345678901}"), Some(1235));
}

#[test]
fn a_number_too_large_is_the_largest_cost() {
    for text in
        ["1000000000000", "1000000000001", "18446744073709551616", "1e400", "9e999999999999"]
    {
        number(text, Some(MAX_COST));
    }
    number("999999999999", Some(MAX_COST - 1));
    let heavy = Query::sum([("a", Weight::MAX), ("b", Weight::MAX)]);
    assert_eq!(sum(heavy, Format::Json, "{\"a\":1e30,\"b\":1e30}"), Some(MAX_COST));
}

#[test]
fn what_is_no_number_of_zero_or_more_counts_nothing() {
    for text in ["-1", "-0.001", "-1e9", "null", "true", "false", "\"12\"", "{}", "[]"] {
        number(text, None);
        number(&format!("7,\"n\":{text}"), Some(7));
    }
}

#[test]
fn a_number_that_json_does_not_allow_makes_its_document_malformed() {
    for text in
        ["01", "+1", ".5", "1.", "1e", "1e+", "-", "0x1", "1_0", "NaN", "Infinity", "--1", "1.e2"]
    {
        number(text, None);
        number(&format!("1,\"m\":{text}"), None);
    }
}

#[test]
fn a_discount_subtracts_and_no_cost_is_below_zero() {
    let query = || {
        let discount = ("details.cached", Weight::thousandths(-750));
        Query::sum([("prompt", Weight::ONE), discount])
    };
    assert_eq!(
        sum(query(), Format::Json, "{\"prompt\":100,\"details\":{\"cached\":40}}"),
        Some(70)
    );
    assert_eq!(sum(query(), Format::Json, "{\"prompt\":1,\"details\":{\"cached\":40}}"), Some(0));
}

#[test]
fn the_last_value_of_each_path_counts() {
    let query = || Query::sum([("u.a", Weight::ONE), ("u.b", Weight::thousandths(100_000))]);
    let check = |body, expected| assert_eq!(sum(query(), Format::Json, body), expected, "{body}");
    check("{\"u\":{\"a\":1,\"b\":2}}", Some(201));
    check("{\"u\":{\"a\":1,\"a\":3,\"b\":2},\"u\":{\"b\":4}}", Some(403));
    check("{\"u\":[{\"a\":1},{\"a\":2,\"b\":[5,6]}]}", Some(602));
    check("{\"u\":{\"c\":{\"a\":1}},\"a\":2,\"U\":{\"a\":3},\"u.a\":4}", None);
    check("{\"u\":{\"a\":{\"a\":9}},\"v\":{\"u\":{\"a\":9}}}", None);
}

#[test]
fn names_are_compared_as_they_are_written() {
    let check = |path: &str, body: &str, expected| {
        let query = Query::sum([(path, Weight::ONE)]);
        for size in 1..=body.len() {
            let pieces = body.as_bytes().chunks(size);
            let read = super::read(
                query.clone(),
                Format::Json,
                flowgate::usage::Encoding::Identity,
                pieces,
            );
            assert_eq!(read.0.sum, expected, "{path} in {body}");
        }
    };
    check("usage", "{\"us\\u0061ge\":1}", None);
    check("us\\u0061ge", "{\"us\\u0061ge\":1}", Some(1));
    check("über", "{\"über\":1}", Some(1));
    check("a\\\"b", "{\"a\\\"b\":1}", Some(1));
    check(&"n".repeat(128), &format!("{{\"{}\":1}}", "n".repeat(128)), Some(1));
    check(&"n".repeat(128), &format!("{{\"{}\":1}}", "n".repeat(129)), None);
}

#[test]
fn a_path_that_no_reader_follows_is_an_error() {
    let error = |path: &str| Queries::new(&[Query::sum([(path, Weight::ONE)])]).err();
    assert_eq!(error("a.b.c.d.e.f.g.h"), None);
    assert_eq!(
        error("a.b.c.d.e.f.g.h.i"),
        Some(QueryError::TooDeep("a.b.c.d.e.f.g.h.i".to_owned()))
    );
    assert_eq!(error(""), Some(QueryError::EmptyName(String::new())));
    assert_eq!(error("a..b"), Some(QueryError::EmptyName("a..b".to_owned())));
    let long = "n".repeat(129);
    assert_eq!(error(&long), Some(QueryError::LongName(long.clone())));

    let many: Vec<String> = (0..33).map(|number| format!("n{number}")).collect();
    let sum = |paths: &[String]| Query::sum(paths.iter().map(|path| (&**path, Weight::ONE)));
    assert!(Queries::new(&[sum(&many[..32])]).is_ok());
    assert_eq!(Queries::new(&[sum(&many)]).err(), Some(QueryError::TooManyNumbers));
    let same = vec![sum(&many[..1]); 32];
    assert!(Queries::new(&same).is_ok(), "a number that several queries read is read once");
    assert_eq!(Queries::new(&vec![sum(&many[..1]); 33]).err(), Some(QueryError::TooManyQueries));
}

#[test]
fn several_queries_read_one_body() {
    let total = Query::sum([("usage.total_tokens", Weight::ONE)]);
    let either = Query {
        terms: vec![Term {
            paths: vec!["x".to_owned(), "usage.total_tokens".to_owned()],
            weight: Weight::ONE,
        }],
        ends: Vec::new(),
    };
    let all: Vec<Query> = Preset::ALL.into_iter().map(Query::from).chain([total, either]).collect();
    let queries = std::sync::Arc::new(Queries::new(&all).expect("all presets fit"));
    let mut reader =
        flowgate::usage::Reader::new(queries, Format::Json, flowgate::usage::Encoding::Identity);
    reader.push(super::fixtures::fixture("openai.json").body);
    reader.finish();
    let sums: Vec<Option<u64>> = (0..all.len()).map(|number| reader.reading(number).sum).collect();
    assert_eq!(sums, [Some(29), None, None, None, None, Some(29), Some(29)]);
}
