//! Whatever bytes a file holds: a plan or at least one problem, and never a panic.

use crate::config::{describe, read};
use proptest::prelude::*;
use std::fs;

/// A file with every kind of value in it.
const WHOLE: &str = include_str!("../../../gateway.yaml");

/// A file with the kinds of values that the other one lacks.
fn other() -> String {
    super::with_rules(
        "      - { name: a, limit: 10/1s, key: [client_ip, 'header:x-y'], except: { client_ip: [::1], header: { a: { regex: b } } } }\n      \
         - { name: b, algorithm: sliding_window, limit: { requests: 5, window: 1s }, cost: { GET: 2 } }\n",
    ) + "    pacing: { rate: 5/s }\n    <<: { timeout: 1s }\nx: &x [1]\ny: *x\nend: true\n"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_a_plan_or_problems(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    #[test]
    fn any_text_of_yaml_marks_gives_a_plan_or_problems(text in "([a-c:,&*<>{}\\[\\]'\"|?!%#~0-9 \\n-]|\\$\\{|\\$){0,120}") {
        check(text.as_bytes());
    }

    #[test]
    fn a_mutated_file_gives_a_plan_or_problems(edits in prop::collection::vec(edit(), 1..6), whole: bool) {
        let mut bytes = if whole { WHOLE.to_owned() } else { other() }.into_bytes();
        for edit in edits {
            edit.apply(&mut bytes);
        }
        check(&bytes);
    }

    #[test]
    fn a_file_cut_anywhere_gives_a_plan_or_problems(cut in 0..WHOLE.len()) {
        check(&WHOLE.as_bytes()[..cut]);
    }
}

/// A change such as a slip of the hand makes, or a bad disk.
#[derive(Clone, Debug)]
enum Edit {
    Replace(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, String),
    Repeat(prop::sample::Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (at(), 1..40usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        (at(), "[ \\n:,0-9a-z{}\\[\\]*&'\"/-]{1,8}").prop_map(|(at, text)| Edit::Insert(at, text)),
        (at(), 1..80usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
    ]
}

impl Edit {
    fn apply(self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match self {
            Self::Replace(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Self::Remove(at, count) => {
                let at = at.index(bytes.len());
                bytes.drain(at..(at + count).min(bytes.len()));
            }
            Self::Insert(at, text) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, text.into_bytes());
            }
            Self::Repeat(at, count) => {
                let at = at.index(bytes.len());
                let again = bytes[at..(at + count).min(bytes.len())].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

fn check(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    fs::write(&path, bytes).unwrap();
    match read(&path) {
        Ok(plan) => assert!(!describe(&plan).is_empty()),
        Err(problems) => {
            assert!(problems.count() > 0);
            assert!(!problems.to_string().is_empty() && !problems.draw(true).is_empty());
            assert!(!problems.summary().is_empty());
            assert_eq!(problems.list().count().min(1), 1);
        }
    }
}
