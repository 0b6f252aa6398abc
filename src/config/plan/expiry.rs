//! The certificates that a configuration shows to clients and servers, and how long they are valid.

use super::{Admin, AdminTls, Certificate, Listener, Origin, Plan, UpstreamTls};
use crate::flow::Instant;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::Arc,
};

/// A certificate that the gateway shows to its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShownCertificate {
    /// Where it is shown, such as `listener web`, `admin` or `upstream shop`.
    pub used_by: String,
    /// The file of the chain.
    pub file: String,
    /// The DNS names of the certificate.
    pub names: Vec<String>,
    /// The time of the end, as `2026-11-21T05:00:00Z`.
    pub valid_until: String,
    /// The same in seconds since 1970.
    pub not_after: u64,
    /// True if flowgate renews it.
    #[serde(skip)]
    pub renews: bool,
    /// The peers that reject it once it has ended.
    #[serde(skip)]
    pub peers: &'static str,
    /// Stands for its contents, whatever its file is called.
    #[serde(skip)]
    pub print: u64,
}

impl ShownCertificate {
    fn new(used_by: String, peers: &'static str, certificate: &Certificate) -> Self {
        let mut hasher = DefaultHasher::new();
        certificate.key.cert.first().hash(&mut hasher);
        Self {
            used_by,
            file: certificate.path.display().to_string(),
            names: certificate.names.clone(),
            valid_until: certificate.valid_until(),
            not_after: certificate.not_after,
            renews: certificate.origin == Origin::Acme,
            peers,
            print: hasher.finish(),
        }
    }

    /// Returns how long it is still valid at `now`, in seconds; `None` if it has ended.
    pub fn seconds_left(&self, now: Instant) -> Option<u64> {
        self.not_after.checked_sub(now.as_nanos() / 1_000_000_000)
    }
}

/// The file and the place.
impl fmt::Display for ShownCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Path::new(&self.file).file_name().map(|name| name.to_string_lossy());
        write!(f, "{} ({})", name.as_deref().unwrap_or(&self.file), self.used_by)
    }
}

impl Plan {
    /// Returns the certificates that it shows, the one that ends first at the beginning.
    pub fn certificates(&self) -> Vec<ShownCertificate> {
        let upstreams = self.upstreams.iter();
        let of_upstreams = upstreams.map(|one| (&*one.name, one.options.tls.as_ref()));
        shown(&self.listeners, self.settings.admin.as_ref(), of_upstreams)
    }
}

/// Returns all certificates of a configuration but for self-signed ones in place of others, the one that ends first at the beginning.
pub(in crate::config) fn shown<'a>(
    listeners: &[Arc<Listener>],
    admin: Option<&Admin>,
    upstreams: impl Iterator<Item = (&'a str, Option<&'a Arc<UpstreamTls>>)>,
) -> Vec<ShownCertificate> {
    let of_listeners = listeners.iter().flat_map(|listener| {
        let certificates = listener.tls.iter().flat_map(|all| all.iter());
        let certificates = certificates.filter(|one| !one.is_self_signed());
        let used_by = format!("listener {}", listener.name);
        certificates.map(move |one| ShownCertificate::new(used_by.clone(), "clients", one))
    });
    let of_admin = admin.and_then(|admin| admin.tls.as_ref()).map(AdminTls::certificate);
    let of_admin = of_admin.map(|one| ShownCertificate::new("admin".to_owned(), "clients", one));
    let of_upstreams = upstreams.filter_map(|(name, tls)| {
        let used_by = format!("upstream {name}");
        Some(ShownCertificate::new(used_by, "servers", tls?.identity()?))
    });
    let mut found: Vec<_> = of_listeners.chain(of_admin).chain(of_upstreams).collect();
    found.sort_by_key(|certificate| certificate.not_after);
    found
}
