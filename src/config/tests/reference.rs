//! The words of the file: the committed reference and schema are what the types say.

use crate::config::{
    scenario::ScenarioSpec,
    spec::FileSpec,
    vocabulary::{Default, Vocabulary, nearest, publish, reference, with_variables},
};
use std::{fs, path::Path};

#[test]
fn the_committed_reference_is_current() {
    check_committed("docs/configuration.md", &reference(&vocabulary()));
}

#[test]
fn the_committed_schema_is_current() {
    check_committed("gateway.schema.json", &schema());
    let scenario = publish::<ScenarioSpec>("a scenario of flowgate");
    check_committed("src/config/scenario/scenario.schema.json", &scenario);
}

#[test]
fn every_key_is_explained_and_every_default_has_an_example() {
    let vocabulary = vocabulary();
    let mut keys = 0;
    for section in vocabulary.sections() {
        assert!(!section.title.is_empty() && section.doc.ends_with('.'), "{section:?}");
        for key in &section.keys {
            keys += 1;
            let doc = key.schema["description"].as_str().unwrap_or_default();
            assert!(doc.ends_with('.') && doc.len() > 8, "{}: {}: {doc}", section.title, key.name);
            let example = vocabulary.example(&key.schema);
            assert!(!example.is_empty(), "{}: {}", section.title, key.name);
            assert!(!key.is_required || matches!(key.default, Default::None), "{}", key.name);
        }
    }
    assert!(keys > 100, "{keys}");
}

#[test]
fn a_slip_of_the_finger_is_understood() {
    let vocabulary = vocabulary();
    let rule = vocabulary.section("RuleSpec").unwrap();
    assert_eq!(rule.meant("brust"), Some("burst"));
    assert_eq!(rule.meant("dry-run"), Some("dry_run"));
    assert_eq!(rule.meant("Limit"), Some("limit"));
    assert_eq!(rule.meant("colour"), None);
    assert_eq!(nearest(&"x".repeat(1000), ["xx"].into_iter()), None);
}

fn schema() -> String {
    with_variables(&publish::<FileSpec>("gateway.yaml of flowgate"))
}

/// The keys as the types say now; what the program knows of them was committed.
fn vocabulary() -> Vocabulary {
    Vocabulary::read(&schema())
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
