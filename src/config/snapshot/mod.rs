//! The snapshot that the gateway runs by: immutable, and shared by every request that began under
//! it.

mod claim;
mod claim_source;
mod find;
mod gate_rules;
mod route;
mod rule_group;
mod upstream;
mod whole;

pub use claim::{Claims, KeySource, RequestContext, is_served, outcome};
pub use claim_source::ClaimSource;
pub use find::{Unrouted, rejected_path};
pub use gate_rules::{GateRules, RuleOwner};
pub use route::{Route, RouteRule, RuleSync, Shared, SharedPlans};
pub use rule_group::RuleGroup;
pub(in crate::config) use upstream::Names;
pub use upstream::{Members, Server, Upstream};
pub use whole::Snapshot;
