//! Members of bodies, beside what serde reads.

use super::config;
use core::fmt;
use flowgate::route::{BodyMembers, MemberPath, MemberPaths, NoKey, OnDuplicate, Scanner};
use proptest::{collection::vec, prelude::*};
use serde::{
    Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::sync::Arc;

fn path(text: &str) -> MemberPath {
    MemberPath::parse(text).expect("a path")
}

fn tree(paths: &[&str]) -> Arc<MemberPaths> {
    let paths: Vec<MemberPath> = paths.iter().map(|text| path(text)).collect();
    Arc::new(MemberPaths::new(&paths).expect("few").expect("some"))
}

/// The members of an object, in their order, by serde.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

fn entries(object: &str) -> Option<Vec<(String, Box<RawValue>)>> {
    serde_json::Deserializer::from_str(object).deserialize_map(Entries).ok()
}

/// Finds a path by serde: the value, and whether a name was repeated. Upper and lower case of
/// ASCII are one name.
fn naive(object: &str, names: &[&str], takes_last: bool) -> (Option<String>, bool) {
    let [name, rest @ ..] = names else {
        let is_text = object.starts_with('"');
        let is_scalar = is_text || !(object.starts_with(['{', '[']) || object == "null");
        let text = || if is_text { serde_json::from_str(object).ok() } else { Some(object.into()) };
        return (is_scalar.then(text).flatten(), false);
    };
    let Some(entries) = entries(object) else { return (None, false) };
    let mut values = entries
        .iter()
        .filter(|(of, _)| of.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.get());
    let count = values.clone().count();
    let value = if takes_last { values.next_back() } else { values.next() };
    let (found, is_repeated) = value.map_or((None, false), |value| naive(value, rest, takes_last));
    (found, is_repeated || count > 1)
}

/// Writes a string with some characters escaped.
fn written(text: &str, escapes: u32) -> String {
    let each = text.chars().enumerate().map(|(at, c)| {
        let is_escaped = escapes >> (at % 32) & 1 == 1 || c < ' ' || matches!(c, '"' | '\\');
        if is_escaped {
            let mut units = [0; 2];
            let units = c.encode_utf16(&mut units).iter();
            units.fold(String::new(), |text, unit| text + &format!("\\u{unit:04x}"))
        } else {
            c.to_string()
        }
    });
    format!("\"{}\"", each.collect::<String>())
}

fn any_name() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        4 => prop::sample::select(vec!["a", "A", "b", "B", "ä", "Ä", "😀"]).prop_map(str::to_owned),
        1 => "\\PC{0,6}"
    ];
    (name, any::<u32>()).prop_map(|(name, escapes)| written(&name, escapes))
}

fn any_value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        prop::sample::select(vec!["true", "false", "null", "0", "-1.5", "1e9", "1E-02", "17"])
            .prop_map(str::to_owned),
        ("\\PC{0,8}", any::<u32>()).prop_map(|(text, escapes)| written(&text, escapes)),
    ];
    scalar.prop_recursive(5, 60, 6, |inner| {
        let blank = prop::sample::select(vec!["", " ", "\r\n\t"]);
        let member = (any_name(), inner.clone(), blank.clone())
            .prop_map(|(name, value, blank)| format!("{blank}{name}{blank}:{blank}{value}"));
        prop_oneof![
            3 => vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
            1 => vec(inner, 0..4).prop_map(|elements| format!("[{}]", elements.join(" ,"))),
        ]
    })
}

/// Reads a body that is split at these places.
fn scan(
    paths: &Arc<MemberPaths>,
    body: &[u8],
    splits: &[prop::sample::Index],
) -> Option<BodyMembers> {
    let mut ends: Vec<usize> = splits.iter().map(|at| at.index(body.len() + 1)).collect();
    ends.extend([0, body.len()]);
    ends.sort_unstable();
    let mut scanner = Scanner::new(Arc::clone(paths));
    for piece in ends.windows(2) {
        scanner.push(&body[piece[0]..piece[1]]);
    }
    scanner.finish()
}

const PATHS: [&str; 6] = ["a", "b", "a.b", "a.a.a", "b.ä", "ä.😀"];

fn check(body: &[u8], splits: &[prop::sample::Index]) -> Result<(), TestCaseError> {
    let found = scan(&tree(&PATHS), body, splits);
    let object = str::from_utf8(body).ok().filter(|text| {
        text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
    });
    prop_assert_eq!(found.is_some(), object.is_some());
    let (Some(found), Some(object)) = (found, object) else { return Ok(()) };

    for of in PATHS {
        let names: Vec<&str> = of.split('.').collect();
        let (first, is_repeated) = naive(object, &names, false);
        let (last, also_repeated) = naive(object, &names, true);
        let is_text = |text: &String| !text.is_empty();
        let member = path(of);
        let text = |on_duplicate| found.text(&member, on_duplicate).map(str::to_owned);
        prop_assert_eq!(text(OnDuplicate::First).ok(), first.clone().filter(is_text));
        prop_assert_eq!(text(OnDuplicate::Last).ok(), last.filter(is_text));
        let only = text(OnDuplicate::Reject);
        if is_repeated || also_repeated {
            prop_assert_eq!(only, Err(NoKey::Duplicate));
        } else {
            prop_assert_eq!(only.ok(), first.filter(is_text));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn bodies_are_read_as_serde_reads_them_wherever_they_are_split(
        body in any_value(),
        splits in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        check(body.as_bytes(), &splits)?;
    }

    #[test]
    fn bodies_with_a_fault_are_rejected_as_by_serde(
        body in any_value(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![
            prop::sample::select(b"{}[]\":,\\ue0-.tfn \x00\xC3\xA4\xFF".to_vec()),
            any::<u8>(),
        ],
        how in 0..3,
        splits in vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut body = body.into_bytes();
        match how {
            0 => {
                let at = at.index(body.len());
                body[at] = byte;
            }
            1 => body.insert(at.index(body.len() + 1), byte),
            _ => body.truncate(at.index(body.len() + 1)),
        }
        // serde decodes names, and rejects half of a surrogate pair.
        let is_half = str::from_utf8(&body).is_ok_and(|text| text.to_lowercase().contains("\\ud"));
        prop_assume!(!is_half);
        check(&body, &splits)?;
    }
}
