//! `listen`: the listeners, and which servers each has.

use super::{
    access::{RealIp, USUAL_HEADER, listed},
    client_certificates::ClientCertificates,
    converted_config::{Fields, Item},
    files::Files,
    report::ImportReport,
    tree::{Directive, Scope},
};
use crate::config::ListenAddress;
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

/// An address that servers listen on.
#[derive(Clone, Debug)]
pub(super) struct Listener<'a> {
    pub name: String,
    address: ListenAddress,
    /// It takes IPv4 and IPv6.
    is_dual: bool,
    pub has_tls: bool,
    /// The indexes of its servers.
    pub servers: Vec<usize>,
    /// The index of the server for hosts that none has.
    pub default: usize,
    has_named_default: bool,
    directives: Vec<&'a Directive>,
    /// The certificates of clients for which it asks.
    pub clients: Option<ClientCertificates>,
}

/// Reads the listeners of all servers.
pub(super) fn read<'a>(servers: &[&'a Directive], report: &mut ImportReport) -> Vec<Listener<'a>> {
    let mut all: Vec<Listener<'a>> = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        for directive in server.all("listen") {
            match address(directive.arg(0)) {
                Ok(address) => add(&mut all, &address, index, directive, report),
                Err(why) => report.note(directive, why),
            }
        }
        if server.all("listen").next().is_none() {
            let usual = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
            add(&mut all, &usual.into(), index, server, report);
        }
    }
    merge(&mut all, report);

    for listener in &mut all {
        let kind = if listener.has_tls { "https" } else { "http" };
        listener.name = match &listener.address {
            ListenAddress::Ip(ip) if ip.ip().is_unspecified() => format!("{kind}-{}", ip.port()),
            ListenAddress::Ip(ip) => format!("{kind}-{ip}").replace(['[', ']'], ""),
            ListenAddress::Unix(path) => {
                format!("{kind}{}", path.display()).replace(['/', ' '], "-")
            }
        };
    }
    all
}

fn add<'a>(
    all: &mut Vec<Listener<'a>>,
    address: &ListenAddress,
    index: usize,
    directive: &'a Directive,
    report: &mut ImportReport,
) {
    let at = all.iter().position(|listener| listener.address == *address).unwrap_or_else(|| {
        all.push(Listener {
            name: String::new(),
            address: address.clone(),
            is_dual: false,
            has_tls: false,
            servers: Vec::new(),
            default: index,
            has_named_default: false,
            directives: Vec::new(),
            clients: None,
        });
        all.len() - 1
    });

    let listener = &mut all[at];
    if !listener.servers.contains(&index) {
        listener.servers.push(index);
    }

    report.take(directive);
    // A server without `listen` has the usual address.
    if directive.name != "listen" {
        return;
    }

    listener.directives.push(directive);
    for parameter in directive.args.iter().skip(1) {
        match parameter.as_str() {
            "ssl" => listener.has_tls = true,
            "default_server" | "default" if !listener.has_named_default => {
                listener.default = index;
                listener.has_named_default = true;
            }
            "ipv6only=off" => listener.is_dual = is_every_ipv6(address),
            "http2" | "reuseport" | "ipv6only=on" | "proxy_protocol" => {}
            other => report.note(directive, format!("{other}: flowgate sets its sockets itself")),
        }
    }
}

/// Returns whether it is every address of IPv6.
fn is_every_ipv6(address: &ListenAddress) -> bool {
    address.ip().is_some_and(|address| address.ip() == Ipv6Addr::UNSPECIFIED)
}

/// Reads an address; a port alone is one of IPv4.
fn address(text: &str) -> Result<ListenAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        if !path.starts_with('/') {
            return Err("the path of a socket begins with `/` in flowgate".into());
        }
        return Ok(ListenAddress::Unix(Path::new(path).into()));
    }
    let text = text.strip_prefix("*:").unwrap_or(text);
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into());
    }
    let whole = text.parse::<SocketAddr>().ok();
    let ip = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let address = whole.or_else(|| ip.map(|ip| (ip, 80).into()));
    address.map(Into::into).ok_or_else(|| "names are not resolved: write the address".into())
}

