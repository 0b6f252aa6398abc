//! The text of a configuration of nginx as words, braces and semicolons.

use core::{iter::Peekable, str::Chars};

/// A part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word without its quotes.
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

/// Parts of a text, each with its line.
#[derive(Debug)]
pub(super) struct Words<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

/// What is wrong with a text, and in which line.
pub(super) type Fault = (usize, String);

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text.trim_start_matches('\u{feff}').chars().peekable(), line: 1 }
    }

    /// Returns the next part with its line, or `None` at the end.
    ///
    /// # Errors
    /// A quote is not closed, or something follows a closed one directly.
    pub(super) fn next_part(&mut self) -> Result<Option<(usize, Token)>, Fault> {
        self.skip_blanks();
        let line = self.line;
        let Some(&first) = self.rest.peek() else { return Ok(None) };
        let part = match first {
            ';' => self.sign(Token::End),
            '{' => self.sign(Token::Open),
            '}' => self.sign(Token::Close),
            '"' | '\'' => Token::Word(self.quoted(first)?),
            _ => Token::Word(self.bare()),
        };
        Ok(Some((line, part)))
    }

    /// Skips a block in another language, whose `{` was read, by its braces.
    pub(super) fn skip_foreign_block(&mut self) {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.advance() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    fn sign(&mut self, part: Token) -> Token {
        self.advance();
        part
    }

    fn advance(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn skip_blanks(&mut self) {
        while let Some(&next) = self.rest.peek() {
            match next {
                '#' => while self.advance().is_some_and(|sign| sign != '\n') {},
                next if next.is_ascii_whitespace() => _ = self.advance(),
                _ => return,
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Fault> {
        let line = self.line;
        self.advance();
        let mut word = String::new();
        loop {
            match self.advance() {
                Some('\\') => self.escaped(&mut word),
                Some(sign) if sign == quote => break,
                Some(sign) => word.push(sign),
                None => return Err((line, format!("the quote {quote} is not closed"))),
            }
        }
        match self.rest.peek() {
            Some(next) if !next.is_ascii_whitespace() && !matches!(next, ';' | '{' | ')') => {
                Err((self.line, format!("`{next}` follows a closed quote")))
            }
            _ => Ok(word),
        }
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        while let Some(&next) = self.rest.peek() {
            let is_variable = next == '{' && word.ends_with('$');
            if next.is_ascii_whitespace() || next == ';' || (next == '{' && !is_variable) {
                break;
            }
            self.advance();
            if next == '\\' {
                self.escaped(&mut word);
            } else {
                word.push(next);
            }
        }
        word
    }

    /// Reads what follows a backslash. Before other signs the backslash stays: it is that of a
    /// regular expression.
    fn escaped(&mut self, word: &mut String) {
        match self.advance() {
            Some(sign @ ('"' | '\'' | '\\')) => word.push(sign),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(sign) => word.extend(['\\', sign]),
            None => word.push('\\'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Vec<String>, Fault> {
        let mut words = Words::new(text);
        let mut all = Vec::new();
        while let Some((_, part)) = words.next_part()? {
            all.push(match part {
                Token::Word(word) => word,
                Token::End => ";".into(),
                Token::Open => "{".into(),
                Token::Close => "}".into(),
            });
        }
        Ok(all)
    }

    #[test]
    fn words_are_read_as_nginx_reads_them() {
        for (text, expected) in [
            ("listen 80;", &["listen", "80", ";"] as &[_]),
            ("a 'b c' \"d;e\"; # f\n g;", &["a", "b c", "d;e", ";", "g", ";"]),
            ("a ${b}c{d}", &["a", "${b}c", "{", "d}"]),
            (r#"a "\"b\\" \.c\t;"#, &["a", "\"b\\", "\\.c\t", ";"]),
            ("a b#c;", &["a", "b#c", ";"]),
            ("", &[]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert_eq!(words("a\n'b").unwrap_err(), (2, "the quote ' is not closed".into()));
        assert_eq!(words("a 'b'c").unwrap_err(), (1, "`c` follows a closed quote".into()));
    }
}
