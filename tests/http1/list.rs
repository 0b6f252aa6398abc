//! Lists of fields: what a proxy changes on a message's way through.

use crate::reader::LIMITS;
use bytes::Bytes;
use flowgate::http1::{FieldKind, FieldList, Fields, HeadWriter, RequestHead};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header::HOST};
use proptest::{collection::vec, prelude::*};

/// Returns the fields of a request with these lines, with names in lower case.
fn list(lines: &str) -> FieldList {
    let mut bytes = format!("GET / HTTP/1.1\r\n{lines}\r\n").into_bytes();
    let mut head = RequestHead::default();
    assert_eq!(head.parse(&bytes, LIMITS), Ok(Some(bytes.len())));
    head.lower_names(&mut bytes);
    let mut list = FieldList::default();
    head.move_fields(Bytes::from(bytes), &mut list);
    list
}

/// Writes the fields as a proxy does.
fn written(list: &FieldList) -> String {
    let mut out = Vec::new();
    let mut writer = HeadWriter::request(&mut out, &Method::GET, b"/");
    writer.copy_all(list.into(), |field| field.kind != FieldKind::ContentLength);
    writer.end();
    let text = String::from_utf8(out).expect("text");
    text.trim_start_matches("GET / HTTP/1.1\r\n").trim_end().replace("\r\n", "|")
}

#[test]
fn a_changed_list_is_written_with_what_is_left_and_what_was_added() {
    let mut list = list("Host: a\r\nX-A:1\r\nX-B: 2\r\nContent-Length: 0\r\nx-a: 3\r\n");
    assert_eq!(written(&list), "host: a|x-a: 1|x-b: 2|x-a: 3");
    let name = |name: &'static str| HeaderName::from_static(name);
    list.insert(name("x-a"), HeaderValue::from_static("4"));
    list.append(name("x-c"), HeaderValue::from_static("5"));
    list.remove(&name("x-b"));
    assert_eq!(written(&list), "host: a|x-a: 4|x-c: 5");
    assert_eq!(list.value(&HOST), Some(HeaderValue::from_static("a")));
    assert_eq!(list.value(&name("x-c")), Some(HeaderValue::from_static("5")));
    assert_eq!((list.get(&name("x-b")), list.contains_key(&name("x-c"))), (None, true));
    list.clear();
    assert!(list.is_empty() && list.capacity() > 0);
}

#[test]
fn blanks_around_values_of_http2_are_removed() {
    let mut list = FieldList::default();
    list.append(HOST, HeaderValue::from_static(" a\t"));
    list.trim();
    assert_eq!(list.get(&HOST), Some(&b"a"[..]));
}

#[derive(Clone, Debug)]
enum Change {
    Insert(usize, u8),
    Append(usize, u8),
    Remove(usize),
}

const NAMES: [&str; 4] = ["x-a", "x-b", "host", "x-abc"];

fn change() -> impl Strategy<Value = Change> {
    let (name, value) = (0..NAMES.len(), b'0'..=b'9');
    prop_oneof![
        (name.clone(), value.clone()).prop_map(|(name, value)| Change::Insert(name, value)),
        (name.clone(), value).prop_map(|(name, value)| Change::Append(name, value)),
        name.prop_map(Change::Remove),
    ]
}

proptest! {
    #[test]
    fn a_list_and_a_map_change_alike(lines in vec(0..NAMES.len(), 0..6), changes in vec(change(), 0..9)) {
        let lines: Vec<String> = lines.iter().map(|name| format!("{}: 1\r\n", NAMES[*name])).collect();
        let mut list = list(&lines.concat());
        let mut map = list.clone().into_map();
        for change in changes {
            let name = |name: usize| HeaderName::from_static(NAMES[name]);
            let value = |value: u8| HeaderValue::from_bytes(&[value]).expect("a value");
            match change {
                Change::Insert(at, digit) => {
                    list.insert(name(at), value(digit));
                    map.insert(name(at), value(digit));
                }
                Change::Append(at, digit) => {
                    list.append(name(at), value(digit));
                    map.append(name(at), value(digit));
                }
                Change::Remove(at) => {
                    list.remove(&name(at));
                    map.remove(name(at));
                }
            }
        }
        prop_assert_eq!(list.len(), map.len());
        for name in NAMES {
            let (ours, theirs) = (Fields::from(&list), Fields::Map(&map));
            prop_assert_eq!(ours.get_all(name).collect::<Vec<_>>(), theirs.get_all(name).collect::<Vec<_>>());
            prop_assert_eq!(ours.get_only(name), theirs.get_only(name));
        }
        prop_assert_eq!(&list.clone().into_map(), &map);
        prop_assert_eq!(FieldList::from(HeaderMap::clone(&map)).into_map(), map);
    }
}
