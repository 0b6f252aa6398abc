//! The record of a request: what is noted while it runs, and what is recorded when it ends.

mod completion;
mod log_entry;
mod observers;
pub(crate) mod preview;
mod settlement;
mod shown_keys;
mod while_streaming;

pub(crate) use completion::Completion;
pub(crate) use observers::{Event, Observers};
pub(crate) use settlement::SharedReserve;
