//! Checks that the lints and the limits of sizes are in force: an unrelated edit of `Cargo.toml`
//! can remove them, and nothing else would fail.

use std::{collections::BTreeSet, fs, path::Path};

/// The rules of a table of a TOML file.
struct Table {
    file: &'static str,
    /// Empty for the keys before the first table.
    name: &'static str,
    lines: &'static [&'static str],
}

const TABLES: &[Table] = &[
    Table {
        file: "Cargo.toml",
        name: "[lints.rust]",
        lines: &[
            r#"unsafe_code = "forbid""#,
            r#"missing_docs = "warn""#,
            r#"missing_debug_implementations = "warn""#,
            r#"unreachable_pub = "warn""#,
            r#"elided_lifetimes_in_paths = "warn""#,
            r#"unused_qualifications = "warn""#,
            r#"let_underscore_drop = "warn""#,
        ],
    },
    Table {
        file: "Cargo.toml",
        name: "[lints.clippy]",
        lines: &[
            r#"pedantic = { level = "warn", priority = -1 }"#,
            r#"unwrap_used = "warn""#,
            r#"panic = "warn""#,
            r#"todo = "warn""#,
            r#"dbg_macro = "warn""#,
            r#"print_stdout = "warn""#,
            r#"wildcard_enum_match_arm = "warn""#,
            r#"allow_attributes = "warn""#,
            r#"allow_attributes_without_reason = "warn""#,
            r#"use_self = "warn""#,
            r#"or_fun_call = "warn""#,
            r#"module_name_repetitions = "allow""#,
            r#"must_use_candidate = "allow""#,
        ],
    },
    Table {
        file: ".clippy.toml",
        name: "",
        lines: &["too-many-lines-threshold = 60", "too-many-arguments-threshold = 7"],
    },
];

#[test]
fn every_lint_and_every_limit_of_sizes_is_in_force() {
    for table in TABLES {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(table.file));
        let lines = lines_of(&text.expect("it can be read"), table.name);
        for line in table.lines {
            assert!(
                lines.contains(*line),
                "{} has no `{line}` in `{}`: put it back, or change it in a commit of its own, here too",
                table.file,
                table.name
            );
        }
    }
}

#[test]
fn no_lint_of_the_package_is_only_allowed() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let lines = lines_of(&text.expect("it can be read"), "[lints.clippy]");
    let allowed = lines.iter().filter(|line| line.contains("\"allow\"")).count();
    assert_eq!(allowed, 2, "`module_name_repetitions` and `must_use_candidate` alone: {lines:?}");
}

#[test]
fn the_rules_of_another_table_do_not_count() {
    let text = "a = 1\n[lints.rust]\nb = 2 # why\n\n[lints.clippy]\nc = 3\n";
    let expected = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(lines_of(text, ""), expected(&["a = 1"]));
    assert_eq!(lines_of(text, "[lints.rust]"), expected(&["b = 2"]));
    assert_eq!(lines_of(text, "[lints.clippy]"), expected(&["c = 3"]));
    assert_eq!(lines_of(text, "[other]"), expected(&[]));
}

/// Returns the lines of the table `name`, without comments.
fn lines_of(text: &str, name: &str) -> BTreeSet<String> {
    let mut table = "";
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.starts_with('[') {
            table = line;
        } else if table == name && !line.is_empty() && !line.starts_with('#') {
            found.insert(line.to_owned());
        }
    }
    found
}
