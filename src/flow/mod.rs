//! Flow control without IO: values in, values out.
//!
//! A route's [`Gate`] holds its chain of slots: the statistic slot, one slot for
//! each flow rule, the breaker and the pacing slot. An arriving request brings the time and a
//! [`Claim`] on each slot that concerns it. **All slots are asked, then all are
//! told**, in one critical section, so a request that any of them rejects leaves
//! no trace in the others, and deciding and counting are one event.
//!
//! ```text
//!  arrival ──▶ statistic │ rule │ … │ breaker │ pacing ──▶ Permit (start) ──▶ finish or drop
//!              └────────────── one lock ──────────────┘       or Rejection (reason)
//! ```
//!
//! What is absent here: HTTP, clocks, sleeping, tasks, logging, and any lock but
//! the gate's. Every decision depends on the rules, the state and `now` alone.
//!
//! An algorithm is one file in [`limiter`], which decides over a state that it does
//! not own (`slot.rs`): of all clients, or of each (`keyed.rs`). A slot of another
//! kind, as [`breaker`] and [`pacing`], is one file beside it and a line in `chain.rs`.

mod build;
mod chain;
mod claim;
mod gate;
mod keyed;
mod pending;
mod phase;
mod ramp;
mod rules;
mod slot;
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

#[cfg(test)]
mod timeline;

pub use claim::{Claim, Key, SlotId};
pub use decision::{
    Decision, Outcome, Quota, Reason, ReasonKind, RejectedBy, Rejection, Report, Verdict,
};
pub use gate::{Admission, Gate, Permit, Reservation};
pub use keyed::{Churn, Keyed, Keys};
pub use limiter::{Algorithm, SyncedConfig};
pub use ramp::WarmUp;
pub use rate::Rate;
pub use rules::{Change, Installed, Rule, Rules, rule_of};
pub use shared::{Delta, Judgement, RemoteState, RoundTrip, Stored, Terms, Unstorable, Whose};
pub use statistic::{ByReason, Counts, Observation, RuleObservation, Sums, WAIT_BOUNDS};
pub use time::{Instant, WallOffset};
