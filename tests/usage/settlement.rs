//! The cost that a response settles, with a number or without.

use super::{
    fixtures::{FIXTURES, fixture},
    read,
};
use flowgate::usage::{Encoding, Format, Otherwise, Passed, Preset, Reading, settled};

fn passed(events: u64, is_whole: bool) -> Passed {
    Passed { request_bytes: 401, response_bytes: 10_000, events, is_whole }
}

const NONE: Reading = Reading { sum: None, is_final: false, is_streamed: true };

#[test]
fn a_number_that_is_final_is_the_cost() {
    let reading = Reading { sum: Some(3), is_final: true, is_streamed: true };
    assert_eq!(settled(&reading, &passed(90, false), 50, &Preset::otherwise()), 3);
    let reading = Reading { is_final: false, ..reading };
    assert_eq!(settled(&reading, &passed(90, true), 50, &Preset::otherwise()), 3);
}

#[test]
fn without_a_number_the_cost_is_at_least_the_reserve_and_what_passed() {
    let cost =
        |events, reserve| settled(&NONE, &passed(events, true), reserve, &Preset::otherwise());
    assert_eq!(cost(10, 50), 101 + 10);
    assert_eq!(cost(10, 500), 500);
    assert_eq!(settled(&NONE, &passed(10, true), 50, &Otherwise::default()), 50);
}

#[test]
fn only_a_whole_response_that_is_not_streamed_is_refunded() {
    let document = Reading { is_streamed: false, ..NONE };
    let cost = |reading: &Reading, is_whole| {
        settled(reading, &passed(0, is_whole), 50, &Otherwise::Refund)
    };
    assert_eq!(cost(&document, true), 0);
    assert_eq!(cost(&document, false), 50);
    assert_eq!(cost(&NONE, true), 50);
}

#[test]
fn a_client_gains_nothing_by_leaving() {
    let reserve = 20;
    for fixture in FIXTURES {
        let tokens = fixture.tokens.unwrap_or(0);
        for end in 1..fixture.body.len() {
            let pieces = [&fixture.body[..end]];
            let (reading, events) =
                read(fixture.preset.query(), fixture.format, Encoding::Identity, pieces);
            let otherwise = Preset::otherwise();
            let passed = passed(events, false);
            let cost = settled(&reading, &passed, reserve, &otherwise);
            if reading.is_final {
                assert!(cost <= tokens, "{} cut at {end}: {cost}", fixture.name);
            } else {
                let least = reserve.max(otherwise.cost(&passed)).max(reading.sum.unwrap_or(0));
                assert_eq!(cost, least, "{} cut at {end}", fixture.name);
            }
        }
    }
}

#[test]
fn what_cannot_be_read_has_no_number() {
    let body = fixture("openai.json").body;
    assert_eq!(Encoding::of(None), Encoding::Identity);
    assert_eq!(Encoding::of(Some("identity")), Encoding::Identity);
    assert_eq!(Encoding::of(Some(" GZIP ")), Encoding::Gzip);
    assert_eq!(Encoding::of(Some("x-gzip")), Encoding::Gzip);
    for encoding in ["br", "zstd", "deflate", "gzip, br", "gzip, gzip"] {
        assert_eq!(Encoding::of(Some(encoding)), Encoding::Unknown);
    }
    let (reading, events) = read(Preset::OpenAi.query(), Format::Events, Encoding::Unknown, [body]);
    assert_eq!((reading.sum, reading.is_final, events), (None, false, 0));
}
