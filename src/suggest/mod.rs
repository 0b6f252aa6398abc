//! Limits proposed from recorded traffic.
//!
//! ```text
//!  replay::Inputs ──▶ traffic ──▶ peaks ──▶ proposal ──▶ trial ──▶ page
//!                     by route    of each   a limit      by the    YAML
//!                     and key     key                    gates
//! ```
//!
//! A proposal is a number from the peaks. What it would have rejected is not computed but tried:
//! `trial` sends the whole log through the proposed rules with replay's engine.

mod command;
mod page;
mod peaks;
mod percent;
mod proposal;
mod traffic;
mod trial;

#[cfg(test)]
mod tests;

pub use command::{Options, SuggestError, SuggestResult, run};
pub use percent::Percent;
