use super::*;

fn path(text: &str) -> MemberPath {
    MemberPath::parse(text).unwrap()
}

fn tree(paths: &[&str]) -> Arc<MemberPaths> {
    let paths: Vec<MemberPath> = paths.iter().map(|text| path(text)).collect();
    Arc::new(MemberPaths::new(&paths).unwrap().unwrap())
}

/// Returns the text at `of` in a body, by the way in which duplicates are handled.
fn text(body: &str, of: &str, on_duplicate: OnDuplicate) -> Result<String, NoKey> {
    let members = BodyMembers::of(&tree(&[of]), body.as_bytes()).ok_or(NoKey::Missing)?;
    members.text(&path(of), on_duplicate).map(str::to_owned)
}

fn only(body: &str, of: &str) -> Result<String, NoKey> {
    text(body, of, OnDuplicate::Reject)
}

#[test]
fn names_and_values_are_decoded() {
    for (body, of, expected) in [
        (r#"{"model":"gpt"}"#, "model", "gpt"),
        (r#" { "a" : [1, {"model": 2}] , "model" : "gpt" } "#, "model", "gpt"),
        (r#"{"mod\u0065l":"g\u0070t\/\n"}"#, "model", "gpt/\n"),
        (r#"{"model":"\ud83d\ude00 ü"}"#, "model", "😀 ü"),
        (r#"{"model":"\ud83d\ud83d\ude00"}"#, "model", "\u{FFFD}😀"),
        (r#"{"model":"\ud83dx\ude00"}"#, "model", "\u{FFFD}x\u{FFFD}"),
        (r#"{"model":"\ud83d\u0041"}"#, "model", "\u{FFFD}A"),
        (r#"{"o":{"n":1.50e+2}}"#, "o.n", "1.50e+2"),
        (r#"{"o":{"n":true}}"#, "o.n", "true"),
        (r#"{"o":{"n":"x","m":{"n":"y"}}}"#, "o.m.n", "y"),
        ("\u{FEFF}{\"model\":false}", "model", "false"),
        (r#"{"ö":-0}"#, "ö", "-0"),
    ] {
        assert_eq!(only(body, of).as_deref(), Ok(expected), "{body}");
    }
}

#[test]
fn what_is_no_value_or_no_object_has_no_key() {
    for (body, of) in [
        ("", "a"),
        ("{}", "a"),
        (r#"{"a":null}"#, "a"),
        (r#"{"a":""}"#, "a"),
        (r#"{"a":{}}"#, "a"),
        (r#"{"a":["x"]}"#, "a"),
        (r#"{"a":[{"b":1}]}"#, "a.b"),
        (r#"[{"a":1}]"#, "a"),
        (r#"{"b":{"a":1}}"#, "a"),
        (r#"{"a":1"#, "a"),
        (r#"{"a":1}}"#, "a"),
        (r#"{"a":1}{}"#, "a"),
        (r#"{"a":1,}"#, "a"),
        (r#"{"a":01}"#, "a"),
        (r#"{"a":1.}"#, "a"),
        (r#"{"a":NaN}"#, "a"),
        (r#"{"a":tru}"#, "a"),
        (r#"{"a":truee}"#, "a"),
        (r#"{"a":"x}"#, "a"),
        (r#"{'a':"x"}"#, "a"),
        ("{\"a\":\"x\n\"}", "a"),
        (r#"{"a":"\x"}"#, "a"),
        (r#"{"a":"\u12g4"}"#, "a"),
        (r#"{"a":1] "#, "a"),
        ("a=1", "a"),
    ] {
        assert_eq!(only(body, of), Err(NoKey::Missing), "{body}");
    }
    assert_eq!(BodyMembers::of(&tree(&["a"]), b"{\"a\":\"\xFF\"}"), None, "no UTF-8");
    assert_eq!(BodyMembers::of(&tree(&["a"]), b"{\"a\":\"\xC3\"}"), None);
}

#[test]
fn a_name_that_is_repeated_anywhere_on_the_path_is_a_duplicate() {
    use OnDuplicate::{First, Last, Reject};
    for (body, of, first, last) in [
        (r#"{"a":"x","a":"y"}"#, "a", Some("x"), Some("y")),
        (r#"{"a":"x","\u0061":"x"}"#, "a", Some("x"), Some("x")),
        (r#"{"model":"junk","MODEL":"large"}"#, "model", Some("junk"), Some("large")),
        (r#"{"a":"x","a":null}"#, "a", Some("x"), None),
        (r#"{"a":{},"a":"y"}"#, "a", None, Some("y")),
        (r#"{"a":{"b":1},"a":{"b":2}}"#, "a.b", Some("1"), Some("2")),
        (r#"{"a":{"b":1},"a":{}}"#, "a.b", Some("1"), None),
        (r#"{"a":{},"a":{"b":1,"b":2}}"#, "a.b", None, Some("2")),
        (r#"{"a":{"b":1,"b":2},"a":{"b":3}}"#, "a.b", Some("1"), Some("3")),
    ] {
        assert_eq!(text(body, of, Reject), Err(NoKey::Duplicate), "{body}");
        assert_eq!(text(body, of, First).ok().as_deref(), first, "{body}");
        assert_eq!(text(body, of, Last).ok().as_deref(), last, "{body}");
    }
    assert_eq!(only(r#"{"Model":"large"}"#, "model").as_deref(), Ok("large"));
    assert_eq!(only(r#"{"maſx":"y"}"#, "masx").as_deref(), Err(&NoKey::Missing), "not ASCII");
    // Others may be repeated.
    assert_eq!(only(r#"{"b":1,"b":2,"a":"x","c":{"a":1,"a":2}}"#, "a").as_deref(), Ok("x"));
}

#[test]
fn numbers_are_read_for_reserves() {
    let of = |body: &str| {
        let members = BodyMembers::of(&tree(&["n"]), body.as_bytes()).unwrap();
        members.numbers(&path("n")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(r#"{"n":16}"#), ["16"]);
    assert_eq!(of(r#"{"n":1,"n":16}"#), ["1", "16"]);
    assert_eq!(of(r#"{"n":"16"}"#), [""; 0]);
    assert_eq!(of(r#"{"n":"x","n":16}"#), ["16"]);
    assert_eq!(of(r#"{"m":16}"#), [""; 0]);
}

#[test]
fn a_body_that_is_no_object_is_given_up_at_its_first_byte() {
    for begin in ["[", "x", "\0", "--boundary", "\"", "1", "{]", "{\"a\" \"", "{} x"] {
        let mut scanner = Scanner::new(tree(&["a"]));
        assert!(!scanner.push(begin.as_bytes()), "{begin}");
        assert!(!scanner.push(b"{"), "{begin}");
        assert_eq!(scanner.finish(), None);
    }
}

#[test]
fn containers_are_nested_128_deep() {
    let nested = |depth: usize| {
        format!("{{\"a\":1,\"b\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert_eq!(only(&nested(128), "a").as_deref(), Ok("1"));
    assert_eq!(only(&nested(129), "a"), Err(NoKey::Missing));
    let objects = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
    assert_eq!(only(&objects, "a.a.a"), Err(NoKey::Missing));
    let objects = format!("{}1{}", "{\"a\":".repeat(8), "}".repeat(8));
    assert_eq!(only(&objects, "a.a.a.a.a.a.a.a").as_deref(), Ok("1"));
    assert_eq!(only(&objects, "a.a.a.a.a.a.a"), Err(NoKey::Missing));
}

#[test]
fn paths_have_bounds() {
    for text in ["", ".", "a.", "a..b", "$.a", "a[0]", "a b", "a,b", &"a".repeat(129)] {
        assert!(MemberPath::parse(text).is_err(), "{text}");
    }
    assert!(MemberPath::parse("a.b.c.d.e.f.g.h").is_ok());
    assert!(MemberPath::parse("a.b.c.d.e.f.g.h.i").is_err());
    let many: Vec<MemberPath> = (0..65).map(|n| path(&format!("n{n}"))).collect();
    assert!(MemberPaths::new(&many[..64]).is_ok());
    assert!(MemberPaths::new(&many).is_err());
    assert_eq!(MemberPaths::new([]), Ok(None));
}
