//! An upstream in force: its servers, and whose turn it is.

use crate::{
    config::plan::{UpstreamPlan, UpstreamTls},
    health::{RetryBudget, ServerHealth},
    meter,
};
use std::{
    ops::Deref,
    path::Path,
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
    /// How many requests may be sent again; kept over reloads by the upstream's name.
    pub retries: Arc<RetryBudget>,
}

impl Deref for Upstream {
    type Target = UpstreamPlan;

    fn deref(&self) -> &UpstreamPlan {
        &self.plan
    }
}

impl Upstream {
    /// Returns how connections to `server` are secured; `None` for cleartext.
    pub fn tls_of(&self, server: &Server) -> Option<&Arc<UpstreamTls>> {
        self.options.tls.as_ref().filter(|_| server.is_tls)
    }
}

/// A server of an upstream. Its identity, what is in flight and its meter belong to its address
/// and outlive a reload; so does its health, which belongs to the upstream's name as well. Its
/// weight is this configuration's.
#[derive(Debug)]
pub struct Server {
    /// Counted from 0, and never given to another address while the process lives.
    pub id: usize,
    /// A name or an address, IPv6 without brackets; or the path of a Unix socket, which begins
    /// with `/`.
    pub host: Arc<str>,
    /// Its port; 0 for a Unix socket.
    pub port: u16,
    /// Whether it speaks TLS.
    pub is_tls: bool,
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
    /// Returns the path of its Unix socket, if it has one.
    pub fn socket(&self) -> Option<&Path> {
        self.host.starts_with('/').then(|| Path::new(&*self.host))
    }

    /// Returns `host:port`, with an IPv6 address in brackets, or `unix:` and the path of a socket.
    pub fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if self.socket().is_some() {
            return format!("unix:{host}");
        }
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}
