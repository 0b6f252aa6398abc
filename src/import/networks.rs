//! Addresses and networks.

use super::tree::Directive;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Reads a network, or an address as a network of one.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().map(|network| network.trunc()).ok();
    network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Returns networks as `gateway.yaml` has them.
pub(super) fn listed(networks: &[IpNet]) -> Value {
    let text = |network: &IpNet| {
        let is_one = network.prefix_len() == network.max_prefix_len();
        if is_one { network.addr().to_string() } else { network.to_string() }
    };
    json!(networks.iter().map(text).collect::<Vec<_>>())
}

/// Returns the networks of a `geo` block with their values; the default has no network.
pub(super) fn networks_of(geo: &Directive) -> Option<Vec<(Option<IpNet>, &str)>> {
    let read = |entry: &Directive| match entry.name.as_str() {
        "default" => Some(None),
        name => network(name).map(Some),
    };
    geo.inner().iter().map(|entry| Some((read(entry)?, entry.arg(0)))).collect()
}
