//! The keys whose value is one of a few words.

use super::keys::words;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

words! {
    /// The algorithm by which a limit is counted.
    #[meant = &[
        ["bucket", "token_bucket"],
        ["token", "token_bucket"],
        ["leaky", "leaky_bucket"],
        ["gcra", "leaky_bucket"],
        ["window", "sliding_window"],
        ["sliding", "sliding_window"],
        ["sliding_window_log", "sliding_log"],
        ["sliding_window_counter", "sliding_counter"],
        ["fixed", "fixed_window"],
        ["smooth", "pacing"],
    ]]
    pub(in crate::config) enum AlgorithmWord {
        TokenBucket = "token_bucket",
        LeakyBucket = "leaky_bucket",
        SlidingLog = "sliding_log",
        SlidingWindow = "sliding_window",
        SlidingCounter = "sliding_counter",
        FixedWindow = "fixed_window",
        Pacing = "pacing",
    }

    /// The clients that must show a certificate.
    #[meant = &[["on", "required"], ["require", "required"], ["mandatory", "required"], ["optional_no_ca", "optional"], ["off", "optional"]]]
    pub(in crate::config) enum ClientAuth {
        /// All clients: flowgate closes the connection of a client without a certificate.
        Required = "required",
        /// A client may show none. One that no authority has signed is rejected all the same.
        Optional = "optional",
    }

    /// The beginning of windows.
    pub(in crate::config) enum Align {
        Clock = "clock",
        FirstRequest = "first_request",
    }

    /// The order of the requests of one sharer in a queue.
    pub(in crate::config) enum QueueOrder {
        Fair = "fair",
        LifoWhenLate = "lifo_when_late",
    }

    /// The bodies whose bytes are a cost.
    pub(in crate::config) enum BytesWord {
        Request = "request",
        Response = "response",
        Both = "both",
    }

    /// The gateways that share a count.
    pub(in crate::config) enum Scope {
        Process = "process",
        Cluster = "cluster",
    }

    /// The decision of a shared rule while the store fails.
    pub enum OnStoreError {
        /// A count of this process, with the limit divided by the gateways.
        Local = "local",
        /// No limit.
        Allow = "allow",
        /// Everything is rejected.
        Deny = "deny",
    }

    /// The treatment of a request that lacks a part of the key.
    #[derive(Default)]
    pub enum OnMissing {
        /// All such requests share one count.
        #[default]
        Shared = "shared",
        /// The rule does not count it.
        Skip = "skip",
        /// The rule rejects it.
        Reject = "reject",
    }

    /// The treatment of a request that has a part of the key several times.
    pub(in crate::config) enum OnDuplicate {
        First = "first",
        Last = "last",
        Reject = "reject",
    }

    /// The way in which an upstream picks one of its servers.
    #[meant = &[
        ["least_conn", "least_request"],
        ["consistent_hash", "hash"],
        ["ip_hash", "hash"],
        ["sticky", "hash"],
        ["leastconn", "least_request"],
        ["leastConn", "least_request"],
        ["least-conn", "least_request"],
        ["least_connections", "least_request"],
        ["least-connections", "least_request"],
        ["least_time", "least_request"],
        ["LEAST_REQUEST", "least_request"],
        ["p2c", "least_request"],
        ["random_choose_two", "least_request"],
        ["rr", "round_robin"],
        ["wrr", "round_robin"],
        ["weighted_round_robin", "round_robin"],
        ["static-rr", "round_robin"],
        ["roundrobin", "round_robin"],
        ["first", "round_robin"],
        ["source", "hash"],
        ["uri", "hash"],
        ["uri_hash", "hash"],
        ["hdr", "hash"],
        ["header", "hash"],
        ["cookie", "hash"],
        ["client_ip_hash", "hash"],
        ["consistent-hashing", "hash"],
        ["ring_hash", "hash"],
        ["RING_HASH", "hash"],
        ["maglev", "hash"],
        ["MAGLEV", "hash"],
        ["hrw", "hash"],
    ]]
    pub enum Balance {
        /// In turn, by weight.
        RoundRobin = "round_robin",
        /// The less busy of two, both picked by weight.
        LeastRequest = "least_request",
        /// By weighted chance.
        Random = "random",
        /// The same one for the same key.
        Hash = "hash",
    }

    /// The version of HTTP in which flowgate speaks to an upstream's servers.
    pub enum UpstreamProtocol {
        /// What the server chooses, over TLS; HTTP/1.1 in cleartext.
        Auto = "auto",
        /// HTTP/1.1.
        H1 = "h1",
        /// HTTP/2; in cleartext by prior knowledge.
        H2 = "h2",
    }

    /// The version of the PROXY protocol that servers get.
    #[meant = &[["true", "v2"], ["on", "v1"], ["1", "v1"], ["2", "v2"], ["V1", "v1"], ["V2", "v2"]]]
    pub enum SendProxyProtocol {
        /// A line of text.
        V1 = "v1",
        /// Bytes.
        V2 = "v2",
    }

    /// The headers that have a client's quota.
    #[derive(Default)]
    pub enum RateLimitHeaders {
        /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.
        Draft = "draft",
        /// Those and `X-RateLimit-*`.
        Legacy = "legacy",
        /// None.
        #[default]
        Off = "off",
    }

    /// The requests that keep the `X-Request-Id` that they come with. All others get a new one.
    #[derive(Default)]
    pub enum RequestIds {
        /// All.
        On = "on",
        /// Those of `trusted_proxies`.
        Trusted = "trusted",
        /// There are no ids: the header is like any other.
        #[default]
        Off = "off",
    }

    /// The errors whose bodies are replaced.
    #[meant = &[["gateway", "flowgate"], ["server", "upstream"], ["backend", "upstream"], ["all", "both"], ["any", "both"]]]
    pub enum ErrorsFrom {
        /// Those of flowgate itself.
        Flowgate = "flowgate",
        /// Those of the upstream.
        Upstream = "upstream",
        /// All.
        Both = "both",
    }

    /// The format of the lines of the access log.
    #[derive(Default)]
    #[meant = &[["common", "combined"], ["clf", "combined"], ["main", "combined"], ["text", "combined"], ["apache", "combined"], ["nginx", "combined"]]]
    pub enum LogFormat {
        /// JSON, with all that is known of a request.
        #[default]
        Json = "json",
        /// That of Apache and nginx.
        Combined = "combined",
    }

    /// The encoding of a compressed body.
    #[meant = &[["zst", "zstd"], ["zstandard", "zstd"], ["brotli", "br"], ["gz", "gzip"], ["x-gzip", "gzip"]]]
    pub enum Coding {
        /// Zstandard (RFC 8878).
        Zstd = "zstd",
        /// Brotli (RFC 7932).
        Br = "br",
        /// gzip (RFC 1952).
        Gzip = "gzip",
    }

    /// The form in which header names are written to clients of HTTP/1.1.
    #[derive(Default)]
    pub enum HeaderCase {
        /// `content-type`.
        #[default]
        Lower = "lower",
        /// `Content-Type`.
        Title = "title",
    }

    /// Whose `traceparent` is continued.
    pub enum ParentTraces {
        /// That of every client.
        On = "on",
        /// That of `trusted_proxies`.
        Trusted = "trusted",
        /// None.
        Off = "off",
    }
}

/// The place to which the access log goes.
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
