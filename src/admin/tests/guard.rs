//! Requests as browsers, tools and attackers send them.

use super::*;
use http::Request;

const LOOPBACK: &str = "127.0.0.1:9901";
const TOKEN: &str = "0123456789abcdef";

fn settings(token: Option<&str>) -> config::Admin {
    let token = token.map(|token| Secret::new(token.to_owned()));
    config::Admin {
        listen: LOOPBACK.parse().unwrap(),
        token,
        tls: None,
        edit: false,
        show_keys: false,
    }
}

fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
    let request = Request::builder().method(method).uri(target);
    let add = |request: http::request::Builder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    fields.iter().fold(request, add).body(()).unwrap().into_parts().0
}

/// Returns the status of the rejection, or 200.
fn status(settings: Option<&config::Admin>, address: &str, access: Access, head: &Parts) -> u16 {
    let guard = Guard::new(Instant::EPOCH);
    let reply = guard.check(Instant::EPOCH, (settings, address.parse().unwrap()), access, head);
    reply.map_or(200, |(_, reply)| reply.status().as_u16())
}

#[track_caller]
fn on_loopback(method: &str, fields: &[(&str, &str)], expected: u16) {
    let head = head(method, "/routes", fields);
    let found = status(Some(&settings(None)), LOOPBACK, Access::Operators, &head);
    assert_eq!(found, expected, "{method} {fields:?}");
}

#[test]
fn a_name_that_another_site_may_point_here_is_rejected() {
    for host in
        ["127.0.0.1:9901", "localhost:9901", "LOCALHOST.", "[::1]:9901", "10.1.2.3", "[::1]"]
    {
        on_loopback("GET", &[("host", host)], 200);
    }
    on_loopback("GET", &[], 200);
    for host in
        ["evil.example:9901", "localhost.evil.example", "127.0.0.1.nip.io", "gateway", "a b", ""]
    {
        on_loopback("GET", &[("host", host)], 403);
        on_loopback("POST", &[("host", host)], 403);
    }
    on_loopback("GET", &[("host", "localhost"), ("host", "evil.example")], 403);
    let absolute = head("GET", "http://evil.example/routes", &[("host", "localhost")]);
    let settings = settings(None);
    assert_eq!(status(Some(&settings), LOOPBACK, Access::Operators, &absolute), 403);
    let health = head("GET", "/healthz", &[("host", "evil.example")]);
    assert_eq!(status(Some(&settings), LOOPBACK, Access::Everyone, &health), 403);
}

#[test]
fn a_page_of_another_site_is_rejected_and_the_listeners_own_is_not() {
    let host = ("host", LOOPBACK);
    for origin in ["http://127.0.0.1:9901", "https://127.0.0.1:9901", "HTTP://127.0.0.1:9901"] {
        let expected = if origin.starts_with("HTTP") { 403 } else { 200 };
        on_loopback("POST", &[host, ("origin", origin)], expected);
    }
    for origin in [
        "null",
        "http://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:9902",
        "http://localhost:9901",
        "127.0.0.1:9901",
        "",
    ] {
        on_loopback("POST", &[host, ("origin", origin)], 403);
        on_loopback("GET", &[host, ("origin", origin)], 403);
    }
    for (site, expected) in
        [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)]
    {
        on_loopback("GET", &[host, ("sec-fetch-site", site)], expected);
        on_loopback("POST", &[host, ("sec-fetch-site", site)], expected);
    }
}

#[test]
fn a_link_may_be_followed_but_not_posted_or_framed() {
    let fields = |dest| {
        [
            ("host", LOOPBACK),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", dest),
        ]
    };
    on_loopback("GET", &fields("document"), 200);
    on_loopback("GET", &fields("iframe"), 403);
    on_loopback("POST", &fields("document"), 403);
}

#[test]
fn operators_prove_who_they_are_where_the_file_or_the_address_asks_for_it() {
    let with_token = settings(Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    let basic = |login: &str| format!("basic {}", BASE64_STANDARD.encode(login));
    let good = basic(&format!("any:{TOKEN}"));
    let wrong = basic("any:wrong");
    let no_colon = basic(TOKEN);
    for (sent, expected) in [
        (bearer.as_str(), 200),
        ("bearer 0123456789abcdef", 200),
        (good.as_str(), 200),
        (wrong.as_str(), 401),
        (no_colon.as_str(), 401),
        ("Bearer 0123456789abcdeF", 401),
        ("Bearer 0123456789abcde", 401),
        ("Bearer 0123456789abcdef0", 401),
        ("Bearer ", 401),
        ("Basic !", 401),
        ("", 401),
    ] {
        let head = head("GET", "/routes", &[("host", LOOPBACK), ("authorization", sent)]);
        let found = status(Some(&with_token), LOOPBACK, Access::Operators, &head);
        assert_eq!(found, expected, "{sent}");
    }
    let unknown = head("GET", "/routes", &[("host", "10.0.0.1:9901")]);
    let probe = head("GET", "/readyz", &[("host", "10.0.0.1:9901")]);
    let verbose = head("GET", "/readyz?verbose", &[("host", "10.0.0.1:9901")]);
    for settings in [Some(&with_token), Some(&settings(None)), None] {
        // An edit may take the token away, but the address stays until the next start.
        let of = |access, head| status(settings, "0.0.0.0:9901", access, head);
        assert_eq!(of(Access::Operators, &unknown), 401);
        assert_eq!(of(Access::Everyone, &probe), 200);
        assert_eq!(of(Access::EveryoneWithoutQuery, &probe), 200);
        assert_eq!(of(Access::EveryoneWithoutQuery, &verbose), 401);
    }
}

#[test]
fn a_bearer_token_is_good_under_any_name_and_what_a_browser_sends_is_not() {
    let with_token = settings(Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("a:{TOKEN}")));
    for (sent, expected) in [(bearer, 200), (basic, 403)] {
        let fields = [("host", "gateway.internal"), ("authorization", sent.as_str())];
        let head = head("GET", "/routes", &fields);
        assert_eq!(status(Some(&with_token), "0.0.0.0:9901", Access::Operators, &head), expected);
    }
}

#[test]
fn a_client_that_asks_too_often_waits_and_keeps_no_other_waiting() {
    let guard = Guard::new(Instant::EPOCH);
    let settings = settings(None);
    let ask = |from: &str, access, now| {
        let mut head = head("GET", "/routes", &[("host", LOOPBACK)]);
        let address = SocketAddr::new(from.parse().unwrap(), 1);
        head.extensions.insert(Client { address, is_certified: false });
        guard.check(now, (Some(&settings), LOOPBACK.parse().unwrap()), access, &head)
    };
    let one = "127.0.0.1";
    for _ in 0..BURST {
        assert!(ask(one, Access::Operators, Instant::EPOCH).is_none());
    }
    let (reason, rejected) = ask(one, Access::Operators, Instant::EPOCH).unwrap();
    assert_eq!(reason, AdminRejection::Rate);
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rejected.headers()[header::RETRY_AFTER], "1");
    assert!(ask("::ffff:127.0.0.1", Access::Operators, Instant::EPOCH).is_some());
    assert!(ask(one, Access::Everyone, Instant::EPOCH).is_none(), "a health check");
    assert!(ask("127.0.0.2", Access::Operators, Instant::EPOCH).is_none());
    let later = Instant::EPOCH + Duration::from_millis(2);
    assert!(ask(one, Access::Operators, later).is_none());
}
