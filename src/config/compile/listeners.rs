//! Listeners: names, addresses, certificates.

use super::compiler::{Compiler, NamedListener};
use crate::config::{
    decode::At,
    diagnostics::{Problem, SourceSpan, quoted},
    plan::{Certificate, Certificates, ClientAuthorities, ListenPlace, Listener, TlsTerms},
    read::source::Files,
    spec::{
        AcmeFolder, AcmeSpec, CertificateFiles, CertificateSpec, ClientAuth, FileSpec,
        ListenAddress, ListenerSpec, TlsSpec,
    },
};
use std::{
    collections::HashMap,
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Returns, as a problem, that the address at `at` overlaps with that at `other`.
fn collision(at: &At<ListenAddress>, other: &At<ListenAddress>) -> Problem {
    let [here, there] = [at, other].map(|at| &at.value);
    let is_every =
        |address: &&ListenAddress| address.ip().is_some_and(|ip| ip.ip() == Ipv6Addr::UNSPECIFIED);
    let (message, label, help) = if here == there {
        let help = if here.ip().is_some() { "write another port" } else { "write another path" };
        (format!("two listeners on `{here}`"), "again here", help)
    } else {
        let help = if [here, there].iter().any(is_every) {
            "write another port: `[::]` is every address, IPv4 too"
        } else {
            "write another port: `0.0.0.0` is every IPv4 address"
        };
        (format!("listeners on `{there}` and on `{here}` collide"), "here", help)
    };
    Problem::error(at.span, message).label(label).also(other.span, "first here").help(help)
}

/// Returns, as a problem, that no proxy is trusted to write the field at `span`.
fn without_proxies(span: SourceSpan) -> Problem {
    Problem::error(span, "`client_ip_header` without `trusted_proxies`").help(
        "write `trusted_proxies: [10.0.0.0/8]`: the proxies in front that write this field. Any \
         other client could choose its address",
    )
}

/// The permissions of a Unix socket: its owner and its group may connect.
const DEFAULT_UNIX_MODE: u32 = 0o660;

/// The folders of certificates.
struct Folders<'f> {
    /// That of the configuration.
    file: &'f Path,
    /// Those of the authority, if the file has one.
    issued: Option<&'f AcmeFolder>,
}

impl Compiler {
    pub(super) fn listeners(
        &mut self,
        file: &FileSpec,
        admin: Option<At<SocketAddr>>,
        files: &Files,
        folder: &Path,
    ) -> Vec<Arc<Listener>> {
        let specs = file.listeners.items();
        self.names("listener", specs.iter().filter_map(|at| at.value.name.as_ref()));
        let named = specs.iter().filter_map(|at| {
            let has_unix_socket = at.value.addresses().any(|at| at.value.ip().is_none());
            Some(NamedListener {
                name: Arc::clone(&at.value.name.value()?.0),
                verifies_clients: at.value.asks_for_certificates(),
                has_unix_socket,
            })
        });
        self.listeners = named.collect();
        let addresses = specs.iter().flat_map(|at| at.value.addresses());
        let admin =
            admin.map(|at| At { value: at.value.into(), span: at.span, written: at.written });
        // With port 0 the system picks a port of its own for each.
        self.collisions(addresses.chain(admin).filter(|at| !at.value.has_any_port()));
        for at in specs {
            self.one_of_any_port(&at.value);
            self.proxy_protocol(&at.value, file);
            self.client_ip_header(&at.value, file);
        }
        self.unused_client_ip_header(file);

        let issued = file.acme.value().and_then(AcmeSpec::folder);
        let tls = specs.iter().filter_map(|at| at.value.tls.value());
        for certificate in tls.flat_map(|tls| tls.certificates.items()) {
            self.certificate_form(certificate, file.acme.is_written());
        }
        let folders = Folders { file: folder, issued: issued.as_ref() };
        specs.iter().filter_map(|at| self.listener(&at.value, files, &folders)).collect()
    }

    /// Reports a listener that would close every connection.
    fn proxy_protocol(&mut self, spec: &ListenerSpec, file: &FileSpec) {
        let own = &spec.trusted_proxies;
        let trusted = if own.is_written() { own.items() } else { file.trusted_proxies.items() };
        if let Some(at) = spec.proxy_protocol.as_ref().filter(|at| at.value && trusted.is_empty()) {
            self.error(
                Problem::error(at.span, "`proxy_protocol` without `trusted_proxies`")
                    .help("write `trusted_proxies: [10.0.0.0/8]`: the load balancers in front of this listener"),
            );
        }
    }

    /// Reports a field of trusted proxies at a listener that trusts none.
    fn client_ip_header(&mut self, spec: &ListenerSpec, file: &FileSpec) {
        let own = &spec.trusted_proxies;
        let trusted = if own.is_written() { own } else { &file.trusted_proxies };
        let names_none = trusted.items().is_empty();
        if let Some(span) = spec.client_ip_header.span.filter(|_| names_none) {
            self.error(without_proxies(span));
        }
    }

