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
//! An algorithm is one file in [`limiter`], and so are [`breaker`] and [`pacing`]. It decides over
//! states that a slot owns (`slot`), one for all clients or one for each (`keyed`). The slots of a
//! route are a chain behind a lock (`gate`). Requests may wait for places (`queue`).

mod bans;
mod gate;
mod grants;
mod keyed;
mod learned;
mod queue;
mod rules;
mod slot;
mod top;
mod window;

pub mod calendar;
pub mod decision;
pub mod limit_change;
pub mod limiter;
pub mod rate;
pub mod shared;
pub mod statistic;
pub mod time;
pub mod transfer;

#[cfg(test)]
mod timeline;

pub use decision::{
    Claim, Decision, Key, Outcome, PlanKey, Quota, Reason, ReasonKind, RejectedBy, Rejection,
    Report, SlotId, Verdict,
};
pub use gate::{
    Admission, BudgetGates, FinalCost, Gate, Gates, ImportedSlots, KeyUsage, NotReset, Permit,
    Reservation, Reserve, SettledReserve,
};
pub use grants::{Grant, MOST_GRANTS};
pub use keyed::{Churn, Fullest, Keyed, Keys};
pub use learned::Estimate;
pub use limit_change::{AutoStats, ChangeReason, LimitChange};
pub use limiter::{
    Algorithm, Difference, PlanTable, PlannedConfig, SyncedConfig, breaker,
    concurrency::QueueConfig,
    pacing,
    ramp::WarmUp,
    stored::{Judgement, Stored, Terms, Unstorable},
};
pub use queue::Sharer;
pub use rate::Rate;
pub use rules::{Change, Installed, Rule, Rules, rule_of};
pub use shared::{Delta, RemoteState, RoundTrip, StateName};
pub use statistic::{ByReason, Counts, Observation, RuleObservation, Sums, Totals, WAIT_BOUNDS};
pub use time::{Instant, WallOffset};
pub use top::{RejectedKeys, Top, TopEntry};
