//! Expressions with a negative look-ahead, as equal ones without it.
//!
//! `/\.(?!well-known)` is found where `/\.` is followed by anything but that text, which an
//! expression of choices says sign by sign: `/\.(?:[^w].*|w(?:[^e].*|e…)?)?`. In
//! `^((?!a).)*\.b$`, the text `a` does not begin anywhere before `.b`: its automaton says so.

use std::collections::BTreeMap;

/// The longest result, in bytes.
const LONGEST: usize = 4096;

/// The expressions behind a look-ahead that any rest of a path matches.
const ANY_REST: [&str; 6] = ["", ".*", ".*$", "(.*)", "(.*)$", ".*?$"];

/// Returns an equal expression without its look-ahead; `None` if `text` has none, or no equal one
/// is known.
pub(super) fn without(text: &str) -> Option<String> {
    let at = text.find("(?!")?;
    let (inner, behind) = group(&text[at + 3..])?;
    let before = &text[..at];
    let found = match before.strip_suffix('(').zip(behind.strip_prefix(".)*")) {
        Some((before, behind)) => tempered(before, inner, behind),
        None => excepting(before, inner, behind),
    }?;
    (found.len() <= LONGEST).then_some(found)
}

/// Returns an expression that is found wherever `text` is, and perhaps elsewhere: the same without
/// what it looks at around.
pub(super) fn stripped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    loop {
        let begins = ["(?!", "(?=", "(?<!", "(?<="].map(|sign| Some((rest.find(sign)?, sign)));
        let Some((at, sign)) = begins.into_iter().flatten().min() else { break };
        let Some((_, behind)) = group(&rest[at + sign.len()..]) else { break };
        out += &rest[..at];
        rest = behind;
    }
    out + rest
}

/// Splits the inside of a group from what is behind its `)`.
fn group(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for (at, sign) in text.char_indices() {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' => depth += 1,
            ')' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            ')' => depth -= 1,
            // A bracket hides parentheses.
            '[' => return None,
            _ => {}
        }
    }
    None
}

/// Reads an expression of plain signs.
fn plain(text: &str) -> Option<Vec<char>> {
    let mut signs = text.chars();
    let mut read = Vec::new();
    while let Some(sign) = signs.next() {
        let is_escaped = sign == '\\';
        let sign = if is_escaped { signs.next()? } else { sign };
        let is_plain = sign.is_ascii_alphanumeric() && !is_escaped
            || "/-_".contains(sign)
            || (sign == '.' && is_escaped);
        read.push(Some(sign).filter(|_| is_plain)?);
    }
    Some(read)
}

/// Texts by their signs, of which no match goes on with one.
#[derive(Debug, Default)]
struct Texts {
    next: BTreeMap<char, Self>,
    /// A text ends here, whatever follows.
    is_end: bool,
    /// A text ends here if the path does.
    is_last: bool,
}

impl Texts {
    fn add(&mut self, signs: &[char], is_last: bool) {
        match signs {
            [] if is_last => self.is_last = true,
            [] => self.is_end = true,
            [first, rest @ ..] => self.next.entry(*first).or_default().add(rest, is_last),
        }
    }

    /// Returns an expression for all that may follow here up to the end, or `None` if nothing may.
    fn others(&self) -> Option<String> {
        if self.is_end {
            return None;
        }
        if self.next.is_empty() {
            return Some(if self.is_last { ".+" } else { ".*" }.to_owned());
        }
        let other = class(self.next.keys(), true) + ".*";
        let longer = self.next.iter().filter_map(|(sign, next)| {
            let sign = regex::escape(&sign.to_string());
            Some(sign + &next.others()?)
        });
        let choices: Vec<_> = core::iter::once(other).chain(longer).collect();
        let optional = if self.is_last { "" } else { "?" };
        Some(format!("(?:{}){optional}", choices.join("|")))
    }
}

/// Returns a class of signs, or of all others.
fn class<'a>(signs: impl Iterator<Item = &'a char>, is_negated: bool) -> String {
    let signs = signs.map(|sign| match sign {
        '-' => "\\-".to_owned(),
        sign => sign.to_string(),
    });
    format!("[{}{}]", if is_negated { "^" } else { "" }, signs.collect::<String>())
}

/// Returns `before`, followed by anything but the texts of `inner`.
fn excepting(before: &str, inner: &str, behind: &str) -> Option<String> {
    if !ANY_REST.contains(&behind) || before.contains("(?") || depth(before) != Some(0) {
        return None;
    }

    let inner = inner.strip_prefix('(').and_then(|all| all.strip_suffix(')')).unwrap_or(inner);
    let mut texts = Texts::default();
    for text in inner.split('|') {
        let (text, is_last) = text.strip_suffix('$').map_or((text, false), |text| (text, true));
        texts.add(&plain(text)?, is_last);
    }
    Some(format!("{before}{}$", texts.others()?))
}

/// Returns how many groups are open at the end of an expression without brackets, or `None` if
/// there is a choice outside of all groups.
fn depth(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => return None,
            '[' => return None,
            _ => {}
        }
    }
    Some(depth)
}

