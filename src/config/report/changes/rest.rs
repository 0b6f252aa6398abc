//! The differences of upstreams, listeners and settings.

use super::{Words, changed_keys};
use crate::config::{
    plan::{Admin, Certificate, Listener, Plan, ServerPlan, Settings, UpstreamPlan, certificates},
    snapshot::Snapshot,
    spec::values::Endpoint,
};
use crate::counted::counted;
use crate::route::KeySpec;
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

/// Says what differs of an upstream; `None` if nothing does.
pub(in crate::config) fn upstream(old: &UpstreamPlan, new: &UpstreamPlan) -> Option<Vec<String>> {
    let mut words = Words::default();
    servers(&old.servers, &new.servers, &mut words);

    words.0.extend(changed_keys(&old.keys, &new.keys));
    let before = &old.options;
    let after = &new.options;
    let key =
        |key: &&Option<KeySpec>| key.as_ref().map_or_else(|| "none".to_owned(), KeySpec::to_string);
    words.value("hash_key", &before.hash_key, &after.hash_key, key);
    words.named("sticky", before.sticky == after.sticky);
    words.named("tls", before.tls == after.tls);
    words.named("health", before.health == after.health);
    words.named("ejection", before.ejection == after.ejection);

    if words.0.is_empty() && before != after {
        words.add("another option".to_owned());
    }
    if words.0.is_empty() && old.servers != new.servers {
        words.add("order of servers".to_owned());
    }
    (!words.0.is_empty()).then_some(words.0)
}

fn servers<'p>(old: &'p [ServerPlan], new: &'p [ServerPlan], words: &mut Words) {
    let by_endpoint = |list: &'p [ServerPlan]| -> HashMap<Endpoint, &'p ServerPlan> {
        list.iter().map(|server| (server.endpoint.clone(), server)).collect()
    };
    let before = by_endpoint(old);
    let after = by_endpoint(new);
    let added = after.keys().filter(|server| !before.contains_key(*server)).count();
    let removed = before.keys().filter(|server| !after.contains_key(*server)).count();
    for (sign, count) in [('+', added), ('-', removed)] {
        match count {
            0 => {}
            _ => words.add(format!("{sign}{}", counted(count, "server"))),
        }
    }
    for server in new {
        if let Some(old) = before.get(&server.endpoint) {
            let Endpoint { host, port, .. } = &server.endpoint;
            let weight = format!("weight of {host}:{port}");
            words.value(&weight, old.weight, server.weight, ToString::to_string);
            let backup = format!("backup of {host}:{port}");
            words.value(&backup, old.is_backup, server.is_backup, ToString::to_string);
        }
    }
}

/// Says what differs of a listener; `None` if nothing does.
pub(in crate::config) fn listener(old: &Listener, new: &Listener) -> Option<Vec<String>> {
    let mut words = Words::default();
    words.value("listen", old.listens(), new.listens(), Clone::clone);
    words.named("unix_mode", old.unix_mode == new.unix_mode);
    words.named("trusted_proxies", old.trusted_proxies == new.trusted_proxies);
    words.named("client_ip_header", old.client_ip_header == new.client_ip_header);
    words.value("proxy_protocol", old.proxy_protocol, new.proxy_protocol, bool::to_string);
    words.named("client_ca", old.terms.clients == new.terms.clients);
    words.named("min_version", old.terms.needs_tls13 == new.terms.needs_tls13);
    if old.certificates.is_empty() != new.certificates.is_empty() {
        let tls = |is_off: bool| if is_off { "off" } else { "on" };
        words.add(format!("TLS {}", tls(new.certificates.is_empty())));
    }
    for file in new.certificates.iter().filter(|file| !old.certificates.contains(file)) {
        words.add(format!("+certificate {}", file.display()));
    }
    for file in old.certificates.iter().filter(|file| !new.certificates.contains(file)) {
        words.add(format!("-certificate {}", file.display()));
    }
    if words.0.is_empty() && old.certificates != new.certificates {
        words.add("order of certificates".to_owned());
    }
    (!words.0.is_empty()).then_some(words.0)
}

pub(in crate::config) fn settings(old: &Settings, new: &Settings) -> Vec<String> {
    let mut words = Words::default();
    admin(old.admin.as_ref(), new.admin.as_ref(), &mut words);
    words.named("store", old.store == new.store);
    words.0.extend(changed_keys(&old.keys, &new.keys));
    words.named("trusted_proxies", old.trusted_proxies == new.trusted_proxies);
    words.named("nat64", old.nat64 == new.nat64);
    words.named("geo", old.geo == new.geo);
    words.named("dns_servers", old.dns_servers == new.dns_servers);
    words.named("access_log_headers", old.logged_headers == new.logged_headers);
    words.named("tracing", old.tracing == new.tracing);
    words.named("acme", old.acme == new.acme);
    if words.0.is_empty() && old != new {
        words.add("another setting".to_owned());
    }
    words.0
}

fn admin(old: Option<&Admin>, new: Option<&Admin>, words: &mut Words) {
    let address = |admin: Option<&Admin>| {
        admin.map_or_else(|| "off".to_owned(), |admin| admin.listen.to_string())
    };
    words.value("admin", address(old), address(new), String::clone);
    if let (Some(Admin { listen: _, token, tls, edit, show_keys }), Some(new)) = (old, new) {
        words.named("admin.token", *token == new.token);
        words.named("admin.tls", *tls == new.tls);
        words.value("admin.edit", *edit, new.edit, bool::to_string);
        words.value("admin.show_keys", *show_keys, new.show_keys, bool::to_string);
    }
}

/// Returns the keys that differ and that only a restart puts in force.
pub(in crate::config) fn at_start_only(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let pairs = [("store", old.store == new.store), ("workers", old.workers == new.workers)];
    pairs.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
}

/// Returns the names of the certificate files that hold other certificates than before.
pub(in crate::config) fn renewed(old: &Snapshot, new: &Plan) -> impl Iterator<Item = String> {
    let before: HashMap<&Path, &Certificate> =
        certificates(&old.listeners).map(|old| (&*old.path, old)).collect();
    let is_other = |new: &Certificate| {
        let is_other = |old: &&Certificate| old.key.cert != new.key.cert;
        !new.is_self_signed() && before.get(&*new.path).is_some_and(is_other)
    };
    let other = certificates(&new.listeners).filter(|new| is_other(new));
    // Several listeners may have the same.
    let paths: BTreeSet<&Path> = other.map(|certificate| &*certificate.path).collect();
    let names = paths.into_iter().filter_map(Path::file_name);
    names.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().into_iter()
}
