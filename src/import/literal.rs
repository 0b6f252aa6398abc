//! What every match of a regular expression begins with.

/// The plain signs at the beginning of an expression.
#[derive(Debug, Default)]
pub(super) struct Literal<'a> {
    /// It matches at the beginning of a path only.
    pub is_anchored: bool,
    /// Each sign, with the expression behind it.
    signs: Vec<(char, &'a str)>,
    ignores_case: bool,
}

impl<'a> Literal<'a> {
    /// Reads the beginning of `text`. Signs that a path may have in an escaped form end it.
    pub(super) fn of(text: &'a str, ignores_case: bool) -> Self {
        let mut literal = Self { ignores_case, ..Self::default() };
        if has_choice(text) {
            return literal;
        }
        let mut rest = text;
        if let Some(behind) = rest.strip_prefix('^') {
            literal.is_anchored = true;
            rest = behind;
        }
        while let Some((sign, behind)) = first_sign(rest) {
            // What may be there several times, or not at all, is no part of it.
            if behind.starts_with(['*', '+', '?', '{']) {
                break;
            }
            literal.signs.push((sign, behind));
            rest = behind;
        }
        literal
    }

    /// Returns the signs as a text.
    pub(super) fn text(&self) -> String {
        self.signs.iter().map(|(sign, _)| sign).collect()
    }

    /// Returns how a match goes on behind `beginning`, if it begins with that.
    pub(super) fn meets(&self, beginning: &str) -> Overlap<'a> {
        let pairs = beginning.chars().zip(&self.signs);
        let is_same = |(sign, (own, _)): (char, &(char, &str))| {
            if self.ignores_case { sign.eq_ignore_ascii_case(own) } else { sign == *own }
        };
        if !pairs.into_iter().all(is_same) {
            return Overlap::Never;
        }
        let last = beginning.chars().count().checked_sub(1).and_then(|at| self.signs.get(at));
        last.map_or(Overlap::Unknown, |(_, behind)| Overlap::Behind(behind))
    }
}

/// Whether a match begins with a given text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap<'a> {
    /// None does.
    Never,
    /// The ones that do go on with this expression.
    Behind(&'a str),
    /// Some may.
    Unknown,
}

/// Takes a sign that means itself, in a path too.
fn first_sign(text: &str) -> Option<(char, &str)> {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "/-_".contains(sign);
    if let Some(escaped) = text.strip_prefix('\\') {
        let sign = escaped.chars().next().filter(|sign| "/-_.".contains(*sign))?;
        return Some((sign, &escaped[1..]));
    }
    let sign = text.chars().next().filter(|sign| is_plain(*sign))?;
    Some((sign, &text[1..]))
}

/// Reports whether there is a `|` outside of all brackets.
pub(super) fn has_choice(text: &str) -> bool {
    let mut depth = 0_usize;
    let mut is_in_class = false;
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            _ if is_in_class => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_what_every_match_has() {
        for (text, expected) in [
            (r"/\.(?!well)", "/."),
            ("^/a/b?c", "/a/"),
            ("/a+", "/"),
            ("a|b", ""),
            ("(a|b)c", ""),
            ("a(b|c)", "a"),
            ("[|]a", ""),
            (r"\d", ""),
            ("a.b", "a"),
            ("", ""),
        ] {
            assert_eq!(Literal::of(text, false).text(), expected, "{text}");
        }
        assert!(Literal::of("^/a", false).is_anchored);
        assert!(!Literal::of("^a|b", false).is_anchored);
    }

    #[test]
    fn a_beginning_meets_another() {
        let literal = Literal::of("/a/b(c)", false);
        assert_eq!(literal.meets("/a/"), Overlap::Behind("b(c)"));
        assert_eq!(literal.meets("/x"), Overlap::Never);
        assert_eq!(literal.meets("/A"), Overlap::Never);
        assert_eq!(literal.meets("/a/bc"), Overlap::Unknown);
        assert_eq!(Literal::of("/A/", true).meets("/a"), Overlap::Behind("/"));
    }
}
