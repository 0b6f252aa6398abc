//! flowgate: a reverse-proxy gateway with flow control built in.
pub mod config;
pub mod flow;
