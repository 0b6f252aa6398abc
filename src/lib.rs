//! flowgate: a reverse-proxy gateway with flow control built in.
pub mod access_log;
pub mod admin;
pub mod clock;
pub mod config;
pub mod demo;
pub mod flow;
pub mod meter;
pub mod route;
pub mod small_http;
