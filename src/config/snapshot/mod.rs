//! The snapshot that the gateway runs by: immutable, and shared by every request that began under
//! it.

mod claim;
mod find;
mod gate_rules;
mod route;
mod upstream;
mod whole;

pub use claim::{ClaimSource, Claims, KeySource, RequestContext, is_served, outcome};
pub use find::{Unrouted, rejected_path};
pub use gate_rules::{GateRules, RuleGroup, RuleOwner};
pub use route::{Route, RouteRule, RuleSync, Settling, Shared, SharedPlans};
pub(in crate::config) use upstream::Names;
pub use upstream::{Members, Server, Upstream};
pub use whole::Snapshot;
