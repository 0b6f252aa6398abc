//! Lines of text logs: the requests that are read of them, or the reason if there is none.

use super::{
    common,
    format::{Format, format_of},
    logged::{LoggedRequest, TextCache, shown},
    problems::Reason,
    proxy_manager, traefik,
};
use proptest::prelude::*;

type Parse = fn(&[u8], &mut TextCache) -> Result<Option<LoggedRequest>, Reason>;

/// Stands for `TIME` in the lines below: 1795237200 s.
const TIME: &str = "[21/Nov/2026:05:00:00 +0000]";

/// Lines of the Common and the Combined Log Format, and their requests.
const COMMON: &[(&str, &str)] = &[
    (
        r#"2001:db8::7 - - [21/Nov/2026:06:00:00 +0100] "GET /a?b=c HTTP/2.0" 200 612 "-" "curl/8.5" "192.0.2.9""#,
        "+0ns 2001:db8::7 GET - /a?b=c Responded(Some(200)) user-agent: curl/8.5 x-forwarded-for: 192.0.2.9",
    ),
    (r#"192.0.2.1 - - TIME "POST /x HTTP/1.1" 499 0"#, "+0ns 192.0.2.1 POST - /x Cancelled(0ns)"),
    (
        r#"192.0.2.1 - a [b] c TIME "GET / HTTP/1.0" 200 -"#,
        "+0ns 192.0.2.1 GET - / Responded(Some(200))",
    ),
    (
        r#"a.example:443 192.0.2.1 - - TIME "GET / HTTP/1.1" 200 5 "-" "-""#,
        "+0ns 192.0.2.1 GET a.example:443 / Responded(Some(200))",
    ),
    (
        r#"127.0.1.1:80 192.0.2.1 - - TIME "GET / HTTP/1.1" 200 5"#,
        "+0ns 192.0.2.1 GET 127.0.1.1:80 / Responded(Some(200))",
    ),
    (
        r#"[2001:db8::80]:443 2001:db8::7 - - TIME "GET / HTTP/1.1" 200 5"#,
        "+0ns 2001:db8::7 GET [2001:db8::80]:443 / Responded(Some(200))",
    ),
    (
        r#"- 192.0.2.1 - - TIME "GET / HTTP/1.1" 200 5"#,
        "+0ns 192.0.2.1 GET - / Responded(Some(200))",
    ),
    (r#"192.0.2.1 - - TIME "GET / HTTP/1.1" 414 5"#, "+0ns 192.0.2.1 GET - / Responded(Some(414))"),
    (r#"client.example - - TIME "GET / HTTP/1.1" 200 5"#, "+0ns - GET - / Responded(Some(200))"),
    (
        r#"192.0.2.1 - - TIME "GET http://b.example?x HTTP/1.1" 200 5"#,
        "+0ns 192.0.2.1 GET b.example ?x Responded(Some(200))",
    ),
    (
        r#"192.0.2.1 - - TIME "GET /a b\xC3\xA9\"\\ HTTP/1.1" 200 5"#,
        "+0ns 192.0.2.1 GET - /a%20b%C3%A9\"\\ Responded(Some(200))",
    ),
    (r#"192.0.2.1 - - TIME "GET /" 200 5"#, "+0ns 192.0.2.1 GET - / Responded(Some(200))"),
    (r#"my bucket TIME 192.0.2.1 x "GET / HTTP/1.1" 200 -"#, "+0ns - GET - / Responded(Some(200))"),
];

/// Lines of Traefik's `common` format, and their requests.
const TRAEFIK: &[(&str, &str)] = &[
    (
        r#"192.0.2.1 - ann TIME "GET /a?b HTTP/2.0" 200 5 "https://c.example/" "curl/8.5" 7 "web@docker" "http://10.0.0.2:80" 12ms"#,
        "+12ms 192.0.2.1 GET - /a?b Responded(Some(200)) referer: https://c.example/ user-agent: curl/8.5",
    ),
    (
        r#"2001:db8::7 - - TIME "GET / HTTP/1.1" 404 19 "-" "-" 8 "-" "-" 0ms"#,
        "+0ns 2001:db8::7 GET - / Responded(Some(404))",
    ),
    (
        r#"192.0.2.1 - - TIME "GET / HTTP/1.1" - - "-" "-" 9 "web@file" "-" 3ms"#,
        "+3ms 192.0.2.1 GET - / Responded(None)",
    ),
    (
        r#"192.0.2.1 - - TIME "GET /a" 200 5 HTTP/1.1" 499 0 "a "b"" "c" d" 9 "x" "y" 3ms"#,
        "+3ms 192.0.2.1 GET - /a\"%20200%205 Cancelled(3ms) referer: a \"b\" user-agent: c\" d",
    ),
    (
        r#"- - - TIME "GET / HTTP/1.1" 200 5 "-" "-" 9 "x" "y" 3ms"#,
        "+3ms - GET - / Responded(Some(200))",
    ),
];

/// Lines of Nginx Proxy Manager, and their requests.
const PROXY_MANAGER: &[(&str, &str)] = &[
    (
        r#"TIME - 301 301 - GET https a.example "/b?c=\x22d" [Client 2001:db8::7] [Length 162] [Gzip -] [Sent-to 10.0.0.2] "agent \x22x\x22" "https://r.example/""#,
        "+0ns 2001:db8::7 GET a.example /b?c=\"d Responded(Some(301)) referer: https://r.example/ user-agent: agent \"x\"",
    ),
    (
        r#"TIME HIT - 301 - GET https a.example "/" [Client 192.0.2.1] [Length 162] [Gzip -] [Sent-to 10.0.0.2] "-" "-""#,
        "+0ns 192.0.2.1 GET a.example / Responded(Some(301))",
    ),
    (
        r#"TIME - 502, 301 301 - GET https a.example "/" [Client 192.0.2.1] [Length 162] [Gzip -] [Sent-to app] "-" "-""#,
        "+0ns 192.0.2.1 GET a.example / Responded(Some(301))",
    ),
    (
        r#"TIME 301 - GET https a.example "/" [Client 192.0.2.1] [Length 162] [Gzip -] "-" "-""#,
        "+0ns 192.0.2.1 GET a.example / Responded(Some(301))",
    ),
];

/// Lines of the Common Log Format without a readable request.
const NOT_COMMON: &[(&str, &str)] = &[
    ("hello", "no time in brackets"),
    ("a [b] c", "no time in brackets"),
    (r#"a - - [41/Nov/2026:05:00:00 +0000] "GET / HTTP/1.1" 200 5"#, "no such time"),
    ("a - - TIME", "no request in quotes"),
    (r#"a - - TIME "GET / HTTP/1.1"#, "no request in quotes"),
    (r#"[2026-11-21T05:00:00Z] "GET / HTTP/1.1" 200"#, "no time in brackets"),
    (r#"a - - TIME "" 400 0"#, "no request"),
    (r#"a - - TIME "-" 400 0"#, "no request"),
    (r#"a - - TIME "GET" 400 0"#, "no request"),
    (r#"a - - TIME "USER anonymous" 400 0"#, "no request"),
    (r#"a - - TIME "PRI * HTTP/2.0" 400 0"#, "no request"),
    (r#"a - - TIME "\x16\x03\x01 x" 400 0"#, "no request"),
    (r#"a - - TIME "GET /aaaa" 414 0"#, "no request"),
    (r#"a - - TIME "POST /aaaa" 414 0"#, "no request"),
    (r#"a - - TIME "GET / HTTP/1.1" - 0"#, "no status"),
    (r#"a - - TIME "GET / HTTP/1.1" 1375"#, "no status"),
    (r#"a - - TIME "GET / HTTP/1.1" 20"#, "no status"),
    (
        r#"TIME 192.0.2.1 TLSv1.3 TLS_AES_256_GCM_SHA384 "GET / HTTP/1.1" 512"#,
        "no client precedes the time",
    ),
    (
        r#"pod container 192.0.2.1 - - TIME "GET / HTTP/1.1" 200 5"#,
        "an unknown kind precedes the client: pod container 192.0.2.1 - -",
    ),
];

/// Lines of Traefik without a readable request.
const NOT_TRAEFIK: &[(&str, &str)] = &[
    (r#"192.0.2.1 - - TIME "- - -" 200 5 "-" "-" 9 "x" "y" 3ms"#, "no request"),
    (
        r#"192.0.2.1 - - TIME "GET / HTTP/1.1" 499 0 - - - - - 3ms"#,
        "no fields of Traefik follow the time",
    ),
];

/// Lines of Nginx Proxy Manager without a readable request.
const NOT_PROXY_MANAGER: &[(&str, &str)] = &[
    (r#"TIME - - 400 - - http localhost "-" [Client 192.0.2.1] "-" "-""#, "no request"),
    (r#"TIME - - 400 - GET http localhost "-" [Client 192.0.2.1] "-" "-""#, "no request"),
    (r#"TIME - - 4000 - GET http localhost "/" [Client 192.0.2.1] "-" "-""#, "no status"),
    (r#"TIME GET http localhost "/" [Client 192.0.2.1] "-" "-""#, "no status"),
    (r#"TIME "/" [Client 192.0.2.1] "-" "-""#, "no host"),
    (r#"TIME - - 200 - GET http localhost "/" [Len"#, "no `[Client"),
    (r#"TIME - - 200 - GET http localhost "/"#, "no target"),
    (r#"TIME - - 400 -  http localhost "-" [Client 192.0.2.1] "-" "-""#, "no request"),
];

fn read(parse: Parse, line: &str) -> String {
    shown(parse(line.replace("TIME", TIME).as_bytes(), &mut TextCache::default()))
}

#[test]
fn each_text_log_is_detected_and_read() {
    for (format, parse, lines) in [
        (Format::Combined, common::parse as Parse, COMMON),
        (Format::Traefik, traefik::parse_clf, TRAEFIK),
        (Format::NginxProxyManager, proxy_manager::parse, PROXY_MANAGER),
    ] {
        for (line, request) in lines {
            assert_eq!(read(parse, line), format!("1795237200000000000 {request}"), "{line}");
            assert_eq!(format_of(line.replace("TIME", TIME).as_bytes()), Some(format), "{line}");
        }
    }
}

#[test]
fn a_line_without_a_request_says_why() {
    for (parse, lines) in [
        (common::parse as Parse, NOT_COMMON),
        (traefik::parse_clf, NOT_TRAEFIK),
        (proxy_manager::parse, NOT_PROXY_MANAGER),
    ] {
        for (line, expected) in lines {
            let reason = read(parse, line);
            assert!(reason.contains(expected), "{line}: {reason}");
        }
    }
}

#[test]
fn a_list_before_all_else_is_what_was_forwarded() {
    const REST: &str = r#"TIME "GET / HTTP/1.1" 200 5"#;
    for (parties, client, headers) in [
        ("192.0.2.1, 10.0.0.1 - -", "10.0.0.1", " x-forwarded-for: 192.0.2.1"),
        ("192.0.2.1,10.0.0.1 - a", "10.0.0.1", " x-forwarded-for: 192.0.2.1"),
        ("\"a, 192.0.2.1, 10.0.0.1\" - a", "10.0.0.1", " x-forwarded-for: a, 192.0.2.1"),
        ("192.0.2.1, 10.0.0.1 10.0.0.9 - -", "10.0.0.9", " x-forwarded-for: 192.0.2.1, 10.0.0.1"),
        ("192.0.2.1, unknown - -", "-", " x-forwarded-for: 192.0.2.1, unknown"),
        ("192.0.2.1,", "-", " x-forwarded-for: 192.0.2.1,"),
    ] {
        let expected = format!("1795237200000000000 +0ns {client} GET - / Responded(Some(200))");
        let line = format!("{parties} {REST}");
        assert_eq!(read(common::parse, &line), expected.clone() + headers);
        let agent = format!(r#"{line} "-" "x" "192.0.2.7""#);
        assert_eq!(read(common::parse, &agent), expected + " user-agent: x" + headers);
    }
}

proptest! {
    #[test]
    fn no_line_panics(
        line: Vec<u8>,
        clf in r#"[0-9a-f.:]{0,9} - - \[[0-9/:A-Za-z +-]{0,28}\]? ?"[ -~]{0,20}"? ?[0-9]{0,4}[ -~]{0,30}"#,
        quoted in r#"[ -~\\"]{0,30}"#,
        traefik in r#"("?[A-Z/ -]{0,9}"?|[0-9-]{1,4}| |"){0,16}"#,
        manager in r#"[0-9A-Z" -]{0,30}"/?[ -~]{0,9}"? (\[Client [0-9a-f:.]{0,9}\]?)?[ -~]{0,20}"#,
    ) {
        let lines = [
            line,
            clf.into(),
            format!("a - - {TIME} \"{quoted}\" 200 \"{quoted}").into(),
            format!("192.0.2.1 - - {TIME} {traefik} 5ms").into(),
            format!("{TIME} {manager}").into(),
        ];
        for line in lines {
            for parse in [common::parse as Parse, traefik::parse_clf, proxy_manager::parse] {
                if let Ok(Some(logged)) = parse(&line, &mut TextCache::default()) {
                    prop_assert!(logged.request.path.is_some());
                }
            }
        }
    }
}
