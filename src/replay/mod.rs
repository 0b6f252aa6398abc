//! Recorded traffic through the rules, on a virtual clock.
//!
//! ```text
//!  files ──▶ input ──▶ event ──▶ engine ──▶ decisions, report
//!            formats   arrivals  the gates
//! ```
//!
//! The [`Engine`] uses the gates of a compiled configuration and the proxy's claims: no decision is
//! implemented twice. It runs on one thread and reads no clock.

mod absent_keys;
mod against;
mod command;
mod decimal;
mod decisions;
mod engine;
mod event;
mod input;
mod printable;
mod progress;
mod report;
mod times;
mod traffic_options;
mod unmatched;

pub use crate::access_log::DecisionKind;
pub use command::{Options, Output, ReplayError, run};
pub use decimal::Millis;
pub use engine::{ArrivalResult, Engine, Unreached};
pub use event::{Answered, Arrival, Complete, Ending, Event, Id, Recorded, RecordedKey, Request};
pub use input::{BadLine, BadLines, Format, InputError, Inputs, UnreadableLog};
pub(crate) use printable::printable;
pub use report::{
    CalendarReport, Collector, Column, RejectedClient, RejectedClients, ReplayReport, RouteReport,
    RuleReport, Timeline, WorstReport,
};
pub(crate) use report::{escaped, escaped_lines};
pub use times::Times;
pub use traffic_options::{TrafficError, TrafficOptions};
pub(crate) use unmatched::Unmatched;
