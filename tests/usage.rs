//! Numbers in responses: every API's form in any pieces, laws on random bodies against `serde_json`, and
//! bodies that mean harm.

#[path = "usage/events.rs"]
mod events;
#[path = "usage/fixtures.rs"]
mod fixtures;
#[path = "usage/hostile.rs"]
mod hostile;
#[path = "usage/laws.rs"]
mod laws;
#[path = "usage/numbers.rs"]
mod numbers;
#[path = "usage/oracle.rs"]
mod oracle;
#[path = "usage/presets.rs"]
mod presets;
#[path = "usage/settlement.rs"]
mod settlement;

use flowgate::usage::{Encoding, Format, Queries, Query, Reader, Reading};
use std::sync::Arc;

/// Begins a body for one query.
fn reader(query: Query, format: Format, encoding: Encoding) -> Reader {
    let queries = Queries::new(&[query]).expect("a reader can follow its paths");
    Reader::new(Arc::new(queries), format, encoding)
}

/// Reads a body in `pieces`. Returns its number and its events.
fn read<'a>(
    query: Query,
    format: Format,
    encoding: Encoding,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Reading, u64) {
    let mut reader = reader(query, format, encoding);
    pieces.into_iter().for_each(|piece| reader.push(piece));
    reader.finish();
    (reader.reading(0), reader.events())
}

/// Returns the sum of a plain body.
fn sum(query: Query, format: Format, body: &str) -> Option<u64> {
    read(query, format, Encoding::Identity, [body.as_bytes()]).0.sum
}
