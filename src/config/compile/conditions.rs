//! Some requests of a rule: those of an override, those that are exempt, those with priority.

use super::{compiler::Compiler, networks::Networks};
use crate::{
    config::{
        decode::{At, Either, Entries, Key, List, MAX_VALUES, Many},
        diagnostics::{Problem, SourceSpan, has_secret},
        plan::{Except, Priority, When},
        spec::{
            ConditionSpec, ConditionValue, ExceptSpec, FieldSpec, NetworkFileSpec, PrioritySpec,
            leaf::{Condition, Text},
            values,
        },
    },
    route::{self, FieldPattern, Matcher, OnDuplicate, PathPattern, Repeated},
};
use http::Method;
use std::sync::Arc;

/// The conditions of an override or an exception.
#[derive(Default)]
struct Conditions {
    client_ip: Networks,
    methods: Vec<Method>,
    /// As they are written, and what they mean.
    paths: Vec<(String, PathPattern)>,
    headers: Vec<FieldPattern>,
    query: Vec<FieldPattern>,
}

/// A value of `when`: texts, or the long form of a field's pattern.
type WhenValue = Key<ConditionValue>;

impl Conditions {
    /// Says each condition, as in `header:x-tenant=gold` and `method=GET|POST`.
    fn words(&self) -> Vec<String> {
        let listed = |name: &str, values: Vec<String>| {
            (!values.is_empty()).then(|| format!("{name}={}", values.join("|")))
        };
        let lists = [
            listed("client_ip", self.client_ip.words()),
            listed("method", self.methods.iter().map(ToString::to_string).collect()),
            listed("path_prefix", self.paths.iter().map(|(text, _)| text.clone()).collect()),
        ];
        let headers = self.headers.iter().map(|field| format!("header:{field}"));
        let query = self.query.iter().map(|field| format!("query:{field}"));
        lists.into_iter().flatten().chain(headers).chain(query).collect()
    }
}

impl Compiler {
    /// Compiles which requests an override is for: each condition that is written must hold.
    pub(super) fn when(
        &mut self,
        key: &Key<Entries<Condition, ConditionValue>>,
        on_duplicate: OnDuplicate,
    ) -> Option<At<Arc<When>>> {
        let at = key.at.as_ref()?;
        let Entries(entries) = &at.value;

        if entries.is_empty() {
            self.error(
                Problem::error(at.span, "an override needs at least one condition")
                    .help("write `when: { header:x-tenant: gold }`"),
            );
            return None;
        }

        let mut conditions = Conditions::default();
        for (name, value) in entries {
            self.condition(&mut conditions, name, value);
        }
        let words = self.conceal(conditions.words().join(", ")).into();

        let fields = entries.iter().filter_map(|(name, value)| {
            let name = &name.value.0;
            let at = value.at.as_ref().filter(|_| name.contains(':'))?;
            let written = match &at.value {
                // One value that clients can guess is enough.
                Either::Plain(values) => {
                    let mut texts = texts_of(values);
                    let first = texts.clone().next();
                    texts.find(|text| self.is_guessable(name, Some(*text))).or(first)
                }
                Either::Map(spec) => condition_text(spec),
            };
            Some((name, written))
        });
        let fields: Vec<_> = fields.collect();

        let is_chosen = conditions.client_ip.list.is_empty()
            && fields.iter().all(|(name, written)| self.is_guessable(name, *written));
        let chosen = fields.first().filter(|_| is_chosen).map(|(name, _)| (*name).clone());

        let Conditions { client_ip, methods, paths, headers, query } = conditions;
        let matcher = Matcher {
            listeners: Vec::new(),
            hosts: Vec::new(),
            paths: paths.into_iter().map(|(_, path)| path).collect(),
            methods,
            headers,
            query,
            repeated: match on_duplicate {
                OnDuplicate::First => Repeated::First,
                OnDuplicate::Last => Repeated::Last,
                // Such requests are rejected.
                OnDuplicate::Reject => Repeated::Any,
            },
        };

        let when = When::new(words, client_ip.list, vec![matcher], chosen);
        Some(at.as_ref().map(|_| Arc::new(when)))
    }

    /// Reports whether a client can guess what to send as the field to meet a condition. Values from
    /// variables, long ones and those of fields for secrets count as secrets.
    fn is_guessable(&self, name: &str, written: Option<(&str, SourceSpan)>) -> bool {
        const LONG: usize = 16;
        let is_open = |(text, span): (&str, SourceSpan)| {
            text.len() < LONG && self.substitutions.at(span).is_none()
        };
        !has_secret(name) && written.is_none_or(is_open)
    }

