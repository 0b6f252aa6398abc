//! The scripts of other origins that may use a route.

use super::compiler::Compiler;
use crate::config::{
    decode::{At, Key, Several},
    diagnostics::{Lint, Problem},
    plan::Cors,
    spec::{
        CorsSpec, HeaderEditsSpec, OriginPattern,
        leaf::{CorsMethod, FieldName},
    },
};
use http::HeaderValue;

/// A request from another origin is compared with each.
const MOST_ORIGINS: usize = 100;

/// The methods without `methods`.
const USUAL_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");

impl Compiler {
    /// Compiles the `cors` of a route whose responses get the fields of `edits`.
    pub(super) fn cors(
        &mut self,
        key: &Key<Box<CorsSpec>>,
        edits: &Key<Box<HeaderEditsSpec>>,
    ) -> Option<Cors> {
        let spec = key.value()?;
        let origins = self.cors_origins(spec);
        let credentials = spec.credentials.is_true();
        self.cors_without_effect(edits);

        let methods = match spec.methods.at {
            None => Some(USUAL_METHODS),
            Some(_) => self.cors_methods(&spec.methods),
        };
        let headers = spec.headers.at.as_ref().and_then(|_| names(&spec.headers));
        let exposed = spec.expose.items();
        if let Some(at) = exposed.iter().find(|at| credentials && is_star(&at.value)) {
            let message = "with `credentials`, browsers take `*` for the name of a field";
            self.error(
                Problem::error(at.span, message)
                    .help("write the fields, as in `[retry-after, ratelimit]`"),
            );
        }
        let expose = joined(exposed.iter().map(|at| at.value.0.as_str()));

        let max_age = spec.max_age.duration();
        let max_age = max_age.map(|at| HeaderValue::from(at.value.as_secs()));
        Some(Cors { origins, methods, headers, expose, credentials, max_age })
    }

    fn cors_origins(&mut self, spec: &CorsSpec) -> Vec<OriginPattern> {
        let listed = spec.origins.items();
        if let Some(At { span, .. }) = listed.get(MOST_ORIGINS) {
            let message = format!("`origins` has {} entries", listed.len());
            let help = format!(
                "write at most {MOST_ORIGINS}; `https://*.example.com` stands for all hosts below it"
            );
            self.error(Problem::error(*span, message).help(help));
        }

        let Some(any) = listed.iter().find(|at| at.value.0 == OriginPattern::Any) else {
            return listed.iter().map(|at| at.value.0.clone()).collect();
        };
        if let Some(at) = spec.credentials.at.as_ref().filter(|at| at.value) {
            self.error(
                Problem::error(any.span, "`*` beside `credentials: true`")
                    .label("any site could act for its visitors here")
                    .also(at.span, "here")
                    .help("write the origins, as in `https://app.example.com`"),
            );
        }
        if let Some(other) = listed.iter().find(|at| at.value.0 != OriginPattern::Any) {
            let message = "`*` allows this origin too";
            let problem = Problem::warning(Lint::KeyWithoutEffect, other.span, message);
            self.warn(problem.help("remove it, or remove `*`"));
        }
        vec![OriginPattern::Any]
    }

    /// Returns the methods as a field has them; `None` for all.
    fn cors_methods(&mut self, key: &Key<Several<CorsMethod>>) -> Option<HeaderValue> {
        let listed = key.items();
        if let Some(span) = key.span.filter(|_| listed.is_empty()) {
            self.error(
                Problem::error(span, "`methods` is empty")
                    .help("write the methods, as in `[GET, POST]`, or remove `methods`"),
            );
        }
        if listed.iter().any(|at| at.value.0.is_none()) {
            return None;
        }
        joined(listed.iter().filter_map(|at| at.value.0.as_ref()).map(http::Method::as_str))
    }

    /// Warns of fields of `response_headers` that `cors` writes.
    fn cors_without_effect(&mut self, edits: &Key<Box<HeaderEditsSpec>>) {
        let Some(edits) = edits.value() else { return };
        let names =
            edits.set.value().into_iter().flat_map(|set| set.0.iter().map(|(name, _)| name));
        for At { value: name, span, .. } in names {
            if name.0.as_str().starts_with("access-control-") {
                let message = format!("`cors` writes `{}` itself", name.0);
                let problem = Problem::warning(Lint::KeyWithoutEffect, *span, message);
                self.warn(problem.help("remove it"));
            }
        }
    }
}

fn is_star(name: &FieldName) -> bool {
    name.0.as_str() == "*"
}

/// Returns the names as a field has them; `None` for all. An empty list allows none.
fn names(key: &Key<Several<FieldName>>) -> Option<HeaderValue> {
    let listed = key.items();
    if listed.iter().any(|at| is_star(&at.value)) {
        return None;
    }
    let names = joined(listed.iter().map(|at| at.value.0.as_str()));
    Some(names.unwrap_or_else(|| HeaderValue::from_static("")))
}

/// Returns a list of words as a field has it, if there are any.
fn joined<'a>(words: impl Iterator<Item = &'a str>) -> Option<HeaderValue> {
    let words: Vec<&str> = words.collect();
    if words.is_empty() { None } else { HeaderValue::try_from(words.join(", ")).ok() }
}
