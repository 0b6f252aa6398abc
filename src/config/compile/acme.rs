//! Certificates by ACME: the authority of the file, and what listeners show of its certificates.

use super::compiler::Compiler;
use crate::config::{
    decode::At,
    diagnostics::{Problem, quoted},
    plan::{Acme, AcmeOrder, Certificate, Eab, Origin, UpstreamTls, self_signed},
    read::source::Files,
    spec::{
        AcmeFolder, AcmeNames, AcmeSpec, CertificateFiles, CertificateSpec, EabSpec, FileSpec,
        ListenerSpec, MOST_NAMES, Secret, TlsOptions, UpstreamProtocol, is_beside,
    },
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use std::{collections::HashSet, sync::Arc};

impl Compiler {
    /// Reports a certificate of a listener that is neither two files nor names.
    pub(super) fn certificate_form(&mut self, at: &At<CertificateSpec>, has_authority: bool) {
        const FILES: &str = "write `cert` and `key`, two PEM files; or `acme: [NAMES]`, with which flowgate gets a certificate";
        let CertificateSpec { cert, key, acme } = &at.value;

        let problem = match (acme.span, cert.span.or(key.span)) {
            (Some(acme), Some(file)) => Problem::error(acme, "`acme` beside the files of a certificate")
                .also(file, "a file")
                .help("write one of both: flowgate keeps the files of `acme` in `acme.storage`"),
            (None, None) => Problem::error(at.span, "the certificate has no files").help(FILES),
            (None, Some(_)) if !cert.is_written() => {
                Problem::error(at.span, "`cert` is missing").help(FILES)
            }
            (None, Some(_)) if !key.is_written() => {
                Problem::error(at.span, "`key` is missing").help(FILES)
            }
            (None, Some(_)) => return,
            (Some(span), None) if acme.at.is_some() && acme.items().is_empty() => {
                Problem::error(span, "`acme` without a name")
                    .help("write the names of the certificate, as in `acme: [shop.example.com]`")
            }
            (Some(span), None) if acme.items().len() > MOST_NAMES => {
                let message = format!("{} names in one certificate", acme.items().len());
                Problem::error(span, message).help(format!(
                    "authorities take up to {MOST_NAMES}: write several, each `{{ acme: [NAMES] }}`"
                ))
            }
            (Some(span), None) if !has_authority => {
                Problem::error(span, "`acme` at a certificate, and no authority").help(
                    "write `acme: { email: ops@example.com }` beside `listeners`; its default is Let's Encrypt",
                )
            }
            (Some(_), None) => {
                let names = acme.items().iter().map(|at| (at.value.0.as_str(), at.span));
                let message = |name: &&str| format!("the name {} is there twice", quoted(name));
                return self.unique(names, message, "remove one");
            }
        };
        self.error(problem);
    }

    /// Compiles the authority, with the orders of the listeners.
    pub(super) fn acme(&mut self, file: &FileSpec, files: &Files) -> Option<Arc<Acme>> {
        let at = file.acme.as_ref()?;
        let AcmeSpec { email, directory, ca, eab, .. } = &at.value;

        let options = TlsOptions { ca: ca.path(), ..TlsOptions::default() };
        let tls = UpstreamTls::load(&options, UpstreamProtocol::H1, files, at.span);
        let tls = tls.map_err(|problems| problems.into_iter().for_each(|one| self.error(one)));
        let eab = eab.value().map(|eab| self.eab(eab, files));

        let folder = at.value.folder()?;
        let orders = orders(file, &folder);
        let has_plain_listener = has_plain_listener(file.listeners.items());
        Some(Arc::new(Acme {
            email: email.value().map(|email| email.0.clone()),
            folder,
            directory: directory.value()?.0.clone(),
            tls: Arc::new(tls.ok()?),
            eab: match eab {
                Some(eab) => Some(eab?),
                None => None,
            },
            has_plain_listener,
            orders,
        }))
    }

    fn eab(&mut self, spec: &EabSpec, files: &Files) -> Option<Eab> {
        const HELP: &str = "write a file with the key of the account as the authority shows it, such as `zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W`";
        let file = spec.key_file.path()?;
        let shown = quoted(&file.value.to_string_lossy());
        let wrong = |message: String| Problem::error(file.span, message).help(HELP);

        let text = match files.get(&file.value)? {
            Ok(bytes) => String::from_utf8_lossy(bytes),
            Err(why) => {
                self.error(wrong(format!("cannot read the key of the account {shown}: {why}")));
                return None;
            }
        };
        // Some authorities show it with the padding.
        let text = text.trim().trim_end_matches('=');
        let is_key = BASE64_URL_SAFE_NO_PAD.decode(text).is_ok_and(|key| !key.is_empty());
        if !is_key {
            self.error(wrong(format!("the file {shown} has no key in base64url")));
            return None;
        }
        Some(Eab { kid: spec.kid.value()?.0.clone(), key: Secret::new(text.to_owned()) })
    }

    /// Returns the certificates that a listener shows for these names: the one that the authority has
    /// issued; else a self-signed one, behind certificates that were issued for some of the names.
    pub(super) fn acme_certificates(
        names: &AcmeNames,
        folder: &AcmeFolder,
        files: &Files,
    ) -> Vec<Certificate> {
        let order = order(names, folder);
        let load = |path| {
            let path = At { value: path, span: names.span, written: true };
            let both = CertificateFiles { cert: path.clone(), key: path };
            let loaded = Certificate::load(&both, files).ok()?;
            Some(Certificate { origin: Origin::Acme, ..loaded })
        };
        let has = |certificate: &Certificate, name: &String| certificate.names.contains(name);

        if let Some(issued) = load(order.file.clone())
            && order.names.iter().all(|name| has(&issued, name))
        {
            return vec![issued];
        }

        // An edit of the names must not take a valid certificate away from those that remain.
        let others = files.keys().filter(|file| is_beside(file, &order.file));
        let others = others.filter_map(|file| load(file.clone()));
        let mut found: Vec<_> = others
            .filter(|other| order.names.iter().any(|name| has(other, name)))
            .map(|other| (order.names.iter().filter(|name| has(&other, name)).count(), other))
            .collect();
        // The one with most of the names is first, and of those the one that is valid longest.
        found.sort_by_key(|(count, other)| (*count, other.not_after));
        let found = found.into_iter().rev().map(|(_, other)| other);

        let own = self_signed(&order.names, order.file.clone(), names.span);
        found.chain(own).collect()
    }
}

/// Returns whether a listener without TLS can answer HTTP-01.
fn has_plain_listener(listeners: &[At<ListenerSpec>]) -> bool {
    listeners.iter().any(|at| !at.value.tls.is_written())
}

/// Returns the certificates to get, each once, however many listeners show it.
fn orders(file: &FileSpec, folder: &AcmeFolder) -> Vec<Arc<AcmeOrder>> {
    let mut seen = HashSet::new();
    let mut orders = Vec::new();
    for names in file.listeners.items().iter().flat_map(|at| at.value.acme_names()) {
        let order = order(&names, folder);
        if seen.insert(order.file.clone()) {
            orders.push(Arc::new(order));
        }
    }
    orders
}

fn order(names: &AcmeNames, folder: &AcmeFolder) -> AcmeOrder {
    let file = folder.certificate(names.names.iter().map(|at| at.value.as_str()));
    AcmeOrder { names: names.names.iter().map(|at| at.value.clone()).collect(), file }
}
