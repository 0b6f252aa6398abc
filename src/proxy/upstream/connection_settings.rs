//! What connections to servers have in common, whatever they speak.

use crate::config::{AnswerLimits, Server, Upstream, UpstreamProtocol, UpstreamTls};
use std::sync::Arc;

/// What a connection was opened for.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSettings {
    pub(crate) limits: AnswerLimits,
    pub(crate) protocol: UpstreamProtocol,
    /// `None`: cleartext.
    pub(crate) tls: Option<Arc<UpstreamTls>>,
}

impl ConnectionSettings {
    pub(crate) fn of(server: &Server, upstream: &Upstream) -> Self {
        let limits = upstream.options.limits;
        let protocol = upstream.options.protocol;
        Self { limits, protocol, tls: upstream.tls_of(server).cloned() }
    }

    /// Whether a connection would be opened in the same way with the current configuration.
    pub(crate) fn fit(&self, server: &Server, upstream: &Upstream) -> bool {
        let is_secured_so = match (&self.tls, upstream.tls_of(server)) {
            (None, None) => true,
            (Some(own), Some(wanted)) => Arc::ptr_eq(own, wanted),
            (None, Some(_)) | (Some(_), None) => false,
        };
        is_secured_so
            && self.limits == upstream.options.limits
            && self.protocol == upstream.options.protocol
    }
}
