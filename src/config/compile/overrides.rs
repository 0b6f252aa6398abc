//! Overrides: a rule becomes itself and its alternatives.

use super::Compiler;
use crate::{
    config::{
        decode::At,
        problem::quoted,
        snapshot::When,
        spec::{FieldSpec, WhenSpec},
    },
    route::{FieldPattern, Matcher, PathPattern},
};
use std::fmt::Write;

impl Compiler {
    /// Compiles the conditions of an override.
    pub(super) fn when(&mut self, spec: &WhenSpec) -> Option<When> {
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
        });
        Some(When::new(in_words(spec).into(), spec.client_ip.clone(), matchers.collect()))
    }

    /// Refuses a second override for the same requests, which would never be asked.
    pub(super) fn distinct<'w>(&mut self, whens: impl Iterator<Item = &'w WhenSpec>) {
        let words = whens.filter_map(|when| Some((in_words(when), when.place?)));
        self.unique(
            words,
            |words| format!("two overrides when {}", quoted(words)),
            "remove one: the first that fits a request is the one that counts",
        );
    }
}

/// Says when, as in `header:x-tenant=gold, method=GET|POST`: the identity of an override within its
/// rule.
fn in_words(spec: &WhenSpec) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: String| {
        let comma = if text.is_empty() { "" } else { ", " };
        _ = write!(text, "{comma}{name}{value}");
    };
    let list = |values: &mut dyn Iterator<Item = String>| {
        format!("={}", values.collect::<Vec<_>>().join("|"))
    };
    if !spec.client_ip.is_empty() {
        add("client_ip", list(&mut spec.client_ip.iter().map(ToString::to_string)));
    }
    if !spec.methods.is_empty() {
        add("method", list(&mut spec.methods.iter().map(ToString::to_string)));
    }
    if !spec.path_prefix.is_empty() {
        add("path_prefix", list(&mut spec.path_prefix.iter().map(|at| at.value.clone())));
    }
    for (name, field) in &spec.headers {
        add(&format!("header:{name}"), super::routes::field_in_words(&field.value));
    }
    for (name, field) in &spec.query {
        add(&format!("query:{name}"), super::routes::field_in_words(&field.value));
    }
    text
}
