//! `upstream` blocks and the addresses that `proxy_pass` names.

use super::{
    converted_config::{Fields, Item},
    files::Files,
    numbers::{spelled, time},
    report::ImportReport,
    single_keys::{SingleKey, UPSTREAM_TLS},
    tree::{Directive, Scope},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The upstreams that locations use: each with settings of its own is one.
#[derive(Debug, Default)]
pub(super) struct Upstreams<'a> {
    blocks: BTreeMap<&'a str, &'a Directive>,
    items: Vec<Item>,
}

/// The part of a `proxy_pass` before the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxyTarget<'a> {
    pub scheme: &'a str,
    /// A host with a port or without, `unix:/PATH`, or the name of an `upstream`.
    pub authority: &'a str,
    /// Its servers speak HTTP/2 without a choice.
    pub is_grpc: bool,
}

impl<'a> Upstreams<'a> {
    pub(super) fn read(http: &'a Directive) -> Self {
        let blocks = http.all("upstream").map(|block| (block.arg(0), block));
        Self { blocks: blocks.collect(), ..Self::default() }
    }

    /// Returns the upstreams that were used.
    pub(super) fn into_items(self) -> Vec<Item> {
        self.items
    }

    /// Returns the name of the upstream for a target, in a location with its settings.
    ///
    /// # Errors
    /// There is none; the text says why.
    pub(super) fn name(
        &mut self,
        target: ProxyTarget<'_>,
        scope: &Scope<'_>,
        files: &Files,
        report: &mut ImportReport,
    ) -> Result<String, String> {
        let mut fields = Fields::default();
        let block = self.blocks.get(target.authority).copied();
        let servers = match block {
            Some(block) => {
                report.take(block);
                servers(block, target.scheme, report)
            }
            None => vec![json!({ "url": url(target.scheme, target.authority)? })],
        };
        if servers.is_empty() {
            return Err("its upstream has no server left".into());
        }

        let count = servers.len();
        fields.set("servers", servers);
        if let Some(block) = block {
            settings(block, count, &mut fields, report);
        }
        if target.is_grpc {
            fields.set("protocol", "h2");
        }

        let module = if target.is_grpc { "grpc" } else { "proxy" };
        if let Some(limit) = scope.take(&format!("{module}_connect_timeout"), report) {
            match time(limit.arg(0)) {
                Some(limit) => fields.set("connect_timeout", json!(spelled(limit))),
                None => report.note(limit, "the time is not clear"),
            }
        }
        if target.scheme == "https" {
            tls(target, scope, files, &mut fields, report);
        }

        // Locations with the same servers and settings share an upstream.
        let same =
            self.items.iter().find(|item| item.fields == fields.clone().named(item.text("name")));
        if let Some(same) = same {
            return Ok(same.text("name").to_owned());
        }

        let name = self.free_name(target.authority);
        self.items.push(Item { comments: Vec::new(), fields: fields.named(&name) });
        Ok(name)
    }

