//! `ssl_verify_client`: the certificates that clients show.

use super::{
    files::Files,
    listeners::Listener,
    report::ImportReport,
    tree::{Directive, Scope},
};

/// The certificates for which a listener asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientCertificates {
    /// The file of the authorities, as `gateway.yaml` names it.
    pub authorities: String,
    /// True if a client without one is rejected.
    pub is_required: bool,
}

/// Reads which listeners ask for certificates. In nginx each server says so, here each listener: if the
/// servers of one listener differ, nothing is converted, and their routes stay closed.
pub(super) fn read(
    listeners: &mut [Listener<'_>],
    http: &Directive,
    servers: &[&Directive],
    files: &Files,
    report: &mut ImportReport,
) {
    let of_listener = |listener: &Listener<'_>| {
        let each = listener.servers.iter().map(|index| {
            let scope = Scope(vec![http, servers[*index]]);
            of_server(&scope, files)
        });
        let mut all: Vec<_> = each.collect::<Result<_, _>>()?;
        all.dedup();
        let asked = all.pop().flatten();
        if all.is_empty() { Ok(asked) } else { Err(NotConverted) }
    };

    let found: Result<Vec<_>, _> = listeners
        .iter()
        .map(|listener| if listener.has_tls { of_listener(listener) } else { Ok(None) })
        .collect();
    let Ok(found) = found else { return };

    for (listener, asked) in listeners.iter_mut().zip(found) {
        listener.clients = asked;
        if listener.clients.is_none() {
            continue;
        }
        for index in &listener.servers {
            let scope = Scope(vec![http, servers[*index]]);
            for name in ["ssl_verify_client", "ssl_client_certificate"] {
                scope
                    .find(name)
                    .into_iter()
                    .for_each(|directive| report.take_for_listener(directive));
            }
        }
    }
}

/// A server asks for certificates as no listener does.
struct NotConverted;

/// Returns the certificates for which a server asks, if any.
fn of_server(scope: &Scope<'_>, files: &Files) -> Result<Option<ClientCertificates>, NotConverted> {
    let Some(verify) = scope.find("ssl_verify_client") else { return Ok(None) };
    let is_required = match verify.arg(0) {
        "off" => return Ok(None),
        "on" => true,
        "optional" => false,
        _ => return Err(NotConverted),
    };

    // Revoked certificates would get in.
    let asks_issuer = scope.find("ssl_ocsp").is_some_and(|ocsp| ocsp.arg(0) != "off");
    if asks_issuer || scope.find("ssl_crl").is_some() {
        return Err(NotConverted);
    }
    let file = scope.find("ssl_client_certificate").ok_or(NotConverted)?.arg(0);
    if file.contains('$') || !files.here(file).is_file() {
        return Err(NotConverted);
    }
    Ok(Some(ClientCertificates { authorities: files.named(file), is_required }))
}
