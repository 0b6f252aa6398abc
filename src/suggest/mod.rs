//! Limits proposed from recorded traffic.
//!
//! ```text
//!  replay::Inputs ──▶ traffic ──▶ proposal ──▶ study ──▶ suggested config
//!  files, or a        peaks by    a limit      tried by   YAML
//!  recording          route, key               the gates
//! ```
//!
//! A proposal is a number from the peaks. Its rejections are not computed but tried:
//! `trial` sends the whole log through the proposed rules with replay's engine. The reserves of rules
//! that settle their costs are numbers from the log.

mod command;
mod proposal;
mod recording;
mod reserves;
mod study;
mod suggested_config;
mod traffic;
mod trial;

#[cfg(test)]
mod tests;

pub use command::{Files, LiveOptions, Options, SuggestError, SuggestResult, run};
pub use proposal::Percent;
