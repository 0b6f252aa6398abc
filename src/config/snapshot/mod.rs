//! What the gateway runs by: immutable, and shared by every request that began under it.

mod claim;
mod route;
mod upstream;
mod whole;

pub use claim::{Applicant, Claims, Known, Unrouted, is_served, outcome};
pub use route::{Exchange, Route, RouteRule, Shared};
pub use upstream::{Server, Upstream};
pub use whole::Snapshot;
