//! Every promise of SECURITY.md has a test.

use std::{collections::BTreeSet, fs, path::Path};

/// Adds the names of the tests in the files below `folder`.
fn tests_in(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            tests_in(&path, names);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            // The attribute `#[test]` or `#[tokio::test]` is on a line before.
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
                let name = line.trim_start_matches("async ").strip_prefix("fn ");
                if let Some(name) = name.and_then(|rest| rest.split(['(', '<']).next())
                    && std::mem::take(&mut is_test)
                {
                    names.insert(name.to_owned());
                }
            }
        }
    }
}

#[test]
fn every_promise_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeSet::new();
    for folder in ["src", "tests"] {
        tests_in(&root.join(folder), &mut tests);
    }
    let page = fs::read_to_string(root.join("SECURITY.md")).expect("the page");
    let promises = page.split_once("## Promises").expect("promises").1;
    let promises = promises.split_once("\n## ").expect("a next section").0;
    let rows: Vec<&str> = promises.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 10, "{}", rows.len());
    for row in rows {
        let cell = row.trim_end_matches([' ', '|']).rsplit('|').next().expect("a cell");
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {row}");
        for name in named {
            assert!(tests.contains(name), "no test is called {name}: {row}");
        }
    }
}
