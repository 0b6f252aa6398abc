//! Why a value could not be read, in serde's terms, and as a problem of the file.

use super::value::Shape;
use crate::config::diagnostics::{HIDDEN, Problem, SourceSpan};
use serde::de::{self, Expected, Unexpected};
use std::fmt;

/// The reason for which a text is not the value that its key wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct InvalidValue {
    pub message: String,
    pub help: String,
}

/// The message, and on a second line what to write.
impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.message, self.help)
    }
}

/// The reason for which a text is not the value that its key wants, or beyond a bound of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum Wrong {
    Text(InvalidValue),
    /// As in "`workers` cannot be 0" and "write a number from 1 to 1024".
    Bound {
        found: String,
        wanted: String,
    },
}

impl From<InvalidValue> for Wrong {
    fn from(invalid: InvalidValue) -> Self {
        Self::Text(invalid)
    }
}

/// The reason that ends the reading of one value.
#[derive(Debug)]
pub(super) enum Stop {
    /// The text is not the value that is wanted.
    Invalid { message: String, help: String },
    /// The value is beyond a bound of its key.
    Bound { found: String, wanted: String },
    /// The value is of another kind.
    Kind { found: &'static str, wanted: String, of: Option<String>, example: String },
    /// The error has been reported.
    Reported,
}

impl Stop {
    /// Returns that a map with this `title` is wanted.
    pub(super) fn no_map(shape: Shape<'_, '_>, title: &str, example: String) -> Self {
        let of = Some(title.to_owned());
        Self::Kind { found: kind(shape.unexpected()), wanted: "a map".to_owned(), of, example }
    }

    /// Returns it without the value, which the file has as `written` and which is not `noun`.
    pub(super) fn without_value(self, written: &str, name: &str, noun: &str) -> Self {
        match self {
            Self::Invalid { .. } => Self::Invalid {
                message: format!("the value of `{written}` is not {noun}"),
                help: format!("set it to {noun}; {HIDDEN}"),
            },
            Self::Bound { wanted, .. } => Self::Invalid {
                message: format!("the value of `{written}` is out of bounds for `{name}`"),
                help: format!("set it to {wanted}; {HIDDEN}"),
            },
            Self::Kind { .. } | Self::Reported => self,
        }
    }

    /// Returns the problem of the value at `span` under the key `name`, unless it was reported.
    pub(super) fn problem(
        self,
        span: SourceSpan,
        name: &str,
        shape: Shape<'_, '_>,
    ) -> Option<Problem> {
        let problem = match self {
            Self::Invalid { message, help } => Problem::error(span, message).help(help),
            Self::Bound { found, wanted } => {
                let message = format!("`{name}` cannot be {found}");
                Problem::error(span, message).help(format!("write {wanted}"))
            }
            Self::Kind { found, wanted, of, example } => {
                let of = of.unwrap_or_else(|| format!("`{name}`"));
                let message = format!("expected {wanted} for {of}, not {found}");
                let help = if let Shape::Scalar(text) = shape
                    && found == TEXT
                {
                    format!("write it without quotes: `{name}: {text}`")
                } else {
                    format!("write `{example}`")
                };
                Problem::error(span, message).help(help)
            }
            Self::Reported => return None,
        };
        Some(problem)
    }
}

/// The message of an error that has been reported: serde's traits can only make an error from a
/// text.
pub(super) const REPORTED: &str = "";

/// The description of a number in quotes.
pub(super) const TEXT: &str = "a text";

#[expect(clippy::wildcard_enum_match_arm, reason = "all others are of plain values")]
fn kind(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Unit => "nothing",
        Unexpected::Seq => "a list",
        Unexpected::Map => "a map",
        Unexpected::Other(_) => TEXT,
        _ => "a plain value",
    }
}

impl de::Error for Stop {
    /// Takes a message and, on a second line, what to write; or [`REPORTED`].
    fn custom<T: fmt::Display>(text: T) -> Self {
        let text = text.to_string();
        if text == REPORTED {
            return Self::Reported;
        }
        let (message, help) = text.split_once('\n').unwrap_or((&text, ""));
        Self::Invalid { message: message.to_owned(), help: help.to_owned() }
    }

    /// Takes what is wanted and, on a second line, an example.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let (wanted, example) = expected.split_once('\n').unwrap_or((&expected, ""));
        let wanted = wanted.to_owned();
        Self::Kind { found: kind(found), wanted, of: None, example: example.to_owned() }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found =
            if let Unexpected::Other(found) = found { found.to_owned() } else { found.to_string() };
        Self::Bound { found, wanted: expected.to_string() }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Stop {}
