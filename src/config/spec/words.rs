//! The keys whose value is one of a few words.

use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

/// How a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline, extend(
    "x-meant" = [["bucket", "token_bucket"], ["token", "token_bucket"], ["leaky", "leaky_bucket"], ["gcra", "leaky_bucket"], ["window", "sliding_window"], ["sliding", "sliding_window"], ["sliding_window_log", "sliding_log"], ["sliding_window_counter", "sliding_counter"], ["fixed", "fixed_window"], ["smooth", "pacing"]]
)))]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum AlgorithmWord {
    TokenBucket,
    LeakyBucket,
    SlidingLog,
    SlidingWindow,
    SlidingCounter,
    FixedWindow,
    Pacing,
}

/// When windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Align {
    Clock,
    FirstRequest,
}

/// Which gateways share a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Scope {
    Process,
    Cluster,
}

/// What holds of a shared rule while the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "snake_case")]
pub enum OnStoreError {
    /// A count of this process, with the limit divided by the gateways.
    Local,
    /// No limit.
    Allow,
    /// Everything is rejected.
    Deny,
}

/// What becomes of a request that lacks a part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "snake_case")]
pub enum OnMissing {
    /// All such requests share one count.
    #[default]
    Shared,
    /// The rule does not count it.
    Skip,
    /// The rule rejects it.
    Reject,
}

/// What becomes of a request that has a part of the key several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum OnDuplicate {
    First,
    Last,
    Reject,
}

/// How an upstream picks one of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline, extend(
    "x-meant" = [["least_conn", "least_request"], ["consistent_hash", "hash"], ["ip_hash", "hash"], ["sticky", "hash"], ["leastconn", "least_request"], ["leastConn", "least_request"], ["least-conn", "least_request"], ["least_connections", "least_request"], ["least-connections", "least_request"], ["least_time", "least_request"], ["LEAST_REQUEST", "least_request"], ["p2c", "least_request"], ["random_choose_two", "least_request"], ["rr", "round_robin"], ["wrr", "round_robin"], ["weighted_round_robin", "round_robin"], ["static-rr", "round_robin"], ["roundrobin", "round_robin"], ["first", "round_robin"], ["source", "hash"], ["uri", "hash"], ["uri_hash", "hash"], ["hdr", "hash"], ["header", "hash"], ["cookie", "hash"], ["client_ip_hash", "hash"], ["consistent-hashing", "hash"], ["ring_hash", "hash"], ["RING_HASH", "hash"], ["maglev", "hash"], ["MAGLEV", "hash"], ["hrw", "hash"]]
)))]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// The less busy of two, both picked by weight.
    LeastRequest,
    /// By weighted chance.
    Random,
    /// The same one for the same key.
    Hash,
}

/// Which version of HTTP an upstream's servers are spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// What the server chooses, over TLS; HTTP/1.1 in cleartext.
    Auto,
    /// HTTP/1.1.
    H1,
    /// HTTP/2; in cleartext by prior knowledge.
    H2,
}

/// Where the access log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    #[default]
    Off,
    /// To the standard output.
    Stdout,
    /// To this file, which is appended to.
    File(PathBuf),
}

/// Which headers have a client's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "snake_case")]
pub enum RateLimitHeaders {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.
    Draft,
    /// Those and `X-RateLimit-*`.
    Legacy,
    /// None.
    #[default]
    Off,
}

/// Which requests keep the `X-Request-Id` that they come with. All others get a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum RequestIds {
    /// All.
    On,
    /// Those of `trusted_proxies`.
    Trusted,
    /// There are no ids: the header is like any other.
    #[default]
    Off,
}

/// How header names are written to clients of HTTP/1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum HeaderCase {
    /// `content-type`.
    #[default]
    Lower,
    /// `Content-Type`.
    Title,
}

/// Whose `traceparent` is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum ParentTraces {
    /// That of every client.
    On,
    /// That of `trusted_proxies`.
    Trusted,
    /// None.
    Off,
}

impl fmt::Display for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

pub(in crate::config) fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}
