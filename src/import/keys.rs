//! What a limit of nginx counts by.

use super::{
    converted_config::Fields,
    networks::{listed, network},
    report::ImportReport,
    template::{Piece, pieces},
    tree::Directive,
};
use ipnet::IpNet;
use serde_json::json;

/// The key of a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Key<'a> {
    /// As a rule's `key` has them; none counts all requests together.
    parts: Vec<String>,
    /// A field or a parameter, which a request may lack or have twice.
    is_optional: bool,
    /// Clients that are not counted.
    exempt: Vec<IpNet>,
    /// The blocks that say so.
    blocks: Vec<&'a Directive>,
}

impl<'a> Key<'a> {
    /// Reads what a zone counts by. `maps` are the `map` and `geo` blocks.
    ///
    /// # Errors
    /// Why no key counts the same.
    pub(super) fn read(text: &str, maps: &[&'a Directive]) -> Result<Self, String> {
        if let [Piece::Variable(name)] = pieces(text)?[..]
            && let Some(map) = maps.iter().find(|map| map.args.last() == Some(&format!("${name}")))
        {
            return mapped(map, maps);
        }
        let mut key = Self::default();
        for piece in pieces(text)? {
            let Piece::Variable(name) = piece else { continue };
            let (part, is_optional) = part(name)?;
            key.parts.extend(part);
            key.is_optional |= is_optional;
        }
        if key.is_optional && key.parts.len() > 1 {
            return Err("nginx also counts requests that lack a part of this key".into());
        }
        Ok(key)
    }

    /// Writes the key's part of a rule, which counts at most `max_keys` keys.
    pub(super) fn write(&self, rule: &mut Fields, max_keys: u64) {
        match &self.parts[..] {
            [] => {}
            [one] => rule.set("key", json!(one)),
            all => rule.set("key", json!(all)),
        }
        if self.parts.iter().any(|part| part == "client_ip") {
            rule.set("ipv6_prefix", json!(128));
        }
        if self.is_optional {
            rule.set("on_missing_key", json!("skip"));
            rule.set("on_duplicate_key", json!("first"));
        }
        if !self.exempt.is_empty() {
            rule.set("except", json!({ "client_ip": listed(&self.exempt) }));
        }
        if !self.parts.is_empty() {
            rule.set("max_keys", json!(max_keys));
        }
    }

    /// Takes the blocks that it is read from.
    pub(super) fn take(&self, report: &mut ImportReport) {
        for block in &self.blocks {
            report.take_all(block);
        }
    }
}

/// Returns the part of a key that a variable is, and whether a request may lack it.
fn part(name: &str) -> Result<(Option<String>, bool), String> {
    let named = |kind: &str, name: &str| Ok((Some(format!("{kind}:{name}")), true));
    if let Some(name) = name.strip_prefix("http_").filter(|name| *name != "host") {
        return named("header", &name.replace('_', "-"));
    }
    if let Some(name) = name.strip_prefix("arg_") {
        return named("query", name);
    }
    if let Some(name) = name.strip_prefix("cookie_") {
        return named("cookie", name);
    }
    let part = match name {
        "binary_remote_addr" | "remote_addr" => "client_ip",
        "uri" | "document_uri" => "path",
        "host" => "host",
        "request_method" => "method",
        // The same for all requests of a route.
        "server_name" => return Ok((None, false)),
        other => return Err(format!("no key counts by ${other}")),
    };
    Ok((Some(part.into()), false))
}

/// Reads a key by way of `map` and `geo`: all clients have the same key, but for networks without
/// one.
fn mapped<'a>(map: &'a Directive, maps: &[&'a Directive]) -> Result<Key<'a>, String> {
    let unclear = || format!("the key is that of `{}`, which no rule expresses", map.words());
    if map.name != "map" {
        return Err(unclear());
    }
    let source = maps.iter().find(|geo| geo.name == "geo" && geo.args.last() == map.args.first());
    let geo = source.filter(|geo| geo.args.len() == 1 || geo.arg(0) == "$remote_addr");
    let geo = geo.ok_or_else(unclear)?;
    let networks = networks(geo).ok_or_else(unclear)?;
    let usual = networks.iter().find(|(network, _)| network.is_none());
    let usual = value_of(map, usual.map_or("", |(_, value)| *value)).ok_or_else(unclear)?;
    let mut exempt = Vec::new();
    let mut counted = Vec::new();
    for (network, value) in &networks {
        let Some(network) = network else { continue };
        match value_of(map, value) {
            Some("") => exempt.push(*network),
            Some(value) if value == usual => counted.push(*network),
            _ => return Err(unclear()),
        }
    }
    // A network that is counted within one that is not cannot be written.
    let is_hidden = |inner: &IpNet| exempt.iter().any(|outer: &IpNet| outer.contains(inner));
    if usual.is_empty() || counted.iter().any(is_hidden) {
        return Err(unclear());
    }
    let key = Key::read(usual, &[])?;
    Ok(Key { exempt, blocks: vec![map, geo], ..key })
}

/// Returns the networks of a `geo` block with their values; the default has no network.
fn networks(geo: &Directive) -> Option<Vec<(Option<IpNet>, &str)>> {
    let read = |entry: &Directive| match entry.name.as_str() {
        "default" => Some(None),
        name => network(name).map(Some),
    };
    geo.inner().iter().map(|entry| Some((read(entry)?, entry.arg(0)))).collect()
}

/// Returns what a `map` makes of a value, or `None` if it has more than values.
fn value_of<'a>(map: &'a Directive, value: &str) -> Option<&'a str> {
    let mut found = None;
    let mut usual = "";
    for entry in map.inner() {
        let name = entry.name.as_str();
        if name.starts_with(['~', '*', '.', '\\']) || matches!(name, "hostnames" | "include") {
            return None;
        }
        match name {
            "volatile" => {}
            "default" => usual = entry.arg(0),
            _ if name.eq_ignore_ascii_case(value) => found = found.or_else(|| Some(entry.arg(0))),
            _ => {}
        }
    }
    Some(found.unwrap_or(usual))
}
