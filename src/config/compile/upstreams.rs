//! Upstreams: names, servers, the order in which weights take their turns, and retries.

use super::compiler::Compiler;
use crate::{
    config::{
        decode::At,
        diagnostics::{Lint, Problem, SourceSpan},
        plan::{
            AnswerLimits, RetryPolicy, ServerPlan, UpstreamOptions, UpstreamPlace, UpstreamPlan,
            UpstreamTls, schedule,
        },
        read::source::Files,
        spec::{
            Balance, EjectionSpec, HealthSpec, RetrySpec, SendProxyProtocol, ServerSpec,
            UpstreamProtocol, UpstreamSpec, UpstreamTlsSpec,
            values::{Endpoint, RetryOn},
        },
        vocabulary::DescribedMap,
    },
    health::{Check, Ejection},
    route::{KeyPart, KeySpec, OnDuplicate},
};
use http::Method;
use std::{sync::Arc, time::Duration};

/// The bits of an IPv6 address that decide about a server: what one client has.
const HASHED_V6_PREFIX: u8 = 64;

/// A compiled upstream and what other parts of the file are checked against.
#[derive(Debug)]
pub(super) struct Compiled {
    pub name: Arc<str>,
    pub span: SourceSpan,
    /// The URLs of its servers.
    pub servers: Vec<SourceSpan>,
    pub plan: UpstreamPlan,
}

impl Compiled {
    /// Returns its place in the file.
    pub(super) fn place(&self) -> UpstreamPlace {
        UpstreamPlace { span: self.span, servers: self.servers.clone() }
    }
}

/// A server of the file.
struct CompiledServer<'s> {
    endpoint: At<&'s Endpoint>,
    weight: u64,
    is_backup: bool,
}

/// Returns a server; `None` if a key of it could not be read.
fn server_of(spec: &ServerSpec) -> Option<CompiledServer<'_>> {
    Some(CompiledServer {
        endpoint: spec.url.as_ref()?.as_ref().map(|url| &url.0),
        weight: spec.weight.number()?.value,
        is_backup: *spec.backup.value()?,
    })
}

impl CompiledServer<'_> {
    fn plan(&self) -> ServerPlan {
        ServerPlan {
            endpoint: self.endpoint.value.clone(),
            weight: u32::try_from(self.weight).unwrap_or(u32::MAX),
            is_backup: self.is_backup,
        }
    }
}

/// Returns the name of the cookie that keeps a client at one server.
fn sticky(spec: &UpstreamSpec) -> Option<Box<str>> {
    let cookie = &spec.sticky.value()?.cookie;
    cookie.value().map(|name| name.0.clone())
}

impl Compiler {
    pub(super) fn upstreams(&mut self, specs: &[At<UpstreamSpec>], files: &Files) -> Vec<Compiled> {
        self.names("upstream", specs.iter().filter_map(|at| at.value.name.as_ref()));
        let mut compiled = Vec::with_capacity(specs.len());
        for spec in specs {
            match (self.upstream(spec, files), spec.value.name.value()) {
                (Some(upstream), _) => compiled.push(upstream),
                (None, Some(name)) => {
                    self.faulty_upstreams.insert(Arc::clone(&name.0));
                }
                (None, None) => {}
            }
        }
        compiled
    }

    fn upstream(&mut self, at: &At<UpstreamSpec>, files: &Files) -> Option<Compiled> {
        let spec = &at.value;
        let servers: Vec<CompiledServer<'_>> =
            spec.servers.items().iter().filter_map(|server| server_of(&server.value)).collect();

        self.unique(
            servers.iter().map(|server| {
                let at = &server.endpoint;
                ((&at.value.host, at.value.port), at.span)
            }),
            |_| "the server is in the list already".to_owned(),
            "write `weight: 2` at the first to send it more",
        );

        let protocol = *spec.protocol.value()?;
        let tls = self.tls(spec, protocol, servers.iter().map(|server| server.endpoint), files);
        self.check_turns(&servers, at.span);

        let value = |at: Option<At<Duration>>| at.map(|at| at.value).unwrap_or_default();
        let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let limits = spec.limits.value()?;
        let hash_key = self.hash_key(spec);
        let name = spec.name.as_ref()?;

        let spans = servers.iter().map(|server| server.endpoint.span).collect();
        let plan = UpstreamPlan {
            name: name.value.0.clone(),
            servers: servers.iter().map(CompiledServer::plan).collect(),
            options: UpstreamOptions {
                balance: *spec.balance.value()?,
                hash_key,
                sticky: sticky(spec),
                send_proxy_protocol: self.send_proxy_protocol(spec, protocol),
                protocol,
                connect_timeout: value(spec.connect_timeout.duration()),
                idle_timeout: value(spec.idle_timeout.duration()),
                max_idle: small(spec.max_idle.number()?.value),
                limits: AnswerLimits {
                    header_bytes: small(limits.header_bytes.bytes()?),
                    headers: small(limits.headers.number()?.value),
                },
                health: spec.health.value().and_then(check),
                ejection: ejection(spec.ejection.value()?)?,
                slow_start: value(spec.slow_start.duration()),
                resolve: spec.resolve.value()?.0,
                tls,
            },
            keys: [spec.shown_keys(""), limits.shown_keys("limits")].concat(),
        };

        Some(Compiled { name: plan.name.clone(), span: name.span, servers: spans, plan })
    }

