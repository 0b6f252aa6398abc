//! From `gateway.yaml` to what the gateway runs by: text, tree, spec, plan, snapshot.

mod certificate;
mod decode;
mod error;
mod node;
mod settings;
mod snapshot;
mod source;
mod spec;
mod syntax;
mod values;
mod vocabulary;
pub mod watch;

pub use certificate::{Certificate, Certificates};
pub use error::{Diagnostics, Entry, Problem};
pub use settings::{AccessLog, ClientTimeouts, Limits, RateLimitHeaders, Settings};
pub use snapshot::{HeaderEdits, RouteTimeouts};
pub use source::fingerprint;
pub use vocabulary::{reference, schema};
