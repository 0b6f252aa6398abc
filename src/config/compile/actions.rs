//! What becomes of requests that the rules let pass: forwarded, redirected or answered.

use super::{
    compiler::{Compiler, suggestion},
    redirect::groups_of,
    templates::Use,
};
use crate::{
    config::{
        decode::{At, Either, Key},
        diagnostics::{Lint, Problem, SourceSpan, quoted},
        plan::{Action, Respond},
        spec::{
            ErrorsFrom, RedirectSpec, RespondSpec, RewriteSpec, RouteSpec, leaf::Name,
            values::StatusOrClose,
        },
    },
    route::Rewrite,
};
use http::header::CONTENT_TYPE;
use std::collections::HashMap;

impl Compiler {
    /// Compiles what the route at `span` does. `upstreams` has their indexes.
    pub(super) fn action(
        &mut self,
        spec: &RouteSpec,
        span: SourceSpan,
        upstreams: &HashMap<&str, usize>,
    ) -> Option<Action<usize>> {
        let upstream = spec.upstream.as_ref();
        let keys = [
            ("upstream", spec.upstream.span),
            ("redirect", spec.redirect.span),
            ("respond", spec.respond.span),
        ];

        let mut written = keys.into_iter().filter_map(|(name, span)| Some((name, span?)));
        match (written.next(), written.next()) {
            (None, _) => {
                let name = upstreams.keys().min().map_or("checkout", |name| *name);
                let help = format!("write `upstream: {name}`, `redirect: https` or `respond: 204`");
                let message = "a route needs one of `upstream`, `redirect` and `respond`";
                self.error(Problem::error(span, message).help(help));
                return None;
            }
            (Some((first, at)), Some((second, span))) => {
                let message = format!("a route has `{first}` or `{second}`, not both");
                self.error(
                    Problem::error(span, message)
                        .label("a second one")
                        .also(at, "the first")
                        .help("remove one of the two, or write two routes"),
                );
            }
            (Some(_), None) => {}
        }

        if spec.upstream.span.is_none() {
            self.without_upstream(spec);
        }
        let upstream = upstream.and_then(|name| self.upstream_of(name, upstreams));

        let redirect = spec.redirect.at.as_ref().and_then(|at| {
            let groups = groups_of(spec);
            match &*at.value {
                Either::Plain(to) => {
                    self.redirect(&At { value: to, span: at.span, written: true }, None, groups)
                }
                Either::Map(RedirectSpec { to, status }) => {
                    let status = status.value().map(|status| status.0);
                    self.redirect(&to.as_ref()?.as_ref(), status, groups)
                }
            }
        });

        let respond = spec.respond.value().and_then(|respond| match &**respond {
            Either::Plain(status) => Some(match status.0 {
                StatusOrClose::Status(status) => {
                    Action::Respond(Respond { status, headers: Vec::new(), body: None })
                }
                StatusOrClose::Close => Action::Close,
            }),
            Either::Map(spec) => self.respond(spec),
        });

        let redirect = redirect.map(Action::Redirect).or(respond);
        upstream.map(Action::Forward).or(redirect)
    }

    pub(super) fn upstream_of(
        &mut self,
        name: &At<Name>,
        by_name: &HashMap<&str, usize>,
    ) -> Option<usize> {
        let found = by_name.get(&*name.value.0).copied();
        let is_known = !self.are_upstreams_unreadable;
        if found.is_none() && is_known && !self.faulty_upstreams.contains(&name.value.0) {
            let is_url = name.value.0.contains("://") || name.value.0.starts_with("unix:");
            let help = if is_url {
                let url = &name.value.0;
                format!(
                    "write it in `upstreams`, as in `upstreams: [{{ name: app, servers: [{{ url: {url} }}] }}]`, and the name here"
                )
            } else if self.errors.are_many() {
                "write the name of an upstream".to_owned()
            } else {
                suggestion(&name.value.0, by_name.keys().copied().collect(), "upstream")
            };
            let message = format!("there is no upstream {}", quoted(&name.value.0));
            self.error(Problem::error(name.span, message).help(help));
        }
        found
    }

