//! From `gateway.yaml` to what the gateway runs by.
//!
//! ```text
//!         yaml       serde      spec to plan   in force
//! text ────────▶ tree ─────▶ spec ─────▶ plan ─────▶ snapshot
//!  read/         decode/     compile/     live/
//! ```
//!
//! | folder | what it has |
//! |---|---|
//! | `diagnostics` | what is wrong, each problem with its span, drawn with a hint |
//! | `read` | files to text, text to a tree in which every value has its span |
//! | `vocabulary` | the keys as constants that the types of `spec` declare: hints, the reference, the JSON Schema |
//! | `decode` | tree to spec, by serde, without stopping at an error |
//! | `spec` | the file as written: its keys, their types, bounds and defaults |
//! | `plan` | the file as meant: checked, compiled, without state |
//! | `compile` | spec to plan: whether the values make sense together |
//! | `snapshot` | a plan in force, joined with the state that outlives it |
//! | `report` | a plan, or the difference of two, in words |
//! | `live` | the snapshot in force, the watch of the file, and the reload |
//! | `scenario` | tests that users write, in YAML |
//!
//! `watched.rs` is what to look at for changes: files, and names in folders.
//!
//! Everything up to the plan is a function of the files alone and reports all problems at once.
//! There are no sockets, clocks and tasks here. A snapshot is never changed.

mod admin_address;
mod compile;
mod decode;
mod diagnostics;
mod lint;
mod live;
mod load;
mod plan;
mod read;
mod report;
mod scenario;
mod snapshot;
mod spec;
mod vocabulary;
mod watched;

pub use admin_address::read_admin;
pub use diagnostics::{Diagnostic, Diagnostics, Lint, Problem, Severity, line_of_secret};
pub use live::{Live, LocalShare, Retired, Summary, watch};
pub use load::{Text, read, read_rules, reference, schema, schema_value};
pub use plan::{
    Access, Acme, AcmeOrder, Action, Admin, AdminAddress, AdminTls, AnswerLimits, Auth, Body,
    Certificate, Certificates, ClientAuthorities, ClientPlans, ClientTimeouts, Collector, Compress,
    ComputedReserve, Cors, Cost, CountedBytes, Eab, Except, ForwardAuth, GroupDefinition,
    GroupOwner, GroupPiece, HeaderEdits, HeaderText, Jwt, Limit, Limits, ListedNames, ListenPlace,
    Listener, Mirror, Origin, Piece, Placeholder, Plan, QueueShares, Redirect, Reject,
    ReservedNumbers, ReservedRequest, Respond, ResponseEnd, RetryPolicy, RouteDefinition,
    RouteOptions, RouteTimeouts, RuleOptions, ServerVerifier, Settings, Settle, SettleSource,
    ShownCertificate, StatusCosts, StoreKind, StoreSettings, Syntax, Template,
    Text as TemplateText, TlsTerms, Tracing, UnsupportedCertificate, UpstreamOptions, UpstreamPlan,
    UpstreamTls, UrlPart, decimal, failed_handshake,
};
pub use read::source::{DEFAULT_FILE, STDIN, content_hash, fingerprint, read_bytes};
pub use report::{
    ChangeKind, ConfigChanges, Difference, Named, RouteChange, RoutePromises, RuleChange,
    RulePromise, describe, diff, most_bytes, promises,
};
pub use scenario::{
    Arrivals, Bound, Count, Expect, Measure, Numbered, Scenario, Spread, Step, Test, What, When,
    Word, read_scenario,
};
pub use snapshot::{
    ClaimSource, Claims, GateRules, KeySource, Members, RequestContext, Route, RouteRule,
    RuleGroup, RuleOwner, RuleSync, Server, Settling, Shared, SharedPlans, Snapshot, Unrouted,
    Upstream, is_served, outcome, rejected_path,
};
pub use spec::{
    AccessLog, AcmeFolder, Balance, Coding, CollectorEndpoint, HeaderCase, ListenAddress,
    LogFormat, MediaPattern, OnMissing, OnStoreError, OriginPattern, ParentTraces,
    RateLimitHeaders, RequestIds, Resolve, SampleRatio, Secret, SendProxyProtocol, ServerUrl,
    UpstreamProtocol, server_url,
};
pub use watched::{NamePattern, Watched};

#[cfg(test)]
mod tests;
