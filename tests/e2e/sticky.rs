//! Sticky sessions: a cookie keeps a client at one server, and says nothing of it.

use crate::common::{
    Gateway,
    browser::Browser,
    curl,
    http::{Answer, Client},
    upstream::{Script, ok},
};
use std::collections::HashSet;

fn server(name: &'static str) -> Script {
    Script::answering(move |_| ok(name))
}

fn yaml(servers: &[&Script], more: &str) -> String {
    let servers: Vec<_> =
        servers.iter().map(|server| format!("{{ url: \"http://{}\" }}", server.address)).collect();
    format!(
        "workers: 2\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams: [{{ name: up, servers: [{}], sticky: {{ cookie: server }}{more} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
        servers.join(", ")
    )
}

/// Returns the name and the value of the cookie that a response sets.
fn cookie(answer: &Answer) -> Option<String> {
    let set = answer.header("set-cookie")?;
    let (pair, rest) = set.split_once(';').expect("attributes");
    assert_eq!(rest, " Path=/; HttpOnly; SameSite=Lax");
    Some(pair.to_owned())
}

fn with(client: &mut Client, cookie: &str) -> Answer {
    client.request("GET", "/", &[("Cookie", &format!("a=b; {cookie}"))])
}

#[test]
fn a_client_stays_at_the_server_that_it_got() {
    let servers = [server("one"), server("two"), server("three")];
    let all = servers.each_ref();
    let gateway = Gateway::start(&yaml(&all, ""));
    let mut client = Client::new(gateway.web());
    let mut cookies = HashSet::new();
    for _ in 0..12 {
        let first = client.get("/");
        let own = cookie(&first).expect("a new client gets one");
        let value = own.strip_prefix("server=").expect("its name");
        assert!(value.len() == 16 && value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{own}");
        for _ in 0..4 {
            let next = with(&mut client, &own);
            assert_eq!((next.text(), cookie(&next)), (first.text(), None));
        }
        cookies.insert((own, first.text()));
    }
    assert_eq!(cookies.len(), 3, "each server has one, and each gets clients: {cookies:?}");

    // One of another gateway, and what is none.
    for odd in ["server=0123456789abcdef", "server=127.0.0.1:80", "server="] {
        assert!(cookie(&with(&mut client, odd)).is_some(), "{odd}");
    }

    // Another order of the servers, another balance and another one change nothing.
    let [one, two, three] = all;
    let more = ", balance: least_request";
    gateway.edit(&yaml(&[three, &server("four"), one, two], more));
    for (own, name) in &cookies {
        let next = with(&mut client, own);
        assert_eq!((&next.text(), cookie(&next)), (name, None));
    }
}

#[test]
fn a_backup_keeps_no_client_while_another_server_gets_requests() {
    let one = server("one");
    let two = server("two");
    let gateway = Gateway::start(&yaml(&[&two], ""));
    let mut client = Client::new(gateway.web());
    let own = cookie(&client.get("/")).expect("a cookie");

    let of_two = format!("{{ url: \"http://{}\" }}", two.address);
    let backup = of_two.replace(" }", ", backup: true }");
    gateway.edit(&yaml(&[&one, &two], "").replace(&of_two, &backup));
    let next = with(&mut client, &own);
    assert_eq!(next.text(), "one");
    assert!(cookie(&next).is_some_and(|new| new != own));
}

#[test]
fn the_value_differs_between_processes_and_upstreams() {
    let servers = [server("one")];
    let text = yaml(&servers.each_ref(), "");
    let value = |text: &str| {
        let gateway = Gateway::start(text);
        cookie(&Client::new(gateway.web()).get("/")).expect("a cookie")
    };
    let values = [
        value(&text),
        value(&text),
        value(
            &text.replace("name: up,", "name: other,").replace("upstream: up", "upstream: other"),
        ),
    ];
    assert_eq!(values.iter().collect::<HashSet<_>>().len(), 3, "{values:?}");
}

#[test]
fn another_server_takes_over_the_clients_of_one_that_is_gone() {
    // Each ends its connections, so that none outlives it.
    let servers = ["one", "two"].map(|name| {
        Script::start(move |_, mut connection| {
            if connection.read().is_some() {
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\n";
                connection.write(format!("{head}{name}"));
            }
        })
    });
    let gateway = Gateway::start(&yaml(&servers.each_ref(), ", ejection: { period: 1h }"));
    let mut client = Client::new(gateway.web());
    let first = client.get("/");
    let own = cookie(&first).expect("a cookie");

    let [one, two] = servers;
    let (gone, left) = if first.text() == "one" { (one, two) } else { (two, one) };
    drop(gone);
    let moved = with(&mut Client::new(gateway.web()), &own);
    assert_eq!(moved.status, 200);
    assert_ne!(moved.text(), first.text());
    let new = cookie(&moved).expect("a cookie");
    assert_ne!(new, own);
    let next = with(&mut client, &new);
    assert_eq!((next.text(), cookie(&next)), (moved.text(), None));
    drop(left);
}

#[test]
fn a_client_of_https_and_http2_gets_a_secure_cookie() {
    let servers = [server("one"), server("two")];
    let text =
        yaml(&servers.each_ref(), "").replace("admin:", "trusted_proxies: [127.0.0.1]\nadmin:");
    let gateway = Gateway::start(&text);
    let url = format!("http://{}/", gateway.web());
    let http2 = ["--http2-prior-knowledge", "-i", "-H", "x-forwarded-proto: https", &url];
    let answer = curl(&http2);
    let line =
        answer.lines().find(|line| line.starts_with("set-cookie: server=")).expect("a cookie");
    assert!(line.trim_end().ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{line}");

    let pair = line["set-cookie: ".len()..].split(';').next().expect("a pair");
    let sent = format!("cookie: {pair}");
    let next = curl(&[&http2[..], &["-H", &sent]].concat());
    assert!(!next.contains("set-cookie"), "{next}");
    assert_eq!(next.lines().last(), answer.lines().last());
}

#[test]
fn a_browser_stays_at_one_server_and_its_scripts_see_no_cookie() {
    let page = |name: &'static str| {
        Script::answering(move |_| {
            let body = format!("<!doctype html><title>{name}</title>");
            let length = body.len();
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{body}")
                .into_bytes()
        })
    };
    let servers = [page("one"), page("two"), page("three")];
    let gateway = Gateway::start(&yaml(&servers.each_ref(), ""));
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", gateway.web()));
    browser.wait("['one', 'two', 'three'].includes(document.title)");
    let others = browser.value(
        "Promise.all([...Array(20)].map(() => fetch('/').then((r) => r.text())))
            .then((all) => all.filter((text) => !text.includes(document.title)).length)",
    );
    assert_eq!(others, 0);
    assert_eq!(browser.value("document.cookie"), "");
}
