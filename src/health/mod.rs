//! Which servers of an upstream are asked: servers that fail are passed over for a while.
//!
//! Two observers decide about a server. Passive ejection watches the requests that are sent to it:
//! see [`Ejection`]. Active checks ask it for a path now and then: see [`Check`]. One
//! [`ServerHealth`] has the result, shared by all workers and kept over reloads.
//!
//! Source of the rules: Envoy's outlier detection (consecutive failures, failure ratio, periods
//! that grow, a largest part of the servers) and nginx's `max_fails` (a server that cannot be
//! reached is passed over at once).

mod budget;
mod ejection_state;
mod server;
mod settings;
mod window;

pub use budget::RetryBudget;
pub use ejection_state::EjectionState;
pub use server::{HealthChange, ServerFailure, ServerHealth};
pub use settings::{Check, Ejection};
