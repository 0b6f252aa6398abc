//! What a route asks of a request.

use super::{FieldPattern, HostPattern, PathPattern, Target, header, query};
use core::fmt;
use http::Method;

/// What a request must have to belong to a route; an empty list asks nothing. The
/// default matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// One of these hosts.
    pub hosts: Vec<HostPattern>,
    /// This path.
    pub path: PathPattern,
    /// One of these methods. `HEAD` is not `GET`.
    pub methods: Vec<Method>,
    /// Header lines, all of them. See [`header::name`] for what names can be found.
    pub headers: Vec<FieldPattern>,
    /// Query parameters, all of them, decoded as HTML forms encode them.
    pub query: Vec<FieldPattern>,
}

impl Matcher {
    /// Returns whether the method, the header and the query of `target` match.
    pub(super) fn admits(&self, target: &Target<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(target.method))
            && self.headers.iter().all(|pattern| {
                header::first(target.headers, pattern.name())
                    .is_some_and(|value| pattern.admits(value))
            })
            && self.query.iter().all(|pattern| {
                let value = target.query.and_then(|query| query::first(query, pattern.name()));
                value.is_some_and(|value| pattern.admits(&value))
            })
    }
}

/// Writes one line: `POST shop.example.com/checkout/{id} header x-a=b query c=d`.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            list(f, &self.methods)?;
            f.write_str(" ")?;
        }
        list(f, &self.hosts)?;
        write!(f, "{}", self.path)?;
        for header in &self.headers {
            write!(f, " header {header}")?;
        }
        for parameter in &self.query {
            write!(f, " query {parameter}")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matcher_is_shown_in_one_line() {
        let matcher = Matcher {
            hosts: vec![
                HostPattern::parse("shop.example.com").unwrap(),
                HostPattern::parse("*.shop").unwrap(),
            ],
            path: PathPattern::exact("/checkout/{id}").unwrap(),
            methods: vec![Method::POST, Method::PUT],
            headers: vec![
                FieldPattern::equals("x-a", "b").unwrap(),
                FieldPattern::present("x-b").unwrap(),
            ],
            query: vec![FieldPattern::regex("c", "d+").unwrap()],
        };
        let line =
            "POST|PUT shop.example.com|*.shop/checkout/{id} header x-a=b header x-b query c~d+";
        assert_eq!(matcher.to_string(), line);
        assert_eq!(Matcher::default().to_string(), "/*");
    }
}
