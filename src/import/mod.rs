//! A configuration of nginx as `gateway.yaml`.
//!
//! ```text
//! words ──▶ read ──▶ tree of directives ──▶ servers, locations, limits, … ──▶ converted config
//!                    with its includes       each takes what it converts       YAML
//! ```
//!
//! What converts is taken from the report, what converts with a difference is
//! taken and noted, and what nothing took is reported at the end. So no directive is lost unseen.

mod access;
mod command;
mod converted_config;
mod guards;
mod headers;
mod include;
mod keys;
mod limits;
mod listeners;
mod literal;
mod locations;
mod matched;
mod nested;
mod networks;
mod numbers;
mod order;
mod pattern;
mod proxied;
mod read;
mod reasons;
mod redirects;
mod report;
mod returns;
mod routes;
mod scope;
mod servers;
mod settings;
mod template;
mod tree;
mod upstreams;
mod words;

#[cfg(test)]
mod tests;

pub use command::{ImportError, ImportResult, Options, run};
