//! All problems of a file, each with its span.

use super::{
    Lint, Problem, Problems, Severity, Source, SourceSpan, secrets::Secrets, source::File,
};
use crate::config::watched::Watched;
use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};
use serde::{Deserialize, Serialize};
use std::{
    fmt::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The longest stretch of text that a drawing shows as source; beyond it (a file without line
/// ends) only the line and the column are named.
const LONGEST_SHOWN: usize = 8 * 1024;

/// All problems of one file, in the order of the file.
///
/// Ten thousand are kept, and those beyond are counted. `Display` draws each with the line it is
/// about, a caret and a hint. The text holds no control characters of the file and no password, so
/// that it may go to a terminal or a log.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    source: Arc<Source>,
    list: Vec<Problem>,
    beyond: usize,
    is_unreadable: bool,
    files: Box<NamedFiles>,
}

/// The files that a file names.
#[derive(Clone, Debug, Default)]
struct NamedFiles {
    certificates: Vec<(PathBuf, PathBuf)>,
    others: Vec<Watched>,
}

/// One problem for programs, as `check --output json` prints it.
///
/// Lines and columns count from 1, columns in characters. They are 0 where the problem is about
/// the file as a whole. A reader gets neither severity nor name: another version may have more of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Diagnostic {
    /// `error`, `warning` or `note`.
    #[serde(skip_deserializing)]
    pub severity: Severity,
    /// The name of a warning or a note, as `docs/checks.md` lists them.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub name: Option<Lint>,
    /// The file as it was named.
    pub file: PathBuf,
    /// Where the value begins.
    pub line: usize,
    /// Where the value begins.
    pub column: usize,
    /// The line that the value ends in.
    pub end_line: usize,
    /// The column behind the value's last character.
    pub end_column: usize,
    /// The message.
    pub message: String,
    /// The hint.
    pub help: String,
}

/// Replaces the hint of an error about a value that begins with a typographic quote.
fn say_typographic_quote(problem: &mut Problem, text: &str) {
    let value = problem.span.and_then(|span| text.get(span.range().start..)).unwrap_or_default();
    let quote = value.chars().next().filter(|c| matches!(c, '“' | '”' | '„' | '‘' | '’'));
    if let Some(quote) = quote.filter(|_| problem.severity == Severity::Error) {
        problem.help = format!("write `\"` in place of the typographic quote `{quote}`");
    }
}

impl Diagnostic {
    /// Returns an error without a span.
    pub fn about(message: String) -> Self {
        Self {
            severity: Severity::Error,
            name: None,
            file: PathBuf::new(),
            line: 0,
            column: 0,
            end_line: 0,
            end_column: 0,
            message,
            help: String::new(),
        }
    }
}

impl Diagnostics {
    /// Puts problems in the order of the file that they speak of. No value of a variable and no
    /// secret is shown.
    pub(in crate::config) fn new(source: &Source, problems: impl Into<Problems>) -> Self {
        let shown = problems.into().without(|problem| source.allowed.covers(problem));
        let (mut list, beyond) = shown.sorted();
        let source = Arc::new(source.clone());
        if !list.is_empty() {
            let secrets = Secrets::of(&source.text);
            for problem in &mut list {
                say_typographic_quote(problem, &source.text);
                source.substitutions.conceal(problem);
                secrets.conceal(problem);
            }
        }
        Self { source, list, beyond, is_unreadable: false, files: Box::default() }
    }

    /// Returns the file that they are about.
    pub(in crate::config) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns these and `more` problems of the same file.
    pub(in crate::config) fn and(&self, more: impl Iterator<Item = Problem>) -> Self {
        let mut problems = Problems::default();
        self.list.iter().cloned().chain(more).for_each(|problem| problems.add(problem));
        Self { beyond: self.beyond, ..Self::new(&self.source, problems) }
    }

    /// Returns a single other problem of the same file.
    pub(in crate::config) fn instead(&self, problem: Problem) -> Self {
        Self::new(&self.source, problem)
    }

    /// Returns a single problem with a file that could not be read as text.
    pub(in crate::config) fn unreadable(path: &Path, message: String, help: &str) -> Self {
        let source = Source::new(path, "");
        let problems = Self::new(&source, Problem::about_file(message).help(help));
        Self { is_unreadable: true, ..problems }
    }

    /// Returns them beside the pairs of certificate and key that the file names.
    pub(in crate::config) fn naming(
        self,
        certificates: Vec<(PathBuf, PathBuf)>,
        others: Vec<Watched>,
    ) -> Self {
        Self { files: Box::new(NamedFiles { certificates, others }), ..self }
    }

    /// Returns the certificates and keys that the file names, as pairs of files that may not exist
    /// yet; none or not all if the file is broken.
    pub fn certificate_files(&self) -> &[(PathBuf, PathBuf)] {
        &self.files.certificates
    }

