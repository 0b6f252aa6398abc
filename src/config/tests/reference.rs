//! The words of the file: the committed reference and schema are what the types say.

use crate::config::{
    reference, schema,
    spec::{FileSpec, RuleSpec},
    vocabulary::{DescribedMap, nearest},
};
use std::{fs, path::Path};

#[test]
fn the_committed_reference_is_current() {
    check_committed("docs/configuration.md", &reference());
}

#[test]
fn the_committed_schema_is_current() {
    check_committed("gateway.schema.json", &schema());
}

#[test]
fn every_key_is_explained_and_every_default_has_an_example() {
    let mut keys = 0;
    for section in FileSpec::SECTION.reachable() {
        assert!(!section.title.is_empty() && section.doc.text().ends_with('.'), "{section:?}");
        for key in section.keys {
            keys += 1;
            let doc = key.doc.text();
            assert!(doc.ends_with('.') && doc.len() > 8, "{}: {}: {doc}", section.title, key.name);
            assert!(!key.example().is_empty(), "{}: {}", section.title, key.name);
        }
    }
    assert!(keys > 100, "{keys}");
}

#[test]
fn a_slip_of_the_finger_is_understood() {
    let rule = RuleSpec::SECTION;
    assert_eq!(rule.meant("brust"), Some("burst"));
    assert_eq!(rule.meant("dry-run"), Some("dry_run"));
    assert_eq!(rule.meant("Limit"), Some("limit"));
    assert_eq!(rule.meant("colour"), None);
    assert_eq!(nearest(&"x".repeat(1000), ["xx"].into_iter()), None);
}

/// Compares a generated file with the committed one, or rewrites it if `UPDATE_REFERENCE` is set.
#[track_caller]
fn check_committed(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "{name} is not what the types say; run UPDATE_REFERENCE=1 cargo test --lib config::tests::reference"
    );
}
