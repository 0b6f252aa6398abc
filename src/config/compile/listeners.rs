//! Listeners: names, addresses, certificates.

use super::Compiler;
use crate::config::{
    certificate::{Certificate, Certificates},
    decode::At,
    problem::Problem,
    snapshot::Listener,
    source::Files,
    spec::{CertificateSpec, ListenerSpec},
};
use std::{net::SocketAddr, sync::Arc};

impl Compiler {
    pub(super) fn listeners(
        &mut self,
        specs: &[ListenerSpec],
        admin: Option<At<SocketAddr>>,
        files: &Files,
    ) -> Vec<Arc<Listener>> {
        self.names("listener", specs.iter().filter_map(|spec| spec.name.as_ref()));
        let addresses = specs.iter().filter_map(|spec| spec.listen).chain(admin);
        // With port 0 the system picks a port of its own for each.
        let addresses = addresses.filter(|at| at.value.port() != 0);
        self.unique(
            addresses.map(|at| (at.value, at.place)),
            |address| format!("two listeners on `{address}`"),
            "write another port",
        );
        specs.iter().filter_map(|spec| self.listener(spec, files)).collect()
    }

    fn listener(&mut self, spec: &ListenerSpec, files: &Files) -> Option<Arc<Listener>> {
        let tls = match &spec.certificates {
            None => None,
            Some(specs) => {
                let list = specs.iter().filter_map(|spec| self.certificate(spec, files)).collect();
                Certificates::new(list).map(Arc::new)
            }
        };
        let name = spec.name.as_ref()?.value.clone();
        let At { value: address, place, .. } = spec.listen?;
        Some(Arc::new(Listener { name, address, tls, place }))
    }

    fn certificate(&mut self, spec: &CertificateSpec, files: &Files) -> Option<Certificate> {
        let certificate = Certificate::load(spec, files).map_err(|e| self.error(e)).ok()?;
        if certificate.names.is_empty() {
            self.warn(
                Problem::warning(spec.cert.place, "the certificate names no host")
                    .help("clients refuse it unless it holds the name that they ask for"),
            );
        }
        Some(certificate)
    }
}