    /// Returns the files whose change may mend it: those that were read or looked for.
    pub fn files(&self) -> Vec<Watched> {
        let pairs = self.files.certificates.iter().flat_map(|(cert, key)| [cert, key]);
        let pairs = Watched::files(pairs.cloned());
        let others = self.files.others.iter().cloned();
        self.source.watched.iter().cloned().chain(pairs).chain(others).collect()
    }

    /// Reports whether the problem is that the file could not be read at all.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Returns how many problems there are.
    pub fn count(&self) -> usize {
        self.list.len() + self.beyond
    }

    /// Reports whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Reports whether there is more than notes.
    pub fn has_warnings(&self) -> bool {
        self.list.iter().any(|problem| problem.severity != Severity::Note)
    }

    /// Reports whether nothing is wrong but that certificates or keys do not exist.
    pub fn are_missing_files(&self) -> bool {
        self.beyond == 0 && self.list.iter().all(|problem| problem.is_missing_file)
    }

    /// Returns one line for a log: the first problem with its span, and how many more there are.
    pub fn summary(&self) -> String {
        let Some(first) = self.list().next() else { return "no problems".to_owned() };
        let file = first.file.display();
        let mut line = match first.line {
            0 => format!("{file}: {}", first.message),
            _ => format!("{file}:{}:{}: {}", first.line, first.column, first.message),
        };
        if self.count() > 1 {
            // Writing to a String cannot fail.
            _ = write!(line, " (and {} more)", self.count() - 1);
        }
        line
    }

    /// Returns the problems for machines.
    pub fn list(&self) -> impl Iterator<Item = Diagnostic> + '_ {
        let lines = Lines::of(&self.source, &self.source.text);
        self.list.iter().map(move |problem| {
            let range = problem.span.map(SourceSpan::range);
            let position = |at: Option<usize>| at.map_or((0, 0), |at| lines.position(at));
            let (line, column) = position(range.as_ref().map(|range| range.start));
            let (end_line, end_column) = position(range.map(|range| range.end));
            Diagnostic {
                severity: problem.severity,
                name: problem.lint,
                file: self.source.file_at(problem.span.unwrap_or_default()).path.to_path_buf(),
                line,
                column,
                end_line,
                end_column,
                message: problem.message.clone(),
                help: problem.help.clone(),
            }
        })
    }

    /// Draws all problems, in colour for a terminal if `colour` is set.
    pub fn draw(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let text = Secrets::of(&self.source.text).hidden();
        let lines = Lines::of(&self.source, &text);
        let mut drawn: Vec<_> = self
            .list
            .iter()
            .map(|problem| renderer.render(&[self.group(problem, &lines)]))
            .collect();
        if self.beyond > 0 {
            drawn.push(format!("… and {} more", self.beyond));
        }
        drawn.join("\n\n")
    }

    fn group<'a>(&'a self, problem: &'a Problem, lines: &Lines<'a>) -> Group<'a> {
        let level = match problem.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let title = level.primary_title(problem.message.as_str());
        let group = match problem.lint {
            Some(lint) => title.id(lint.name()),
            None => title,
        };
        let group = match problem.span {
            None => group.element(Origin::path(self.source.path.to_string_lossy())),
            Some(span) => group.elements(self.snippets(problem, span, lines)),
        };
        if problem.help.is_empty() {
            return group;
        }
        group.element(Level::HELP.message(problem.help.as_str()))
    }

    /// Returns the pieces of text to show: one, or several where the marks are far apart.
    fn snippets<'a>(
        &'a self,
        problem: &'a Problem,
        span: SourceSpan,
        lines: &Lines<'a>,
    ) -> Vec<Element<'a>> {
        let mut marks = vec![(AnnotationKind::Primary, span.range(), problem.label.as_str())];
        marks.extend(span.alias().map(|range| (AnnotationKind::Context, range, "used here")));
        let also = problem.also.iter();
        marks.extend(also.map(|(at, text)| (AnnotationKind::Context, at.range(), text.as_str())));

        let mut pieces: Vec<(Range<usize>, Vec<_>)> = Vec::new();
        for mark in marks {
            let around = lines.around(&mark.1);
            let file = lines.file(around.start);
            let is_near =
                |piece: &Range<usize>| near(piece, &around) && lines.file(piece.start) == file;
            match pieces.iter_mut().find(|(piece, _)| is_near(piece)) {
                Some((piece, inside)) => {
                    *piece = piece.start.min(around.start)..piece.end.max(around.end);
                    inside.push(mark);
                }
                None => pieces.push((around, vec![mark])),
            }
        }
        let draw = |(piece, marks): (Range<usize>, Vec<Mark<'a>>)| {
            let (line, column) = lines.position(marks[0].1.start);
            let path = self.source.files[lines.file(piece.start)].path.to_string_lossy();
            if piece.len() > LONGEST_SHOWN {
                return Origin::path(path).line(line).char_column(column).into();
            }
            let annotations = marks.into_iter().map(|(kind, range, label)| {
                let within = |at: usize| at.clamp(piece.start, piece.end) - piece.start;
                let label = (!label.is_empty()).then_some(label);
                kind.span(within(range.start)..within(range.end)).label(label)
            });
            Snippet::source(&lines.text[piece.clone()])
                .line_start(lines.position(piece.start).0)
                .path(path)
                .annotations(annotations)
                .into()
        };
        pieces.into_iter().map(draw).collect()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.draw(false))
    }
}

