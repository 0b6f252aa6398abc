//! The meaning of a file, its possible improvements and its differences from another one, in words.

pub(super) mod changes;
mod describe;
mod diff;
mod memory;
mod promise;

pub use changes::{ChangeKind, ConfigChanges, Named};
pub use describe::{RoutePromises, RulePromise, describe, promises};
pub use diff::{Difference, RouteChange, RuleChange, diff};
pub use memory::most_bytes;
pub(super) use promise::bucket_numbers;
