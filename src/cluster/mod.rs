//! One limit across many gateways: rules whose states a Redis or Valkey store keeps.
//!
//! A request's rules that gateways share are decided by one script in the store, which charges
//! all of them or none (`decide.lua`). Its arithmetic is whole numbers, so that it decides as
//! [`flow`](crate::flow) does, one by one; why and until when is worked out from the state that
//! it tells, by the same formulas ([`Stored`](crate::flow::Stored)).

mod call;
mod recorded;
mod script;

pub use call::{Ask, Lease, Verdicts};
pub use recorded::Recorded;

/// Why the store has not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Its answer is none to what was asked.
    #[error("the store's answer makes no sense")]
    Nonsense,
}
