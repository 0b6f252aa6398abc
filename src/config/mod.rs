//! From `gateway.yaml` to what the gateway runs by: text, tree, spec, plan, snapshot.
mod error;
mod node;
mod syntax;
mod values;
mod vocabulary;

pub use error::{Diagnostics, Entry, Problem};
pub use vocabulary::{reference, schema};
