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
mod actions;
mod branches;
mod command;
mod condition;
mod converted_config;
mod fallbacks;
mod files;
mod guards;
mod headers;
mod include;
mod keys;
mod limits;
mod listeners;
mod literal;
mod locations;
mod lookahead;
mod mapped_keys;
mod maps;
mod matched;
mod nested;
mod networks;
mod numbers;
mod order;
mod pattern;
mod proxied;
mod read;
mod real_ip;
mod reasons;
mod redirects;
mod repair;
mod report;
mod returns;
mod routes;
mod scope;
mod servers;
mod settings;
mod sites;
mod targets;
mod template;
mod tree;
mod upstreams;
mod variants;
mod words;

#[cfg(test)]
mod tests;

pub use command::{ImportError, ImportResult, Options, run};
