//! The files that a file includes: which there are, their texts, and one tree of all of them.

use super::{
    Content, Masked, Name, Node,
    source::{self, MAX_FILE},
    yaml::{self, Budget, Tree},
};
use crate::config::{
    diagnostics::{File, Lint, Problem, Problems, Severity, Source, SourceSpan, quoted},
    watched::{NamePattern, Watched},
};
use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The most files that a configuration may have.
const MAX_FILES: usize = 1000;

/// The depth to which files may include others.
const MAX_DEPTH: usize = 8;

/// The lists that every file may add to.
const LISTS: [&str; 4] = ["listeners", "upstreams", "routes", "budgets"];

/// The files of a folder that is included.
const EVERY_FILE: &str = "*.yaml";

/// Returns `main` with the files that it includes, directly or not. What cannot be read is in
/// [`Source::lost`].
pub(in crate::config) fn gather(main: Source) -> Source {
    if !main.text.contains("include") {
        return main;
    }
    let known = fs::canonicalize(&main.path).into_iter().collect();
    let text = main.text.to_string();
    let mut gathered = Gathered {
        files: main.files.to_vec(),
        watched: main.watched.to_vec(),
        lost: Vec::new(),
        patterns: Vec::new(),
        main,
        text,
        known,
    };
    gathered.follow(0, 0);
    gathered.warn_of_unread();
    Source {
        text: gathered.text.into(),
        files: gathered.files.into(),
        watched: gathered.watched.into(),
        lost: gathered.lost.into(),
        ..gathered.main
    }
}

/// The problems and files found so far.
struct Gathered {
    main: Source,
    text: String,
    files: Vec<File>,
    watched: Vec<Watched>,
    lost: Vec<Problem>,
    /// The folders and patterns that are included.
    patterns: Vec<Included>,
    /// The files that are there already, by their names without links.
    known: HashSet<PathBuf>,
}

/// A pattern of `include`; a folder is one of all its `.yaml`.
struct Included {
    folder: PathBuf,
    pattern: NamePattern,
    /// The pattern as a file writes it, from the folder of that file.
    written: String,
    span: SourceSpan,
}

impl Gathered {
    /// Adds the files that the file with this index includes, and those that they include.
    fn follow(&mut self, index: usize, depth: usize) {
        let file = self.files[index].clone();
        let folder = file.path.parent().unwrap_or_else(|| Path::new("")).to_owned();
        let text = &self.text[file.range.clone()];
        for (word, span) in includes(text, &self.main) {
            let span = span.shifted(file.range.start);
            if depth == MAX_DEPTH {
                let message = format!("files include each other more than {MAX_DEPTH} deep");
                self.lose(span, message, "include these files from the first one");
                return;
            }
            self.include(&folder.join(&word), &word, span, depth + 1);
        }
    }

    /// Adds the file `path`, or the files of a folder or a pattern.
    fn include(&mut self, path: &Path, word: &str, span: SourceSpan, depth: usize) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let (folder, pattern, written) = if NamePattern::is_in(&name) {
            (folder, NamePattern::new(&name), word.to_owned())
        } else if path.is_dir() {
            let written = format!("{}/{EVERY_FILE}", word.trim_end_matches('/'));
            (path, NamePattern::new(EVERY_FILE), written)
        } else {
            return self.add(path.to_owned(), span, depth, true);
        };

        self.watched.push(Watched::Names(folder.to_owned(), pattern.clone()));
        let folder_name = folder.to_owned();
        self.patterns.push(Included {
            folder: folder_name,
            pattern: pattern.clone(),
            written,
            span,
        });

