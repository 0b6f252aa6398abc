//! Each preset against the responses of its API: in any pieces, in gzip or not, cut anywhere.

use super::{
    fixtures::{FIXTURES, Fixture, gzip},
    oracle, read,
};
use flate2::read::GzDecoder;
use flowgate::usage::{Encoding, Reading};
use std::io::Read;

impl Fixture {
    fn read<'a>(
        &self,
        encoding: Encoding,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Reading, u64) {
        read(self.preset.query(), self.format, encoding, pieces)
    }
}

#[test]
fn every_api_has_its_tokens() {
    for fixture in FIXTURES {
        let (reading, events) = fixture.read(Encoding::Identity, [fixture.body]);
        assert_eq!(reading.sum, fixture.tokens, "{}", fixture.name);
        assert_eq!(events, fixture.events, "{}", fixture.name);
        assert_eq!(reading.is_final, fixture.tokens.is_some(), "{}", fixture.name);
        let oracle = oracle::sum(&fixture.preset.query(), fixture.format, fixture.body);
        assert_eq!(oracle, fixture.tokens, "{}: the oracle", fixture.name);
    }
}

#[test]
fn a_split_at_any_byte_changes_nothing() {
    for fixture in FIXTURES {
        let whole = fixture.read(Encoding::Identity, [fixture.body]);
        for at in 0..=fixture.body.len() {
            let (first, second) = fixture.body.split_at(at);
            let read = fixture.read(Encoding::Identity, [first, second]);
            assert_eq!(read, whole, "{} in two pieces at {at}", fixture.name);
        }
        let bytes = fixture.read(Encoding::Identity, fixture.body.chunks(1));
        assert_eq!(bytes, whole, "{} byte by byte", fixture.name);
    }
}

#[test]
fn gzip_changes_nothing() {
    for fixture in FIXTURES {
        let whole = fixture.read(Encoding::Identity, [fixture.body]);
        let body = gzip(fixture.body);
        for at in 0..=body.len() {
            let (first, second) = body.split_at(at);
            let read = fixture.read(Encoding::Gzip, [first, second]);
            assert_eq!(read, whole, "{} in gzip, in two pieces at {at}", fixture.name);
        }
        let bytes = fixture.read(Encoding::Gzip, body.chunks(1));
        assert_eq!(bytes, whole, "{} in gzip, byte by byte", fixture.name);
    }
}

#[test]
fn a_body_that_is_cut_has_the_numbers_of_what_is_complete() {
    for fixture in FIXTURES {
        for end in 0..=fixture.body.len() {
            let body = &fixture.body[..end];
            let (reading, events) = fixture.read(Encoding::Identity, [body]);
            let expected = oracle::sum(&fixture.preset.query(), fixture.format, body);
            assert_eq!(reading.sum, expected, "{} cut at {end}", fixture.name);
            if !fixture.name.contains("array") {
                let expected = oracle::events(fixture.format, body);
                assert_eq!(events, expected, "events of {} cut at {end}", fixture.name);
            }
        }
    }
}

#[test]
fn gzip_that_is_cut_has_the_numbers_of_what_came() {
    for fixture in FIXTURES {
        let body = gzip(fixture.body);
        for end in 0..=body.len() {
            let mut inflated = Vec::new();
            // It ends with an error, as it is cut.
            let _is_whole = GzDecoder::new(&body[..end]).read_to_end(&mut inflated).is_ok();
            let (reading, _) = fixture.read(Encoding::Gzip, [&body[..end]]);
            let expected = oracle::sum(&fixture.preset.query(), fixture.format, &inflated);
            assert_eq!(reading.sum, expected, "{} in gzip, cut at {end}", fixture.name);
        }
    }
}

#[test]
fn only_the_last_number_of_a_stream_is_final() {
    for fixture in FIXTURES.iter().filter(|fixture| fixture.tokens.is_some()) {
        let final_at = (0..=fixture.body.len())
            .find(|end| fixture.read(Encoding::Identity, [&fixture.body[..*end]]).0.is_final);
        let final_at = final_at.expect("the whole has a final number");
        let before = fixture.read(Encoding::Identity, [&fixture.body[..final_at - 1]]).0;
        assert!(!before.is_final, "{}", fixture.name);

        // The first of two `message_delta` is as good as the last one for a client that has gone.
        let read = fixture.read(Encoding::Identity, [&fixture.body[..final_at]]).0;
        let is_first_delta = fixture.name == "anthropic.sse";
        let tokens = if is_first_delta { Some(25 + 100 + 40 + 9) } else { fixture.tokens };
        assert_eq!(read.sum, tokens, "{} cut at {final_at}", fixture.name);
    }
}
