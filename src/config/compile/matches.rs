//! The conditions of a match: hosts, paths, methods, header and query fields.

use super::compiler::{Compiler, suggestion};
use crate::{
    config::{
        decode::{At, Either, Entries, Key, List, Several},
        diagnostics::{Lint, Problem, SourceSpan, quoted},
        spec::{
            ClientCertSpec, FieldConditions, FieldSpec, MatchSpec, ValueSpec,
            leaf::{AnyCertificate, Name, Text},
        },
    },
    route::{self, FieldPattern, HostPattern, Matcher, PathPattern, QueryPattern, Repeated},
};
use std::sync::Arc;

/// Reports whether a pattern holds on to one end of the path and leaves the other open, as it would
/// for a search, which nginx makes.
fn has_one_anchor(pattern: &str) -> bool {
    let pattern = pattern.trim_start_matches("(?i)");
    let begins = pattern.starts_with('^');
    let ends = pattern.ends_with('$') && !pattern.ends_with("\\$");
    (begins && !ends && !pattern.ends_with(".*")) || (ends && !begins && !pattern.starts_with(".*"))
}

/// Reports whether a pattern certainly matches no path, because it begins with another character
/// than `/`: a letter or digit, `[.]`, `\.`, or a class of letters and digits.
fn begins_without_slash(pattern: &str) -> bool {
    let pattern = pattern.trim_start_matches("(?i)").trim_start_matches('^');
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let class = || {
        let (class, rest) = pattern.strip_prefix('[')?.split_once(']')?;
        let is_plain = |c: char| is_word(c) || c == '.' || c == '-';
        // `.-9` has the slash.
        (!class.is_empty() && class.chars().all(is_plain) && !class.contains(".-")).then_some(rest)
    };
    let escape = || pattern.strip_prefix("\\.").or_else(|| pattern.strip_prefix("\\d"));
    let rest = pattern.strip_prefix(is_word).or_else(class).or_else(escape);
    // Another alternative may begin with `/`.
    rest.is_some_and(|rest| !rest.starts_with(['?', '*', '{']) && !has_open_alternative(rest))
}

/// Reports whether `|` may stand outside of parentheses.
fn has_open_alternative(pattern: &str) -> bool {
    let mut depth = 0_usize;
    let is_open = |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '|' && depth == 0
    };
    // A parenthesis in a class or behind `\` is text.
    let has_text = pattern.contains(['[', '\\']);
    pattern.contains('|') && (has_text || pattern.chars().any(is_open))
}

/// Makes a pattern of a name and the texts of which a value must equal one.
pub(super) type OneOf = fn(&str, &[&str]) -> Result<FieldPattern, route::ParseError>;

impl Compiler {
    pub(super) fn matcher(&mut self, at: &At<MatchSpec>) -> Matcher {
        let spec = &at.value;
        let paths = [spec.path.span, spec.path_prefix.span, spec.path_regex.span];
        let others = [
            spec.host.span,
            spec.method.span,
            spec.listener.span,
            spec.header.span,
            spec.query.span,
            spec.query_regex.span,
            spec.client_cert.span,
            spec.country.span,
            spec.asn.span,
        ];

        if paths.iter().chain(&others).all(Option::is_none) {
            self.error(
                Problem::error(at.span, "a match needs at least one condition")
                    .help("write `match: { path_prefix: / }` for a route that takes every request"),
            );
        }

        let mut written = paths.into_iter().flatten();
        if let (Some(first), Some(second)) = (written.next(), written.next()) {
            self.error(
                Problem::error(second, "a match takes one kind of path")
                    .label("a second one")
                    .also(first, "the first")
                    .help("write one of `path`, `path_prefix` and `path_regex`, or two routes"),
            );
        }

        let mut paths = self.patterns(spec.path.items(), |path| PathPattern::exact(&path.0));
        paths.extend(self.patterns(spec.path_prefix.items(), |path| PathPattern::prefix(&path.0)));
        paths.extend(self.patterns(spec.path_regex.items(), |regex| PathPattern::regex(&regex.0)));
        for at in spec.path_regex.items() {
            self.partial_regex(&at.value.0, at.span);
        }

        Matcher {
            listeners: self.listeners_of(spec.listener.items()),
            hosts: self.patterns(spec.host.items(), |host| HostPattern::parse(&host.0)),
            paths,
            methods: spec.method.plain(|method| method.0.clone()),
            headers: self.fields(&spec.header, |name| name.0.as_str()),
            query: self.fields(&spec.query, |name| &name.0),
            certificate: self.certificate_conditions(&spec.client_cert),
            places: self.places(&spec.country, &spec.asn),
            whole_query: self.optional(&spec.query_regex, |regex| QueryPattern::regex(&regex.0)),
            // A client gets past no route by sending a field twice.
            repeated: Repeated::Any,
        }
    }

