//! Some requests of a rule: those of an override, those that are exempt, those with priority.

use super::{compiler::Compiler, matches::OneOf, networks::Networks};
use crate::{
    config::{
        decode::{At, Either, Entries, Key, List, MAX_VALUES, Many, Several},
        diagnostics::{Problem, SourceSpan, has_secret},
        plan::{ClientList, Except, Priority, When},
        spec::{
            ConditionValue, ExceptSpec, FieldSpec, NetworkFileSpec, PrioritySpec,
            leaf::{Condition, Pattern, Text},
            values,
        },
    },
    geo::{GeoKind, PlaceSet},
    route::{
        self, FieldPattern, IdentityPattern, KeyPart, Matcher, OnDuplicate, PathPattern, Repeated,
    },
};
use http::Method;
use std::sync::Arc;

/// The conditions of an override or an exception.
#[derive(Default)]
struct Conditions {
    client_ip: Networks,
    places: PlaceSet,
    methods: Vec<Method>,
    /// As they are written, and what they mean.
    paths: Vec<(String, PathPattern)>,
    headers: Vec<FieldPattern>,
    query: Vec<FieldPattern>,
    identity: Vec<IdentityPattern>,
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
            listed("country", self.places.countries().iter().map(ToString::to_string).collect()),
            listed("asn", self.places.asns().iter().map(ToString::to_string).collect()),
            listed("method", self.methods.iter().map(ToString::to_string).collect()),
            listed("path_prefix", self.paths.iter().map(|(text, _)| text.clone()).collect()),
        ];
        let headers = self.headers.iter().map(|field| format!("header:{field}"));
        let query = self.query.iter().map(|field| format!("query:{field}"));
        let identity = self.identity.iter().map(ToString::to_string);
        lists.into_iter().flatten().chain(headers).chain(query).chain(identity).collect()
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
            let is_field = name.starts_with("header:") || name.starts_with("query:");
            let at = value.at.as_ref().filter(|_| is_field)?;
            let written = match &at.value {
                Either::Plain(values) => self.easiest(name, texts_of(values)),
                Either::Map(spec) => self.field_text(name, &spec.equals, &spec.regex),
            };
            Some((name, written))
        });
        let fields: Vec<_> = fields.collect();

        let is_chosen = conditions.client_ip.list.is_empty()
            && conditions.places.is_empty()
            && conditions.identity.is_empty()
            && fields.iter().all(|(name, written)| self.is_guessable(name, *written));
        let chosen = fields.first().filter(|_| is_chosen).map(|(name, _)| (*name).clone());

        let Conditions { client_ip, places, methods, paths, headers, query, identity } = conditions;
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
            certificate: Vec::new(),
            places: PlaceSet::default(),
            whole_query: None,
        };

        let client = ClientList::of(&client_ip, places);
        let when = When::new(words, client, vec![matcher], identity, chosen);
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

    /// Returns the text that clients can guess, if there is one, or else the first: of several values
    /// one is enough.
    fn easiest<'t>(
        &self,
        name: &str,
        mut texts: impl Iterator<Item = (&'t str, SourceSpan)> + Clone,
    ) -> Option<(&'t str, SourceSpan)> {
        let first = texts.clone().next();
        texts.find(|text| self.is_guessable(name, Some(*text))).or(first)
    }

    /// Returns the text that a field must equal, or its pattern.
    fn field_text<'t>(
        &self,
        name: &str,
        equals: &'t Key<Several<Text>>,
        regex: &'t Key<Pattern>,
    ) -> Option<(&'t str, SourceSpan)> {
        let equals = self.easiest(name, equals.items().iter().map(written));
        equals.or_else(|| regex.at.as_ref().map(|at| (&*at.value.0, at.span)))
    }

    fn condition(&mut self, to: &mut Conditions, name: &At<Condition>, value: &WhenValue) {
        match name.value.0.split_once(':').unwrap_or((&name.value.0, "")) {
            ("client_ip", "") => to.client_ip = self.when_client(value, name.span),
            ("country", "") => self.when_country(to, value, name.span),
            ("asn", "") => self.when_asn(to, value, name.span),
            ("method", "") => to.methods = self.each(value, values::method),
            ("path_prefix", "") => {
                let texts = self.texts(value);
                to.paths = self.paths(texts);
            }
            ("header", header) => {
                let name = header.to_ascii_lowercase();
                to.headers.extend(self.when_field(&name, value, FieldPattern::one_of));
            }
            ("query", query) => {
                to.query.extend(self.when_field(query, value, FieldPattern::one_of));
            }
            ("jwt", claim) => {
                let pattern = self.when_field(claim, value, FieldPattern::exactly_one_of);
                to.identity.extend(pattern.map(IdentityPattern::Claim));
            }
            ("user", "") => {
                let pattern = self.when_field("user", value, FieldPattern::exactly_one_of);
                to.identity.extend(pattern.map(IdentityPattern::User));
            }
            // The decoder takes no other.
            _ => {}
        }
    }

    fn when_country(&mut self, to: &mut Conditions, value: &WhenValue, span: SourceSpan) {
        self.needs_file(GeoKind::Country, "`country`", span);
        let countries = self.each(value, values::country);
        to.places = PlaceSet::new(countries, to.places.asns().to_vec());
    }

    fn when_asn(&mut self, to: &mut Conditions, value: &WhenValue, span: SourceSpan) {
        self.needs_file(GeoKind::Asn, "`asn`", span);
        let asns = self.each(value, values::asn);
        to.places = PlaceSet::new(to.places.countries().to_vec(), asns);
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
                    Either::Map(spec) => Some(&spec.file),
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
                self.network_list(&[], &[&spec.file], *span)
            }
            None => Networks::default(),
        }
    }

    fn when_field(&mut self, name: &str, value: &WhenValue, one_of: OneOf) -> Option<FieldPattern> {
        let At { value: written, span, .. } = value.at.as_ref()?;
        match written {
            Either::Map(spec) if spec.file.is_written() => {
                self.error(
                    Problem::error(*span, "only `client_ip` takes a file of networks")
                        .help("write the value of the field, or a list of values"),
                );
                None
            }
            Either::Map(spec) => {
                let spec = FieldSpec {
                    equals: spec.equals.clone(),
                    regex: spec.regex.clone(),
                    present: spec.present.clone(),
                };
                self.field(name, &spec, *span, one_of)
            }
            Either::Plain(_) => {
                let texts = self.texts(value);
                let of_variables =
                    texts.iter().filter(|(_, span)| self.substitutions.at(*span).is_some());
                let of_variables: Vec<_> = of_variables.map(|(_, span)| *span).collect();
                self.patterns.extend(of_variables);
                let texts: Vec<&str> = texts.iter().map(|(text, _)| *text).collect();
                self.pattern(one_of(name, &texts), *span)
            }
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
        let keys = [
            spec.client_ip.span,
            spec.country.span,
            spec.asn.span,
            spec.method.span,
            spec.path_prefix.span,
            spec.header.span,
            spec.user.span,
            spec.jwt.span,
        ];
        if keys.iter().all(Option::is_none) {
            self.error(
                Problem::error(span, "an exception needs at least one condition")
                    .help("write `except: { client_ip: [10.0.0.0/8] }`, or remove it"),
            );
        }

        let paths = spec.path_prefix.items().iter();
        let conditions = Conditions {
            client_ip: self.networks(&spec.client_ip),
            places: self.places(&spec.country, &spec.asn),
            methods: spec.method.plain(|method| method.0.clone()),
            paths: self.paths(paths.map(|at| (&*at.value.0, at.span))),
            headers: self.fields(&spec.header, |name| name.0.as_str()),
            query: Vec::new(),
            identity: self.proven(spec),
        };

        let words = self.conceal(conditions.words().join(" or ")).into();
        let Conditions { client_ip, places, methods, paths, headers, query: _, identity } =
            conditions;

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
            let name = name.value.0.as_str();
            let written = match &at.value {
                Either::Plain(Several(List(texts))) => {
                    self.easiest(name, texts.iter().map(written))
                }
                Either::Map(spec) => self.field_text(name, &spec.equals, &spec.regex),
            };
            self.is_guessable(name, written).then(|| format!("header:{name}"))
        });

        let client = ClientList::of(&client_ip, places);
        Except::new(words, client, matchers, identity, chosen).map(Arc::new)
    }
}

impl Compiler {
    /// Compiles what clients must have proved to be exempt.
    fn proven(&mut self, spec: &ExceptSpec) -> Vec<IdentityPattern> {
        let mut patterns = Vec::new();
        if let Some(at) = spec.user.as_ref() {
            let user = self.value("user", &at.value, at.span, FieldPattern::exactly_one_of);
            patterns.extend(user.map(IdentityPattern::User));
        }
        let claims = spec.jwt.value().map_or(&[][..], |Entries(entries)| entries);
        for (name, value) in claims {
            let Some(at) = value.as_ref() else { continue };
            let name = &*name.value.0;
            // The name is one that a key may have.
            let is_name = KeyPart::parse(&format!("jwt:{name}"), 0);
            if self.pattern(is_name, at.span).is_none() {
                continue;
            }
            let claim = self.value(name, &at.value, at.span, FieldPattern::exactly_one_of);
            patterns.extend(claim.map(IdentityPattern::Claim));
        }
        patterns
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
