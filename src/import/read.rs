//! Files to a tree of directives, within bounds.

use super::{
    files::Files,
    include,
    report::ImportReport,
    tree::{Directive, Tree},
    words::{Token, Words},
};
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

/// What a file that is not understood should be.
const NGINX: &str = "`flowgate import` reads configurations of nginx";

/// The name of the standard input.
pub(super) const STDIN: &str = "-";

/// Why files cannot be read.
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
        let found = match include::included(&self.from, directive.arg(0)) {
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
