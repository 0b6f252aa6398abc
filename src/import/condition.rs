//! The condition of an `if`, as what a request must have.

use super::{
    access::{listed, network, networks_of},
    maps::{Map, MapPattern, compiled, found_in, without_option},
    pattern::has_choice,
    places::{PlaceKind, PlaceVariable},
    template::ServerVariables,
    tree::Directive,
};
use ipnet::IpNet;
use serde_json::{Value, json};

/// The reason for which an expression over AS numbers does not convert.
const NO_LIST: &str = "an expression over AS numbers is no list";

/// The most `map` blocks that may be asked in turn.
const LONGEST_CHAIN: usize = 8;

/// The methods that an expression is tried with: the registered ones.
const METHODS: [&str; 40] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
    "PURGE",
];

/// A part of a request, and the values of it that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// One of these methods.
    Method(Vec<String>),
    /// A header field, by its name.
    Header(String, Values),
    /// A field of the query, by its name.
    Query(String, Values),
    /// The whole query, by an expression.
    WholeQuery(Values),
    /// The subject of the client's certificate, or [`ANY_SUBJECT`].
    Certificate(Values),
}

/// The subjects of all certificates: one may also be empty.
pub(super) const ANY_SUBJECT: &str = ".*";

impl Test {
    /// Returns the values of the field that it asks for; `None` for a method.
    pub(super) const fn values(&self) -> Option<&Values> {
        match self {
            Self::Method(_) => None,
            Self::Header(_, values)
            | Self::Query(_, values)
            | Self::WholeQuery(values)
            | Self::Certificate(values) => Some(values),
        }
    }
}

/// Values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Values {
    Equal(String),
    /// The whole value matches an expression.
    Match(String),
}

/// The requests for which an `if` is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// For all requests of the server here, or for none.
    Always(bool),
    /// For requests that pass a test, or for those that do not.
    Request { test: Test, is_negated: bool },
    /// For clients of this list, as `access` has them, or for all others.
    Clients { listed: Vec<Value>, is_negated: bool },
}

/// The variables and blocks that conditions name.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConditionContext<'a, 's> {
    pub maps: &'s [&'a Directive],
    pub variables: &'s ServerVariables<'a>,
}

/// The other side of a comparison.
#[derive(Clone, Copy, Debug)]
enum Comparison<'a> {
    /// It is neither empty nor `0`.
    Set,
    Equal(&'a str),
    Regex(&'a str, bool),
}

/// The condition of an `if`: a variable, and what its value is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    /// The variable without its `$`.
    pub name: &'a str,
    comparison: Comparison<'a>,
    is_negated: bool,
}

impl<'a> Question<'a> {
    /// Reads the words behind `if`.
    ///
    /// # Errors
    /// They compare no variable, or it is compared here in another way than in nginx.
    pub(super) fn read(args: &'a [String]) -> Result<Self, String> {
        let words = unwrapped(args).ok_or("the condition is not clear")?;
        let (variable, sign, value) = match words[..] {
            [variable] => (variable, "", ""),
            [variable, sign, value] => (variable, sign, value),
            _ => return Err("the condition is not one of a request's fields".into()),
        };

        let name = variable.strip_prefix('$').ok_or("the condition is not clear")?;
        let name = name.trim_start_matches('{').trim_end_matches('}');

        let (regex, has_option) = without_option(value);
        let (comparison, is_negated) = match sign {
            "" => (Comparison::Set, false),
            "=" => (Comparison::Equal(value), false),
            "!=" => (Comparison::Equal(value), true),
            "~" => (Comparison::Regex(regex, has_option), false),
            "~*" => (Comparison::Regex(regex, true), false),
            "!~" => (Comparison::Regex(regex, has_option), true),
            "!~*" => (Comparison::Regex(regex, true), true),
            _ => return Err("the condition is not clear".into()),
        };

        if value.contains('$') && matches!(comparison, Comparison::Equal(_)) {
            return Err("the value has variables".into());
        }
        if let Comparison::Regex(text, ignores_case) = comparison {
            compiled(text, ignores_case)?;
        }
        Ok(Self { name, comparison, is_negated })
    }

