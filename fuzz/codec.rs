//! What is fuzzed.

#[path = "../src/http1/mod.rs"]
pub mod http1;
