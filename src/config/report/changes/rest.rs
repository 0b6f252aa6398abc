//! The differences of upstreams, listeners and settings.

use super::words::Words;
use crate::config::{
    plan::{
        Admin, Certificate, ClientTimeouts, Limits, Listener, Plan, ServerPlan, Settings,
        UpstreamOptions, UpstreamPlan, certificates,
    },
    report::promise::{byte_rate, short},
    snapshot::Snapshot,
    spec::{Resolve, values::Endpoint, word},
};
use crate::counted::counted;
use crate::route::KeySpec;
use bytesize::ByteSize;
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    time::Duration,
};

/// Says what differs of an upstream; `None` if nothing does.
pub(in crate::config) fn upstream(old: &UpstreamPlan, new: &UpstreamPlan) -> Option<Vec<String>> {
    let mut words = Words::default();
    servers(&old.servers, &new.servers, &mut words);

    // A key that is added to the options does not compile until it is named here.
    let UpstreamOptions {
        balance,
        hash_key,
        protocol,
        connect_timeout,
        idle_timeout,
        max_idle,
        limits,
        tls,
        health,
        ejection,
        slow_start,
        resolve,
    } = &old.options;
    let to = &new.options;

    words.value("balance", *balance, to.balance, word);
    let key =
        |key: &&Option<KeySpec>| key.as_ref().map_or_else(|| "none".to_owned(), KeySpec::to_string);
    words.value("hash_key", hash_key, &to.hash_key, key);
    words.value("protocol", *protocol, to.protocol, word);
    words.value("connect_timeout", *connect_timeout, to.connect_timeout, time);
    words.value("idle_timeout", *idle_timeout, to.idle_timeout, time);
    words.value("max_idle", *max_idle, to.max_idle, usize::to_string);
    words.named("tls", *tls == to.tls);
    let bytes = |bytes: &usize| ByteSize(*bytes as u64).to_string();
    words.value("limits.header_bytes", limits.header_bytes, to.limits.header_bytes, bytes);
    words.value("limits.headers", limits.headers, to.limits.headers, usize::to_string);
    words.named("health", *health == to.health);
    words.named("ejection", *ejection == to.ejection);
    words.value("slow_start", *slow_start, to.slow_start, time);

    words.value("resolve", *resolve, to.resolve, |resolve| match resolve {
        Resolve::ByTtl => "ttl".to_owned(),
        Resolve::Every(interval) => short(*interval),
        Resolve::OnConnect => "0s".to_owned(),
    });

    if words.0.is_empty() && old.servers != new.servers {
        words.add("order of servers".to_owned());
    }
    (!words.0.is_empty()).then_some(words.0)
}

fn servers(old: &[ServerPlan], new: &[ServerPlan], words: &mut Words) {
    let weights = |list: &[ServerPlan]| -> HashMap<Endpoint, u32> {
        list.iter().map(|server| (server.endpoint.clone(), server.weight)).collect()
    };
    let before = weights(old);
    let after = weights(new);
    let added = after.keys().filter(|server| !before.contains_key(*server)).count();
    let removed = before.keys().filter(|server| !after.contains_key(*server)).count();
    for (sign, count) in [('+', added), ('-', removed)] {
        match count {
            0 => {}
            _ => words.add(format!("{sign}{}", counted(count, "server"))),
        }
    }
    for ServerPlan { endpoint, weight } in new {
        if let Some(old) = before.get(endpoint) {
            let Endpoint { host, port, .. } = endpoint;
            words.value(&format!("weight of {host}:{port}"), old, weight, ToString::to_string);
        }
    }
}

/// Says what differs of a listener; `None` if nothing does.
pub(in crate::config) fn listener(old: &Listener, new: &Listener) -> Option<Vec<String>> {
    let mut words = Words::default();
    words.value("listen", old.address, new.address, ToString::to_string);
    words.named("trusted_proxies", old.trusted_proxies == new.trusted_proxies);
    words.value("proxy_protocol", old.proxy_protocol, new.proxy_protocol, bool::to_string);
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
    words.value("workers", old.workers, new.workers, ToString::to_string);
    words.value("drain_timeout", old.drain_timeout, new.drain_timeout, time);
    words.named("trusted_proxies", old.trusted_proxies == new.trusted_proxies);
    words.named("nat64", old.nat64 == new.nat64);
    words.named("dns_servers", old.dns_servers == new.dns_servers);
    timeouts(&old.timeouts, &new.timeouts, &mut words);
    limits(&old.limits, &new.limits, &mut words);
    words.value("access_log", &old.access_log, &new.access_log, ToString::to_string);
    words.value("headers", old.rate_limit_headers, new.rate_limit_headers, word);
    words.value("explain_headers", old.explain_headers, new.explain_headers, bool::to_string);
    words.value("via", &old.via, &new.via, |via| {
        let via = via.as_ref().and_then(|via| via.to_str().ok());
        via.unwrap_or("off").to_owned()
    });
    words.value("request_id", old.request_ids, new.request_ids, word);
    words.named("access_log_headers", old.logged_headers == new.logged_headers);
    words.value("h1_header_case", old.header_case, new.header_case, word);
    words.named("tracing", old.tracing == new.tracing);
    if words.0.is_empty() && old != new {
        words.add("another setting".to_owned());
    }
    words.0
}

fn timeouts(old: &ClientTimeouts, new: &ClientTimeouts, words: &mut Words) {
    words.value("timeouts.header_read", old.header_read, new.header_read, time);
    words.value("timeouts.keep_alive", old.keep_alive, new.keep_alive, time);
    words.value("timeouts.tls_handshake", old.tls_handshake, new.tls_handshake, time);
    words.value("timeouts.write", old.write, new.write, time);
}

fn limits(old: &Limits, new: &Limits, words: &mut Words) {
    let bytes = |bytes: &u64| ByteSize(*bytes).to_string();
    let header_bytes = [old.header_bytes as u64, new.header_bytes as u64];
    words.value("limits.header_bytes", header_bytes[0], header_bytes[1], bytes);
    words.value("limits.headers", old.headers, new.headers, usize::to_string);
    words.value("limits.body", old.body, new.body, bytes);
    words.value("limits.min_body_rate", old.min_body_rate, new.min_body_rate, |rate| {
        byte_rate(*rate)
    });
    words.value("limits.connections", old.connections, new.connections, usize::to_string);
    let most =
        |most: &Option<usize>| most.map_or_else(|| "none".to_owned(), |most| most.to_string());
    let name = "limits.connections_per_client";
    words.value(name, old.connections_per_client, new.connections_per_client, most);
    words.value("limits.upload_buffers", old.upload_buffers, new.upload_buffers, bytes);
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

fn time(time: &Duration) -> String {
    short(*time)
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
    let is_other =
        |new: &Certificate| before.get(&*new.path).is_some_and(|old| old.key.cert != new.key.cert);
    let other = certificates(&new.listeners).filter(|new| is_other(new));
    // Several listeners may have the same.
    let paths: BTreeSet<&Path> = other.map(|certificate| &*certificate.path).collect();
    let names = paths.into_iter().filter_map(Path::file_name);
    names.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().into_iter()
}
