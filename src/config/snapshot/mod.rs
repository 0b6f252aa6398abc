//! What the gateway runs by: immutable, and shared by every request that began under it.

mod claim;
mod route;
mod upstream;
mod whole;

pub use claim::{Claims, KeySource, RequestContext, Unrouted, is_served, outcome};
pub use route::{Route, RouteRule, RuleSync, Shared};
pub use upstream::{Server, Upstream};
pub use whole::Snapshot;