    /// Returns the version of the PROXY protocol that connections begin with. Those of HTTP/2 carry requests of
    /// many clients.
    fn send_proxy_protocol(
        &mut self,
        spec: &UpstreamSpec,
        protocol: UpstreamProtocol,
    ) -> Option<SendProxyProtocol> {
        let At { value, span, .. } = spec.send_proxy_protocol.as_ref()?;
        if protocol == UpstreamProtocol::H2 {
            let message =
                "`send_proxy_protocol` beside `protocol: h2`, whose connections serve many clients";
            self.error(
                Problem::error(*span, message)
                    .help("remove one of the two, or write `protocol: h1`"),
            );
        }
        Some(*value)
    }

    /// Checks that requests have a server while all are well, and that the turns of the others, and those
    /// of the backups, come round soon.
    fn check_turns(&mut self, servers: &[CompiledServer<'_>], span: SourceSpan) {
        let (backups, others): (Vec<_>, Vec<_>) =
            servers.iter().partition(|server| server.is_backup);
        if let Some(first) = backups.first().filter(|_| others.is_empty()) {
            self.error(
                Problem::error(first.endpoint.span, "all servers are backups")
                    .help("remove `backup: true` from those that get requests at all times"),
            );
        }

        let is_too_long = |servers: &[&CompiledServer<'_>]| {
            let weights: Vec<u64> = servers.iter().map(|server| server.weight).collect();
            schedule(&weights).is_none()
        };
        if is_too_long(&others) || is_too_long(&backups) {
            self.error(
                Problem::error(span, "the cycle of the weights is too long")
                    .help("write weights whose sum, divided by what they share, is at most 1000"),
            );
        }
    }

    /// Returns what decides about a request's server, if something does.
    fn hash_key(&mut self, spec: &UpstreamSpec) -> Option<KeySpec> {
        let is_hash = *spec.balance.value()? == Balance::Hash;
        if let Some(span) = spec.hash_key.span.filter(|_| !is_hash) {
            self.error(
                Problem::error(span, "`hash_key` without `balance: hash`")
                    .help("write `balance: hash`, or remove it"),
            );
        }
        let mut parts = Vec::new();
        for at in spec.hash_key.items() {
            let part = self.pattern(KeyPart::parse(&at.value.0, HASHED_V6_PREFIX), at.span);
            if let Some(KeyPart::Segment(_)) = part {
                let message = "an upstream does not know the templates of a route's path";
                self.error(Problem::error(at.span, message).help("write `path`"));
                continue;
            }
            if let Some(part) = &part {
                self.needs_file_of(part, at.span);
            }
            parts.extend(part);
        }
        if !spec.hash_key.is_written() {
            parts.push(KeyPart::ClientIp { v6_prefix: HASHED_V6_PREFIX, v4_prefix: 32 });
        }
        let span = spec.hash_key.span.unwrap_or_default();
        let key = self.pattern(KeySpec::new(parts), span)?.with_duplicates(OnDuplicate::First);
        is_hash.then_some(key)
    }

    /// Returns how connections to the servers that speak TLS are secured, if there are any.
    fn tls<'s>(
        &mut self,
        spec: &UpstreamSpec,
        protocol: UpstreamProtocol,
        servers: impl Iterator<Item = At<&'s Endpoint>>,
        files: &Files,
    ) -> Option<Arc<UpstreamTls>> {
        let secured: Vec<At<&Endpoint>> = servers.filter(|at| at.value.is_tls).collect();
        let Some(first) = secured.first() else {
            if let Some(span) = spec.tls.span {
                self.error(
                    Problem::error(span, "`tls` without a server that speaks TLS")
                        .help("write `https://…` at the servers, or remove it"),
                );
            }
            return None;
        };

        let tls = spec.tls.value();
        if let Some((lone, name, other)) = tls.and_then(UpstreamTlsSpec::lone_file) {
            self.error(
                Problem::error(lone, format!("`{name}` without `{other}`"))
                    .help("write both, or remove it"),
            );
        }

        if let Some(at) = tls.and_then(|tls| tls.insecure.filter(|at| at.value)) {
            self.warn(
                Problem::warning(
                    Lint::InsecureUpstream,
                    at.span,
                    "the servers' certificates are not verified",
                )
                .label("any server that answers in their place is trusted")
                .help("write `ca: FILE` instead"),
            );
        }

        let options = tls.map(UpstreamTlsSpec::options).unwrap_or_default();
        let tls = match UpstreamTls::load(&options, protocol, files, first.span) {
            Ok(tls) => tls,
            Err(problems) => {
                for problem in problems {
                    self.error(problem);
                }
                return None;
            }
        };

        for nameless in secured.iter().filter(|at| tls.name_of(&at.value.host).is_none()) {
            self.error(
                Problem::error(nameless.span, "no certificate can be for this host")
                    .help("write `tls: { server_name: NAME }` with the name of its certificate"),
            );
        }

        Some(Arc::new(tls))
    }
}