        match pattern.files(folder) {
            Ok(files) => {
                for file in files {
                    self.add(file, span, depth, false);
                }
            }
            Err(error) => {
                let message = format!("cannot read the folder {}: {error}", shown(folder));
                self.lose(span, message, "create the folder, or remove it from `include`");
            }
        }
    }

    /// Warns of patterns that find no file, and of `.yml` beside the `.yaml` that are read. Folders
    /// may be empty, and may have files of other programs.
    fn warn_of_unread(&mut self) {
        let every_file = NamePattern::new(EVERY_FILE);
        for Included { folder, pattern, written, span } in core::mem::take(&mut self.patterns) {
            let warning = |message| Problem::warning(Lint::UnreadFile, span, message);
            let other = pattern.with_other_ending();
            let beside = other.and_then(|pattern| pattern.files(&folder).ok()).unwrap_or_default();
            let is_known = |file: &PathBuf| {
                fs::canonicalize(file).is_ok_and(|resolved| self.known.contains(&resolved))
            };
            if let Some(file) = beside.iter().find(|file| !is_known(file) && has_lists(file)) {
                let stem = written.strip_suffix(".yaml").unwrap_or(&written);
                let other = quoted(&format!("{stem}.yml"));
                let help = format!("include {other} as well, or rename the file");
                let message = format!("the file {} is not read", shown(file));
                self.lost.push(warning(message).help(help));
            } else if pattern != every_file
                && pattern.files(&folder).is_ok_and(|files| files.is_empty())
            {
                let message = format!("{} finds no file", shown(&pattern.path_in(&folder)));
                self.lost.push(warning(message).help("write a file, or remove the entry"));
            }
        }
    }

    /// Adds one file. What a folder or a pattern finds again is left out.
    fn add(&mut self, path: PathBuf, span: SourceSpan, depth: usize, is_named: bool) {
        let resolved = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if !self.known.insert(resolved) {
            if is_named {
                let message = format!("the file {} is included already", shown(&path));
                self.lose(span, message, "remove it here; a file counts once");
            }
            return;
        }

        self.watched.push(Watched::File(path.clone()));
        let left = MAX_FILE.saturating_sub(self.text.len() as u64);
        let read = source::read_bounded(&path, left);

        let text = match read {
            _ if self.files.len() > MAX_FILES => {
                let message = format!("more than {MAX_FILES} files are included");
                return self.lose(span, message, "join some of them");
            }
            Ok(bytes) => String::from_utf8(bytes),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let message = "the files are larger than 16 MiB together";
                return self.lose(span, message, "split the routes among several gateways");
            }
            Err(error) => {
                let message = format!("cannot read the included file {}: {error}", shown(&path));
                return self.lose(span, message, "write the file, or remove it from `include`");
            }
        };

        let invalid = text.as_ref().err().map(|error| error.utf8_error().valid_up_to());
        let text = text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into());
        self.text.push('\n');
        let start = self.text.len();
        self.text.push_str(text.strip_prefix('\u{feff}').unwrap_or(&text));
        self.files.push(File { path: path.into(), range: start..self.text.len(), end: None });

        match invalid {
            Some(at) => self.lost.push(source::no_text(start + at)),
            None => self.follow(self.files.len() - 1, depth),
        }
    }

    fn lose(&mut self, span: SourceSpan, message: impl Into<String>, help: &str) {
        self.lost.push(Problem::error(span, message).help(help));
    }
}

/// Reports whether a line of the file begins one of the lists that an included file may have.
fn has_lists(path: &Path) -> bool {
    let Ok(bytes) = source::read_bounded(path, MAX_FILE) else { return false };
    let is_list = |line: &str| {
        let key = line.split_once(':').map(|(key, _)| key);
        key.is_some_and(|key| LISTS.contains(&key))
    };
    String::from_utf8_lossy(&bytes).lines().any(is_list)
}

fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Returns what the file `text` includes. A file that is no YAML includes nothing, and is reported
/// when it is read.
fn includes(text: &str, source: &Source) -> Vec<(String, SourceSpan)> {
    if !text.contains("include") {
        return Vec::new();
    }
    let masked = Masked::of(text);
    let tree = yaml::read(&masked, Some(source.environment), &mut Budget::default());
    let root = tree.map(|tree| tree.root);
    let Some(value) = root.as_ref().ok().and_then(|root| root.get("include")) else {
        return Vec::new();
    };
    let words = if let Content::List(items) = &value.content {
        items
    } else {
        core::slice::from_ref(value)
    };
    let word = |node: &Node<'_>| {
        let Content::Scalar(word) = &node.content else { return None };
        (!word.is_empty()).then(|| (word.to_string(), node.span))
    };
    words.iter().filter_map(word).collect()
}

/// Returns the texts of all files for [`read`].
pub(in crate::config) fn masked(source: &Source) -> Vec<Masked<'_>> {
    source.files.iter().map(|file| Masked::of(source.text_of(file))).collect()
}