    /// Reports whether it is true for a value of its variable.
    pub(super) fn holds(&self, value: &str) -> bool {
        self.comparison.fits(value) != self.is_negated
    }

    /// Asks the same of another variable.
    pub(super) const fn about(self, name: &'a str) -> Self {
        Self { name, ..self }
    }
}

impl Condition {
    fn negated(self) -> Self {
        match self {
            Self::Always(value) => Self::Always(!value),
            Self::Request { test, is_negated } => Self::Request { test, is_negated: !is_negated },
            Self::Clients { listed, is_negated } => {
                Self::Clients { listed, is_negated: !is_negated }
            }
        }
    }

    /// Returns the requests for which this or another condition of the same field holds, if one test
    /// asks for both.
    pub(super) fn either(&self, other: &Self) -> Option<Self> {
        let (
            Self::Request { test: one, is_negated: false },
            Self::Request { test: other, is_negated: false },
        ) = (self, other)
        else {
            return None;
        };

        let both =
            || Some(Values::Match(either(&one.values()?.regex(), &other.values()?.regex())?));
        let test = match (one, other) {
            (Test::Header(name, _), Test::Header(same, _)) if name == same => {
                Test::Header(name.clone(), both()?)
            }
            (Test::Query(name, _), Test::Query(same, _)) if name == same => {
                Test::Query(name.clone(), both()?)
            }
            (Test::WholeQuery(_), Test::WholeQuery(_)) => Test::WholeQuery(both()?),
            (Test::Certificate(_), Test::Certificate(_)) => Test::Certificate(both()?),
            (_, _) => return None,
        };
        Some(Self::Request { test, is_negated: false })
    }

    /// Clients of these networks, or all others.
    fn of_clients(networks: &[IpNet], is_negated: bool) -> Self {
        let listed = listed(networks).as_array().cloned().unwrap_or_default();
        Self::Clients { listed, is_negated }
    }

    /// Requests with this field, or without it.
    fn of(name: &Field<'_>, values: Values) -> Self {
        let test = match name {
            Field::Header(name) => Test::Header(name.clone(), values),
            Field::Query(name) => Test::Query((*name).to_owned(), values),
            Field::Subject => Test::Certificate(values),
            Field::WholeQuery => Test::WholeQuery(Values::Match(values.regex())),
        };
        Self::Request { test, is_negated: false }
    }
}

/// A field of a request that a variable stands for.
#[derive(Clone, Debug)]
enum Field<'a> {
    Header(String),
    Query(&'a str),
    WholeQuery,
    /// The subject of the client's certificate.
    Subject,
}

impl<'a> Field<'a> {
    fn of(name: &'a str) -> Option<Self> {
        if let Some(name) = name.strip_prefix("http_").filter(|name| *name != "host") {
            return Some(Self::Header(name.replace('_', "-").to_ascii_lowercase()));
        }
        match name {
            "content_type" => Some(Self::Header("content-type".into())),
            "args" | "query_string" => Some(Self::WholeQuery),
            "ssl_client_s_dn" => Some(Self::Subject),
            _ => name.strip_prefix("arg_").map(Self::Query),
        }
    }
}

impl Comparison<'_> {
    fn fits(&self, value: &str) -> bool {
        match *self {
            Self::Set => !matches!(value, "" | "0"),
            Self::Equal(text) => text == value,
            Self::Regex(text, ignores_case) => {
                compiled(text, ignores_case).is_ok_and(|regex| regex.is_match(value.as_bytes()))
            }
        }
    }
}

impl ConditionContext<'_, '_> {
    /// Returns the requests for which the answer to a question is yes.
    ///
    /// # Errors
    /// No match of a route holds for the same requests; the text says why.
    pub(super) fn condition(self, question: &Question<'_>) -> Result<Condition, String> {
        let condition = self.variable(question.name, &question.comparison, LONGEST_CHAIN)?;
        Ok(if question.is_negated { condition.negated() } else { condition })
    }

