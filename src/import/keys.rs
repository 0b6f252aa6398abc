//! What a limit of nginx counts by.

use super::{
    converted_config::Fields,
    report::ImportReport,
    template::{Piece, pieces},
    tree::Directive,
};
use serde_json::{Value, json};

/// The key of a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Key<'a> {
    /// As a rule's `key` has them; none counts all requests together.
    pub parts: Vec<String>,
    /// A field or a parameter, which a request may lack or have twice.
    is_optional: bool,
    /// Requests that are not counted, as the `except` of a rule has them.
    pub except: Fields,
    /// The only requests that are counted, as the `when` of an override has them.
    pub only: Option<Fields>,
    /// How the rule differs from the zone's.
    pub difference: Option<String>,
    /// The blocks that say so.
    pub blocks: Vec<&'a Directive>,
}

impl Key<'_> {
    /// Reads what a zone counts by, without the variables of `map` and `geo` blocks.
    ///
    /// # Errors
    /// Why no key counts the same.
    pub(super) fn read(text: &str) -> Result<Self, String> {
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
        if self.is_by_client() {
            rule.set("ipv6_prefix", json!(128));
        }
        if self.is_optional {
            rule.set("on_missing_key", json!("skip"));
            rule.set("on_duplicate_key", json!("first"));
        }
        if !self.except.is_empty() {
            rule.set("except", self.except.clone());
        }
        if let Some(only) = &self.only {
            limit_only(rule, only);
        }
        if !self.parts.is_empty() {
            rule.set("max_keys", json!(max_keys));
        }
    }

    /// Reports whether it counts by the client's address.
    pub(super) fn is_by_client(&self) -> bool {
        self.parts.iter().any(|part| part == "client_ip")
    }

    /// Takes the blocks that it is read from.
    pub(super) fn take(&self, report: &mut ImportReport) {
        for block in &self.blocks {
            report.take_all(block);
        }
    }
}

/// Limits no requests but some: the rule itself has numbers that no request reaches, and an override
/// has the limit.
fn limit_only(rule: &mut Fields, only: &Fields) {
    const UNREACHED: u64 = 1_000_000_000_000;
    const MOST_IN_FLIGHT: u64 = 1_000_000_000;
    let mut limited = Fields::default();
    limited.set("when", only.clone());
    for (key, unreached) in [
        ("limit", json!(format!("{UNREACHED}/1s"))),
        ("burst", json!(UNREACHED)),
        ("concurrency", json!(MOST_IN_FLIGHT)),
    ] {
        if let Some(own) = rule.0.get(key).cloned() {
            limited.set(key, own);
            rule.set(key, unreached);
        }
    }
    rule.set("overrides", json!([Value::from(limited)]));
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
