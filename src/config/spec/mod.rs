//! The file as written. A field is a key: its documentation is the reference, its type and its
//! attributes are bounds and default. Whether the values make sense together is the compiler's
//! question.

mod access;
mod acme;
mod action;
mod auth_url;
mod breaker;
pub(super) mod calendar;
mod collector;
mod file;
pub(super) mod keys;
pub(super) mod leaf;
mod listener;
mod matches;
mod networks;
mod other_words;
mod plans;
mod redis_url;
mod route;
mod rule;
mod sample_ratio;
mod store;
mod tracing;
mod upstream;
pub(super) mod values;
mod words;

pub(super) use self::tracing::{OtlpSpec, TracingSpec};
pub(super) use access::{AccessSpec, AuthSpec, ForwardSpec, JwtSpec};
pub use acme::AcmeFolder;
pub(super) use acme::{AcmeNames, AcmeSpec, EabSpec, MOST_NAMES, is_beside};
pub(super) use action::{RedirectSpec, RespondSpec, RewriteSpec};
pub(super) use auth_url::AuthEndpoint;
pub(super) use breaker::BreakerSpec;
pub use collector::CollectorEndpoint;
pub(super) use file::{ClientTimeoutsSpec, FileSpec, LimitsSpec};
pub(super) use listener::{
    AdminSpec, AdminTlsSpec, CertificateFiles, CertificateSpec, ListenerSpec, TlsSpec,
};
pub(super) use matches::{FieldConditions, FieldSpec, MatchSpec, ValueSpec};
pub(super) use networks::{ConditionValue, NetworkFileSpec, NetworksSpec};
pub(super) use plans::{PlanNumbers, PlansSpec};
pub(super) use redis_url::RedisUrl;
pub use redis_url::Secret;
pub(super) use route::{ErrorSpec, HeaderEditsSpec, RejectSpec, RetrySpec, RouteSpec};
pub(super) use rule::{
    ComputedReserveSpec, ConditionSpec, CostSpec, ExceptSpec, LimitSpec, OtherwiseSpec,
    OverrideSpec, PacingSpec, PrioritySpec, RuleSpec, SettleSpec, SettledCost, SettlementSpec,
    WarmUpSpec,
};
pub use sample_ratio::SampleRatio;
pub(super) use store::StoreSpec;
pub(super) use upstream::{EjectionSpec, HealthSpec, TlsOptions, UpstreamSpec, UpstreamTlsSpec};
pub use values::{Resolve, ServerUrl, server_url};
pub use words::{
    AccessLog, Balance, HeaderCase, OnMissing, OnStoreError, ParentTraces, RateLimitHeaders,
    RequestIds, UpstreamProtocol,
};
pub(super) use words::{
    AlgorithmWord, Align, BytesWord, ClientAuth, ErrorsFrom, OnDuplicate, Scope, word,
};