    fn free_name(&self, authority: &str) -> String {
        let fits = |sign: char| sign.is_ascii_alphanumeric() || "-_./:".contains(sign);
        let name: String =
            authority.chars().map(|sign| if fits(sign) { sign } else { '-' }).take(56).collect();
        let is_taken = |name: &String| self.items.iter().any(|item| item.text("name") == name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = core::iter::once(name.clone()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or(name)
    }
}

/// Returns the URL of a server.
fn url(scheme: &str, authority: &str) -> Result<String, String> {
    if let Some(path) = authority.strip_prefix("unix:") {
        let path = path.trim_end_matches(':');
        return if scheme == "https" {
            Err("sockets have no TLS".into())
        } else {
            Ok(format!("unix:{path}"))
        };
    }
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || ".-_:[]".contains(sign);
    if authority.is_empty() || !authority.chars().all(is_sign) {
        return Err("the address is invalid".into());
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let port = if has_port {
        ""
    } else if scheme == "https" {
        ":443"
    } else {
        ":80"
    };
    Ok(format!("{scheme}://{authority}{port}"))
}

fn servers(block: &Directive, scheme: &str, report: &mut ImportReport) -> Vec<Value> {
    let mut all = Vec::new();
    for server in block.all("server") {
        report.take(server);
        // A server of an `upstream` without a port has 80 also behind https.
        let address = server.arg(0);
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let address = if has_port { address.to_owned() } else { format!("{address}:80") };
        let url = match url(scheme, &address) {
            Ok(url) => url,
            Err(why) => {
                report.note(server, why);
                continue;
            }
        };
        let mut fields = Fields::default();
        fields.set("url", json!(url));
        if parameters(server, &mut fields, report) {
            add(&mut all, fields);
        }
    }
    all
}

/// Adds a server. One that is listed twice gets the weight of both.
fn add(all: &mut Vec<Value>, fields: Fields) {
    let server = Value::from(fields);
    let weight = |server: &Value| server["weight"].as_u64().unwrap_or(1);
    match all.iter_mut().find(|known| known["url"] == server["url"]) {
        Some(known) => known["weight"] = json!((weight(known) + weight(&server)).min(1000)),
        None => all.push(server),
    }
}

/// Adds the parameters of a server, and returns whether it is used.
fn parameters(server: &Directive, fields: &mut Fields, report: &mut ImportReport) -> bool {
    let mut is_used = true;
    for parameter in server.args.iter().skip(1) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "weight" => match value.parse::<u64>() {
                Ok(1) => {}
                Ok(weight @ 2..=1000) => fields.set("weight", json!(weight)),
                _ => report.note(server, "a weight is 1 to 1000"),
            },
            "down" => is_used = false,
            "backup" => fields.set("backup", json!(true)),
            "max_fails" | "fail_timeout" => {
                report.note(server, format!("{name}: write `ejection`, which counts otherwise"));
            }
            other => report.note(server, format!("{other}: flowgate has no such parameter")),
        }
    }
    is_used
}

/// Adds the settings of an `upstream` block that has `count` servers.
fn settings(block: &Directive, count: usize, fields: &mut Fields, report: &mut ImportReport) {
    for directive in block.inner().iter().filter(|directive| directive.name != "server") {
        let first = directive.arg(0);
        report.take(directive);

        let mut balance = |word: &str| fields.set("balance", json!(word));
        match (directive.name.as_str(), first) {
            ("zone", _) => {}
            ("keepalive", number) => match number.parse::<u64>() {
                Ok(number @ 0..=100_000) => {
                    fields.set("max_idle", json!(number));
                    if count > 1 {
                        report.note(
                            directive,
                            "`max_idle` is for each server, and keepalive for all together",
                        );
                    }
                }
                _ => report.note(directive, "the number is not clear"),
            },
            ("keepalive_timeout", limit) => match time(limit) {
                Some(limit) => fields.set("idle_timeout", json!(spelled(limit))),
                None => report.note(directive, "the time is not clear"),
            },
            ("random", "two") => balance("least_request"),
            ("random", "") => balance("random"),
            ("least_conn", _) => {
                balance("least_request");
                report.note(directive, "flowgate takes the less busy of two servers, not of all");
            }
            ("ip_hash", _) => {
                balance("hash");
                report.note(
                    directive,
                    "nginx hashes the first three parts of an address, flowgate all",
                );
            }
            ("hash", "$remote_addr" | "$binary_remote_addr") => balance("hash"),
            ("hash", "$uri") => {
                balance("hash");
                fields.set("hash_key", json!("path"));
            }
            ("hash", key) if key.starts_with("$cookie_") => {
                let name = key.trim_start_matches("$cookie_");
                balance("hash");
                fields.set("hash_key", json!(format!("cookie:{name}")));
                let why = "requests without the cookie go to any server, in nginx to one of them";
                report.note(directive, why);
            }
            ("sticky", "cookie") if !directive.arg(1).is_empty() => {
                fields.set("sticky", json!({ "cookie": directive.arg(1) }));
                let is_usual = |argument: &&String| {
                    matches!(argument.as_str(), "httponly" | "path=/" | "samesite=lax" | "secure")
                };
                if !directive.args.iter().skip(2).all(|argument| is_usual(&argument)) {
                    let why = "the cookie lasts as long as the browser runs, for the host itself";
                    report.note(directive, why);
                }
            }
            _ => report.note(directive, "an upstream has no such setting"),
        }
    }
}

/// Adds how the servers are verified: in flowgate always.
fn tls(
    target: ProxyTarget<'_>,
    scope: &Scope<'_>,
    files: &Files,
    fields: &mut Fields,
    report: &mut ImportReport,
) {
    let mut tls = SingleKey::read_all(&UPSTREAM_TLS, scope, files, report);
    let is_verified = scope.is_on("proxy_ssl_verify", report);
    _ = scope.is_on("proxy_ssl_server_name", report);
    if !is_verified && let Some(pass) = scope.find("proxy_pass") {
        report.note(
            pass,
            "nginx does not verify the servers, flowgate does: see `tls` of the upstream",
        );
    }

    let host = target.authority.split(':').next().unwrap_or_default();
    let name = scope.word("proxy_ssl_name", report).or_else(|| is_verified.then_some(host));
    if let Some(name) = name.filter(|name| !name.contains('$') && !name.is_empty()) {
        tls.set("server_name", json!(name));
    }

    if !tls.is_empty() {
        fields.set("tls", tls);
    }
}
