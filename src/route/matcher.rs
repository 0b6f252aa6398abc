//! The conditions of a route.

use super::{FieldPattern, HostPattern, ParseError, PathPattern, Target, header, pattern::Pattern};
use crate::geo::PlaceSet;
use core::fmt;
use http::Method;
use std::sync::Arc;

/// Conditions of which a request must meet all; empty lists have no effect. The default matches
/// every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// One of these listeners. Only a [`Table`](super::Table) looks at them.
    pub listeners: Vec<Arc<str>>,
    /// One of these hosts.
    pub hosts: Vec<HostPattern>,
    /// One of these paths.
    pub paths: Vec<PathPattern>,
    /// One of these methods. `HEAD` is not `GET`.
    pub methods: Vec<Method>,
    /// All of these headers.
    pub headers: Vec<FieldPattern>,
    /// All of these query parameters, decoded like HTML forms.
    pub query: Vec<FieldPattern>,
    /// All of these parts of the client's certificate: `subject` and `fingerprint`.
    pub certificate: Vec<FieldPattern>,
    /// One of these countries, and one of these autonomous systems.
    pub places: PlaceSet,
    /// The whole query.
    pub whole_query: Option<QueryPattern>,
    /// The value of a repeated field that counts.
    pub repeated: Repeated,
}

/// A regular expression that a whole query matches, as it was received and without its `?`. A request
/// without a query has an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueryPattern(Pattern);

impl QueryPattern {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// It does not parse, or is too large.
    pub fn regex(text: &str) -> Result<Self, ParseError> {
        Pattern::new(text).map(Self)
    }

    fn matches(&self, query: Option<&str>) -> bool {
        self.0.is_match(query.unwrap_or_default().as_bytes())
    }
}

/// The value that a condition looks at if a request repeats a header or query parameter. Servers
/// differ in which one they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeated {
    /// One match is enough: for conditions that a client wants to avoid.
    #[default]
    Any,
    /// All must match: for conditions that a client wants to meet.
    Every,
    /// The first.
    First,
    /// The last.
    Last,
}

impl Repeated {
    fn holds<V>(self, mut values: impl Iterator<Item = V>, matches: impl Fn(V) -> bool) -> bool {
        match self {
            Self::Any => values.any(matches),
            Self::Every => values.next().is_some_and(&matches) && values.all(matches),
            Self::First => values.next().is_some_and(matches),
            Self::Last => values.last().is_some_and(matches),
        }
    }
}

impl Matcher {
    /// Returns whether method, headers and query of `target` match.
    pub(super) fn matches(&self, target: &Target<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(target.method))
            && self.headers.iter().all(|pattern| {
                let values = header::values(target.headers, pattern.name());
                self.repeated.holds(values, |value| pattern.matches(value))
            })
            && self.query.iter().all(|pattern| {
                let values = target.query.map(|query| header::query_values(query, pattern.name()));
                values.is_some_and(|values| {
                    self.repeated.holds(values, |value| pattern.matches(&value))
                })
            })
            && self.whole_query.as_ref().is_none_or(|pattern| pattern.matches(target.query))
            && (self.certificate.is_empty() || self.matches_certificate(target))
            && (self.places.is_empty() || self.places.has_both(target.place.place()))
    }

    /// Returns whether the client has shown a certificate that matches.
    fn matches_certificate(&self, target: &Target<'_>) -> bool {
        let Some(certificate) = target.certificate else { return false };
        self.certificate.iter().all(|pattern| {
            // Every certificate has a fingerprint, also one of which only the subject is known.
            (pattern.name() == "fingerprint" && pattern.takes_any())
                || certificate
                    .part(pattern.name())
                    .is_some_and(|part| pattern.matches_exactly(part))
        })
    }

    /// Returns whether `target` repeats a field that this looks at, or has one that servers read
    /// differently.
    pub(super) fn looks_at_repeated(&self, target: &Target<'_>) -> bool {
        self.headers
            .iter()
            .any(|pattern| header::values(target.headers, pattern.name()).nth(1).is_some())
            || target.query.is_some_and(|query| {
                self.query.iter().any(|pattern| {
                    header::is_ambiguous_query(query, pattern.name())
                        || header::query_values(query, pattern.name()).nth(1).is_some()
                })
            })
    }
}

/// Writes one line: `POST shop.example.com/checkout/{id} header x-a=b query c=d listener web`.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            list(f, &self.methods)?;
            f.write_str(" ")?;
        }
        list(f, &self.hosts)?;
        list(f, if self.paths.is_empty() { &[PathPattern::Any] } else { &self.paths })?;
        for header in &self.headers {
            write!(f, " header {header}")?;
        }
        for parameter in &self.query {
            write!(f, " query {parameter}")?;
        }
        if let Some(QueryPattern(pattern)) = &self.whole_query {
            write!(f, " query_regex {}", pattern.text())?;
        }
        for part in &self.certificate {
            write!(f, " client_cert {part}")?;
        }
        if !self.places.is_empty() {
            write!(f, " {}", self.places)?;
        }
        if !self.listeners.is_empty() {
            f.write_str(" listener ")?;
            list(f, &self.listeners)?;
        }
        Ok(())
    }
}

fn list(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { "|" })?;
    }
    Ok(())
}

