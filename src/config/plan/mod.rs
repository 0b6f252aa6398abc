//! The plan of a file: compiled and checked, without state, not yet in force.

mod access;
mod acme;
mod action;
mod admin;
mod admin_tls;
pub(super) mod certificate;
mod client_plans;
mod compress;
mod cors;
mod expiry;
mod file;
mod lenient_certificate;
mod mirror;
mod queue_shares;
mod requests;
mod route;
mod rule_group;
mod server_verifier;
mod settings;
mod settle;
mod template;
mod tls_terms;
mod upstream;
mod upstream_tls;

pub(super) use access::ClientList;
pub(super) use access::CopiedField;
pub use access::{Access, Auth, ForwardAuth, Jwt};
pub(super) use acme::self_signed;
pub use acme::{Acme, AcmeOrder, Eab};
pub use action::{Action, Body, HeaderText, Redirect, Respond, Syntax};
pub use admin::{Admin, AdminAddress};
pub use admin_tls::AdminTls;
pub use certificate::{Certificate, Certificates, Origin};
pub use client_plans::ClientPlans;
pub use compress::Compress;
pub use cors::Cors;
pub(super) use cors::preflight_method;
pub use expiry::ShownCertificate;
pub(super) use expiry::shown;
pub use file::{ListenPlace, Listener, Plan};
pub(super) use file::{Places, UpstreamPlace, certificates};
pub use mirror::Mirror;
pub use queue_shares::QueueShares;
pub(super) use queue_shares::{MAX_CLASSES, QueueClasses, QueuePlans, Weights};
pub use requests::Except;
pub(super) use requests::{Priority, When};
pub(super) use route::{BREAKER, ErrorBody, FlowPart, NO_ROUTE, PACING, RoutePlan, RulePlan};
pub use route::{
    Cost, HeaderEdits, Limit, Reject, RetryPolicy, RouteDefinition, RouteOptions, RouteTimeouts,
    RuleOptions,
};
pub use rule_group::{GroupDefinition, GroupOwner};
pub(super) use rule_group::{MetGroup, RuleGroupPlan};
pub use server_verifier::{ListedNames, ServerVerifier, UnsupportedCertificate};
pub(super) use settings::name_in_store;
pub use settings::{
    ClientTimeouts, Collector, Limits, Settings, StoreKind, StoreSettings, Tracing,
};
pub(super) use settle::JsonCost;
pub use settle::{
    ComputedReserve, CountedBytes, ReservedNumbers, ReservedRequest, ResponseEnd, Settle,
    SettleSource, StatusCosts, decimal,
};
pub use template::{GroupPiece, Piece, Placeholder, Template, Text, UrlPart};
pub(super) use template::{Token, tokens};
pub use tls_terms::{ClientAuthorities, TlsTerms, failed_handshake};
pub use upstream::{AnswerLimits, UpstreamOptions, UpstreamPlan};
pub(super) use upstream::{ServerPlan, schedule};
pub use upstream_tls::UpstreamTls;