/// Makes one listener of `[::]:80` and `0.0.0.0:80` with the same servers, and notes where `[::]`
/// alone takes more than in nginx.
fn merge(all: &mut Vec<Listener<'_>>, report: &mut ImportReport) {
    let mut at = 0;
    while at < all.len() {
        let six = all[at].clone();
        at += 1;
        let Some(port) = six.port().filter(|_| is_every_ipv6(&six.address) && !six.is_dual) else {
            continue;
        };

        let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into();
        let Some(four) = all.iter_mut().find(|listener| listener.address == four) else {
            for directive in &six.directives {
                report.note(directive, "flowgate also takes IPv4 there");
            }
            continue;
        };

        if four.servers == six.servers && four.default == six.default && four.has_tls == six.has_tls
        {
            four.is_dual = true;
        } else {
            for directive in &six.directives {
                report.note(directive, "IPv6 has the servers of IPv4 at the same port");
            }
            four.is_dual = true;
        }
        all.retain(|listener| listener.address != six.address);
        at -= 1;
    }
}

impl Listener<'_> {
    /// Returns it as the file has it, or `None` if it lacks a certificate.
    pub(super) fn item(
        &self,
        http: &Directive,
        servers: &[&Directive],
        files: &Files,
        report: &mut ImportReport,
    ) -> Option<Item> {
        let mut fields = Fields::default();
        fields.set("name", json!(self.name));
        let listen = match self.port().filter(|_| self.is_dual) {
            Some(port) => format!(":{port}"),
            None => self.address.to_string(),
        };
        fields.set("listen", json!(listen));
        if self.port().is_none() {
            // As nginx has it.
            fields.set("unix_mode", json!("0666"));
        }

        // The default server's certificate is the first.
        if self.has_tls {
            let others = self.servers.iter().filter(|index| **index != self.default);
            let mut all = Vec::new();
            for index in [&self.default].into_iter().chain(others) {
                let scope = Scope(vec![http, servers[*index]]);
                for pair in certificates(&scope, files, report) {
                    if !all.contains(&pair) {
                        all.push(pair);
                    }
                }
            }

            if all.is_empty() {
                for directive in &self.directives {
                    report.block(directive, "it has no certificate, and is left out", None);
                }
                return None;
            }
            let mut tls = json!({ "certificates": all });
            if self.needs_tls13(http, servers, report) {
                tls["min_version"] = json!("1.3");
            }
            if let Some(clients) = &self.clients {
                tls["client_ca"] = json!(clients.authorities);
                if !clients.is_required {
                    tls["client_auth"] = json!("optional");
                }
            }
            fields.set("tls", tls);
        }

        self.trust(http, servers, &mut fields, report);
        Some(Item { comments: Vec::new(), fields })
    }

    /// Returns whether clients must speak TLS 1.3. As in nginx, the default server says so.
    fn needs_tls13(
        &self,
        http: &Directive,
        servers: &[&Directive],
        report: &mut ImportReport,
    ) -> bool {
        let scope = |index: usize| Scope(vec![http, servers[index]]);
        let Some(protocols) = scope(self.default).find("ssl_protocols") else { return false };
        let of_others = self.servers.iter().filter_map(|index| scope(*index).find("ssl_protocols"));
        let has =
            |directive: &Directive, version: &str| directive.args.iter().any(|arg| arg == version);
        let is_recent =
            |directive: &Directive| !has(directive, "TLSv1") && !has(directive, "TLSv1.1");
        let needs_tls13 = has(protocols, "TLSv1.3") && !has(protocols, "TLSv1.2");

        for directive in of_others {
            let is_other = directive.args != protocols.args;
            if is_other {
                report.note(directive, "the default server of the address says it for all");
            } else if !is_recent(directive) {
                report.note(directive, "flowgate speaks TLS 1.2 and 1.3");
            } else if has(directive, "TLSv1.2") && !has(directive, "TLSv1.3") {
                report.note(directive, "clients may speak TLS 1.3 too");
            } else {
                report.take(directive);
            }
        }
        needs_tls13
    }

    /// Adds the proxies that the listener's servers trust beside those of the file.
    fn trust(
        &self,
        http: &Directive,
        servers: &[&Directive],
        fields: &mut Fields,
        report: &mut ImportReport,
    ) {
        let usual = RealIp::read(&Scope(vec![http]), report);
        let mut all = Vec::new();
        for index in &self.servers {
            let own = RealIp::read(&Scope(vec![http, servers[*index]]), report);
            all.push((servers[*index], own));
        }

        let Some((_, first)) = all.first() else { return };
        let by_protocol = all.iter().any(|(_, own)| own.is_by_protocol);
        self.protocol(by_protocol, fields, report);

        let mut trusted = first.trusted.clone();
        for (server, own) in &all {
            if own.trusted != first.trusted {
                let why = "its listener trusts the proxies of all servers there";
                report.note(server, why);
            }
            let has_proxies = !own.trusted.is_empty();
            if has_proxies && own.header != first.header {
                let why =
                    "its listener reads the client's address from the field of its first server";
                report.note(server, why);
            }
            let others = own.trusted.iter().filter(|network| !first.trusted.contains(network));
            trusted.extend(others.copied());
        }

        if trusted != usual.trusted {
            fields.set("trusted_proxies", listed(&trusted));
        }
        let usual_header = usual.header.as_deref().unwrap_or(USUAL_HEADER);
        let header = first.header.as_deref().unwrap_or(USUAL_HEADER);
        if !trusted.is_empty() && header != usual_header {
            fields.set("client_ip_header", header);
        }
    }

    /// Adds that the proxies name clients by the PROXY protocol.
    fn protocol(&self, is_read: bool, fields: &mut Fields, report: &mut ImportReport) {
        let has_it = |listen: &&&Directive| listen.args.iter().any(|arg| arg == "proxy_protocol");
        let mut listens = self.directives.iter().filter(has_it).peekable();
        if listens.peek().is_none() {
            return;
        }

        let why = if is_read {
            fields.set("proxy_protocol", json!(true));
            "connections of others than the trusted proxies are closed"
        } else {
            "write `proxy_protocol: true` with the `trusted_proxies` that send it"
        };
        listens.for_each(|listen| report.note(listen, why));
    }

    /// Returns its port, if it is no Unix socket.
    pub(super) fn port(&self) -> Option<u16> {
        self.address.ip().map(|address| address.port())
    }
}

fn certificates(scope: &Scope<'_>, files: &Files, report: &mut ImportReport) -> Vec<Value> {
    let keys = scope.all(&["ssl_certificate_key"]);
    let pairs = scope.all(&["ssl_certificate"]).into_iter().zip(keys);
    let mut all = Vec::new();
    for (cert, key) in pairs {
        let is_file = |text: &str| !text.contains('$') && !text.contains(':');
        if !is_file(cert.arg(0)) || !is_file(key.arg(0)) {
            report.note(cert, "certificates are files");
            continue;
        }
        report.take(cert);
        report.take(key);
        for file in [cert, key] {
            if !files.here(file.arg(0)).is_file() {
                let is_of_certbot = file.arg(0).contains("/letsencrypt/");
                let other = if is_of_certbot {
                    ", or write `acme: [NAMES]` in place of the two files: flowgate then gets the certificate itself"
                } else {
                    ""
                };
                let why = format!("{} is missing: copy it there{other}", files.named(file.arg(0)));
                report.block(file, why, None);
            }
        }
        let path = |file: &Directive| files.named(file.arg(0));
        all.push(json!({ "cert": path(cert), "key": path(key) }));
    }
    all
}
