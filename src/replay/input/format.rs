//! Input formats and their detection.

use super::{
    access_log, common, envoy, events, gateways, lines::Lines, proxy_manager, traefik_clf,
};
use clap::ValueEnum;
use serde_json::{Map, Value};
use std::io;

/// What the lines of an input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The access log of this gateway.
    Flowgate,
    /// nginx's `combined`, `main`, and others that begin like them.
    Nginx,
    /// Apache's `common`, `combined`, `vhost_combined`, and others that begin like them.
    #[value(alias = "httpd")]
    Apache,
    /// The Common Log Format of nginx, Apache and many others.
    #[value(alias = "clf")]
    Common,
    /// The same with referer and user agent.
    Combined,
    /// The log of Nginx Proxy Manager.
    #[value(alias = "npm")]
    NginxProxyManager,
    /// Caddy's JSON log.
    Caddy,
    /// Envoy's log: its default text, or JSON with the names of its documentation or of Istio.
    #[value(alias = "istio")]
    Envoy,
    /// Traefik's log, as JSON or `common`.
    Traefik,
    /// JSON lines made for `replay`: see docs/replay.md.
    Events,
}

/// Lines to read for the detection: containers and daemons write others when they start.
const MOST_LOOKED_AT: usize = 500;

/// The most bytes of these lines.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The bytes of a line that are kept to be shown.
const SHOWN: usize = 400;

/// What the first lines say.
pub(super) enum Detected {
    Known(Format),
    /// There is no line but blank ones.
    Empty,
    /// The first line, if none is known.
    Unknown(Vec<u8>),
}

impl Format {
    /// Names all of them, as for `--format`.
    pub(super) fn names() -> String {
        let names = Self::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        names.map(|name| name.get_name().to_owned()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned())
    }

    /// Returns whether lines of `self` are read like lines of `other`.
    pub(super) fn is_read_like(self, other: Self) -> bool {
        let is_common =
            |format| matches!(format, Self::Nginx | Self::Apache | Self::Common | Self::Combined);
        self == other || is_common(self) && is_common(other)
    }
}

/// Returns the format of the first line that is known.
pub(super) fn detect(lines: &mut Lines) -> io::Result<Detected> {
    let mut first = None;
    let mut bytes = 0;
    for _ in 0..MOST_LOOKED_AT {
        let Some(line) = lines.look()? else { break };
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if let Some(format) = format_of(line) {
            return Ok(Detected::Known(format));
        }
        first.get_or_insert_with(|| line[..line.len().min(SHOWN)].to_vec());
        bytes += line.len();
        if bytes > MOST_BYTES {
            break;
        }
    }
    Ok(first.map_or(Detected::Empty, Detected::Unknown))
}

/// Returns the format of a line.
pub(super) fn format_of(line: &[u8]) -> Option<Format> {
    if !line.starts_with(b"{") {
        // The most specific first.
        return [
            (envoy::is_text as fn(&[u8]) -> bool, Format::Envoy),
            (proxy_manager::is_ours, Format::NginxProxyManager),
            (traefik_clf::is_clf, Format::Traefik),
            (common::is_common, Format::Combined),
        ]
        .into_iter()
        .find_map(|(is, format)| is(line).then_some(format));
    }
    let object: Map<String, Value> = serde_json::from_slice(line).ok()?;
    [
        (access_log::is_ours(&object), Format::Flowgate),
        (gateways::is_caddy(&object), Format::Caddy),
        (gateways::is_traefik(&object), Format::Traefik),
        (envoy::is_json(&object), Format::Envoy),
        (events::is_event(&object), Format::Events),
    ]
    .into_iter()
    .find_map(|(is, format)| is.then_some(format))
}