    /// Warns of keys that only requests to an upstream need.
    fn without_upstream(&mut self, spec: &RouteSpec) {
        let keys = [
            ("breaker", spec.breaker.span),
            ("compress", spec.compress.span),
            ("mirror", spec.mirror.span),
            ("request_headers", spec.request_headers.span),
            ("request_trailers", spec.request_trailers.span),
            ("retry", spec.retry.span),
            ("rewrite", spec.rewrite.span),
            ("upgrades", spec.upgrades.span),
        ];
        let errors = spec.errors.items().iter();
        let of_upstream = errors.filter_map(|at| {
            let from = at.value.from.at.as_ref()?;
            (from.value != ErrorsFrom::Flowgate).then_some(("from", Some(from.span)))
        });
        for (name, span) in keys.into_iter().chain(of_upstream) {
            let Some(span) = span else { continue };
            let message = format!("`{name}` does nothing in a route without `upstream`");
            self.warn(Problem::warning(Lint::KeyWithoutEffect, span, message).help("remove it"));
        }
    }

    fn respond(&mut self, spec: &RespondSpec) -> Option<Action<usize>> {
        let status = match spec.status.value()?.0 {
            StatusOrClose::Status(status) => status,
            StatusOrClose::Close => {
                self.without_response("headers", spec.headers.span);
                self.without_response("body", spec.body.span);
                return Some(Action::Close);
            }
        };
        let mut headers = self.header_fields(&spec.headers);
        let given = headers.iter().position(|(name, _)| *name == CONTENT_TYPE);
        if let Some(at) = spec.body.as_ref().filter(|at| !at.value.0.is_empty())
            && matches!(status.as_u16(), 204 | 205 | 304)
        {
            let message = format!("a response with status {} has no body", status.as_u16());
            self.error(
                Problem::error(at.span, message).help("remove `body`, or write another status"),
            );
        }
        let body = spec.body.as_ref().map(|at| {
            let content_type = given.map(|at| headers.remove(at).1);
            self.body(&at.value.0, at.span, content_type, Use::Request)
        });
        Some(Action::Respond(Respond { status, headers, body }))
    }

    /// Compiles what the upstream is asked for in place of the path.
    pub(super) fn rewrite(&mut self, key: &Key<Box<RewriteSpec>>) -> Option<Rewrite> {
        let At { value: spec, span, .. } = key.at.as_ref()?;
        let keys =
            [spec.strip_prefix.span, spec.add_prefix.span, spec.path_regex.span, spec.host.span];
        if keys.iter().all(Option::is_none) {
            self.error(
                Problem::error(*span, "a rewrite that changes nothing")
                    .help("write `rewrite: { strip_prefix: /api }`, or remove it"),
            );
        }
        let mut rewrite = Rewrite::default();
        if let Some(at) = spec.strip_prefix.as_ref() {
            self.pattern(rewrite.strip(&at.value.0), at.span);
        }
        if let Some(at) = spec.add_prefix.as_ref() {
            self.pattern(rewrite.add(&at.value.0), at.span);
        }
        if let Some(regex) = spec.path_regex.value()
            && let (Some(pattern), Some(replace)) = (regex.pattern.as_ref(), regex.replace.as_ref())
            && self.pattern(rewrite.replace(&pattern.value.0), pattern.span).is_some()
        {
            self.pattern(rewrite.by(&replace.value.0), replace.span);
        }
        rewrite.host = spec.host.value().map(|host| host.0.clone());
        self.patterns.extend(spec.host.as_ref().map(|at| at.span));
        rewrite.words = self.conceal(rewrite.to_string()).into();
        Some(rewrite)
    }
}
