//! Which directives were converted, and one line for each that was not.

use super::tree::{Directive, Tree};
use crate::terminal_text::is_unsafe;
use std::collections::{BTreeMap, BTreeSet};

/// What became of each directive so far.
#[derive(Debug, Default)]
pub(super) struct ImportReport {
    /// Those that something has converted or looked into.
    taken: BTreeSet<usize>,
    /// Reasons by directive, in the order of the files.
    notes: BTreeMap<usize, Note>,
}

#[derive(Debug)]
struct Note {
    file: usize,
    line: usize,
    words: String,
    reasons: Vec<String>,
    effect: Effect,
}

/// What it means that a directive is not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Clients, servers or logs may get something else.
    Changes,
    /// Nothing: here it would have no effect.
    None,
}

/// A line for each directive that is not converted, or with a difference, in the order of the files.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub changes: Vec<String>,
    pub without_effect: Vec<String>,
}

impl Lines {
    pub(super) const fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.without_effect.is_empty()
    }

    /// Returns each group under its title.
    pub(super) fn titled(&self) -> Vec<String> {
        let groups = [
            ("Changes what clients, servers or logs get", &self.changes),
            ("Has no effect here", &self.without_effect),
        ];
        let groups = groups.into_iter().filter(|(_, lines)| !lines.is_empty());
        let written = groups.flat_map(|(title, lines)| {
            let title = format!("{title} ({}):", lines.len());
            [title].into_iter().chain(lines.iter().map(|line| format!("  {line}")))
        });
        written.collect()
    }
}

impl ImportReport {
    pub(super) fn new(missing: Vec<(Directive, String)>) -> Self {
        let mut report = Self::default();
        for (directive, why) in missing {
            report.note(&directive, why);
        }
        report
    }

    /// Notes that a directive is converted exactly.
    pub(super) fn take(&mut self, directive: &Directive) {
        self.taken.insert(directive.id);
    }

    /// Notes why a directive is not converted, or how what it became differs.
    pub(super) fn note(&mut self, directive: &Directive, why: impl Into<String>) {
        self.take(directive);
        let note = self.notes.entry(directive.id).or_insert_with(|| Note {
            file: directive.file,
            line: directive.line,
            words: directive.name.clone(),
            reasons: Vec::new(),
            effect: Effect::Changes,
        });
        let why = why.into();
        if !note.reasons.contains(&why) {
            note.reasons.push(why);
        }
    }

    /// Notes the same, unless another directive has this reason already.
    pub(super) fn note_once(&mut self, directive: &Directive, why: &str) {
        let is_known = |note: &Note| note.reasons.iter().any(|known| known == why);
        if !self.notes.values().any(is_known) {
            self.note(directive, why);
        }
    }

    /// Notes every directive that nothing has taken. `why` gives the reason by its name.
    pub(super) fn note_the_rest(
        &mut self,
        all: &[Directive],
        why: impl Fn(&Directive) -> (&'static str, Effect),
    ) {
        let mut open: Vec<_> = all.iter().collect();
        while let Some(directive) = open.pop() {
            if self.taken.contains(&directive.id) {
                open.extend(directive.inner());
            } else {
                let (why, effect) = why(directive);
                self.note(directive, why);
                if let Some(note) = self.notes.get_mut(&directive.id) {
                    note.effect = effect;
                }
            }
        }
    }

    /// Notes that all of a block is taken, such as the entries of a `map`.
    pub(super) fn take_all(&mut self, directive: &Directive) {
        self.take(directive);
        for inner in directive.inner() {
            self.take_all(inner);
        }
    }

    /// Returns one line for each directive that has a note.
    pub(super) fn lines(&self, tree: &Tree) -> Lines {
        let mut lines = Lines::default();
        for Note { file, line, words, reasons, effect } in self.notes.values() {
            let file = tree.files.get(*file).map_or("", String::as_str);
            let line = clean(&format!("{file}:{line}: {words}: {}", reasons.join("; ")));
            match effect {
                Effect::Changes => lines.changes.push(line),
                Effect::None => lines.without_effect.push(line),
            }
        }
        lines
    }
}

/// Returns a text in one line without control characters, which a configuration may have.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|sign| if is_unsafe(sign) { ' ' } else { sign }).collect()
}