impl std::error::Error for Diagnostics {}

/// Some bytes of the text with what is said about them.
type Mark<'a> = (AnnotationKind, Range<usize>, &'a str);

/// Reports whether two pieces of text are better shown as one.
fn near(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.end.max(b.end) - a.start.min(b.start) <= LONGEST_SHOWN
}

/// Where the lines of a text begin, and the files in it.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    files: &'a [File],
}

impl<'a> Lines<'a> {
    fn of(source: &'a Source, text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { text, starts, files: &source.files }
    }

    /// Returns the index of the file that the byte `at` is in.
    fn file(&self, at: usize) -> usize {
        self.files.partition_point(|file| file.range.start <= at).saturating_sub(1)
    }

    /// Returns the index of the line that the byte `at` is in.
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    /// Returns line and column, from 1, of the byte `at` in its file.
    fn position(&self, at: usize) -> (usize, usize) {
        let line = self.line(at);
        let first = self.line(self.files[self.file(at)].range.start);
        let column =
            self.text.get(self.starts[line]..at).map_or(0, |before| before.chars().count());
        (line - first + 1, column + 1)
    }

    /// Returns the whole lines that hold `range`.
    fn around(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.starts[self.line(range.start.min(self.text.len()))];
        let last = self.line(range.end.min(self.text.len()).max(start));
        let end = self.starts.get(last + 1).map_or(self.text.len(), |next| next - 1);
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "routes:\n  - name: ä shop # ü\n    limit: 0/1s\n";

    #[test]
    fn a_drawing_has_the_line_a_caret_and_a_hint() {
        let problem = Problem::error(at("0/1s"), "a limit of 0 lets nothing pass")
            .label("0 per second")
            .help("write at least 1, as in `1/1s`");
        assert_eq!(
            diagnostics(vec![problem]).to_string(),
            "\
error: a limit of 0 lets nothing pass
 --> gateway.yaml:3:12
  |
3 |     limit: 0/1s
  |            ^^^^ 0 per second
  |
  = help: write at least 1, as in `1/1s`"
        );
    }

    #[test]
    fn problems_are_sorted_by_span_and_counted() {
        let problems =
            vec![Problem::error(at("limit"), "second"), Problem::error(at("ä shop"), "first")];
        let diagnostics = diagnostics(problems);
        assert_eq!(diagnostics.count(), 2);
        assert_eq!(diagnostics.summary(), "gateway.yaml:2:11: first (and 1 more)");
        let positions: Vec<_> = diagnostics.list().map(|d| (d.line, d.column)).collect();
        assert_eq!(positions, [(2, 11), (3, 5)]);
    }

    #[test]
    fn marks_far_apart_are_shown_in_two_pieces() {
        let text = format!("first: 1\n{}second: 2\n", "# filler\n".repeat(2000));
        let second = text.find("second").unwrap();
        let problem = Problem::error(SourceSpan::of(second..second + 6), "twice")
            .label("again here")
            .also(SourceSpan::of(0..5), "first here");
        let drawn = Diagnostics::new(&source(&text), problem).to_string();
        assert_eq!(
            drawn,
            "\
error: twice
    --> gateway.yaml:2002:1
     |
2002 | second: 2
     | ^^^^^^ again here
     |
    ::: gateway.yaml:1:1
     |
   1 | first: 1
     | ----- first here"
        );
    }

    #[test]
    fn a_line_without_end_is_named_not_shown() {
        let text = format!("a: [{}b]", "x, ".repeat(10_000));
        let at = text.find('b').unwrap();
        let drawn =
            Diagnostics::new(&source(&text), Problem::error(SourceSpan::of(at..at + 1), "odd"));
        assert_eq!(drawn.to_string(), "error: odd\n--> gateway.yaml:1:30005");
    }

    #[test]
    fn ten_thousand_problems_are_drawn_and_those_beyond_counted() {
        let problems =
            (0..20_000).map(|n| Problem::error(at("limit"), format!("{n:05}"))).collect();
        let diagnostics = diagnostics(problems);
        assert_eq!(diagnostics.count(), 20_000);
        let drawn = diagnostics.to_string();
        assert_eq!(drawn.matches("\nerror: ").count(), 9_999);
        assert!(drawn.ends_with("… and 10000 more"));
    }

    fn at(word: &str) -> SourceSpan {
        let start = TEXT.find(word).unwrap();
        SourceSpan::of(start..start + word.len())
    }

    fn source(text: &str) -> Source {
        Source::new(Path::new("gateway.yaml"), text)
    }

    fn diagnostics(list: Vec<Problem>) -> Diagnostics {
        let mut problems = Problems::default();
        for problem in list {
            problems.add(problem);
        }
        Diagnostics::new(&source(TEXT), problems)
    }
}
