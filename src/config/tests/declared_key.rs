//! A key is known everywhere from its declaration alone: the keys of this map are in no file that is
//! committed.

use crate::config::{
    decode::{self, Decoded},
    diagnostics::{Diagnostics, Source},
    read::{
        Masked,
        yaml::{self, Budget},
    },
    report::changes::changed_keys,
    spec::{
        keys::keys,
        leaf::{Integer, Name},
    },
    vocabulary::{DescribedMap, publish, reference},
};
use std::path::Path;

keys! {
    /// A lantern of the test.
    #[meant = &[["torches", "candles"]]]
    struct LanternSpec: "a lantern" {
        /// Its name.
        name: Name;
        /// How many candles
        /// it has.
        candles: Integer<1, 9> = 4;
        /// Whether it is lit.
        lit: bool, else "unlit";
    }
}

fn decoded(text: &str) -> (Option<LanternSpec>, Vec<String>) {
    let source = Source::new(Path::new("lantern.yaml"), text);
    let masked = Masked::of(&source.text);
    let tree = yaml::read(&masked, None, &mut Budget::default()).unwrap();
    let Decoded { value, problems, .. } = decode::read::<LanternSpec>(&tree.root, &source);
    let problems = Diagnostics::new(&source, problems);
    let words = problems.list().map(|problem| format!("{} | {}", problem.message, problem.help));
    (value, words.collect())
}

#[test]
fn a_declared_key_is_decoded_with_its_default_and_its_bounds() {
    let (lantern, problems) = decoded("name: one\n");
    assert_eq!(problems, [""; 0]);
    let lantern = lantern.unwrap();
    assert_eq!(lantern.candles.number().map(|at| (at.value, at.written)), Some((4, false)));
    assert!(lantern.lit.is_none());

    let (lantern, problems) = decoded("name: one\ncandles: 9\nlit: true\n");
    assert_eq!(problems, [""; 0]);
    let lantern = lantern.unwrap();
    assert_eq!(lantern.candles.number().map(|at| at.value), Some(9));
    assert!(lantern.lit.is_true());

    let (_, problems) = decoded("candles: 10\n");
    assert_eq!(
        problems,
        [
            "a lantern needs `name` | write `name: checkout`",
            "`candles` cannot be 10 | write a number from 1 to 9",
        ]
    );
}

#[test]
fn a_declared_key_is_meant_by_a_misspelled_one() {
    let (_, problems) = decoded("name: one\ncandels: 3\n");
    let expected = "a lantern has no key `candels`; did you mean `candles`? | write `candles`";
    assert_eq!(problems, [expected]);
    let (lantern, problems) = decoded("name: one\ntorches: 3\n");
    assert!(problems[0].ends_with("did you mean `candles`? | write `candles`"), "{problems:?}");
    assert_eq!(lantern.and_then(|lantern| lantern.candles.number()).map(|at| at.value), Some(3));
}

#[test]
fn a_declared_key_is_in_the_difference_of_two_files() {
    let keys = |text: &str| decoded(text).0.unwrap().shown_keys("");
    let plain = keys("name: one\n");
    let shown: Vec<_> = plain.iter().map(|key| (key.path(), key.value.as_deref())).collect();
    let expected = [("name", Some("one")), ("candles", Some("4")), ("lit", None)];
    assert_eq!(shown, expected.map(|(name, value)| (name.to_owned(), value)));

    assert_eq!(changed_keys(&plain, &keys("name: one\ncandles: 4\n")), [""; 0]);
    let lit = keys("name: one\ncandles: 5\nlit: true\n");
    assert_eq!(changed_keys(&plain, &lit), ["candles 4 → 5", "lit none → true"]);
}

#[test]
fn a_declared_key_is_in_the_reference_and_in_the_schema() {
    let reference = reference(LanternSpec::SECTION);
    let row = "| `candles` | 1 to 9 | `4` | How many candles it has. |";
    assert!(reference.contains(row), "{reference}");
    assert!(reference.contains("| `lit` | `true` or `false` | unlit | Whether it is lit. |"));

    let schema = publish::<LanternSpec>("lanterns");
    let lantern = &schema["$defs"]["LanternSpec"];
    assert_eq!(lantern["required"], serde_json::json!(["name"]));
    let candles = &lantern["properties"]["candles"];
    assert_eq!((&candles["minimum"], &candles["maximum"]), (&1.into(), &9.into()));
    assert_eq!(
        (&candles["default"], &candles["description"]),
        (&4.into(), &"How many candles it has.".into())
    );
}