/// Reads a method. Registered methods are upper-case, so lower-case letters are an error.
///
/// # Errors
///
/// An empty text, lower-case letters, or characters that no method has.
pub fn parse_method(text: &str) -> Result<Method, ParseError> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(upper.as_bytes()) {
        Ok(method) if upper == text => Ok(method),
        Ok(method) => Err(ParseError::new(
            format!("`{text}` is not a method: methods are upper-case"),
            format!("write `{method}`"),
        )),
        Err(_) => Err(ParseError::new(
            format!("`{}` is not a method", text.escape_debug()),
            "one word, such as `GET` or `POST`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{Asn, Country, Located};
    use http::{HeaderMap, HeaderValue};

    #[test]
    fn a_matcher_is_shown_in_one_line() {
        let matcher = Matcher {
            hosts: vec![
                HostPattern::parse("shop.example.com").unwrap(),
                HostPattern::parse("*.shop").unwrap(),
            ],
            paths: vec![
                PathPattern::exact("/checkout/{id}").unwrap(),
                PathPattern::exact("/cart").unwrap(),
            ],
            methods: vec![Method::POST, Method::PUT],
            headers: vec![
                FieldPattern::equals("x-a", "b").unwrap(),
                FieldPattern::present("x-b").unwrap(),
            ],
            query: vec![FieldPattern::regex("c", "d+").unwrap()],
            whole_query: Some(QueryPattern::regex("c=.*").unwrap()),
            places: PlaceSet::new(vec![Country::read("DE").unwrap()], vec![Asn(64_500)]),
            listeners: vec!["web".into()],
            ..Matcher::default()
        };
        let line = "POST|PUT shop.example.com|*.shop/checkout/{id}|/cart header x-a=b header x-b query c~d+ query_regex c=.* country DE asn 64500 listener web";
        assert_eq!(matcher.to_string(), line);
        assert_eq!(Matcher::default().to_string(), "/*");
    }

    #[test]
    fn a_whole_query_is_compared_as_it_was_received() {
        let headers = HeaderMap::new();
        let matches = |text: &str, query| {
            let whole_query = Some(QueryPattern::regex(text).unwrap());
            Matcher { whole_query, ..Matcher::default() }.matches(&Target {
                listener: None,
                certificate: None,
                place: Located::default(),
                identity: None,
                body: None,
                host: "a",
                path: "/",
                query,
                method: &Method::GET,
                headers: (&headers).into(),
            })
        };
        for (text, query, expected) in [
            ("a=1", Some("a=1"), true),
            ("a=1", Some("a=1&b"), false),
            ("a=1", Some("a=%31"), false),
            (".*(?i:UNION).*", Some("x=union+select"), true),
            (".+", None, false),
            ("", None, true),
            ("", Some(""), true),
        ] {
            assert_eq!(matches(text, query), expected, "{text} {query:?}");
        }
        assert!(QueryPattern::regex("a(").is_err());
    }

    #[test]
    fn of_repeated_fields_the_value_counts_that_is_asked_for() {
        use Repeated::{Any, Every, First, Last};
        let fields = |repeated, headers: &[&'static str], query: Option<&str>| {
            let mut map = HeaderMap::new();
            for value in headers {
                map.append("x-a", HeaderValue::from_static(value));
            }
            let equals = |has: bool| {
                if has { vec![FieldPattern::equals("x-a", "1").unwrap()] } else { Vec::new() }
            };
            let matcher = Matcher {
                headers: equals(!headers.is_empty()),
                query: equals(query.is_some()),
                repeated,
                ..Matcher::default()
            };
            let target = Target {
                listener: None,
                certificate: None,
                place: Located::default(),
                identity: None,
                body: None,
                host: "a",
                path: "/",
                query,
                method: &Method::GET,
                headers: (&map).into(),
            };
            (matcher.matches(&target), matcher.looks_at_repeated(&target))
        };
        for (values, query, expected) in [
            (&["1"][..], "x-a=1", [true, true, true, true]),
            (&["2"], "x-a=2", [false; 4]),
            (&["1", "2"], "x-a=1&x-a=2", [true, false, true, false]),
            (&["2", "1"], "x%2Da=2&x-a=1", [true, false, false, true]),
            (&["1", "1"], "x-a=1&&x-a=1", [true; 4]),
        ] {
            for (repeated, expected) in [Any, Every, First, Last].into_iter().zip(expected) {
                let expected = (expected, values.len() > 1);
                assert_eq!(fields(repeated, values, None), expected, "{repeated:?} {values:?}");
                assert_eq!(fields(repeated, &[], Some(query)), expected, "{repeated:?} {query}");
            }
        }
        assert!(fields(First, &[], Some("x-a=1;b")).1, "some servers see another value");
    }
}

#[cfg(test)]
mod method_tests {
    use super::*;

    #[test]
    fn methods_are_upper_case_tokens() {
        assert_eq!(parse_method("POST").unwrap(), Method::POST);
        assert_eq!(parse_method("PURGE").unwrap().as_str(), "PURGE");
        assert_eq!(parse_method("post").unwrap_err().help, "write `POST`");
        for text in ["", "GET,POST", "G T", "GÉT"] {
            assert!(parse_method(text).is_err(), "{text}");
        }
    }
}
