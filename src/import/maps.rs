//! `map` blocks: the value of a variable by that of another.

use super::{
    pattern::check_syntax,
    report::ImportReport,
    template::{Piece, pieces},
    tree::Directive,
};
use regex::bytes::{Regex, RegexBuilder};
use std::collections::BTreeSet;

/// A `map` block whose entries are texts and regular expressions.
#[derive(Debug)]
pub(super) struct Map<'a> {
    /// The text whose value is looked up, with its variables.
    pub source: &'a str,
    /// The entries, those without a regular expression first, as nginx asks them.
    pub entries: Vec<(MapPattern<'a>, &'a str)>,
    /// The value where no entry fits.
    pub default: &'a str,
}

/// The values that an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapPattern<'a> {
    /// This text, in any case.
    Text(&'a str),
    /// An expression that is found in it, and whether the case does not matter.
    Regex(&'a str, bool),
}

impl<'a> Map<'a> {
    /// Finds the block that sets a variable.
    pub(super) fn of(name: &str, maps: &[&'a Directive]) -> Option<&'a Directive> {
        let sets = |map: &&&'a Directive| {
            map.args.last().and_then(|variable| variable.strip_prefix('$')) == Some(name)
        };
        maps.iter().find(sets).copied()
    }

    /// Reads a block.
    ///
    /// # Errors
    /// It has an entry that is neither a text nor an expression that is read here as in nginx.
    pub(super) fn read(block: &'a Directive) -> Result<Self, String> {
        let mut map = Self { source: block.arg(0), entries: Vec::new(), default: "" };
        for entry in block.inner() {
            let value = entry.arg(0);
            match entry.name.as_str() {
                "volatile" => {}
                "default" => map.default = value,
                "hostnames" | "include" => {
                    return Err(format!("`{}` of `{}` is not read", entry.name, block.words()));
                }
                name => map.entries.push((MapPattern::read(name)?, value)),
            }
        }
        map.entries.sort_by_key(|(pattern, _)| matches!(pattern, MapPattern::Regex(..)));
        Ok(map)
    }

    /// Returns what the block makes of a value.
    pub(super) fn find(&self, value: &str) -> &'a str {
        let found = self.entries.iter().find(|(pattern, _)| pattern.fits(value));
        found.map_or(self.default, |(_, result)| result)
    }
}

impl<'a> MapPattern<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let pattern = match text.strip_prefix('~') {
            Some(rest) => {
                let (rest, ignores_case) = match rest.strip_prefix('*') {
                    Some(rest) => (rest, true),
                    None => (rest, false),
                };
                let (rest, has_option) = without_option(rest);
                Self::Regex(rest, ignores_case || has_option)
            }
            None => Self::Text(text.strip_prefix('\\').unwrap_or(text)),
        };
        if let Self::Regex(text, ignores_case) = pattern {
            compiled(text, ignores_case)?;
        }
        Ok(pattern)
    }

    /// Reports whether a value fits.
    pub(super) fn fits(self, value: &str) -> bool {
        match self {
            Self::Text(text) => text.eq_ignore_ascii_case(value),
            Self::Regex(text, ignores_case) => {
                compiled(text, ignores_case).is_ok_and(|regex| regex.is_match(value.as_bytes()))
            }
        }
    }

    /// Returns an expression for the whole value.
    pub(super) fn whole(self) -> String {
        match self {
            Self::Text(text) => format!("(?i:{})", regex::escape(text)),
            Self::Regex(text, ignores_case) => found_in(text, ignores_case),
        }
    }
}

/// Returns an expression without the option that ignores the case, and whether it had one.
pub(super) fn without_option(text: &str) -> (&str, bool) {
    text.strip_prefix("(?i)").map_or((text, false), |rest| (rest, true))
}

/// Returns an expression for a whole value in which `text` is found.
pub(super) fn found_in(text: &str, ignores_case: bool) -> String {
    if ignores_case { format!("(?i:.*(?:{text}).*)") } else { format!(".*(?:{text}).*") }
}

/// Compiles an expression that nginx reads in the same way.
///
/// # Errors
/// It is read in another way, or not at all.
pub(super) fn compiled(text: &str, ignores_case: bool) -> Result<Regex, String> {
    check_syntax(text)?;
    // nginx compares bytes, and the program has no tables of Unicode.
    let built = RegexBuilder::new(text)
        .unicode(false)
        .case_insensitive(ignores_case)
        .size_limit(256 << 10)
        .build();
    built.map_err(|_| "the regular expression has what flowgate's have not".to_owned())
}

/// Takes the blocks whose variables converted directives use, by way of other blocks too.
pub(super) fn take_used(maps: &[&Directive], http: &Directive, report: &mut ImportReport) {
    let mut used = BTreeSet::new();
    gather_used(http, report, &mut used);
    let mut left: Vec<_> = maps.to_vec();
    loop {
        let is_used = |map: &&Directive| {
            let variable = map.args.last().and_then(|last| last.strip_prefix('$'));
            variable.is_some_and(|name| used.contains(name))
        };
        let (found, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|map| is_used(map));
        if found.is_empty() {
            return;
        }
        left = others;
        for map in found {
            report.take_all(map);
            let source = map.args.split_last().map_or(&[][..], |(_, source)| source);
            used.extend(source.iter().flat_map(|text| variables_in(text)));
        }
    }
}

/// Adds the variables in the arguments of converted directives.
fn gather_used(block: &Directive, report: &ImportReport, used: &mut BTreeSet<String>) {
    for directive in block.inner() {
        let is_block = matches!(directive.name.as_str(), "map" | "geo");
        if !is_block && report.is_converted(directive) {
            used.extend(directive.args.iter().flat_map(|text| variables_in(text)));
        }
        gather_used(directive, report, used);
    }
}

/// Returns the variables in a text.
fn variables_in(text: &str) -> Vec<String> {
    let pieces = pieces(text).unwrap_or_default().into_iter();
    let names = pieces.filter_map(|piece| match piece {
        Piece::Variable(name) => Some(name.to_owned()),
        Piece::Text(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_asks_texts_before_expressions() {
        let inner = [("default", "d"), ("~*B", "regex"), ("ab", "text"), ("\\~x", "sign")];
        let directive = |(name, value): (&str, &str)| Directive {
            id: 0,
            file: 0,
            line: 1,
            name: name.into(),
            args: vec![value.into()],
            block: None,
        };
        let mut block = directive(("map", "$a"));
        block.args.push("$b".into());
        block.block = Some(inner.into_iter().map(directive).collect());
        let map = Map::read(&block).unwrap();
        for (value, expected) in
            [("AB", "text"), ("xb", "regex"), ("~x", "sign"), ("", "d"), ("c", "d")]
        {
            assert_eq!(map.find(value), expected, "{value}");
        }
        block.block.as_mut().unwrap().push(directive(("~a(?=b)", "1")));
        assert!(Map::read(&block).is_err());
    }

    #[test]
    fn an_expression_compares_bytes_as_nginx_does() {
        let word = compiled(r"^\w$", true).unwrap();
        assert!(word.is_match(b"A"));
        assert!(!word.is_match("é".as_bytes()));
    }
}