    /// Reports a field of trusted proxies where no listener trusts any.
    fn unused_client_ip_header(&mut self, file: &FileSpec) {
        let listeners = file.listeners.items().iter();
        let trusted = listeners.flat_map(|at| at.value.trusted_proxies.items());
        let names_none = trusted.chain(file.trusted_proxies.items()).next().is_none();
        if let Some(span) = file.client_ip_header.span.filter(|_| names_none) {
            self.error(without_proxies(span));
        }
    }

    /// Reports an address with port 0 that a listener has twice: nothing tells the two apart.
    fn one_of_any_port(&mut self, spec: &ListenerSpec) {
        let any = spec.addresses().filter(|at| at.value.has_any_port());
        self.unique(
            any.map(|at| (at.value.to_string(), at.span)),
            |address| format!("{} twice at one listener", quoted(address)),
            "write it once, or name two listeners",
        );
    }

    fn collisions(&mut self, addresses: impl Iterator<Item = At<ListenAddress>>) {
        // By port; `None` are Unix sockets.
        let mut known: HashMap<Option<u16>, Vec<At<ListenAddress>>> = HashMap::new();
        for at in addresses {
            let others = known.entry(at.value.ip().map(|ip| ip.port())).or_default();
            match others.iter().find(|other| at.value.overlaps(&other.value)) {
                Some(other) => self.error(collision(&at, other)),
                None => others.push(at),
            }
        }
    }

    fn listener(
        &mut self,
        spec: &ListenerSpec,
        files: &Files,
        folders: &Folders<'_>,
    ) -> Option<Arc<Listener>> {
        let specs = spec.tls.value().map_or(&[][..], |tls| tls.certificates.items());
        let mut list = Vec::new();
        let mut certificates = Vec::new();
        for spec in specs.iter().map(|at| &at.value) {
            if let (Some(names), Some(folder)) = (spec.names(), folders.issued) {
                let issued = Self::acme_certificates(&names, folder, files);
                certificates.extend(
                    issued.last().and_then(|last| last.path.file_name()).map(PathBuf::from),
                );
                list.extend(issued);
                continue;
            }
            let CertificateSpec { cert, key, .. } = spec;
            let (Some(cert), Some(key)) = (cert.path(), key.path()) else { continue };
            // As they are written.
            let path = cert.value.strip_prefix(folders.file).unwrap_or(&cert.value).to_owned();
            certificates.push(path);
            list.extend(self.certificate(&CertificateFiles { cert, key }, files));
        }
        let tls = Certificates::new(list).map(Arc::new);
        let name = spec.name.as_ref()?.value.0.clone();

        let places =
            spec.addresses().map(|At { value: address, span, .. }| ListenPlace { address, span });
        let addresses: Vec<ListenPlace> = places.collect();
        if addresses.is_empty() {
            return None;
        }
        self.unused_unix_mode(spec, &addresses);

        let terms = spec.tls.value().map(|tls| self.tls_terms(tls, files)).unwrap_or_default();
        let own = &spec.trusted_proxies;
        let trusted_proxies = own.is_written().then(|| self.trusted_proxies(own));
        let proxy_protocol = spec.proxy_protocol.is_true();

        Some(Arc::new(Listener {
            name,
            addresses,
            unix_mode: spec.unix_mode.value().map_or(DEFAULT_UNIX_MODE, |mode| mode.0),
            tls,
            terms,
            trusted_proxies,
            client_ip_header: spec.client_ip_header.value().map(|name| name.0.clone()),
            proxy_protocol,
            certificates,
        }))
    }

    /// Reports permissions of sockets that a listener does not have.
    fn unused_unix_mode(&mut self, spec: &ListenerSpec, addresses: &[ListenPlace]) {
        let has_socket = addresses.iter().any(|place| place.address.ip().is_none());
        if let Some(span) = spec.unix_mode.span.filter(|_| !has_socket) {
            self.error(
                Problem::error(span, "`unix_mode` without a Unix socket")
                    .help("remove it, or write `listen: unix:/PATH`"),
            );
        }
    }

    /// Compiles the terms of a listener's TLS.
    fn tls_terms(&mut self, spec: &TlsSpec, files: &Files) -> TlsTerms {
        let needs_tls13 = spec.min_version.value().is_some_and(|version| version.0);
        let is_required = spec.client_auth.value() == Some(&ClientAuth::Required);
        if let Some(span) = spec.client_auth.span.filter(|_| !spec.client_ca.is_written()) {
            self.error(
                Problem::error(span, "`client_auth` without `client_ca`")
                    .help("write `client_ca: FILE`, the authorities of clients' certificates"),
            );
        }
        let clients = spec.client_ca.path().and_then(|file| {
            let loaded = ClientAuthorities::load(&file, is_required, files);
            loaded.map_err(|problem| self.error(problem)).ok()
        });
        TlsTerms { needs_tls13, clients }
    }

    fn certificate(&mut self, spec: &CertificateFiles, files: &Files) -> Option<Certificate> {
        match Certificate::load(spec, files) {
            Ok(certificate) => Some(certificate),
            Err(problems) => {
                for problem in problems {
                    self.error(problem);
                }
                None
            }
        }
    }
}
