//! What requests must look like: of a route, of an override, of an exception.

use super::compiler::Compiler;
use crate::config::{
    decode::{At, Either, Entries, Key, Several},
    diagnostics::{Place, Problem, quoted},
    spec::{
        FieldConditions, FieldSpec, MatchSpec,
        leaf::{Condition, FieldName, Text},
        values,
    },
};
use http::{HeaderName, Method};
use ipnet::IpNet;

/// One of the three ways to say a path.
#[derive(Clone, Debug)]
pub(super) enum PathTest {
    Exact(String),
    Prefix(String),
    Regex(String),
}

/// What a header or query field must look like.
#[derive(Clone, Debug)]
pub(super) enum FieldTest {
    Equals(String),
    Regex(String),
    Present,
}

/// What a request must look like to match a route.
#[derive(Debug)]
pub(super) struct Match {
    pub place: Place,
    pub hosts: Vec<At<String>>,
    pub path: Option<At<PathTest>>,
    pub methods: Vec<Method>,
    pub headers: Vec<(HeaderName, At<FieldTest>)>,
    pub query: Vec<(String, At<FieldTest>)>,
}

/// What a request must look like for an override. Each condition that is written must hold.
#[derive(Debug)]
pub(super) struct WhenConditions {
    pub place: Place,
    pub client_ip: Vec<IpNet>,
    pub methods: Vec<Method>,
    pub path_prefix: Vec<At<String>>,
    pub headers: Vec<(HeaderName, At<FieldTest>)>,
    pub query: Vec<(String, At<FieldTest>)>,
}

const CONDITIONS: &str =
    "write one of `client_ip`, `method`, `path_prefix`, `header:NAME` and `query:NAME`";

impl Compiler {
    /// Reads what a route matches.
    pub(super) fn match_conditions(&mut self, at: &At<MatchSpec>) -> Option<Match> {
        let spec = &at.value;
        let paths = [spec.path.place, spec.path_prefix.place, spec.path_regex.place];
        let others = [spec.host.place, spec.method.place, spec.header.place, spec.query.place];
        if paths.iter().chain(&others).all(Option::is_none) {
            self.error(
                Problem::error(at.place, "a match needs at least one condition")
                    .help("write `match: { path_prefix: / }` for a route that takes every request"),
            );
            return None;
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
        let exact = spec.path.as_ref().map(|at| at.as_ref().map(|p| PathTest::Exact(p.0.clone())));
        let prefix =
            spec.path_prefix.as_ref().map(|at| at.as_ref().map(|p| PathTest::Prefix(p.0.clone())));
        let regex =
            spec.path_regex.as_ref().map(|at| at.as_ref().map(|p| PathTest::Regex(p.0.clone())));
        Some(Match {
            place: at.place,
            hosts: texts(spec.host.items(), |host| &host.0),
            path: exact.or(prefix).or(regex),
            methods: spec.method.plain(|method| method.0.clone()),
            headers: self.header_fields(&spec.header),
            query: self.field_tests(&spec.query, |name: &Text| name.0.clone()),
        })
    }

    /// Reads what header fields must look like.
    pub(super) fn header_fields(
        &mut self,
        key: &Key<FieldConditions<FieldName>>,
    ) -> Vec<(HeaderName, At<FieldTest>)> {
        self.field_tests(key, |name| name.0.clone())
    }

    fn field_tests<N, M>(
        &mut self,
        key: &Key<FieldConditions<N>>,
        name_of: impl Fn(&N) -> M,
    ) -> Vec<(M, At<FieldTest>)> {
        let Some(Entries(entries)) = key.value() else { return Vec::new() };
        let mut tests = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            let Some(value) = &value.at else { continue };
            let test = match &value.value {
                Either::Plain(text) => Some(equals(text, value.place)),
                Either::Map(spec) => self.field_test(spec, value.place),
            };
            tests.extend(test.map(|test| (name_of(&name.value), test)));
        }
        tests
    }

    /// Reads the long form of a field's pattern, in which exactly one key says what must hold.
    fn field_test(&mut self, spec: &FieldSpec, place: Place) -> Option<At<FieldTest>> {
        let equal = spec.equals.as_ref().map(|at| equals(&at.value, at.place));
        let regex =
            spec.regex.as_ref().map(|at| at.as_ref().map(|p| FieldTest::Regex(p.0.clone())));
        if let Some(at) = spec.present.filter(|at| !at.value) {
            self.error(
                Problem::error(at.place, "a field that must be absent cannot be matched").help(
                    "write `present: true`, and a more specific route for requests that have it",
                ),
            );
        }
        let present = spec.present.filter(|at| at.value).map(|at| at.map(|_| FieldTest::Present));
        let written =
            [spec.equals.is_written(), spec.regex.is_written(), spec.present.is_written()];
        if written.into_iter().filter(|written| *written).count() != 1 {
            self.error(
                Problem::error(place, "a field's pattern takes exactly one condition")
                    .help("write one of `equals`, `regex` and `present: true`"),
            );
        }
        equal.or(regex).or(present)
    }

