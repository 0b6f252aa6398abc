//! Which directives were converted, and a line for each reason that others were not.

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
    name: String,
    reasons: Vec<Reason>,
}

#[derive(Debug)]
struct Reason {
    text: String,
    effect: Effect,
    /// The routes that it is about.
    routes: Vec<String>,
}

/// What it means that a directive is not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// Requests get an error until somebody writes what is missing.
    Blocks,
    /// Clients, servers or logs may get something else.
    Changes,
    /// Nothing: here it would have no effect.
    None,
}

/// A line for each reason, in the order of the files.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub blocks: Vec<String>,
    pub changes: Vec<String>,
    /// Lines of directives that change nothing, which are printed as one count.
    pub without_effect: Vec<String>,
    /// How many these directives are.
    pub idle: usize,
}

impl Lines {
    pub(super) const fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.changes.is_empty() && self.without_effect.is_empty()
    }

    /// Returns each group under its title: first what must be done before the site works.
    pub(super) fn titled(&self) -> Vec<String> {
        let blocks = match self.blocks.len() {
            1 => "Your site will not work until you do this one thing:".to_owned(),
            count => format!("Your site will not work until you do these {count} things:"),
        };
        let changes =
            format!("Changes what clients, servers or logs get ({}):", self.changes.len());
        let groups = [(blocks, &self.blocks), (changes, &self.changes)];
        let groups = groups.into_iter().filter(|(_, lines)| !lines.is_empty());
        let mut written: Vec<_> = groups
            .flat_map(|(title, lines)| {
                [title].into_iter().chain(lines.iter().map(|line| format!("  {line}")))
            })
            .collect();
        match self.idle {
            0 => {}
            1 => written.push("1 more directive has no effect here.".into()),
            count => written.push(format!("{count} more directives have no effect here.")),
        }
        written
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
        self.add(directive, why.into(), Effect::Changes, None);
    }

    /// Notes why requests get an error, and the route that rejects them, if it is one.
    pub(super) fn block(
        &mut self,
        directive: &Directive,
        why: impl Into<String>,
        route: Option<&str>,
    ) {
        self.add(directive, why.into(), Effect::Blocks, route);
    }

    fn add(&mut self, directive: &Directive, text: String, effect: Effect, route: Option<&str>) {
        self.take(directive);
        let note = self.notes.entry(directive.id).or_insert_with(|| Note {
            file: directive.file,
            line: directive.line,
            name: directive.name.clone(),
            reasons: Vec::new(),
        });
        let at = note.reasons.iter().position(|known| known.text == text);
        let at = at.unwrap_or_else(|| {
            note.reasons.push(Reason { text, effect, routes: Vec::new() });
            note.reasons.len() - 1
        });
        let reason = &mut note.reasons[at];
        let new = route.filter(|route| !reason.routes.iter().any(|known| known == route));
        reason.routes.extend(new.map(str::to_owned));
    }

    /// Notes the same, unless another directive has this reason already.
    pub(super) fn note_once(&mut self, directive: &Directive, why: &str) {
        let is_known = |note: &Note| note.reasons.iter().any(|known| known.text == why);
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
                self.add(directive, why.into(), effect, None);
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

    /// Returns one line for each reason, with the lines of its directives.
    pub(super) fn lines(&self, tree: &Tree) -> Lines {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut known = BTreeMap::new();
        for note in self.notes.values() {
            for reason in &note.reasons {
                let at =
                    *known.entry((&note.name, &reason.text, reason.effect)).or_insert_with(|| {
                        groups.push(Group { note, reason, places: Vec::new(), routes: Vec::new() });
                        groups.len() - 1
                    });
                groups[at].places.push((note.file, note.line));
                groups[at].routes.extend(reason.routes.iter().map(String::as_str));
            }
        }
        let mut lines = Lines::default();
        for group in groups {
            let line = group.line(tree);
            match group.reason.effect {
                Effect::Blocks => lines.blocks.push(line),
                Effect::Changes => lines.changes.push(line),
                Effect::None => {
                    lines.idle += group.places.len();
                    lines.without_effect.push(line);
                }
            }
        }
        lines
    }
}

/// The directives of one name that are not converted for one reason.
#[derive(Debug)]
struct Group<'a> {
    note: &'a Note,
    reason: &'a Reason,
    /// The file and the line of each.
    places: Vec<(usize, usize)>,
    routes: Vec<&'a str>,
}

impl Group<'_> {
    /// Returns the line, as in `nginx.conf:3, 8; site.conf:4: gzip: …`.
    fn line(&self, tree: &Tree) -> String {
        let mut places = String::new();
        let mut last = None;
        let mut seen = BTreeSet::new();
        for place in self.places.iter().filter(|place| seen.insert(**place)) {
            let (file, line) = place;
            if last == Some(file) {
                places.extend([", ", &line.to_string()]);
            } else {
                let name = tree.files.get(*file).map_or("", String::as_str);
                let begin = if places.is_empty() { "" } else { "; " };
                places.extend([begin, name, ":", &line.to_string()]);
            }
            last = Some(file);
        }
        let mut named = BTreeSet::new();
        let routes = self.routes.iter().filter(|route| named.insert(**route));
        let routes: Vec<_> = routes.map(|route| format!("`{route}`")).collect();
        let routes = match &routes[..] {
            [] => String::new(),
            [one] => format!(" (route {one})"),
            all => format!(" (routes {})", all.join(", ")),
        };
        clean(&format!("{places}: {}: {}{routes}", self.note.name, self.reason.text))
    }
}

/// Returns a text in one line without control characters, which a configuration may have.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|sign| if is_unsafe(sign) { ' ' } else { sign }).collect()
}
