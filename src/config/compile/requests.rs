//! Some requests of a rule: those of an override, those that are exempt, those with priority.

use super::{Compiler, routes::field_in_words};
use crate::{
    config::{
        decode::At,
        problem::quoted,
        snapshot::{Except, Priority, When},
        spec::{ExceptSpec, FieldSpec, PrioritySpec, WhenSpec},
    },
    route::{FieldPattern, Matcher, OnDuplicate, PathPattern, Repeated},
};
use http::{HeaderName, Method};
use ipnet::IpNet;
use std::sync::Arc;

impl Compiler {
    /// Compiles the conditions of an override.
    pub(super) fn when(&mut self, spec: &WhenSpec, on_duplicate: OnDuplicate) -> Option<When> {
        let fields = |it: &mut Self, name: &str, field: &At<FieldSpec>| it.field(name, field);
        let headers: Vec<Option<FieldPattern>> =
            spec.headers.iter().map(|(name, field)| fields(self, name.as_str(), field)).collect();
        let query: Vec<Option<FieldPattern>> =
            spec.query.iter().map(|(name, field)| fields(self, name, field)).collect();
        let paths: Vec<Option<PathPattern>> = spec
            .path_prefix
            .iter()
            .map(|at| self.pattern(PathPattern::prefix(&at.value), at.place))
            .collect();
        let all =
            |patterns: Vec<Option<FieldPattern>>| patterns.into_iter().collect::<Option<Vec<_>>>();
        let (headers, query) = (all(headers)?, all(query)?);
        let mut paths = paths.into_iter().collect::<Option<Vec<_>>>()?;
        if paths.is_empty() {
            paths.push(PathPattern::Any);
        }
        let matchers = paths.into_iter().map(|path| Matcher {
            hosts: Vec::new(),
            path,
            methods: spec.methods.clone(),
            headers: headers.clone(),
            query: query.clone(),
            repeated: match on_duplicate {
                OnDuplicate::First => Repeated::First,
                OnDuplicate::Last => Repeated::Last,
                // Such requests are rejected.
                OnDuplicate::Reject => Repeated::Any,
            },
        });
        Some(When::new(words_of(spec).into(), spec.client_ip.clone(), matchers.collect()))
    }

    /// Compiles which requests have priority.
    pub(super) fn priority(&mut self, spec: &PrioritySpec) -> Option<Priority> {
        let field = self.field(spec.header.value.as_str(), &spec.value)?;
        let repeated = Repeated::Every;
        let matcher = Matcher { headers: vec![field], repeated, ..Matcher::default() };
        let name = &spec.header.value;
        let words = format!("header:{name}{}", field_in_words(&spec.value.value));
        Some(Priority::new(words.into(), matcher, spec.max_wait.value))
    }

    /// Compiles which requests are exempt.
    pub(super) fn except(&mut self, spec: &ExceptSpec) -> Option<Arc<Except>> {
        let any = |path, methods, headers| Matcher {
            hosts: Vec::new(),
            path,
            methods,
            headers,
            query: Vec::new(),
            repeated: Repeated::Every,
        };
        let mut matchers = Vec::new();
        if !spec.methods.is_empty() {
            matchers.push(any(PathPattern::Any, spec.methods.clone(), Vec::new()));
        }
        for at in &spec.path_prefix {
            let path = self.pattern(PathPattern::prefix(&at.value), at.place);
            matchers.extend(path.map(|path| any(path, Vec::new(), Vec::new())));
        }
        for (name, field) in &spec.headers {
            let field = self.field(name.value.as_str(), field);
            matchers.extend(field.map(|field| any(PathPattern::Any, Vec::new(), vec![field])));
        }
        let headers = spec.headers.iter().map(|(name, field)| (&name.value, field));
        let words = in_words(&spec.client_ip, &spec.methods, &spec.path_prefix, headers);
        let except = Except::new(words.join(" or ").into(), spec.client_ip.clone(), matchers);
        except.map(Arc::new)
    }

    /// Refuses a second override for the same requests, which would never be asked.
    pub(super) fn distinct<'w>(&mut self, whens: impl Iterator<Item = &'w WhenSpec>) {
        let words = whens.filter_map(|when| Some((words_of(when), when.place?)));
        self.unique(
            words,
            |words| format!("two overrides when {}", quoted(words)),
            "remove one: the first that fits a request is the one that counts",
        );
    }
}

/// Says when, as in `header:x-tenant=gold, method=GET|POST`: the identity of an override within its
/// rule.
fn words_of(spec: &WhenSpec) -> String {
    let headers = spec.headers.iter().map(|(name, field)| (name, field));
    let mut words = in_words(&spec.client_ip, &spec.methods, &spec.path_prefix, headers);
    for (name, field) in &spec.query {
        words.push(format!("query:{name}{}", field_in_words(&field.value)));
    }
    words.join(", ")
}

/// Says each condition that is written.
pub(super) fn in_words<'s>(
    client_ip: &[IpNet],
    methods: &[Method],
    path_prefix: &[At<String>],
    headers: impl Iterator<Item = (&'s HeaderName, &'s At<FieldSpec>)>,
) -> Vec<String> {
    let listed = |name: &str, values: Vec<String>| {
        (!values.is_empty()).then(|| format!("{name}={}", values.join("|")))
    };
    let lists = [
        listed("client_ip", client_ip.iter().map(ToString::to_string).collect()),
        listed("method", methods.iter().map(ToString::to_string).collect()),
        listed("path_prefix", path_prefix.iter().map(|at| at.value.clone()).collect()),
    ];
    let headers =
        headers.map(|(name, field)| format!("header:{name}{}", field_in_words(&field.value)));
    lists.into_iter().flatten().chain(headers).collect()
}
