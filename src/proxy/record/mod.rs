//! The record of a request, while it runs and when it ends.

pub(crate) mod completion;
pub(crate) mod log_entry;
pub(crate) mod preview;
pub(crate) mod shown_keys;