/// Reads all files into one tree: the lists of the included ones follow those of the first. Returns
/// the source with what was found besides.
///
/// # Errors
/// Files that are missing or no YAML.
pub(in crate::config) fn read<'m>(
    source: &Source,
    masked: &'m [Masked<'m>],
) -> Result<(Tree<'m>, Source), Problems> {
    let mut budget = Budget::default();
    let mut wrong = Problems::default();
    for lost in source.lost.iter().filter(|lost| lost.severity == Severity::Error) {
        wrong.add(lost.clone());
    }
    let mut files = source.files.to_vec();
    let mut trees = Vec::with_capacity(files.len());
    for (text, file) in masked.iter().zip(&mut files) {
        match yaml::read(text, Some(source.environment), &mut budget) {
            Ok(tree) => {
                file.end = tree.root.get("end").and_then(truth);
                trees.push(tree.shifted(file.range.start));
            }
            Err(problem) => wrong.add(problem.shifted(file.range.start)),
        }
    }
    let mut trees = trees.into_iter();
    let Some(mut main) = trees.next().filter(|_| wrong.is_empty()) else { return Err(wrong) };
    for (tree, file) in trees.zip(&files[1..]) {
        main.problems.extend(tree.problems);
        main.substitutions.extend(tree.substitutions);
        let is_blank = source.text_of(file).trim().is_empty();
        merge(&mut main, tree.root, file, is_blank);
    }
    Ok((main, Source { files: files.into(), ..source.clone() }))
}

fn truth(node: &Node<'_>) -> Option<bool> {
    let Content::Scalar(word) = &node.content else { return None };
    word.parse().ok()
}

/// Adds the lists of an included file to those of the first.
fn merge<'m>(main: &mut Tree<'m>, root: Node<'m>, file: &File, is_blank: bool) {
    let start = SourceSpan::of(file.range.start..file.range.start);
    let problems = &mut main.problems;
    let entries = match root.content {
        Content::Map(entries) => entries,
        Content::Empty if is_blank => {
            let empty = Problem::error(start, "the included file is empty");
            return problems.add(empty.help("write its routes, or remove the file"));
        }
        Content::Empty => return,
        Content::Scalar(_) | Content::List(_) | Content::Unset => {
            let problem = Problem::error(root.span, "an included file is a map");
            return problems.add(problem.help("write `routes:` before the list"));
        }
    };

    let final_key = entries.last().map(|(name, _)| name.span);
    let mut seen: Vec<Name<'m>> = Vec::new();
    for (name, node) in entries {
        if let Some(first) = seen.iter().find(|known| known.text == name.text) {
            problems.add(Problem::duplicate(&name.text, first.span, name.span));
            continue;
        }
        seen.push(name.clone());

        let wrong = match (&*name.text, node.content) {
            (list, Content::List(items)) if LISTS.contains(&list) => {
                append(&mut main.root, &name, node.span, items);
                None
            }
            (list, _) if LISTS.contains(&list) => {
                let message = format!("expected a list for `{list}`");
                Some(Problem::error(node.span, message).help("write `- name: …` for each"))
            }
            ("include", Content::Scalar(_) | Content::List(_)) => None,
            ("include", _) => {
                let message = "expected a file name for `include`, or a list of them";
                Some(Problem::error(node.span, message).help("write `include: conf.d`"))
            }
            ("end", _) if file.end.is_none() => {
                let message = "`end` is neither true nor false";
                Some(Problem::error(node.span, message).help("write `end: true`"))
            }
            ("end", _) if final_key != Some(name.span) => Some(misplaced_end(name.span, final_key)),
            ("end", _) => None,
            (other, _) => {
                let message = format!("an included file takes no {}", quoted(other));
                let help = "write `listeners`, `upstreams`, `routes`, `budgets`, `include` or `end` \
                            here, and all else into the file that includes this one";
                Some(Problem::error(name.span, message).help(help))
            }
        };

        if let Some(wrong) = wrong {
            problems.add(wrong);
        }
    }
}

/// Returns that the key `end` at `span` means nothing, as `last` comes after it.
pub(in crate::config) fn misplaced_end(span: SourceSpan, last: Option<SourceSpan>) -> Problem {
    Problem::error(span, "`end` is not the last key of the file")
        .also(last.unwrap_or(span), "this comes after it")
        .help("move it to the last line: it marks the end of the file")
}

/// Adds `items` to the list `name` of the first file.
fn append<'m>(root: &mut Node<'m>, name: &Name<'m>, span: SourceSpan, items: Vec<Node<'m>>) {
    let Content::Map(entries) = &mut root.content else { return };
    match entries.iter_mut().find(|(known, _)| known.text == name.text) {
        Some((_, Node { content: Content::List(list), .. })) => list.extend(items),
        // It has another form, which is reported.
        Some(_) => {}
        // The first key of the first file remains the first, and `end` the last.
        None => {
            let at = entries.len().saturating_sub(1).max(1).min(entries.len());
            entries.insert(at, (name.clone(), Node { span, content: Content::List(items) }));
        }
    }
}
