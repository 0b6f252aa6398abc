//! The explanation of a request: the decisions that it would get, without effect.
//!
//! [`Question::explain`] finds the route as the proxy does, makes the same claims, and peeks at the
//! gate that would decide. Nothing is charged or counted, nothing is sent, and no store is asked.

mod answer;
mod auto_limit;
mod decide;
mod question;
mod shared;

pub use answer::{
    ExpectedDecision, ExplainedRequest, ExplainedRoute, ExplainedRule, ExplainedServer,
    ExplainedUpstream, Explanation, RunnerUp,
};
pub use auto_limit::{AutoState, LimitMove};
pub use question::{MAX_HEADERS, Question, TokenClaim};
pub use shared::{Seeds, StoreState};

#[cfg(test)]
mod tests;
