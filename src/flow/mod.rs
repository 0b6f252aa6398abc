//! Flow control without IO: values in, values out.
//!
//! A route's [`Gate`] holds its chain of slots: statistics, one slot per flow rule, the breaker,
//! pacing. An arriving request brings the time and a [`Claim`] on each slot that concerns it. **All
//! slots are checked before any is charged**, in one critical section: a rejected request leaves no
//! trace, and deciding and counting are one event.
//!
//! ```text
//!  arrival ──▶ statistic │ rule │ … │ breaker │ pacing ──▶ Permit (start) ──▶ finish or drop
//!              └────────────── one lock ──────────────┘       or Rejection (reason)
//! ```
//!
//! This module has no HTTP, clock, sleep, task or log, and no lock but the gate's. A decision
//! depends on the rules, the state and `now` alone.
//!
//! An algorithm is one file in [`limiter`]; it decides over states that a slot owns (`slot.rs`),
//! one for all clients or one for each (`keyed.rs`). A slot of another kind, such as [`breaker`] or
//! [`pacing`], is one file here, fields of [`Rules`] and [`Installed`], and variants of the rules of
//! slots in `chain/slots.rs` and `transfer/rule.rs`.

mod build;
mod chain;
mod claim;
mod gate;
mod grants;
mod keyed;
mod pending;
mod phase;
mod ramp;
mod rejected_keys;
mod rules;
mod slot;
mod top;
mod traits;
mod warmth;
mod window;

pub mod breaker;
pub mod calendar;
pub mod decision;
pub mod limiter;
pub mod pacing;
pub mod rate;
pub mod shared;
pub mod statistic;
pub mod time;
pub mod transfer;

#[cfg(test)]
mod timeline;

pub use claim::{Claim, Key, SlotId};
pub use decision::{
    Decision, Outcome, Quota, Reason, ReasonKind, RejectedBy, Rejection, Report, Verdict,
};
pub use gate::{Admission, Gate, ImportedSlots, KeyUsage, NotReset, Permit, Reservation};
pub use grants::{Grant, MOST_GRANTS};
pub use keyed::{Churn, Fullest, Keyed, Keys};
pub use limiter::{Algorithm, SyncedConfig};
pub use ramp::WarmUp;
pub use rate::Rate;
pub use rejected_keys::RejectedKeys;
pub use rules::{Change, Installed, Rule, Rules, rule_of};
pub use shared::{Delta, Judgement, RemoteState, RoundTrip, StateName, Stored, Terms, Unstorable};
pub use statistic::{ByReason, Counts, Observation, RuleObservation, Sums, Totals, WAIT_BOUNDS};
pub use time::{Instant, WallOffset};
pub use top::{Top, TopEntry};
