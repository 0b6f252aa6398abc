//! What is fuzzed.

#[path = "../src/http1/mod.rs"]
pub mod http1;
#[path = "../src/usage/mod.rs"]
pub mod usage;
