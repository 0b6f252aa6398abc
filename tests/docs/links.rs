//! Links of the pages to files and headings of this repository.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Returns the links of a page that lead nowhere, each with its line.
pub(crate) fn broken(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("a page");
    let found = prose(&text).flat_map(|(line, prose)| {
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let targets: Vec<_> = targets.filter(|target| !leads(page, target)).collect();
        targets.into_iter().map(move |target| format!("{}:{line}: {target}", page.display()))
    });
    found.collect()
}

/// Returns the lines outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    lines.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns whether the target of a link on `page` exists. One to another host is taken to.
fn leads(page: &Path, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let target = target.split(' ').next().unwrap_or_default();
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file: PathBuf = match file {
        "" => page.to_owned(),
        file => page.parent().expect("a folder").join(file),
    };
    match heading {
        "" => file.exists(),
        heading => fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(heading)),
    }
}

/// Returns the names of a page's headings, as GitHub forms them: lower case, spaces as hyphens, and
/// without punctuation; those that an `id` gives as well.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| anchor(title.trim()))
    });
    let ids = text.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    headings.chain(ids.map(str::to_owned)).collect()
}

fn anchor(title: &str) -> String {
    let lower = title.to_lowercase();
    let kept = lower.chars().filter(|each| each.is_alphanumeric() || "-_ ".contains(*each));
    kept.map(|each| if each == ' ' { '-' } else { each }).collect()
}

#[test]
fn headings_are_named_as_github_names_them() {
    assert_eq!(anchor("When the table is full"), "when-the-table-is-full");
    assert_eq!(anchor("`flowgate top`, in short"), "flowgate-top-in-short");
    let page = "# A\n```\n# no heading\n```\n## `b_c` & d\n";
    let expected = ["a", "b_c--d"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
}