    fn variable(
        self,
        name: &str,
        comparison: &Comparison<'_>,
        depth: usize,
    ) -> Result<Condition, String> {
        let known = self.variables.known(name);
        if let Some(value) = known {
            return Ok(Condition::Always(comparison.fits(&value)));
        }

        if let Some(cookie) = name.strip_prefix("cookie_") {
            return of_cookie(cookie, comparison);
        }
        if let Some(place) = PlaceVariable::of(name, self.maps) {
            let named = match comparison {
                Comparison::Equal(text) => Some(*text),
                Comparison::Set => None,
                Comparison::Regex(..) if place.kind == PlaceKind::Country => None,
                Comparison::Regex(..) => return Err(NO_LIST.into()),
            };
            return of_place(place, &|value| comparison.fits(value), named.as_slice());
        }
        match name {
            "request_method" => return Ok(of_method(|method| comparison.fits(method))),
            "remote_addr" => return of_address(comparison),
            "ssl_client_verify" => return of_verification(|value| comparison.fits(value)),
            _ => {}
        }

        if let Some(field) = Field::of(name) {
            return of_field(&field, comparison);
        }

        let block = Map::of(name, self.maps).ok_or_else(|| format!("no match asks for ${name}"))?;
        self.mapped(block, &|value| comparison.fits(value), depth)
    }

    /// Returns when a `map` or `geo` makes a value that `fits`.
    fn mapped(
        self,
        block: &Directive,
        fits: &dyn Fn(&str) -> bool,
        depth: usize,
    ) -> Result<Condition, String> {
        if depth == 0 {
            return Err("each `map` asks another one too often".into());
        }
        if block.name == "geo" {
            return of_networks(block, fits);
        }

        let map = Map::read(block)?;
        let name = map.source.strip_prefix('$').ok_or("the `map` joins several variables")?;
        if let Some(value) = self.variables.known(name) {
            return Ok(Condition::Always(fits(map.find(&value))));
        }

        match name {
            "request_method" => return Ok(of_method(|method| fits(map.find(method)))),
            "ssl_client_verify" => return of_verification(|value| fits(map.find(value))),
            _ => {}
        }
        if let Some(place) = PlaceVariable::of(name, self.maps) {
            let texts = map.entries.iter().map(|(pattern, _)| match pattern {
                MapPattern::Text(text) => Ok(*text),
                // What an expression matches is known of countries only.
                MapPattern::Regex(..) if place.kind == PlaceKind::Country => Ok(""),
                MapPattern::Regex(..) => Err(NO_LIST),
            });
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            return of_place(place, &|value| fits(map.find(value)), &texts);
        }
        if let Some(field) = Field::of(name) {
            return of_entries(&map, &field, fits);
        }

        let inner = Map::of(name, self.maps).ok_or_else(|| format!("no match asks for ${name}"))?;
        self.mapped(inner, &|value| fits(map.find(value)), depth - 1)
    }
}

/// An expression over paths that an `if` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathTest {
    pub regex: String,
    pub ignores_case: bool,
    /// nginx also looks at the query.
    pub has_query: bool,
}

impl PathTest {
    /// Reads the condition of `if ($uri ~ REGEX)` and of `if ($request_uri ~ REGEX)`. Returns `None`
    /// for others, and for an expression that is about the query.
    pub(super) fn read(directive: &Directive) -> Option<Self> {
        if directive.name != "if" {
            return None;
        }
        let words = unwrapped(&directive.args)?;
        let [variable, sign, value] = words[..] else { return None };
        let has_query = match variable {
            "$uri" | "$document_uri" => false,
            "$request_uri" => true,
            _ => return None,
        };
        let (text, has_option) = without_option(value);
        let (regex, ignores_case) = match sign {
            "=" => (format!("^{}$", regex::escape(value)), false),
            "~" => (text.to_owned(), has_option),
            "~*" => (text.to_owned(), true),
            _ => return None,
        };
        let is_about_query =
            has_query && ["\\?", "=", "&", "[?]"].iter().any(|sign| regex.contains(sign));
        (!is_about_query).then_some(Self { regex, ignores_case, has_query })
    }
}

/// Returns the words of a condition without the parentheses around it.
fn unwrapped(args: &[String]) -> Option<Vec<&str>> {
    let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
    let first = words.first_mut()?;
    *first = first.strip_prefix('(')?;
    let last = words.last_mut()?;
    *last = last.strip_suffix(')')?;
    // An empty value in quotes stays; parentheses alone go.
    if words.first().is_some_and(|word| word.is_empty()) {
        words.remove(0);
    }
    if args.last().is_some_and(|word| word == ")") {
        words.pop();
    }
    Some(words)
}