    /// Compiles what a client's certificate must look like.
    fn certificate_conditions(
        &mut self,
        key: &Key<Either<AnyCertificate, ClientCertSpec>>,
    ) -> Vec<FieldPattern> {
        let Some(at) = &key.at else { return Vec::new() };
        if self.listeners.iter().all(|known| !known.verifies_clients) {
            self.error(
                Problem::error(at.span, "`client_cert` where no listener asks for certificates")
                    .help("write `client_ca: FILE` in `tls` of a listener"),
            );
        }

        let spec = match &at.value {
            Either::Plain(AnyCertificate(())) => {
                return self
                    .pattern(FieldPattern::present("fingerprint"), at.span)
                    .into_iter()
                    .collect();
            }
            Either::Map(spec) => spec,
        };
        if spec.subject.span.is_none() && spec.fingerprint.span.is_none() {
            self.error(
                Problem::error(at.span, "`client_cert` needs a condition")
                    .help("write `client_cert: true`, or `client_cert: { subject: CN=ann }`"),
            );
        }

        let subject = spec
            .subject
            .as_ref()
            .and_then(|at| self.value("subject", &at.value, at.span, FieldPattern::exactly_one_of));
        let digits: Vec<&str> = spec.fingerprint.items().iter().map(|at| &*at.value.0).collect();
        let fingerprint = spec.fingerprint.span.filter(|_| !digits.is_empty()).and_then(|span| {
            self.pattern(FieldPattern::exactly_one_of("fingerprint", &digits), span)
        });
        subject.into_iter().chain(fingerprint).collect()
    }

    /// Warns of a regular expression that looks like one for a part of the path.
    fn partial_regex(&mut self, pattern: &str, span: SourceSpan) {
        let (lint, message) = if has_one_anchor(pattern) {
            let message = "`path_regex` must match the whole path, not a part of it";
            (Lint::RegexWithOneAnchor, message)
        } else if begins_without_slash(pattern) {
            let message =
                "`path_regex` matches no path: it must match the whole path, which begins with `/`";
            (Lint::RegexWithoutSlash, message)
        } else {
            return;
        };
        self.warn(Problem::warning(lint, span, message).help(
            "write `.*` where anything may stand, as in `/api/.*` or `.*[.]php`, and no `^` and `$`",
        ));
    }

    /// Returns the names of listeners that exist, and reports others.
    fn listeners_of(&mut self, names: &[At<Name>]) -> Vec<Arc<str>> {
        for At { value: Name(name), span, .. } in names {
            let known: Vec<&str> = self.listeners.iter().map(|known| &*known.name).collect();
            if !known.contains(&&**name) {
                let help = suggestion(name, known, "listener");
                let message = format!("there is no listener {}", quoted(name));
                self.error(Problem::error(*span, message).help(help));
            }
        }
        names.iter().map(|at| Arc::clone(&at.value.0)).collect()
    }

