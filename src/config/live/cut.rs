//! Files that look cut short: a copy that broke off, a disk that was full.
//!
//! A file without `end: true` does not say where it ends: if it is only the beginning of the file
//! in force, the operator has to confirm it. Each included file is compared in the same way.

use crate::config::{
    diagnostics::{Diagnostics, File, Problem, Source, SourceSpan},
    plan::{Certificate, Plan, certificates},
    read::{
        Masked, Node,
        yaml::{self, Budget},
    },
    snapshot::Snapshot,
};
use crate::counted::counted;
use std::{borrow::Cow, collections::HashMap, path::Path};

/// Returns what looks cut short in `plan`, beside what is in force, if anything does. It can be
/// meant so.
pub(in crate::config) fn doubt(old: &Snapshot, plan: &Plan) -> Option<Diagnostics> {
    let source = plan.source();
    for (before, file) in pairs(old, source).filter(|(_, file)| file.end.is_none()) {
        let before = &old.text[before.range.clone()];
        if is_cut(before, source.text_of(file)) {
            return Some(beginning(before, source, file));
        }
    }
    let before: HashMap<&Path, &Certificate> =
        certificates(&old.listeners).map(|old| (&*old.path, old)).collect();
    let is_cut = |new: &&Certificate| {
        before.get(&*new.path).is_some_and(|old| {
            let chain = &new.key.cert;
            chain.len() < old.key.cert.len() && old.key.cert.starts_with(chain)
        })
    };
    let cut = certificates(&plan.listeners).find(is_cut)?;
    let missing = before[&*cut.path].key.cert.len() - cut.key.cert.len();
    Some(Diagnostics::new(source, cut.lacks(missing)))
}

/// Returns which file lacks the mark that it ends with in force, if one does.
pub(in crate::config) fn unsealed(old: &Snapshot, plan: &Plan) -> Option<Diagnostics> {
    let source = plan.source();
    let is_unsealed =
        |(before, file): &(&File, &File)| before.end == Some(true) && file.end.is_none();
    let (_, file) = pairs(old, source).find(is_unsealed)?;
    let message =
        "the file looks cut short: the one in force ends with `end: true`, and this one does not";
    let problem = Problem::about_file(message);
    let problem = match file.range.start {
        0 => problem,
        start => problem.at(SourceSpan::of(start..start)),
    };
    let help = "write the rest of the file; to take the mark away, write `end: false`";
    Some(Diagnostics::new(source, problem.help(help)))
}

/// Returns each file that is in force and read again, before and after. The first file is the same
/// whatever its name.
fn pairs<'f>(old: &'f Snapshot, new: &'f Source) -> impl Iterator<Item = (&'f File, &'f File)> {
    let first = old.texts.first().zip(new.files.first());
    let before: HashMap<&Path, &File> = old.texts.iter().map(|file| (&*file.path, file)).collect();
    let included = new.files.iter().skip(1);
    let included = included.filter_map(move |file| Some((*before.get(&*file.path)?, file)));
    first.into_iter().chain(included)
}

/// Reports whether `new` is only the beginning of `old`, and says less.
fn is_cut(old: &str, new: &str) -> bool {
    let old = plain(old);
    let new = plain(new);
    // Comments and blank lines at the end may go.
    new.len() < old.len()
        && old.starts_with(&*new)
        && root(&Masked::of(&old)) != root(&Masked::of(&new))
}

/// Returns what the text of a file says, with its variables as they are written.
fn root<'m>(text: &'m Masked<'m>) -> Option<Node<'m>> {
    yaml::read(text, None, &mut Budget::default()).ok().map(|tree| tree.root)
}

/// Returns a text without what editors change by themselves: line ends, and blanks at the end.
fn plain(text: &str) -> Cow<'_, str> {
    let text = text.trim_end();
    if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}

fn beginning(old: &str, source: &Source, file: &File) -> Diagnostics {
    let new = source.text_of(file);
    let lines = |text: &str| plain(text).lines().count();
    let lost = match lines(old) - lines(new) {
        0 => "the end of its last line".to_owned(),
        1 => "its last line".to_owned(),
        lost => format!("its last {}", counted(lost, "line")),
    };
    let end = file.range.start + new.trim_end().len();
    let message = format!(
        "the file looks cut short: it is the beginning of the file in force, and lacks {lost}"
    );
    let problem = Problem::error(SourceSpan::of(end..end), message)
        .label("the file in force continues here")
        .help(
            "write the rest of the file; if you removed it on purpose, add the line `end: true` \
             at the end, send SIGHUP, or POST /reload to the admin listener",
        );
    Diagnostics::new(source, problem)
}

#[cfg(test)]
mod tests {
    use super::is_cut;

    const OLD: &str = "a: 1\nb:\n  - x\n  - yy\n# the last line\n";

    #[test]
    fn every_beginning_that_loses_something_is_cut() {
        let whole = OLD.find('#').unwrap() - 1;
        for end in 0..OLD.len() {
            assert_eq!(is_cut(OLD, &OLD[..end]), end < whole, "{:?}", &OLD[..end]);
        }
    }

    #[test]
    fn line_ends_and_blanks_at_the_end_make_no_difference() {
        let windows = OLD.replace('\n', "\r\n");
        for whole in [OLD, &windows, OLD.trim_end(), &format!("{OLD}\n\n")] {
            assert!(!is_cut(OLD, whole) && !is_cut(&windows, whole), "{whole:?}");
        }
        assert!(is_cut(&windows, "a: 1\nb:\n  - x\n"));
        assert!(is_cut(OLD, "a: 1\r\nb:\r"));
    }

    #[test]
    fn another_text_is_not_the_beginning() {
        for other in ["a: 2\n", "a: 1\nb:\n  - x\n  - z\n", "b: 1\n"] {
            assert!(!is_cut(OLD, other), "{other:?}");
        }
        assert!(!is_cut(OLD, &format!("{OLD}c: 1\n")));
    }
}
