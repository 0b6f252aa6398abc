//! What an upstream and its servers mean, without state.

use super::UpstreamTls;
use crate::{
    config::spec::{Balance, UpstreamProtocol, values::Endpoint},
    health::{Check, Ejection},
};
use std::{sync::Arc, time::Duration};

/// An upstream without its servers' state.
#[derive(Debug, PartialEq, Eq)]
pub struct UpstreamPlan {
    /// What routes call it.
    pub name: Arc<str>,
    pub(in crate::config) servers: Vec<ServerPlan>,
    /// Indexes of the servers in the order of their turns by weight; 1 to 1000 of them.
    pub schedule: Vec<u16>,
    /// What the file says beside its servers.
    pub options: UpstreamOptions,
}

/// A server without its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct ServerPlan {
    pub endpoint: Endpoint,
    pub weight: u32,
}

/// What the file says about an upstream, beside its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// How a server is picked.
    pub balance: Balance,
    /// Which versions of HTTP servers are spoken to in.
    pub protocol: UpstreamProtocol,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Idle connections kept for each server by each worker.
    pub max_idle: usize,
    /// What the header of an answer may be.
    pub limits: AnswerLimits,
    /// How its servers are checked, if they are.
    pub health: Option<Check>,
    /// When a server that fails requests is ejected.
    pub ejection: Ejection,
    /// How long a server's share grows after it is asked again.
    pub slow_start: Duration,
    /// How connections to those servers are secured that speak TLS.
    pub tls: Option<Arc<UpstreamTls>>,
}

/// Sizes and counts beyond which an upstream's answer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimits {
    /// The whole header of an answer, in bytes.
    pub header_bytes: usize,
    /// How many header fields.
    pub headers: usize,
}
