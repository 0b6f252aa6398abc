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
    writer.copy_all(list.into(), |kind| kind != FieldKind::ContentLength);
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
fn names_of_any_length_are_in_lower_case_and_values_stay() {
    for length in 1..40 {
        let name = "Ab-Z".repeat(10)[..length].to_owned();
        for value in ["", "A", "Value-OF-More-Than-Sixteen"] {
            // The last field of a head has few bytes behind it.
            let list = list(&format!("{name}:{value}\r\n{name}: {value}\r\n"));
            let fields = list.iter().map(|field| (field.name.to_vec(), field.value.to_vec()));
            let expected = (name.to_ascii_lowercase().into_bytes(), value.as_bytes().to_vec());
            assert_eq!(fields.collect::<Vec<_>>(), [expected.clone(), expected]);
        }
    }
}

#[test]
fn what_was_added_to_one_list_is_added_to_another() {
    let name = |name: &'static str| HeaderName::from_static(name);
    let mut others = FieldList::default();
    others.append(name("x-b"), HeaderValue::from_static("2"));
    others.append(name("x-c"), HeaderValue::from_static("3"));
    let mut list = list("x-a: 1\r\nContent-Type: text/css\r\n");
    list.append(name("x-d"), HeaderValue::from_static("4"));
    list.append_all(&others);
    assert_eq!(written(&list), "x-a: 1|content-type: text/css|x-d: 4|x-b: 2|x-c: 3");
    assert_eq!(list.get(&name("x-c")), Some(&b"3"[..]));
    assert_eq!(list.first(FieldKind::ContentType), Some(&b"text/css"[..]));
    assert_eq!(list.first(FieldKind::Host), None);
    list.remove(&name("x-b"));
    list.insert(HOST, HeaderValue::from_static("a"));
    assert_eq!(list.first(FieldKind::Host), Some(&b"a"[..]));
    assert_eq!(written(&list), "x-a: 1|content-type: text/css|x-d: 4|x-c: 3|host: a");
}

#[test]
fn what_http2_may_not_compress_stays_so() {
    let mut value = HeaderValue::from_static("secret");
    value.set_sensitive(true);
    let map: HeaderMap = [(HOST, value)].into_iter().collect();
    let map = FieldList::from(map).into_map();
    assert!(map.get(HOST).is_some_and(HeaderValue::is_sensitive));
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
    let name = 0..NAMES.len();
    let value = b'0'..=b'9';
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
            let ours = Fields::from(&list);
            let theirs = Fields::Map(&map);
            prop_assert_eq!(ours.get_all(name).collect::<Vec<_>>(), theirs.get_all(name).collect::<Vec<_>>());
            prop_assert_eq!(ours.get_only(name), theirs.get_only(name));
        }
        prop_assert_eq!(&list.clone().into_map(), &map);
        prop_assert_eq!(FieldList::from(HeaderMap::clone(&map)).into_map(), map);
    }
}
