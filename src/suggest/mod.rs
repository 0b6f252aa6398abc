//! Limits proposed from recorded traffic.
//!
//! ```text
//!  replay::Inputs ──▶ traffic ──▶ peaks ──▶ proposal ──▶ trial ──▶ suggested config
//!  files, or a        by route    of each   a limit      by the    YAML
//!  recording          and key     key                    gates
//! ```
//!
//! A proposal is a number from the peaks. What it would have rejected is not computed but tried:
//! `trial` sends the whole log through the proposed rules with replay's engine.

mod command;
mod options;
mod peaks;
mod percent;
mod proposal;
mod recording;
mod study;
mod suggested_config;
mod traffic;
mod trial;

#[cfg(test)]
mod tests;

pub use command::{Files, SuggestError, SuggestResult, run};
pub use options::{LiveOptions, Options};
pub use percent::Percent;
