//! Input formats and their detection.

use super::{access_log, common, envoy, events, gateways, lines::Lines};
use serde_json::{Map, Value};
use std::io;

/// What the lines of an input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The access log of this gateway.
    Flowgate,
    /// The Common Log Format of nginx, Apache and many others.
    Common,
    /// The same with referer and user agent.
    Combined,
    /// Caddy's JSON log.
    Caddy,
    /// Envoy's log: its default text, or JSON with the names of its documentation or of Istio.
    Envoy,
    /// Traefik's JSON log.
    Traefik,
    /// JSON lines made for `replay`: see docs/replay.md.
    Events,
}

/// Lines to read for the detection.
const MOST_LOOKED_AT: usize = 20;

/// Returns the format of the first recognised line. An empty input counts as events.
pub(super) fn detect(lines: &mut Lines) -> io::Result<Option<Format>> {
    let mut blank = true;
    for _ in 0..MOST_LOOKED_AT {
        let Some(line) = lines.look()? else {
            return Ok(blank.then_some(Format::Events));
        };
        let line = line.trim_ascii();
        blank &= line.is_empty();
        if let Some(format) = format_of(line) {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

fn format_of(line: &[u8]) -> Option<Format> {
    if !line.starts_with(b"{") {
        let envoy = envoy::is_text(line).then_some(Format::Envoy);
        return envoy.or_else(|| common::is_common(line).then_some(Format::Combined));
    }
    let object: Map<String, Value> = serde_json::from_slice(line).ok()?;
    // The most specific first.
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