    /// Reads the conditions of an override.
    pub(super) fn when_conditions(
        &mut self,
        key: &Key<Entries<Condition, Either<Several<Text>, FieldSpec>>>,
    ) -> Option<WhenConditions> {
        let at = key.at.as_ref()?;
        let Entries(entries) = &at.value;
        if entries.is_empty() {
            self.error(
                Problem::error(at.place, "an override needs at least one condition")
                    .help("write `when: { header:x-tenant: gold }`"),
            );
            return None;
        }
        let mut when = WhenConditions {
            place: at.place,
            client_ip: Vec::new(),
            methods: Vec::new(),
            path_prefix: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
        };
        for (name, value) in entries {
            self.condition(&mut when, name, value);
        }
        Some(when)
    }

    fn condition(
        &mut self,
        when: &mut WhenConditions,
        name: &At<Condition>,
        value: &Key<Either<Several<Text>, FieldSpec>>,
    ) {
        match name.value.0.split_once(':').unwrap_or((&name.value.0, "")) {
            ("client_ip", "") => when.client_ip = self.each(value, values::network),
            ("method", "") => when.methods = self.each(value, values::method),
            ("path_prefix", "") => {
                if let Some(list) = self.plain_values(value) {
                    when.path_prefix = texts(&list.0, |path| &path.0);
                }
            }
            ("header", header) if !header.is_empty() => {
                let header = self.keep(values::header_name(header), name.place);
                let test = self.one_field(value);
                when.headers.extend(header.map(|at| at.value).zip(test));
            }
            ("query", query) if !query.is_empty() => {
                let test = self.one_field(value);
                when.query.extend(test.map(|test| (query.to_owned(), test)));
            }
            (word, _) => {
                let whole = if word == name.value.0 { word } else { &name.value.0 };
                let message = format!("{} is not a condition", quoted(whole));
                self.error(Problem::error(name.place, message).help(CONDITIONS));
            }
        }
    }

    /// Reads each of several values with `read`.
    fn each<T>(
        &mut self,
        value: &Key<Either<Several<Text>, FieldSpec>>,
        read: impl Fn(&str) -> Result<T, values::Invalid>,
    ) -> Vec<T> {
        let Some(list) = self.plain_values(value) else { return Vec::new() };
        let kept = list.0.iter().filter_map(|at| self.keep(read(&at.value.0), at.place));
        kept.map(|at| at.value).collect()
    }

    fn plain_values<'k>(
        &mut self,
        value: &'k Key<Either<Several<Text>, FieldSpec>>,
    ) -> Option<&'k Several<Text>> {
        match &value.at.as_ref()?.value {
            Either::Plain(list) => Some(list),
            Either::Map(_) => {
                let place = value.at.as_ref()?.place;
                self.error(
                    Problem::error(place, "expected a text, or a list of them, not a map")
                        .help("write `[some text]`"),
                );
                None
            }
        }
    }

    fn one_field(
        &mut self,
        value: &Key<Either<Several<Text>, FieldSpec>>,
    ) -> Option<At<FieldTest>> {
        let at = value.at.as_ref()?;
        match &at.value {
            Either::Map(spec) => self.field_test(spec, at.place),
            Either::Plain(Several(values)) => {
                let [one] = &values[..] else {
                    // A value that could not be read has been reported.
                    if values.len() > 1 {
                        self.error(
                            Problem::error(at.place, "a field has one text to be equal to")
                                .help("write an override for each, or `{ regex: 'one|other' }`"),
                        );
                    }
                    return None;
                };
                Some(equals(&one.value, one.place))
            }
        }
    }
}

fn equals(text: &Text, place: Place) -> At<FieldTest> {
    At { value: FieldTest::Equals(text.0.clone()), place, written: true }
}

/// Returns texts with their places.
pub(super) fn texts<T>(list: &[At<T>], text: impl Fn(&T) -> &String) -> Vec<At<String>> {
    list.iter().map(|at| at.as_ref().map(|value| text(value).clone())).collect()
}
