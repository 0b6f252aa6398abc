//! Some requests of a rule: those of an override, those that are exempt, those with priority.

use super::{
    compiler::Compiler,
    conditions::{FieldTest, WhenConditions, texts},
    routes::field_in_words,
};
use crate::{
    config::{
        decode::At,
        diagnostics::{Place, Problem, quoted},
        plan::{Except, Priority, When},
        spec::{ExceptSpec, PrioritySpec},
    },
    route::{FieldPattern, Matcher, OnDuplicate, PathPattern, Repeated},
};
use http::{HeaderName, Method};
use ipnet::IpNet;
use std::sync::Arc;

impl Compiler {
    /// Compiles the conditions of an override.
    pub(super) fn when(
        &mut self,
        spec: &WhenConditions,
        on_duplicate: OnDuplicate,
    ) -> Option<When> {
        let fields = |it: &mut Self, name: &str, field: &At<FieldTest>| it.field(name, field);
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
        let header = spec.header.at.as_ref()?;
        let test = match &spec.equals.at {
            Some(at) => FieldTest::Equals(at.value.0.clone()),
            None => FieldTest::Present,
        };
        let place = spec.equals.as_ref().map_or(header.place, |at| at.place);
        let test = At { value: test, place, written: true };
        let name = &header.value.0;
        let field = self.field(name.as_str(), &test)?;
        let repeated = Repeated::Every;
        let matcher = Matcher { headers: vec![field], repeated, ..Matcher::default() };
        let words = format!("header:{name}{}", field_in_words(&test.value));
        Some(Priority::new(words.into(), matcher, spec.max_wait.duration()?.value))
    }

    /// Compiles which requests are exempt, of an exception at `place`.
    pub(super) fn except(&mut self, spec: &ExceptSpec, place: Place) -> Option<Arc<Except>> {
        let keys =
            [spec.client_ip.place, spec.method.place, spec.path_prefix.place, spec.header.place];
        if keys.iter().all(Option::is_none) {
            self.error(
                Problem::error(place, "an exception needs at least one condition")
                    .help("write `except: { client_ip: [10.0.0.0/8] }`, or remove it"),
            );
        }
        let client_ip = spec.client_ip.plain(|network| network.0);
        let methods = spec.method.plain(|method| method.0.clone());
        let paths = texts(spec.path_prefix.items(), |path| &path.0);
        let headers = self.header_fields(&spec.header);
        let any = |path, methods, headers| Matcher {
            hosts: Vec::new(),
            path,
            methods,
            headers,
            query: Vec::new(),
            repeated: Repeated::Every,
        };
        let mut matchers = Vec::new();
        if !methods.is_empty() {
            matchers.push(any(PathPattern::Any, methods.clone(), Vec::new()));
        }
        for at in &paths {
            let path = self.pattern(PathPattern::prefix(&at.value), at.place);
            matchers.extend(path.map(|path| any(path, Vec::new(), Vec::new())));
        }
        for (name, field) in &headers {
            let field = self.field(name.as_str(), field);
            matchers.extend(field.map(|field| any(PathPattern::Any, Vec::new(), vec![field])));
        }
        let headers = headers.iter().map(|(name, field)| (name, field));
        let words = in_words(&client_ip, &methods, &paths, headers);
        Except::new(words.join(" or ").into(), client_ip, matchers).map(Arc::new)
    }

    /// Refuses a second override for the same requests, which would never be asked.
    pub(super) fn distinct<'w>(&mut self, whens: impl Iterator<Item = &'w WhenConditions>) {
        let words = whens.map(|when| (words_of(when), when.place));
        self.unique(
            words,
            |words| format!("two overrides when {}", quoted(words)),
            "remove one: the first that fits a request is the one that counts",
        );
    }
}

/// Says when, as in `header:x-tenant=gold, method=GET|POST`: the identity of an override within its
/// rule.
fn words_of(spec: &WhenConditions) -> String {
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
    headers: impl Iterator<Item = (&'s HeaderName, &'s At<FieldTest>)>,
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
