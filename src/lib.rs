//! flowgate: a reverse-proxy gateway with flow control built in.
pub mod flow;
pub mod meter;