/// Returns `before`, signs among which the text of `inner` does not begin, and `behind`.
fn tempered(before: &str, inner: &str, behind: &str) -> Option<String> {
    let text = plain(inner).filter(|text| !text.is_empty())?;
    // The text does not begin before what is behind and end in it: `behind` begins with another sign.
    let next = behind.strip_prefix('\\').unwrap_or(behind).chars().next()?;
    let is_end = behind == "$";
    let is_sign = next == '/' || behind.starts_with("\\.");
    if before != "^" || !(is_end || is_sign && !text.contains(&next)) || behind.contains("(?") {
        return None;
    }
    Some(format!("{before}{}{behind}", avoiding(&text)))
}

/// The choices on the way from one state of an automaton to another.
#[derive(Clone, Debug, Default)]
struct Choices(Vec<String>);

impl Choices {
    fn joined(&self) -> String {
        let is_optional = self.0.iter().any(String::is_empty);
        let all: Vec<_> = self.0.iter().filter(|one| !one.is_empty()).cloned().collect();
        match &all[..] {
            [] => String::new(),
            [one] if !is_optional => one.clone(),
            all => format!("(?:{}){}", all.join("|"), if is_optional { "?" } else { "" }),
        }
    }
}

/// Returns an expression for all texts in which `text` is not.
///
/// State `n` of its automaton has read the first `n` signs of `text`. The states are taken out, the
/// last one first, and the ways through each become ways of the others.
fn avoiding(text: &[char]) -> String {
    let count = text.len();
    // The last column is the end, which every state reaches.
    let mut ways = vec![vec![Choices::default(); count + 1]; count];
    let mut signs: Vec<_> = text.to_vec();
    signs.sort_unstable();
    signs.dedup();
    for (state, way) in ways.iter_mut().enumerate() {
        way[count].0.push(String::new());
        let mut elsewhere: BTreeMap<usize, Vec<char>> = BTreeMap::new();
        for sign in &signs {
            let next = next_state(text, state, *sign);
            if next != 0 {
                elsewhere.entry(next).or_default().push(*sign);
            }
        }
        way[0].0.push(class(elsewhere.values().flatten(), true));
        for (next, signs) in elsewhere.into_iter().filter(|(next, _)| *next < count) {
            way[next].0.push(match signs[..] {
                [one] => regex::escape(&one.to_string()),
                _ => class(signs.iter(), false),
            });
        }
    }

    for state in (1..count).rev() {
        let again = repeated(&ways[state][state]);
        let on = ways[state].clone();
        for way in ways.iter_mut().take(state) {
            if way[state].0.is_empty() {
                continue;
            }
            let here = way[state].joined() + &again;
            for to in (0..state).chain([count]).filter(|to| !on[*to].0.is_empty()) {
                way[to].0.push(format!("{here}{}", on[to].joined()));
            }
        }
    }
    repeated(&ways[0][0]) + &ways[0][count].joined()
}

fn repeated(choices: &Choices) -> String {
    match &choices.0[..] {
        [] => String::new(),
        all => format!("(?:{})*", all.join("|")),
    }
}

/// Returns how many of the first signs of `text` end what was read, once `sign` follows.
fn next_state(text: &[char], state: usize, sign: char) -> usize {
    let mut read = text[..state].to_vec();
    read.push(sign);
    (0..=read.len().min(text.len())).rev().find(|size| read.ends_with(&text[..*size])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_found(regex: &str, path: &str) -> bool {
        regex::Regex::new(regex).unwrap().is_match(path)
    }

    #[test]
    fn a_look_ahead_becomes_choices() {
        for (text, expected) in [
            (r"/\.(?!we)", r"/\.(?:[^w].*|w(?:[^e].*)?)?$"),
            ("^/(?!a|b)", "^/(?:[^ab].*)?$"),
            ("^/(?!a$).*$", "^/(?:[^a].*|a.+)?$"),
        ] {
            assert_eq!(without(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["^/a", "(?!a)b", "^/(?!a+)", "^/(?!a)b", "(a(?!b))", "x|/(?!a)", "(?=a)"] {
            assert_eq!(without(text), None, "{text}");
        }
        assert_eq!(stripped(r"^/a/(?!b(c))(?<=d)e"), "^/a/e");
    }

    proptest! {
        #[test]
        fn what_does_not_begin_with_a_text_is_matched(
            text in "[abc]{1,4}", other in "[abc]{1,3}", path in "/[abc]{0,6}",
        ) {
            let regex = without(&format!("^/(?!{text}|{other})")).unwrap();
            let rest = &path[1..];
            let expected = !rest.starts_with(&text) && !rest.starts_with(&other);
            prop_assert_eq!(is_found(&regex, &path), expected, "{}", regex);
        }

        #[test]
        fn what_does_not_contain_a_text_is_matched(text in "[abc]{1,6}", path in "/[abc]{0,9}") {
            let regex = without(&format!(r"^((?!{text}).)*\.x$")).unwrap();
            let expected = !path.contains(&text);
            prop_assert_eq!(is_found(&regex, &format!("{path}.x")), expected, "{}", regex);
            let regex = without(&format!("^((?!{text}).)*$")).unwrap();
            prop_assert_eq!(is_found(&regex, &path), expected, "{}", regex);
        }
    }
}