    /// Compiles what each of some fields must look like.
    pub(super) fn fields<N>(
        &mut self,
        key: &Key<FieldConditions<N>>,
        name: impl Fn(&N) -> &str,
    ) -> Vec<FieldPattern> {
        let Some(Entries(entries)) = key.value() else { return Vec::new() };
        let mut patterns = Vec::with_capacity(entries.len());
        for (field, value) in entries {
            let Some(At { value, span, .. }) = &value.at else { continue };
            let name = name(&field.value);
            patterns.extend(self.value(name, value, *span, FieldPattern::one_of));
        }
        patterns
    }

    /// Compiles what a value must look like; `one_of` makes a pattern of its name and its texts.
    pub(super) fn value(
        &mut self,
        name: &str,
        value: &ValueSpec,
        span: SourceSpan,
        one_of: OneOf,
    ) -> Option<FieldPattern> {
        match value {
            Either::Plain(texts) => self.one_of(name, texts, span, one_of),
            Either::Map(spec) => self.field(name, spec, span, one_of),
        }
    }

    /// Compiles a list of texts, of which a value must equal one.
    pub(super) fn one_of(
        &mut self,
        name: &str,
        Several(List(values)): &Several<Text>,
        span: SourceSpan,
        one_of: OneOf,
    ) -> Option<FieldPattern> {
        let of_variables = values.iter().map(|at| at.span);
        let of_variables = of_variables.filter(|span| self.substitutions.at(*span).is_some());
        let of_variables: Vec<_> = of_variables.collect();
        self.patterns.extend(of_variables);
        let texts: Vec<&str> = values.iter().map(|at| &*at.value.0).collect();
        self.pattern(one_of(name, &texts), span)
    }

    /// Compiles the long form of a field's pattern, in which exactly one key says what must hold.
    pub(super) fn field(
        &mut self,
        name: &str,
        spec: &FieldSpec,
        span: SourceSpan,
        one_of: OneOf,
    ) -> Option<FieldPattern> {
        if let Some(at) = spec.present.filter(|at| !at.value) {
            self.error(
                Problem::error(at.span, "a field that must be absent cannot be matched").help(
                    "write `present: true`, and a more specific route for requests that have it",
                ),
            );
        }
        let written = [spec.equals.span, spec.regex.span, spec.present.span];
        if written.into_iter().flatten().count() != 1 {
            self.error(
                Problem::error(span, "a field's pattern takes exactly one condition")
                    .help("write one of `equals`, `regex` and `present: true`"),
            );
        }
        let equals = spec.equals.as_ref();
        let equals = equals.and_then(|at| self.one_of(name, &at.value, at.span, one_of));
        let regex = self.optional(&spec.regex, |regex| FieldPattern::regex(name, &regex.0));
        equals.or(regex).or_else(|| {
            let at = spec.present.filter(|at| at.value)?;
            self.pattern(FieldPattern::present(name), at.span)
        })
    }

    pub(super) fn patterns<T, P>(
        &mut self,
        values: &[At<T>],
        make: impl Fn(&T) -> Result<P, route::ParseError>,
    ) -> Vec<P> {
        values.iter().filter_map(|at| self.pattern(make(&at.value), at.span)).collect()
    }

    fn optional<T, P>(
        &mut self,
        key: &Key<T>,
        make: impl Fn(&T) -> Result<P, route::ParseError>,
    ) -> Option<P> {
        key.as_ref().and_then(|at| self.pattern(make(&at.value), at.span))
    }

    /// Returns the pattern, or reports at `span` what is wrong with it.
    pub(super) fn pattern<T>(
        &mut self,
        pattern: Result<T, route::ParseError>,
        span: SourceSpan,
    ) -> Option<T> {
        if self.substitutions.at(span).is_some() {
            self.patterns.push(span);
        }
        pattern.map_err(|e| self.error(Problem::error(span, e.message).help(e.help))).ok()
    }
}
