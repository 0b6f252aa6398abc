//! The copies of a route's requests for another upstream.

use crate::config::spec::SampleRatio;
use crate::flow::time::spelled;
use bytesize::ByteSize;
use std::{fmt, sync::Arc, time::Duration};

/// The requests of a route that are copied, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The name of the upstream that gets the copies.
    pub upstream: Arc<str>,
    /// The share of the requests.
    pub share: SampleRatio,
    /// The longest body that is copied, in bytes.
    pub body_limit: u64,
    /// The longest time that a copy may take, to the end of its response.
    pub timeout: Duration,
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { upstream, share, body_limit, timeout } = self;
        let size = ByteSize(*body_limit);
        let time = spelled(*timeout);
        write!(f, "{share} to {upstream}, bodies up to {size}, within {time}")
    }
}
