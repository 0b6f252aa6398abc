//! Certificates by ACME (RFC 8555): gets them from an authority, keeps them on disk, renews them, and
//! answers the authority's challenges.
//!
//! [`Task`] runs on a thread of its own. When it has written a certificate, the configuration is read
//! again, as after any change of a certificate's file. No failure of it changes what listeners show.

mod challenge;
mod client;
mod order;
mod renewal_info;
mod schedule;
mod status;
mod storage;
mod task;
#[cfg(test)]
mod tests;
mod x509;

pub use challenge::{ACME_TLS, Challenges, token};
pub use client::{Transport, over_network};
pub use status::{CertificateStatus, Status};
pub use task::Task;