fn of_method(fits: impl Fn(&str) -> bool) -> Condition {
    let (fitting, others): (Vec<_>, Vec<_>) = METHODS.iter().partition(|method| fits(method));
    let listed = |all: Vec<&str>| Test::Method(all.into_iter().map(str::to_owned).collect());
    // Methods that nobody registered are as the one that no expression names.
    let is_negated = fits("X-UNKNOWN");
    let methods = if is_negated { others } else { fitting };
    if methods.is_empty() {
        return Condition::Always(is_negated);
    }
    Condition::Request { test: listed(methods), is_negated }
}

/// Returns the requests for which `fits` holds for `$ssl_client_verify`. A client whose certificate is
/// not valid gets no connection here.
fn of_verification(fits: impl Fn(&str) -> bool) -> Result<Condition, String> {
    // A client without TLS has none of the values.
    if fits("NONE") != fits("") {
        return Err("it tells clients without TLS from those without a certificate".into());
    }
    let test = Test::Certificate(Values::Match(ANY_SUBJECT.into()));
    Ok(match (fits("SUCCESS"), fits("NONE")) {
        (true, false) => Condition::Request { test, is_negated: false },
        (false, true) => Condition::Request { test, is_negated: true },
        (always, _) => Condition::Always(always),
    })
}

/// Returns when a variable for a client's place has a value that `fits`; `named` are values that may.
fn of_place(
    place: PlaceVariable<'_>,
    fits: &dyn Fn(&str) -> bool,
    named: &[&str],
) -> Result<Condition, String> {
    let (listed, is_negated) = place.clients(fits, named)?;
    if listed.is_empty() {
        return Ok(Condition::Always(is_negated));
    }
    Ok(Condition::Clients { listed, is_negated })
}

fn of_address(comparison: &Comparison<'_>) -> Result<Condition, String> {
    let Comparison::Equal(text) = comparison else {
        return Err("an expression over addresses is no network".into());
    };
    let network = network(text).ok_or("it is neither an address nor a network")?;
    Ok(Condition::of_clients(&[network], false))
}

/// Checks that a text is written in a subject here as in nginx.
///
/// # Errors
/// It has letters beyond ASCII, which nginx writes as bytes.
fn check_subject(field: &Field<'_>, text: &str) -> Result<(), String> {
    let is_other =
        !text.is_ascii() || ["\\\\", "\\x", "\\C", "\\c"].iter().any(|sign| text.contains(sign));
    if matches!(field, Field::Subject) && is_other {
        return Err("letters of a subject beyond ASCII are written in another way here".into());
    }
    Ok(())
}

fn of_field(field: &Field<'_>, comparison: &Comparison<'_>) -> Result<Condition, String> {
    if let Comparison::Equal(text) | Comparison::Regex(text, _) = *comparison {
        check_subject(field, text)?;
    }
    let any = || Condition::of(field, Values::Match(".+".into()));
    Ok(match *comparison {
        Comparison::Set => Condition::of(field, Values::Match("[^0].*|0.+".into())),
        Comparison::Equal("") | Comparison::Regex("^$", _) => any().negated(),
        Comparison::Equal(text) => Condition::of(field, Values::Equal(text.to_owned())),
        Comparison::Regex("." | ".+" | "^.+$", _) => any(),
        Comparison::Regex(text, ignores_case) => {
            let is_missing = compiled(text, ignores_case)?.is_match(b"");
            if is_missing && !matches!(field, Field::WholeQuery) {
                return Err("the expression also matches where the field is missing".into());
            }
            Condition::of(field, Values::Match(found_in(text, ignores_case)))
        }
    })
}

fn of_cookie(name: &str, comparison: &Comparison<'_>) -> Result<Condition, String> {
    let value = match *comparison {
        Comparison::Set => "(?:[^;0][^;]*|0[^;]+)".to_owned(),
        Comparison::Equal("") => {
            return Ok(of_cookie(name, &Comparison::Regex(".", false))?.negated());
        }
        Comparison::Equal(text) => regex::escape(text),
        Comparison::Regex("." | ".+", _) => "[^;]+".to_owned(),
        Comparison::Regex(text, ignores_case) => found_in_cookie(text, ignores_case)?,
    };
    let name = regex::escape(name);
    let whole = format!("(?:.*[; ])?(?i:{name})={value}(?:;.*)?");
    Ok(Condition::of(&Field::Header("cookie".into()), Values::Match(whole)))
}

