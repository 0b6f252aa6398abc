//! flowgate: a reverse-proxy gateway with flow control built in.
//!
//! ```text
//!             main ── gateway                      wires the layers, watches the file
//!               │
//!    ┌──────────┼────────────┬───────────┐
//!  admin      workers ── proxy      access_log     IO: tokio, hyper, rustls, files
//!    │          │            │           │
//!    └──────────┴─────┬──────┴───────────┘
//!                     ▼
//!                  config       text ─▶ spec ─▶ plan ─▶ snapshot
//!                 ┌───┴───┐
//!                 ▼       ▼
//!               route    flow       http1          pure: values in, values out
//! ```
//!
//! [`flow`] decides when a request may start, [`route`] which rules it belongs to, [`config`] reads
//! those from `gateway.yaml` and swaps them while the gateway runs, [`proxy`] carries requests and
//! answers. [`http1`] reads and writes HTTP/1.1 messages as bytes. ARCHITECTURE.md has the journeys of a request and of an edit, and what is deliberately
//! absent from each layer.

#[macro_use]
mod labels;

pub mod access_log;
pub mod acme;
pub mod admin;
pub mod admin_client;
pub mod auth;
pub mod certs;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
mod counted;
pub mod demo;
pub mod docker;
pub mod explain;
pub mod flow;
pub mod gateway;
pub mod geo;
pub mod health;
mod hex;
pub mod http1;
pub mod import;
pub mod key_names;
mod lines;
pub mod meter;
pub mod preview;
pub mod proxy;
pub mod rejections;
pub mod replay;
pub mod route;
pub mod scenario;
pub mod shutdown;
pub mod small_http;
pub mod suggest;
mod terminal_text;
pub mod top;
pub mod traces;
pub mod usage;
pub mod workers;
pub mod worst_paths;
