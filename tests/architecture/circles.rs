//! Finds folders that import each other in a circle.
//!
//! Each folder is a level of its own: what it contains are its files, and its inner folders as
//! wholes. Files of one folder may import each other in a circle, because a reader has them side by
//! side. A circle with an inner folder in it is a violation.
//!
//! A file imports another if it names an item of it, by whatever way the item is re-exported. What
//! a file only re-exports (`pub use`) it does not import: that is how a folder shows its contents.

use super::source::{Token, absolute, paths};
use std::collections::{BTreeMap, BTreeSet};

/// A file's module, as `["flow", "gate"]`, and its tokens without tests.
pub(crate) type File<'a> = (Vec<&'a str>, Vec<Token<'a>>);

type Module<'a> = Vec<&'a str>;
type Imports<'a> = BTreeMap<Module<'a>, BTreeSet<Module<'a>>>;

/// Returns the circles with a folder in them, each as the modules in it, sorted.
pub(crate) fn circles(files: &[File<'_>]) -> Vec<Vec<String>> {
    let files_import = imports(files);
    let folders: BTreeSet<Module<'_>> = files
        .iter()
        .flat_map(|(module, _)| (0..module.len()).map(|length| module[..length].to_vec()))
        .collect();

    let mut found = BTreeSet::new();
    for folder in &folders {
        let imports = imports_within(folder, &files_import);
        found.extend(circles_with_a_folder(&imports, &folders));
    }
    found.into_iter().collect()
}

/// Returns the imports between the contents of a folder: its files, and its inner folders as wholes.
fn imports_within<'a>(folder: &Module<'a>, files: &Imports<'a>) -> Imports<'a> {
    let content = |module: &Module<'a>| -> Option<Module<'a>> {
        let inside = module.len() > folder.len() && module.starts_with(folder);
        inside.then(|| module[..=folder.len()].to_vec())
    };
    let mut imports = Imports::new();
    for (module, named) in files {
        let Some(from) = content(module) else { continue };
        let others: BTreeSet<_> =
            named.iter().filter_map(content).filter(|to| *to != from).collect();
        imports.entry(from).or_default().extend(others);
    }
    imports
}

/// Returns the circles in `imports` that have one of the folders in them.
fn circles_with_a_folder(
    imports: &Imports<'_>,
    folders: &BTreeSet<Module<'_>>,
) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<_, _> =
        imports.keys().map(|module| (module, reached_from(module, imports))).collect();

    let mut found = BTreeSet::new();
    for (module, all) in &reached {
        let has_way_back = |other: &&Module<'_>| {
            reached.get(other).is_some_and(|further| further.contains(*module))
        };
        let circle: BTreeSet<&Module<'_>> = all.iter().filter(has_way_back).collect();
        if circle.len() > 1 && circle.iter().any(|member| folders.contains(*member)) {
            found.insert(circle.iter().map(|member| member.join("::")).collect());
        }
    }
    found
}

fn imports<'a>(files: &[File<'a>]) -> Imports<'a> {
    let modules: BTreeSet<&Module<'a>> = files.iter().map(|(module, _)| module).collect();
    let named: Vec<_> =
        files.iter().map(|(module, tokens)| named(module, tokens, &modules)).collect();
    let exports: BTreeMap<(&Module<'a>, &str), &Vec<&'a str>> = files
        .iter()
        .zip(&named)
        .flat_map(|((module, _), named)| {
            named.exported.iter().map(move |(name, path)| ((module, *name), path))
        })
        .collect();
    let mut imports = Imports::new();
    for ((module, _), named) in files.iter().zip(&named) {
        let targets = named.used.iter().map(|path| target(path, &modules, &exports, 0));
        let others = targets.filter(|target| target != module).collect();
        imports.insert(module.clone(), others);
    }
    imports
}

/// What a file names of its own crate, from the crate's root.
struct Named<'a> {
    used: Vec<Vec<&'a str>>,
    /// By the name that it is shown under.
    exported: Vec<(&'a str, Vec<&'a str>)>,
}

fn named<'a>(
    module: &[&'a str],
    tokens: &[Token<'a>],
    modules: &BTreeSet<&Module<'a>>,
) -> Named<'a> {
    let local = |path: Vec<&'a str>| -> Option<Vec<&'a str>> {
        let child = || [module, &path[..1]].concat();
        let path = match path.first()? {
            &"crate" | &"self" | &"super" => absolute(module, path)[1..].to_vec(),
            _ if modules.contains(&child()) => [module, &path].concat(),
            _ => return None,
        };
        Some(path)
    };
    let (shown, rest) = split_exports(tokens);
    let exported = paths(&shown).into_iter().filter_map(|(_, path)| local(path));
    let exported = exported.filter_map(|path| Some((*path.last()?, path))).collect();
    let used = paths(&rest).into_iter().filter_map(|(_, path)| local(path)).collect();
    Named { used, exported }
}

/// Separates each `pub use …;` from the rest.
fn split_exports<'a>(tokens: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<Token<'a>>) {
    let mut shown = Vec::new();
    let mut rest = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let ahead = tokens[at..].iter().take_while(|(_, word)| *word != ";").count();
        let line = &tokens[at..tokens.len().min(at + ahead + 1)];
        let is_export = line.first().is_some_and(|(_, word)| *word == "pub")
            && after_visibility(line).is_some_and(|word| word == "use");
        if is_export {
            shown.extend_from_slice(line);
            at += line.len();
        } else {
            rest.push(tokens[at]);
            at += 1;
        }
    }
    (shown, rest)
}

/// Returns the word behind `pub` or `pub(…)`.
fn after_visibility<'a>(line: &[Token<'a>]) -> Option<&'a str> {
    let words = || line.iter().map(|(_, word)| *word).skip(1);
    if words().next()? == "(" {
        words().skip_while(|word| *word != ")").nth(1)
    } else {
        words().next()
    }
}

/// Returns the module of the file that has the item of this path.
fn target<'a>(
    path: &[&'a str],
    modules: &BTreeSet<&Module<'a>>,
    exports: &BTreeMap<(&Module<'a>, &str), &Vec<&'a str>>,
    depth: usize,
) -> Module<'a> {
    /// More re-exports in a row than there are.
    const DEEPEST: usize = 10;
    let mut module = Module::new();
    for (at, name) in path.iter().enumerate() {
        let child = [&module[..], &[*name]].concat();
        if modules.contains(&child) {
            module = child;
            continue;
        }
        return match exports.get(&(&module, *name)) {
            Some(shown) if depth < DEEPEST => {
                let whole = [&shown[..], &path[at + 1..]].concat();
                target(&whole, modules, exports, depth + 1)
            }
            Some(_) | None => module,
        };
    }
    module
}

fn reached_from<'a>(from: &Module<'a>, imports: &Imports<'a>) -> BTreeSet<Module<'a>> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for other in imports.get(module).into_iter().flatten() {
            if reached.insert(other.clone()) {
                next.push(other);
            }
        }
    }
    reached
}
