//! However the bytes of a connection are cut into pieces, they say the same.

use crate::{
    generate,
    reader::{LIMITS, Role, read},
};
use flowgate::http1::{RequestKind, chunked::ChunkedDecoder};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

fn config(cases: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

fn assert_same(bytes: &[u8], role: Role) -> Result<(), TestCaseError> {
    let whole = read(&[bytes], role);
    for cut in 0..=bytes.len() {
        let (one, other) = bytes.split_at(cut);
        prop_assert_eq!(&read(&[one, other], role), &whole, "cut at {}", cut);
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    prop_assert_eq!(&read(&single, role), &whole, "byte by byte");
    Ok(())
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn requests_are_read_alike_however_they_are_cut(bytes in generate::requests()) {
        assert_same(&bytes, Role::Server)?;
    }

    #[test]
    fn responses_are_read_alike_however_they_are_cut(
        bytes in generate::responses(),
        kind in prop_oneof![Just(RequestKind::Head), Just(RequestKind::Connect), Just(RequestKind::Other)],
    ) {
        assert_same(&bytes, Role::Client(kind))?;
    }

    #[test]
    fn chunked_bodies_are_read_alike_however_they_are_cut(bytes in generate::chunked()) {
        let whole = decode(&[&bytes]);
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            prop_assert_eq!(&decode(&[one, other]), &whole, "cut at {}", cut);
        }
        prop_assert_eq!(&decode(&bytes.chunks(1).collect::<Vec<_>>()), &whole, "byte by byte");
    }
}

/// The data, how many bytes were read, and how it ended.
fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), String> {
    let mut decoder = ChunkedDecoder::new(LIMITS);
    let mut data = Vec::new();
    let mut consumed = 0;
    for piece in pieces {
        let mut buffer = piece.to_vec();
        let part = decoder.decode(&mut buffer).map_err(|error| format!("{error:?}"))?;
        data.extend_from_slice(&buffer[part.data]);
        consumed += part.consumed;
    }
    Ok((data, consumed, decoder.is_end()))
}
