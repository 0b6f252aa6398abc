//! The last rejections of all routes, with their numbers.
//!
//! Each worker writes into a ring of its own, for which no request waits: while it is read,
//! a rejection is left out and counted. [`Rejections::list`] joins the rings.

mod list;
mod ring;

pub use list::{Filter, RejectedRequest, RejectionList, RuleCount};
pub use ring::{KEPT, Recorder, Rejections};
