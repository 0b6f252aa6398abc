//! What a connection of a client is served by.

use crate::config::{ClientTimeouts, HeaderCase, Limits, Settings};

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The limits of a connection, those of the configuration that it began under. A
/// copy: an idle connection must not keep a whole configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionOptions {
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) limits: Limits,
    pub(crate) header_case: HeaderCase,
}

impl ConnectionOptions {
    pub(crate) fn of(settings: &Settings) -> Self {
        let &Settings { timeouts, limits, header_case, .. } = settings;
        Self { timeouts, limits, header_case }
    }
}
