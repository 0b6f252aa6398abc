//! Forward auth: the service that decides about each request of a route, and where it is.

use super::{compiler::Compiler, upstreams::Compiled};
use crate::{
    config::{
        decode::{At, Either, Key},
        diagnostics::{Problem, SourceSpan},
        plan::{
            AnswerLimits, CopiedField, ForwardAuth, Redirect, ServerPlan, UpstreamOptions,
            UpstreamPlan,
        },
        spec::{
            AuthEndpoint, Balance, CopySpec, ForwardSpec, Resolve, UpstreamProtocol,
            leaf::{CheckPath, CopiedName},
        },
    },
    health::Ejection,
};
use http::{StatusCode, uri::PathAndQuery};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The auth service of a route.
pub(super) struct CompiledForward {
    pub(super) auth: ForwardAuth,
    /// The index of its upstream in the plan.
    pub(super) upstream: usize,
}

/// Where an auth service is.
struct Service {
    name: Arc<str>,
    upstream: usize,
    host: Option<http::HeaderValue>,
    target: PathAndQuery,
}

impl Compiler {
    /// Compiles the auth service of a route. `upstreams` are those of the file.
    pub(super) fn forward_auth(
        &mut self,
        at: &At<Box<ForwardSpec>>,
        upstreams: &[Compiled],
    ) -> Option<CompiledForward> {
        let spec = &at.value;
        let service = self.service(spec, at.span, upstreams);

        let copied =
            || spec.copy.items().iter().filter_map(|at| Some((copied(&at.value)?, at.span)));
        self.unique(
            copied(),
            |copied| format!("`{}` is copied twice, or servers read two names alike", copied.to),
            "remove one",
        );
        let copy = copied().map(|(field, _)| field).collect();

        let set = self.header_fields(&spec.set);
        let login = spec.login.at.as_ref().and_then(|at| {
            let to = At { value: &at.value, span: at.span, written: true };
            self.redirect(&to, Some(StatusCode::FOUND), None)
        });
        let login = login.map(|login| Redirect { keeps_query: false, ..login });
        let timeout = spec.timeout.duration()?.value;
        let Service { name, upstream, host, target } = service?;
        let auth = ForwardAuth { upstream: name, host, target, copy, set, login, timeout };
        Some(CompiledForward { auth, upstream })
    }

    /// Returns where the service is: at a URL, or an upstream of the file.
    fn service(
        &mut self,
        spec: &ForwardSpec,
        span: SourceSpan,
        upstreams: &[Compiled],
    ) -> Option<Service> {
        const EXAMPLE: &str =
            "write `url: http://HOST:PORT/PATH`, or `upstream: NAME` with `path: /PATH`";
        match (spec.url.span, spec.upstream.span) {
            (None, None) => {
                let message = "`forward` without `url` or `upstream`";
                self.error(Problem::error(span, message).help(EXAMPLE));
                None
            }
            (Some(url), Some(upstream)) => {
                self.error(
                    Problem::error(upstream, "`upstream` beside `url`")
                        .label("a second place")
                        .also(url, "the first")
                        .help("remove one of the two"),
                );
                None
            }
            (Some(_), None) => {
                if let Some(span) = spec.path.span {
                    self.error(
                        Problem::error(span, "`path` beside `url`")
                            .help("write the path at the end of `url`, and remove this"),
                    );
                }
                spec.url.value().map(|url| self.service_at(&url.0, upstreams.len()))
            }
            (None, Some(_)) => self.service_of(spec, upstreams),
        }
    }

    /// Returns the service at a URL. `named` is the number of the file's upstreams: those of auth
    /// services follow them, one for each address.
    fn service_at(&mut self, url: &AuthEndpoint, named: usize) -> Service {
        // A name of the file holds no blank.
        let name = format!("auth {}", url.endpoint);
        let known = self.auth_upstreams.iter().position(|upstream| *upstream.name == *name);
        let index = known.unwrap_or_else(|| {
            self.auth_upstreams.push(upstream_at(name.as_str().into(), url));
            self.auth_upstreams.len() - 1
        });

        Service {
            name: Arc::clone(&self.auth_upstreams[index].name),
            upstream: named + index,
            host: Some(url.authority.clone()),
            target: url.target.clone(),
        }
    }

    /// Returns the service that is an upstream of the file.
    fn service_of(&mut self, spec: &ForwardSpec, upstreams: &[Compiled]) -> Option<Service> {
        let by_name: HashMap<&str, usize> = upstreams
            .iter()
            .enumerate()
            .map(|(index, upstream)| (&*upstream.name, index))
            .collect();
        let name = spec.upstream.as_ref()?;
        let upstream = self.upstream_of(name, &by_name);
        if !spec.path.is_written() {
            self.error(
                Problem::error(name.span, "`upstream` without `path`")
                    .help("write what the service is asked for, as in `path: /oauth2/auth`"),
            );
        }
        let options = upstream.and_then(|index| Some(&upstreams.get(index)?.plan.options));
        if options.is_some_and(|options| options.send_proxy_protocol.is_some()) {
            self.error(
                Problem::error(name.span, "an auth service is asked without the PROXY protocol")
                    .help("write an upstream of its own without `send_proxy_protocol`"),
            );
        }
        let target = path(&spec.path)?;
        Some(Service { name: Arc::clone(&name.value.0), upstream: upstream?, host: None, target })
    }
}

/// Returns a field that the upstream receives; `None` if a part of it could not be read.
fn copied(spec: &Either<CopiedName, CopySpec>) -> Option<CopiedField> {
    let [from, to] = match spec {
        Either::Plain(name) => [name, name],
        Either::Map(names) => [names.from.value()?, names.to.value()?],
    };
    Some(CopiedField::new(from.0.clone(), to.0.clone()))
}

fn path(key: &Key<CheckPath>) -> Option<PathAndQuery> {
    key.value()?.0.parse().ok()
}

/// Returns the upstream of a service at a URL. It has the defaults of an upstream of the file.
fn upstream_at(name: Arc<str>, url: &AuthEndpoint) -> UpstreamPlan {
    let server = ServerPlan { endpoint: url.endpoint.clone(), weight: 1, is_backup: false };
    let seconds = Duration::from_secs;
    UpstreamPlan {
        name,
        servers: vec![server],
        options: UpstreamOptions {
            balance: Balance::RoundRobin,
            hash_key: None,
            sticky: None,
            send_proxy_protocol: None,
            protocol: UpstreamProtocol::H1,
            connect_timeout: seconds(3),
            idle_timeout: seconds(4),
            max_idle: 1024,
            limits: AnswerLimits { header_bytes: 64 * 1024, headers: 100 },
            health: None,
            ejection: Ejection {
                failures: 5,
                failure_percent: 50,
                period: seconds(10),
                longest: seconds(300),
                most_percent: 50,
            },
            resolve: Resolve::ByTtl,
            slow_start: seconds(10),
            tls: None,
        },
        keys: Vec::new(),
    }
}
