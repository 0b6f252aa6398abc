//! What a file means, what could be better about it, and what differs from another one, in words.

pub(super) mod changes;
mod describe;
mod diff;
mod memory;
mod promise;
mod remarks;

pub use changes::{ChangeKind, ConfigChanges, Named};
pub use describe::{RoutePromises, RulePromise, describe, promises};
pub use diff::{Difference, RouteChange, RuleChange, diff};
pub use memory::most_bytes;