/// Returns an expression for the whole value of a cookie in which `text` is found.
///
/// # Errors
/// It may also be found beyond the value, or where the cookie is missing.
fn found_in_cookie(text: &str, ignores_case: bool) -> Result<String, String> {
    let (begin, rest) = text.strip_prefix('^').map_or(("[^;]*", text), |rest| ("", rest));
    let (rest, end) = rest.strip_suffix('$').map_or((rest, "[^;]*"), |rest| (rest, ""));
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-_|()".contains(sign);
    let is_split = has_choice(text) && rest != text;
    if is_split
        || rest.is_empty()
        || !rest.chars().all(is_plain)
        || compiled(rest, false)?.is_match(b"")
    {
        return Err("an expression over a cookie is no match".into());
    }
    let case = if ignores_case { "i" } else { "" };
    Ok(format!("{begin}(?{case}:{rest}){end}"))
}

/// Returns when a field's value is one that a `map` makes a fitting value of.
fn of_entries(
    map: &Map<'_>,
    field: &Field<'_>,
    fits: &dyn Fn(&str) -> bool,
) -> Result<Condition, String> {
    for (pattern, _) in &map.entries {
        let (MapPattern::Text(text) | MapPattern::Regex(text, _)) = pattern;
        check_subject(field, text)?;
    }
    let is_usual = fits(map.default);
    let meant = |(_, value): &&(MapPattern<'_>, &str)| fits(value) != is_usual;
    let unusual: Vec<_> = map.entries.iter().filter(meant).collect();
    let Some(last) = map.entries.iter().rposition(|(_, value)| fits(value) != is_usual) else {
        return Ok(Condition::Always(is_usual));
    };

    let is_earlier = map.entries[..last].iter().any(|(_, value)| fits(value) == is_usual);
    if is_earlier {
        return Err("the order of the entries of the `map` matters".into());
    }

    let condition = if let [(MapPattern::Text(""), _)] = unusual[..] {
        of_field(field, &Comparison::Equal(""))?
    } else {
        if unusual.iter().any(|(pattern, _)| pattern.fits("")) {
            return Err("an entry of the `map` also fits where the field is missing".into());
        }
        let all: Vec<_> = unusual.iter().map(|(pattern, _)| pattern.whole()).collect();
        Condition::of(field, Values::Match(all.join("|")))
    };
    Ok(if is_usual { condition.negated() } else { condition })
}

fn of_networks(geo: &Directive, fits: &dyn Fn(&str) -> bool) -> Result<Condition, String> {
    let all = networks_of(geo).ok_or("the `geo` has more than networks")?;
    let usual = all.iter().find(|(network, _)| network.is_none()).map_or("", |(_, value)| value);
    let is_usual = fits(usual);

    let mut networks = Vec::new();
    let mut others = Vec::new();
    for (network, value) in &all {
        let Some(network) = network else { continue };
        if fits(value) == is_usual { others.push(*network) } else { networks.push(*network) }
    }

    let is_within = |inner: &IpNet| networks.iter().any(|outer: &IpNet| outer.contains(inner));
    if others.iter().any(is_within) {
        return Err("a network of the `geo` is an exception within another".into());
    }
    Ok(Condition::of_clients(&networks, is_usual))
}

/// The longest expression of a match, in bytes.
const LONGEST_REGEX: usize = 2048;

/// Returns an expression for what one or the other matches, unless it is too long.
fn either(one: &str, other: &str) -> Option<String> {
    let both = format!("{one}|{other}");
    (both.len() <= LONGEST_REGEX).then_some(both)
}

impl Values {
    /// Returns an expression for the whole value.
    pub(super) fn regex(&self) -> String {
        match self {
            Self::Equal(text) => regex::escape(text),
            Self::Match(regex) => regex.clone(),
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Equal(text) => json!(text),
            Self::Match(regex) => json!({ "regex": regex }),
        }
    }
}
