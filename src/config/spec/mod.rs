//! The file as written. A field is a key: its documentation is the reference, its type and its
//! attributes are bounds and default. Whether the values make sense together is the compiler's
//! question.

mod access;
mod acme;
mod auth_url;
pub(super) mod calendar;
mod compress;
mod cors;
mod file;
mod geo;
pub(super) mod keys;
pub(super) mod leaf;
mod listener;
mod mirror;
mod other_words;
mod plans;
mod route;
mod rule;
mod store;
mod tracing;
mod upstream;
pub(super) mod values;
mod words;

pub use self::tracing::{CollectorEndpoint, SampleRatio};
pub(super) use self::tracing::{OtlpSpec, TracingSpec};
pub(super) use access::{
    AccessSpec, AuthSpec, ClientsSpec, ConditionValue, CopySpec, ForwardSpec, JwtSpec,
    NetworkFileSpec, NetworksSpec,
};
pub use acme::AcmeFolder;
pub(super) use acme::{AcmeNames, AcmeSpec, EabSpec, MOST_NAMES, is_beside};
pub(super) use auth_url::AuthEndpoint;
pub(super) use compress::CompressSpec;
pub(super) use cors::CorsSpec;
pub(super) use file::{ClientTimeoutsSpec, FileSpec, LimitsSpec};
pub(super) use geo::GeoSpec;
pub(super) use listener::{
    AdminSpec, AdminTlsSpec, CertificateFiles, CertificateSpec, ListenerSpec, TlsSpec,
};
pub(super) use mirror::MirrorSpec;
pub(super) use plans::{PlanNumbers, PlansSpec};
pub(super) use route::{
    ClientCertSpec, ErrorSpec, FieldConditions, FieldSpec, HeaderEditsSpec, MatchSpec,
    RedirectSpec, RejectSpec, RespondSpec, RetrySpec, RewriteSpec, RouteSpec, ValueSpec,
};
pub(super) use rule::{
    AutoBoundsSpec, BreakerSpec, ClassesSpec, ComputedReserveSpec, ConditionSpec, CostSpec,
    ExceptSpec, LimitSpec, OtherwiseSpec, OverrideSpec, PacingSpec, PrioritySpec, QueuePlansSpec,
    QueueSpec, RateSpec, RuleLimitSpec, RuleSpec, SettleSpec, SettledCost, SettledCostSpec,
    SettlementSpec, WarmUpSpec,
};
pub use store::Secret;
pub(super) use store::{RedisUrl, StoreSpec};
pub(super) use upstream::{
    EjectionSpec, HealthSpec, ServerSpec, TlsOptions, UpstreamSpec, UpstreamTlsSpec,
};
pub use values::{ListenAddress, MediaPattern, OriginPattern, Resolve, ServerUrl, server_url};
pub use words::{
    AccessLog, Balance, Coding, HeaderCase, LogFormat, OnMissing, OnStoreError, ParentTraces,
    RateLimitHeaders, RequestIds, SendProxyProtocol, UpstreamProtocol,
};
pub(super) use words::{
    AlgorithmWord, Align, BytesWord, ClientAuth, ErrorsFrom, OnDuplicate, QueueOrder, Scope, word,
};
