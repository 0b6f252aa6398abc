//! Files to a tree of directives, within bounds.
//! [`Words`] splits a text into words, braces and semicolons.

use super::{
    files::{self, Files},
    report::ImportReport,
    tree::{Directive, Tree},
};
use core::{iter::Peekable, str::Chars};
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The most bytes of all files together.
const MOST_BYTES: usize = 16 << 20;

/// The most files, and how deep they may include each other.
const MOST_FILES: usize = 1000;
const DEEPEST_INCLUDE: usize = 16;

/// The most directives, and how deep their blocks may be.
const MOST_DIRECTIVES: usize = 200_000;
const MAX_DEPTH: usize = 32;

/// The kind of file that is expected.
const NGINX: &str = "`flowgate import` reads configurations of nginx";

/// The name of the standard input.
pub(super) const STDIN: &str = "-";

/// The reason why files cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("cannot read {path}")]
    File { path: String, source: io::Error },
    #[error("{file}:{line}: {problem}")]
    Fault { file: String, line: usize, problem: String },
}

/// Reads the file at `path` and those that it includes, absolute ones below `root` if there is one.
/// An include that finds no file is a line of the report.
pub(super) fn read(path: &Path, root: Option<&Path>) -> Result<(Tree, ImportReport), ReadError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("")).to_path_buf();
    let files = Files { folder, root: root.map(Path::to_path_buf) };
    let mut reader = Reader { from: files, ..Reader::default() };

    let text = read_text(path, &mut reader.bytes);
    let text =
        text.map_err(|source| ReadError::File { path: path.display().to_string(), source })?;

    let directives = reader.file(path, &text)?;
    let tree = Tree { files: reader.files, directives };
    Ok((tree, ImportReport::new(reader.missing)))
}

#[derive(Debug, Default)]
struct Reader {
    /// Where the names of files are meant from, in every file.
    from: Files,
    files: Vec<String>,
    /// Those that include each other down to the one that is read.
    open: Vec<PathBuf>,
    bytes: usize,
    count: usize,
    /// Includes without a file, and why.
    missing: Vec<(Directive, String)>,
}

impl Reader {
    fn file(&mut self, path: &Path, text: &str) -> Result<Vec<Directive>, ReadError> {
        self.files.push(path.display().to_string());
        self.open.push(path.to_path_buf());
        let file = self.files.len() - 1;
        let mut words = Words::new(text);
        let all = self.block(file, &mut words, 0);
        self.open.pop();
        all
    }

    fn fault(&self, file: usize, line: usize, problem: impl Into<String>) -> ReadError {
        ReadError::Fault { file: self.files[file].clone(), line, problem: problem.into() }
    }

    /// Reads directives up to the end of their block, or of the file if `depth` is 0.
    fn block(
        &mut self,
        file: usize,
        words: &mut Words<'_>,
        depth: usize,
    ) -> Result<Vec<Directive>, ReadError> {
        let mut all = Vec::new();
        let mut begun: Option<(usize, Vec<String>)> = None;
        loop {
            let part = words.next_part();
            let part = part.map_err(|(line, problem)| self.fault(file, line, problem))?;

            let Some((line, part)) = part else {
                let is_whole = begun.is_none() && depth == 0;
                return if is_whole {
                    Ok(all)
                } else {
                    let problem = format!("the file ends within a directive; {NGINX}");
                    Err(self.fault(file, 1, problem))
                };
            };

            match (part, begun.take()) {
                (Token::Word(word), None) => begun = Some((line, vec![word])),
                (Token::Word(word), Some((line, mut before))) => {
                    before.push(word);
                    begun = Some((line, before));
                }
                (Token::Close, None) if depth > 0 => return Ok(all),
                (Token::End, Some((line, named))) => {
                    let directive = self.directive(file, line, named)?;
                    if directive.name == "include" {
                        self.include(&directive, &mut all)?;
                    } else {
                        all.push(directive);
                    }
                }
                (Token::Open, Some((line, named))) => {
                    let mut directive = self.directive(file, line, named)?;
                    directive.block = Some(self.inner(&directive, words, depth)?);
                    all.push(directive);
                }
                (part, _) => {
                    let sign = match part {
                        Token::Open => "{",
                        Token::Close => "}",
                        Token::End | Token::Word(_) => ";",
                    };
                    return Err(self.fault(file, line, format!("unexpected `{sign}`; {NGINX}")));
                }
            }
        }
    }

    fn inner(
        &mut self,
        directive: &Directive,
        words: &mut Words<'_>,
        depth: usize,
    ) -> Result<Vec<Directive>, ReadError> {
        if directive.name.ends_with("_by_lua_block") {
            words.skip_foreign_block();
            return Ok(Vec::new());
        }

        if depth == MAX_DEPTH {
            let problem = format!("directives are nested more than {MAX_DEPTH} deep");
            return Err(self.fault(directive.file, directive.line, problem));
        }
        self.block(directive.file, words, depth + 1)
    }

    fn directive(
        &mut self,
        file: usize,
        line: usize,
        mut named: Vec<String>,
    ) -> Result<Directive, ReadError> {
        let name = named.remove(0);
        let id = self.count;
        self.count += 1;

        if self.count > MOST_DIRECTIVES {
            return Err(self.fault(file, line, format!("more than {MOST_DIRECTIVES} directives")));
        }

        Ok(Directive { id, file, line, name, args: named, block: None })
    }

    fn include(
        &mut self,
        directive: &Directive,
        all: &mut Vec<Directive>,
    ) -> Result<(), ReadError> {
        let found = match files::included(&self.from, directive.arg(0)) {
            Ok(found) => found,
            Err(error) => {
                self.missing.push((directive.clone(), format!("cannot be read: {error}")));
                return Ok(());
            }
        };

        for path in found {
            let file = directive.file;
            let line = directive.line;
            if self.open.contains(&path) {
                return Err(self.fault(file, line, "the file includes itself"));
            }
            if self.open.len() > DEEPEST_INCLUDE || self.files.len() >= MOST_FILES {
                let problem =
                    format!("more than {MOST_FILES} files, or {DEEPEST_INCLUDE} within each other");
                return Err(self.fault(file, line, problem));
            }

            match read_text(&self.from.on_disk(&path), &mut self.bytes) {
                Ok(text) => all.append(&mut self.file(&path, &text)?),
                Err(error) => {
                    let why = format!("{} cannot be read: {error}", path.display());
                    self.missing.push((directive.clone(), why));
                }
            }
        }
        Ok(())
    }
}

/// Reads a file, of which with all before it no more than the bound.
fn read_text(path: &Path, bytes: &mut usize) -> io::Result<String> {
    let left = u64::try_from(MOST_BYTES - *bytes).unwrap_or(u64::MAX);
    let mut text = String::new();
    if path == Path::new(STDIN) {
        io::stdin().take(left + 1).read_to_string(&mut text)?;
    } else {
        File::open(path)?.take(left + 1).read_to_string(&mut text)?;
    }

    if text.len() > MOST_BYTES - *bytes {
        return Err(io::Error::other("the files have more than 16 MiB"));
    }
    *bytes += text.len();
    Ok(text)
}

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

/// A fault of a text, with its line.
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
