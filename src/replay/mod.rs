//! Recorded traffic through the rules, on a virtual clock.
//!
//! ```text
//!  files ──▶ input ──▶ event ──▶ engine ──▶ decisions, report
//!            formats   arrivals  the gates
//! ```
//!
//! The [`Engine`] uses the gates of a compiled configuration and the proxy's claims: no decision is
//! implemented twice. It runs on one thread and reads no clock.

mod command;
mod decisions;
mod engine;
mod event;
mod input;
mod notes;
mod report;
mod settle;
mod times;
mod undecided;
mod waits;

pub use crate::access_log::DecisionKind;
pub use command::{Options, Output, ReplayError, TrafficError, TrafficOptions, run};
pub use engine::{ArrivalResult, Engine, Unreached};
pub use event::{
    Arrival, Complete, Ending, Event, Id, Recorded, RecordedCost, RecordedKey, RecordedSharer,
    Request, ResponseHead, Settling,
};
pub use input::{BadLine, BadLines, Format, InputError, Inputs, UnreadableLog};
pub(crate) use notes::Unmatched;
pub use report::{
    CalendarReport, Collector, Column, RejectedClient, RejectedClients, ReplayReport, RouteReport,
    RuleReport, Timeline, WorstReport,
};
pub(crate) use report::{escaped, escaped_lines};
pub use times::{Millis, Times};
pub use waits::EndedWait;
