//! An upstream in force: its servers, and whose turn it is.

use crate::{config::plan::UpstreamPlan, health::ServerHealth, meter};
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize},
    },
};

/// A service behind the gateway.
#[derive(Debug)]
pub struct Upstream {
    /// What the file says.
    pub(in crate::config) plan: UpstreamPlan,
    /// In the order of the file; at least one.
    pub servers: Vec<Arc<Server>>,
    /// Whose turn it is: counts up, taken modulo the schedule's length.
    pub turn: AtomicUsize,
}

impl Deref for Upstream {
    type Target = UpstreamPlan;

    fn deref(&self) -> &UpstreamPlan {
        &self.plan
    }
}

/// A server of an upstream. Its identity, what is in flight and its meter belong to its address
/// and outlive a reload; so does its health, which belongs to the upstream's name as well. Its
/// weight is this configuration's.
#[derive(Debug)]
pub struct Server {
    /// Counted from 0, and never given to another address while the process lives.
    pub id: usize,
    /// A name or an address; IPv6 without brackets.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// 1 to 1000.
    pub weight: u32,
    /// Requests that it works on.
    pub in_flight: Arc<AtomicU32>,
    /// What it was asked and how it answered.
    pub meter: Arc<meter::ServerMeter>,
    /// Whether it gets requests.
    pub health: Arc<ServerHealth>,
}

impl Server {
    /// Returns `host:port`, with an IPv6 address in brackets.
    pub fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}
