//! `compress` of routes: what it takes, and what it means.

use super::{FRAME, messages, plan, warnings};
use crate::config::{Coding, describe};

fn file(compress: &str) -> String {
    format!(
        "{FRAME}routes:\n  - name: r\n    match: {{ path: /a }}\n    upstream: app\n    compress: {compress}\n"
    )
}

#[test]
fn a_switch_is_short_for_the_defaults() {
    use Coding::{Br, Gzip, Zstd};
    let compress = |keys: &str| plan(&file(keys)).routes[0].options.compress.clone();
    assert_eq!(compress("false"), None);
    let usual = compress("true").expect("it is on");
    assert_eq!((&usual.codings[..], usual.min_size), (&[Zstd, Br, Gzip][..], 1024));
    assert_eq!(compress("{}").as_ref(), Some(&usual));
    let own = compress("{ encodings: [gzip, br, gzip], types: text/html, min_size: 1B }").unwrap();
    assert_eq!((&own.codings[..], own.min_size), (&[Gzip, Br][..], 1));
    assert!(own.takes(b"text/html; charset=utf-8") && !own.takes(b"text/css"));

    let words = describe(&plan(&file("{ encodings: br, min_size: 4KiB }")));
    assert!(words.contains("    compress  br from 4.0 KiB\n"), "{words}");
}

#[test]
fn what_cannot_be_meant_is_an_error() {
    for (keys, message) in [
        ("{ encodings: [] }", "`encodings` is empty | write one, or remove `encodings`"),
        ("{ types: [] }", "`types` is empty | write one, or remove `types`"),
        (
            "{ types: html }",
            "`html` is not a media type | write a type, as in `text/html`, `text/*` or `*/*+json`, or `*` for all",
        ),
        (
            "{ encodings: brotli }",
            "`encodings` cannot be `brotli` | write one of `zstd`, `br`, `gzip`",
        ),
        (
            "{ encodings: deflate }",
            "`encodings` cannot be `deflate` | write one of `zstd`, `br`, `gzip`",
        ),
        (
            "{ min_length: 1KiB }",
            "compression has no key `min_length`; did you mean `min_size`? | write `min_size`",
        ),
    ] {
        messages(&file(keys), &[message]);
    }
    let own = file("true").replace("upstream: app", "respond: 200").replace("upstreams:", "# ");
    warnings(&own, &["`compress` does nothing in a route without `upstream`"]);
}
