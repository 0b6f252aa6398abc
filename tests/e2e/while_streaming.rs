//! Rules with `settle_while_streaming`: what a response has cost so far is charged while it passes.

use crate::common::{
    Gateway, await_ends, eventually,
    http::{self, Answer, Client},
    metrics,
    upstream::{Connection, Script},
};
use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A part of a response that the test has the server send; `None` ends the response.
type Part = Option<String>;

/// A server that streams the parts that the test sends. Paths with `/probe` get 204 at once.
fn server() -> (Script, Sender<Part>) {
    let (parts, sent) = channel();
    let sent = Mutex::new(sent);
    let server = Script::start(move |_, mut connection| {
        while let Some(request) = connection.read() {
            if request.path() == "/probe" {
                connection.write("HTTP/1.1 204 No Content\r\n\r\n");
                continue;
            }
            let sent = sent.lock().expect("one stream at a time");
            if stream(&mut connection, &sent).is_none() {
                return;
            }
        }
    });
    (server, parts)
}

fn stream(connection: &mut Connection, sent: &Receiver<Part>) -> Option<()> {
    connection.write(HEAD)?;
    loop {
        match sent.recv().ok()? {
            Some(part) => connection.write(format!("{:x}\r\n{part}\r\n", part.len()))?,
            None => return connection.write("0\r\n\r\n"),
        }
    }
}

/// A chunk as of a server that sends `usage` in each, with so many completion tokens so far.
fn chunk(tokens: u64) -> String {
    let usage = format!("{{\"prompt_tokens\":5,\"completion_tokens\":{tokens}}}");
    format!("data: {{\"choices\":[{{}}],\"usage\":{usage}}}\n\n")
}

/// An event without any number.
fn event() -> String {
    "data: {\"choices\":[{}],\"usage\":null}\n\n".into()
}

fn yaml(upstream: SocketAddr, top: &str, flow: &str) -> String {
    format!(
        "workers: 2
access_log: access.log
listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
admin: {{ listen: 127.0.0.1:0 }}
{top}
upstreams: [{{ name: app, servers: [{{ url: 'http://{upstream}' }}] }}]
routes:
  - name: all
    match: {{ path_prefix: / }}
    upstream: app
    request_headers: {{ remove: accept-encoding }}
    flow: [{flow}]
"
    )
}

const TOKENS: &str = "{ name: tokens, algorithm: fixed_window, limit: 1000/30d, \
    cost: { reserve: 10, settle: openai, settle_while_streaming: true } }";

/// Returns how much of a rule is used.
fn used(gateway: &Gateway, rule: &str) -> u64 {
    let keys = http::ask(gateway.address("admin"), &format!("/keys?route=all&rule={rule}")).json();
    keys["rules"][0]["used"].as_u64().unwrap_or_else(|| panic!("{keys}"))
}

/// Begins a stream, and returns once its head has come.
fn begin(gateway: &Gateway) -> Client {
    let mut client = Client::new(gateway.web());
    client.send(http::head("GET", "/stream", &[]));
    assert_eq!(client.read_head().map(|head| head.status), Some(200));
    client
}

/// Has the server send a part, and returns once the client has it.
fn pass(client: &mut Client, parts: &Sender<Part>, part: String) {
    let length = part.len();
    parts.send(Some(part)).expect("the server streams");
    let mut come = 0;
    while come < length {
        come += client.read_chunk().expect("a part of it").len();
    }
}

/// Has the server end the response, and returns once its end has come.
fn end(client: &mut Client, parts: &Sender<Part>) {
    parts.send(None).expect("the server streams");
    assert_eq!(client.read_chunk(), None);
}

fn probe(gateway: &Gateway) -> Answer {
    http::get(gateway.web(), "/probe")
}

/// The log's `flow` of the only stream.
fn logged(gateway: &Gateway) -> serde_json::Value {
    eventually("the stream is logged", || {
        let log = gateway.dir.path().join("access.log");
        let text = std::fs::read_to_string(log).ok()?;
        let line = text.lines().find(|line| line.contains("\"/stream\""))?;
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line["flow"].clone())
    })
}

/// The totals that the log says were charged.
fn totals(flow: &serde_json::Value, rule: &str) -> Vec<u64> {
    let charges = flow["charges"][rule].as_array().cloned().unwrap_or_default();
    charges.iter().map(|charge| charge[1].as_u64().expect("a total")).collect()
}

#[test]
fn tokens_are_charged_as_they_pass_and_corrected_at_the_end() {
    let (server, parts) = server();
    let gateway = Gateway::start(&yaml(server.address, "", TOKENS));
    let mut client = begin(&gateway);
    assert_eq!(used(&gateway, "tokens"), 10, "the reserve");
    // With the five of the prompt.
    for (tokens, charged) in [(3, 10), (5, 10), (6, 11), (300, 305), (100, 305), (400, 405)] {
        pass(&mut client, &parts, chunk(tokens));
        assert_eq!(used(&gateway, "tokens"), charged);
    }
    pass(&mut client, &parts, chunk(200));
    end(&mut client, &parts);
    assert_eq!(used(&gateway, "tokens"), 205, "the last number counts");
    let flow = logged(&gateway);
    assert_eq!(
        (flow["reserved"]["tokens"].as_u64(), flow["settled"]["tokens"].as_u64()),
        (Some(10), Some(205))
    );
    assert_eq!(totals(&flow, "tokens"), [11, 305, 405]);
}