    fn condition(&mut self, to: &mut Conditions, name: &At<Condition>, value: &WhenValue) {
        match name.value.0.split_once(':').unwrap_or((&name.value.0, "")) {
            ("client_ip", "") => to.client_ip = self.when_client(value, name.span),
            ("method", "") => to.methods = self.each(value, values::method),
            ("path_prefix", "") => {
                let texts = self.texts(value);
                to.paths = self.paths(texts);
            }
            ("header", header) => {
                to.headers.extend(self.when_field(&header.to_ascii_lowercase(), value));
            }
            ("query", query) => to.query.extend(self.when_field(query, value)),
            // The decoder takes no other.
            _ => {}
        }
    }

    /// Reads each of several values with `read`.
    fn each<T>(
        &mut self,
        value: &WhenValue,
        read: impl Fn(&str) -> Result<T, values::InvalidValue>,
    ) -> Vec<T> {
        let texts = self.texts(value).into_iter();
        let kept = texts.filter_map(|(text, span)| self.keep(read(text), span));
        kept.map(|at| at.value).collect()
    }

    /// Returns the texts of a condition that takes no file.
    fn texts<'k>(&mut self, value: &'k WhenValue) -> Vec<(&'k str, SourceSpan)> {
        match &value.at {
            Some(At { value: Either::Plain(list), span, .. }) => {
                let texts: Vec<_> = texts_of(list).collect();
                if texts.len() < list.0.0.len() {
                    self.error(
                        Problem::error(*span, "only `client_ip` takes a file of networks")
                            .help("write `[some text]`"),
                    );
                }
                if texts.len() > MAX_VALUES {
                    let message = format!("the condition holds {} values", texts.len());
                    let help = format!("write at most {MAX_VALUES}");
                    self.error(Problem::error(*span, message).help(help));
                    return Vec::new();
                }
                texts
            }
            Some(At { value: Either::Map(_), span, .. }) => {
                self.error(
                    Problem::error(*span, "expected a text, or a list of them, not a map")
                        .help("write `[some text]`"),
                );
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Compiles the networks of the condition `client_ip`, which stands at `span`.
    fn when_client(&mut self, value: &WhenValue, span: SourceSpan) -> Networks {
        match &value.at {
            Some(At { value: Either::Plain(list), .. }) => {
                let files = list.0.0.iter().filter_map(|at| match &at.value {
                    Either::Plain(_) => None,
                    Either::Map(file) => Some(file),
                });
                let files: Vec<_> = files.collect();
                let read = |(text, span)| self.keep(values::network(text), span);
                let written: Vec<_> = texts_of(list).filter_map(read).collect();
                self.network_list(&written, &files, span)
            }
            Some(At { value: Either::Map(spec), span, .. }) => {
                let others = [spec.equals.span, spec.regex.span, spec.present.span];
                if !spec.file.is_written() || others != [None; 3] {
                    self.error(
                        Problem::error(*span, "expected networks, or a file of them")
                            .help("write `[10.0.0.0/8]`, or `{ file: networks.txt }`"),
                    );
                }
                let file = NetworkFileSpec { file: spec.file.clone() };
                self.network_list(&[], &[&file], *span)
            }
            None => Networks::default(),
        }
    }

    fn when_field(&mut self, name: &str, value: &WhenValue) -> Option<FieldPattern> {
        let At { value, span, .. } = value.at.as_ref()?;
        match value {
            Either::Map(spec) if spec.file.is_written() => {
                self.error(
                    Problem::error(*span, "only `client_ip` takes a file of networks")
                        .help("write the value of the field, or `{ regex: 'one|other' }`"),
                );
                None
            }
            Either::Map(spec) => {
                let spec = FieldSpec {
                    equals: spec.equals.clone(),
                    regex: spec.regex.clone(),
                    present: spec.present.clone(),
                };
                self.field(name, &spec, *span)
            }
            Either::Plain(values) => match &texts_of(values).collect::<Vec<_>>()[..] {
                [(text, span)] => self.pattern(FieldPattern::equals(name, text), *span),
                // A value that could not be read has been reported.
                [] => None,
                _ => {
                    self.error(
                        Problem::error(*span, "a field can equal only one text")
                            .help("write an override for each, or `{ regex: 'one|other' }`"),
                    );
                    None
                }
            },
        }
    }

    fn paths<'p>(
        &mut self,
        texts: impl IntoIterator<Item = (&'p str, SourceSpan)>,
    ) -> Vec<(String, PathPattern)> {
        let texts = texts.into_iter();
        let paths = texts.filter_map(|(text, span)| {
            let prefix = PathPattern::prefix(text).map_err(as_prefix);
            Some((text.to_owned(), self.pattern(prefix, span)?))
        });
        paths.collect()
    }

    pub(super) fn priority(&mut self, spec: &PrioritySpec) -> Option<Priority> {
        let header = spec.header.at.as_ref()?;
        let name = header.value.0.as_str();
        let field = match &spec.equals.at {
            Some(at) => self.pattern(FieldPattern::equals(name, &at.value.0), at.span)?,
            None => self.pattern(FieldPattern::present(name), header.span)?,
        };
        let words = self.conceal(format!("header:{field}")).into();
        let repeated = Repeated::Every;
        let matcher = Matcher { headers: vec![field], repeated, ..Matcher::default() };
        Some(Priority::new(words, matcher, spec.max_wait.duration()?.value))
    }

    /// Compiles which requests are exempt, of an exception at `span`.
    pub(super) fn except(&mut self, spec: &ExceptSpec, span: SourceSpan) -> Option<Arc<Except>> {
        let keys = [spec.client_ip.span, spec.method.span, spec.path_prefix.span, spec.header.span];
        if keys.iter().all(Option::is_none) {
            self.error(
                Problem::error(span, "an exception needs at least one condition")
                    .help("write `except: { client_ip: [10.0.0.0/8] }`, or remove it"),
            );
        }

        let paths = spec.path_prefix.items().iter();
        let conditions = Conditions {
            client_ip: self.networks(&spec.client_ip),
            methods: spec.method.plain(|method| method.0.clone()),
            paths: self.paths(paths.map(|at| (&*at.value.0, at.span))),
            headers: self.fields(&spec.header, |name| name.0.as_str()),
            query: Vec::new(),
        };

        let words = self.conceal(conditions.words().join(" or ")).into();
        let Conditions { client_ip, methods, paths, headers, .. } = conditions;

        // Each exempts by one condition.
        let any = Matcher { repeated: Repeated::Every, ..Matcher::default() };
        let by_method = (!methods.is_empty()).then(|| Matcher { methods, ..any.clone() });
        let by_path =
            paths.into_iter().map(|(_, path)| Matcher { paths: vec![path], ..any.clone() });
        let by_header =
            headers.into_iter().map(|field| Matcher { headers: vec![field], ..any.clone() });
        let matchers = by_method.into_iter().chain(by_path).chain(by_header).collect();

        let fields = spec.header.value().map_or(&[][..], |Entries(entries)| entries);
        let chosen = fields.iter().find_map(|(name, value)| {
            let at = value.at.as_ref()?;
            let written = match &at.value {
                Either::Plain(text) => Some((&*text.0, at.span)),
                Either::Map(spec) => field_text(spec),
            };
            let name = name.value.0.as_str();
            self.is_guessable(name, written).then(|| format!("header:{name}"))
        });

        Except::new(words, client_ip.list, matchers, chosen).map(Arc::new)
    }
}

/// Returns an error whose hint, if it names another kind of path, is right where prefixes alone are
/// taken.
fn as_prefix(error: route::ParseError) -> route::ParseError {
    let is_other =
        ["write `path: ", "write `path_regex: "].iter().any(|key| error.help.starts_with(key));
    if !is_other {
        return error;
    }
    let help = "write the beginning of a path, as in `path_prefix: /api`".to_owned();
    route::ParseError { help, ..error }
}

fn written(at: &At<Text>) -> (&str, SourceSpan) {
    (&at.value.0, at.span)
}

/// Returns the texts of a list, without files.
fn texts_of(
    Many(List(values)): &Many<Either<Text, NetworkFileSpec>>,
) -> impl Iterator<Item = (&str, SourceSpan)> + Clone {
    values.iter().filter_map(|at| match &at.value {
        Either::Plain(text) => Some((&*text.0, at.span)),
        Either::Map(_) => None,
    })
}

/// Returns the text that a field must equal, or its pattern.
fn condition_text(spec: &ConditionSpec) -> Option<(&str, SourceSpan)> {
    let equals = spec.equals.at.as_ref().map(written);
    equals.or_else(|| spec.regex.at.as_ref().map(|at| (&*at.value.0, at.span)))
}

/// Returns the text that a field must equal, or its pattern.
fn field_text(spec: &FieldSpec) -> Option<(&str, SourceSpan)> {
    let equals = spec.equals.at.as_ref().map(written);
    equals.or_else(|| spec.regex.at.as_ref().map(|at| (&*at.value.0, at.span)))
}