fn check(spec: &HealthSpec) -> Option<Check> {
    let small = |number: At<u64>| u32::try_from(number.value).unwrap_or(u32::MAX);
    Some(Check {
        path: spec.path.value()?.0.clone(),
        host: spec.host.value().and_then(|host| host.0.to_str().ok()).map(Into::into),
        interval: spec.interval.duration()?.value,
        timeout: spec.timeout.duration()?.value,
        healthy_after: small(spec.healthy_after.number()?),
        unhealthy_after: small(spec.unhealthy_after.number()?),
        expect: spec.expect.items().iter().map(|range| range.value.0.clone()).collect(),
    })
}

fn ejection(spec: &EjectionSpec) -> Option<Ejection> {
    let small = |number: At<u64>| u32::try_from(number.value).unwrap_or(u32::MAX);
    Some(Ejection {
        failures: small(spec.failures.number()?),
        failure_percent: small(spec.failure_percent.number()?),
        period: spec.period.duration()?.value,
        longest: spec.longest.duration()?.value,
        most_percent: small(spec.most_percent.number()?),
    })
}

/// The statuses that are retried by default: gateways' and overload's statuses.
const STATUSES: [u16; 3] = [502, 503, 504];

/// The methods that are sent again where the file does not say: those that ask for nothing to be
/// done (RFC 9110, 9.2.1).
const METHODS: [Method; 3] = [Method::GET, Method::HEAD, Method::OPTIONS];

impl Compiler {
    pub(super) fn retry(&mut self, spec: &RetrySpec) -> Option<RetryPolicy> {
        for at in spec.methods.items() {
            let method = &at.value.0;
            if [Method::POST, Method::PATCH].contains(method) {
                self.error(
                    Problem::error(at.span, format!("`{method}` cannot be sent again"))
                        .label("a server may do twice what it asks for")
                        .help("remove it; flowgate always sends a request again that no server can have acted on"),
                );
            }
        }

        let on = spec.on.is_written().then(|| spec.on.plain(|cause| cause.0));
        let has = |cause| on.as_ref().is_none_or(|on| on.contains(&cause));
        let statuses = on.as_ref().map_or_else(
            || STATUSES.to_vec(),
            |on| {
                let statuses = on.iter().filter_map(|cause| match *cause {
                    RetryOn::Status(status) => Some(status),
                    RetryOn::Connect | RetryOn::Reset | RetryOn::Timeout => None,
                });
                statuses.collect()
            },
        );

        Some(RetryPolicy {
            attempts: u32::try_from(spec.attempts.number()?.value).unwrap_or(u32::MAX),
            connect: has(RetryOn::Connect),
            reset: has(RetryOn::Reset),
            timeout: on.as_ref().is_some_and(|on| on.contains(&RetryOn::Timeout)),
            statuses,
            methods: if spec.methods.is_written() {
                spec.methods.plain(|method| method.0.clone())
            } else {
                METHODS.to_vec()
            },
            budget_percent: spec.budget.value()?.0,
        })
    }
}