#[test]
fn others_are_rejected_once_a_stream_has_used_the_limit_up() {
    let (server, parts) = server();
    let gateway = Gateway::start(&yaml(server.address, "", TOKENS));
    let mut client = begin(&gateway);
    assert_eq!(probe(&gateway).status, 204);
    pass(&mut client, &parts, chunk(2000));
    assert_eq!(probe(&gateway).status, 429);
    end(&mut client, &parts);
    assert_eq!(probe(&gateway).status, 429);
}

#[test]
fn without_numbers_the_events_are_charged_until_the_last_chunk_has_the_number() {
    let (server, parts) = server();
    let gateway = Gateway::start(&yaml(server.address, "", TOKENS));
    let mut client = begin(&gateway);
    for events in 1..=14 {
        pass(&mut client, &parts, event());
        assert_eq!(used(&gateway, "tokens"), events.max(10));
    }
    pass(&mut client, &parts, chunk(2));
    end(&mut client, &parts);
    assert_eq!(used(&gateway, "tokens"), 7);
}

#[test]
fn a_client_that_leaves_pays_what_was_charged() {
    let (server, parts) = server();
    // Nothing shows that a number is the last one.
    let settle = "{ json: { usage.completion_tokens: 1 }, otherwise: { events: 1 } }";
    let rule = TOKENS.replace("openai", settle);
    let gateway = Gateway::start(&yaml(server.address, "", &rule));
    let mut client = begin(&gateway);
    pass(&mut client, &parts, chunk(300));
    pass(&mut client, &parts, chunk(2));
    drop(client);
    // The server notices by its next part.
    parts.send(Some(event())).expect("the server streams");
    await_ends(&gateway);
    assert_eq!(used(&gateway, "tokens"), 300);
    assert_eq!(logged(&gateway)["settled"]["tokens"].as_u64(), Some(300));
}

#[test]
fn an_edit_while_a_response_passes_keeps_what_was_charged() {
    let (server, parts) = server();
    let gateway = Gateway::start(&yaml(server.address, "", TOKENS));
    let mut client = begin(&gateway);
    pass(&mut client, &parts, chunk(300));
    let plain = TOKENS.replace(", settle_while_streaming: true", "").replace("1000/30d", "900/30d");
    gateway.edit(&yaml(server.address, "", &plain));
    assert_eq!(used(&gateway, "tokens"), 305);
    // The request keeps the configuration that it began with.
    pass(&mut client, &parts, chunk(500));
    assert_eq!(used(&gateway, "tokens"), 505);
    end(&mut client, &parts);
    assert_eq!(used(&gateway, "tokens"), 505);
}

#[test]
fn a_budget_with_a_parent_bytes_and_time_are_charged_as_they_pass() {
    let (server, parts) = server();
    let cost = |settle: &str| {
        format!("cost: {{ reserve: 1, settle: {settle}, settle_while_streaming: true }}")
    };
    let budgets = format!(
        "budgets:
  - {{ name: org, algorithm: fixed_window, limit: 9000/30d, {} }}
  - {{ name: team, parent: org, algorithm: sliding_log, limit: 9000/30d, {} }}",
        cost("openai"),
        cost("{ bytes: response }"),
    );
    let time = format!(
        "{{ name: time, algorithm: fixed_window, limit: 100000000/30d, {} }}",
        cost("{ time: 1us }")
    );
    let gateway =
        Gateway::start(&yaml(server.address, &budgets, &format!("{{ budget: team }}, {time}")));
    let of_budget = |name: &str| {
        let label = format!("budget=\"{name}\"");
        let used = metrics(&gateway, "flowgate_budget_used");
        let found = used.iter().find(|(labels, _)| labels.contains(&label));
        found.map(|(_, used)| used.to_string()).unwrap_or_default()
    };

    let mut client = begin(&gateway);
    let mut bytes = 0;
    let mut before = used(&gateway, "time");
    for tokens in [20_u64, 40, 60] {
        bytes += chunk(tokens).len();
        pass(&mut client, &parts, chunk(tokens));
        assert_eq!(
            [of_budget("org"), of_budget("team")],
            [(tokens + 5).to_string(), bytes.to_string()]
        );
        let time = used(&gateway, "time");
        assert!(time > before, "{before} to {time}");
        before = time;
    }
    end(&mut client, &parts);
    assert_eq!([of_budget("org"), of_budget("team")], ["65".to_owned(), bytes.to_string()]);
    assert!(used(&gateway, "time") >= before);
}

#[test]
fn a_long_stream_has_few_charges_and_its_whole_cost_in_the_end() {
    const EVENTS: u64 = 2_000;
    let (server, parts) = server();
    let rule = "{ name: tokens, algorithm: fixed_window, limit: 100000/30d, \
        cost: { settle: openai, settle_while_streaming: true } }";
    let gateway = Gateway::start(&yaml(server.address, "", rule));
    let mut client = begin(&gateway);
    for events in 1..=EVENTS {
        pass(&mut client, &parts, event());
        if events % 250 == 0 {
            let used = used(&gateway, "tokens");
            assert!(used <= events && used * 9 > events * 8, "{used} of {events}");
        }
    }
    end(&mut client, &parts);
    assert_eq!(used(&gateway, "tokens"), EVENTS);
    let totals = totals(&logged(&gateway), "tokens");
    assert!((16..=128).contains(&totals.len()) && totals.is_sorted(), "{totals:?}");
}
