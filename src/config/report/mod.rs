//! What a file means, what could be better about it, and what differs from another one, in words.

pub(super) mod changes;
mod describe;
mod diff;
mod promise;
mod remarks;

pub use changes::{Changes, Fate};
pub use describe::{RoutePromises, RulePromise, describe, promises};
pub use diff::{Difference, Named, RouteChange, RuleChange, diff};
