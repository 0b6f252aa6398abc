//! Patterns of media types.

use super::{InvalidValue, not};
use std::fmt;

/// A media type, or a pattern of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaPattern {
    /// The text before the star; the whole type if there is none. In lower case.
    begin: Box<str>,
    /// The text behind the star.
    end: Option<Box<str>>,
}

impl MediaPattern {
    /// Returns whether it matches a type without parameters, in any case.
    pub fn matches(&self, media: &[u8]) -> bool {
        let begin = self.begin.as_bytes();
        match &self.end {
            None => media.eq_ignore_ascii_case(begin),
            Some(end) => {
                let end = end.as_bytes();
                let rest = media.len().checked_sub(begin.len() + end.len());
                rest.is_some_and(|rest| {
                    media[..begin.len()].eq_ignore_ascii_case(begin)
                        && media[begin.len() + rest..].eq_ignore_ascii_case(end)
                })
            }
        }
    }
}

/// As the file would have it.
impl fmt::Display for MediaPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            None => f.write_str(&self.begin),
            Some(end) => write!(f, "{}*{end}", self.begin),
        }
    }
}

/// Reads `text/html`, `text/*`, `*/*+json`, or `*`.
pub(in crate::config) fn media_type(text: &str) -> Result<MediaPattern, InvalidValue> {
    const HELP: &str = "write a type, as in `text/html`, `text/*` or `*/*+json`, or `*` for all";
    let lower = text.to_ascii_lowercase();
    if lower == "*" || lower == "*/*" {
        return Ok(MediaPattern { begin: "".into(), end: Some("".into()) });
    }
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_sign);
    let pattern = match lower.split_once('/') {
        // Any type with this ending.
        Some(("*", rest)) => rest
            .strip_prefix('*')
            .filter(|end| is_word(end))
            .map(|end| MediaPattern { begin: "".into(), end: Some(end.into()) }),
        Some((kind, "*")) if is_word(kind) => {
            Some(MediaPattern { begin: format!("{kind}/").into(), end: Some("".into()) })
        }
        Some((kind, rest)) if is_word(kind) => match rest.strip_prefix('*') {
            Some(end) if is_word(end) => {
                Some(MediaPattern { begin: format!("{kind}/").into(), end: Some(end.into()) })
            }
            None if is_word(rest) => Some(MediaPattern { begin: lower.as_str().into(), end: None }),
            Some(_) | None => None,
        },
        Some(_) | None => None,
    };
    pattern.map_or_else(|| not(text, "is not a media type", HELP), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_types() {
        for (text, taken, others) in [
            ("text/html", &["text/html", "TEXT/Html"][..], &["text/htm", "text/html5"][..]),
            ("Text/*", &["text/css", "text/x"], &["texts/css", "application/text/", "tex"]),
            ("*/*+json", &["application/ld+json", "a/b+JSON"], &["application/json", "+jso"]),
            ("application/*+xml", &["application/a+xml"], &["image/svg+xml", "application/xml"]),
            ("*", &["a/b", ""], &[]),
        ] {
            let pattern = media_type(text).expect(text);
            for media in taken {
                assert!(pattern.matches(media.as_bytes()), "{text} {media}");
            }
            for media in others {
                assert!(!pattern.matches(media.as_bytes()), "{text} {media}");
            }
        }
        for wrong in [
            "",
            "text",
            "text/",
            "/html",
            "text/h tml",
            "text/html; a=b",
            "*/json",
            "te*/x",
            "text/a*",
        ] {
            assert!(media_type(wrong).is_err(), "{wrong}");
        }
    }
}
