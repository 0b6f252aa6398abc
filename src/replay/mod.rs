//! Recorded traffic through the rules, on a virtual clock.
//!
//! ```text
//!  files ──▶ input ──▶ event ──▶ engine ──▶ decisions, report
//!            formats   arrivals  the gates
//! ```
//!
//! There is no second implementation of anything that decides: the [`Engine`] asks the
//! gates of a compiled configuration, by the claims that the proxy makes of a request.
//! It runs on one thread and reads no clock.

mod against;
mod command;
mod decimal;
mod decisions;
mod engine;
mod event;
mod input;
mod progress;
mod report;
mod times;
mod unmatched;

pub use crate::access_log::Decision;
pub use command::{Options, Output, ReplayError, run};
pub use decimal::Millis;
pub use engine::{Engine, Ruling, Unreached};
pub use event::{Answered, Arrival, Complete, Ending, Event, Id, Recorded, RecordedKey, Request};
pub use input::{Bad, BadLine, Format, InputError, Inputs};
pub use report::{
    CalendarReport, Collector, Column, RejectedKey, RejectedKeys, Report, RouteReport, RuleReport,
    Timeline, WorstReport,
};
pub(crate) use report::{escaped, escaped_lines};
pub use times::Times;
