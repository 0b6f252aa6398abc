//! A configuration of nginx as `gateway.yaml`.
//!
//! ```text
//! words ──▶ read ──▶ tree of directives ──▶ servers, locations, limits, … ──▶ converted config
//!                    with its includes       each takes what it converts       YAML
//! ```
//!
//! A directive that converts is taken. One that converts with a difference is also noted. Those that
//! nothing took are reported at the end, so no directive is lost unseen.

mod access;
mod actions;
mod auth_request;
mod branches;
mod client_certificates;
mod command;
mod compression;
mod condition;
mod converted_config;
mod error_pages;
mod files;
mod headers;
mod limit_keys;
mod limits;
mod listeners;
mod locations;
mod lookahead;
mod maps;
mod media_types;
mod mirror;
mod numbers;
mod order;
mod pattern;
mod places;
mod program;
mod proxied;
mod read;
mod redirects;
mod report;
mod routes;
mod servers;
mod settings;
mod shared_zones;
mod single_keys;
mod sites;
mod template;
mod tree;
mod upstreams;
mod variants;

#[cfg(test)]
mod tests;

pub use command::{ImportError, ImportResult, Options, run};
