//! Rules that look at members of a request's JSON body.

use crate::{
    common::{
        Gateway, PATIENCE, await_ends, curl, eventually,
        http::{self, Answer, Client},
        http2::{self, body},
        metrics, run,
        upstream::{Connection, Request, Script, ok},
        yaml,
    },
    explain::explained,
    port::free_port,
};
use serde_json::{Value, json};
use std::{
    fs,
    net::SocketAddr,
    process::Command,
    sync::{Mutex, mpsc},
};

/// A server that responds with the body of the request, and says how its length was given.
fn server() -> Script {
    Script::answering(|request: &Request| {
        let framing =
            request.header("transfer-encoding").or_else(|| request.header("content-length"));
        let framing = framing.unwrap_or_default();
        let length = request.body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nX-Framing: {framing}\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &request.body].concat()
    })
}

fn route(flow: &str) -> String {
    format!("  - {{ name: chat, match: {{ path_prefix: / }}, upstream: up, flow: [{flow}] }}")
}

const PER_MODEL: &str = "{ name: per-model, limit: 2/6h, burst: 2, key: 'json:model' }";

fn start(server: &Script, flow: &str) -> Gateway {
    Gateway::start(&yaml(server.address, &route(flow)))
}

fn post(client: &mut Client, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
    let length = body.as_ref().len().to_string();
    let fields = [&[("content-length", &*length)], fields].concat();
    client.send([http::head("POST", "/", &fields).as_bytes(), body.as_ref()].concat());
    client.read("POST")
}

fn status(web: SocketAddr, body: impl AsRef<[u8]>) -> u16 {
    post(&mut Client::new(web), &[], body).status
}

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = http::head("POST", "/", &[("transfer-encoding", "chunked")]).into_bytes();
    for part in body.chunks(size) {
        bytes.extend(format!("{:x}\r\n", part.len()).into_bytes());
        bytes.extend([part, b"\r\n"].concat());
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

#[test]
fn each_model_has_a_limit_of_its_own_and_the_server_gets_every_byte() {
    let server = server();
    let gateway = start(&server, PER_MODEL);
    let web = gateway.web();
    let mut client = Client::new(web);
    let prompt = "p".repeat(40_000);
    let body = format!(" {{\"prompt\": \"{prompt}\", \"mod\\u0065l\": \"\\u0061\"}}\n");
    let answer = post(&mut client, &[("content-type", "application/json")], &body);
    assert_eq!((answer.status, answer.text()), (200, body.clone()));
    assert_eq!(answer.header("x-framing"), Some(&*body.len().to_string()));

    // In pieces of any size, without a length.
    client.send(chunked(body.as_bytes(), 977));
    let answer = client.read("POST");
    assert_eq!((answer.status, answer.text()), (200, body.clone()));
    assert_eq!(answer.header("x-framing"), Some("chunked"));

    let rejected = post(&mut client, &[], r#"{"model":"a"}"#);
    assert_eq!(rejected.status, 429, "one key in each spelling");
    // On the same connection: nothing of the body is left there.
    for n in 0..2 {
        assert_eq!(post(&mut client, &[], r#"{"model":"b"}"#).status, 200, "{n}");
    }
    assert_eq!(post(&mut client, &[], r#"{"model":"b"}"#).status, 429);
    for (value, other) in [("1.0", "\"1.0\""), ("true", "\"true\"")] {
        let with = |value: &str| status(web, format!("{{\"model\":{value}}}"));
        assert_eq!([value, other, value].map(with), [200, 200, 429], "as it is written");
    }
}

#[test]
fn a_body_that_comes_byte_for_byte_is_held_back_until_it_ends() {
    let server = server();
    let gateway = start(&server, PER_MODEL);
    let mut client = Client::new(gateway.web());
    let body = r#"{"model":"ä","n":[1,{"model":"x"}]}"#;
    let length = body.len().to_string();
    client.send(http::head("POST", "/", &[("content-length", &length)]));
    for byte in body.as_bytes() {
        assert_eq!(server.connections(), 0, "no server is asked");
        client.send([*byte]);
    }
    assert_eq!(client.read("POST").text(), body);
}

#[test]
fn what_has_no_member_counts_as_without_the_key() {
    let server = server();
    let gateway = start(&server, &PER_MODEL.replace("2/6h, burst: 2", "1/6h, burst: 1"));
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/").status, 200, "no body");

    let long = format!("{{\"model\":\"a\",\"x\":\"{}\"}}", "x".repeat(64 * 1024));
    for body in
        ["", "model=a", "[]", "{\"model\":{}}", "{\"model\":\"a\"", "{}", "{\"n\":1}x", &long]
    {
        assert_eq!(post(&mut client, &[], body).status, 429, "{body:.20}");
        client = Client::new(gateway.web());
        client.send(chunked(body.as_bytes(), 1500));
        assert_eq!(client.read("POST").status, 429, "{body:.20}");
        client = Client::new(gateway.web());
    }
    let gzip = [("content-encoding", "gzip")];
    assert_eq!(post(&mut client, &gzip, r#"{"model":"a"}"#).status, 429);
    let mut client = Client::new(gateway.web());
    let plain = [("content-encoding", "identity"), ("content-type", "text/plain")];
    let answer = post(&mut client, &plain, r#"{"model":"a"}"#);
    assert_eq!(answer.status, 200, "{}", answer.text());

    let strict = PER_MODEL.replace("'json:model'", "'json:model', on_missing_key: reject");
    gateway.edit(&yaml(server.address, &route(&strict)));
    assert_eq!(status(gateway.web(), "{}"), 400);
    assert_eq!(status(gateway.web(), r#"{"model":"b"}"#), 200);
}

#[test]
fn a_repeated_member_is_a_duplicate() {
    let server = server();
    let gateway = start(&server, PER_MODEL);
    let twice = r#"{"model":"a","x":0,"mode\u006c":"b"}"#;
    assert_eq!(status(gateway.web(), twice), 400);
    for (taken, other) in [("first", "a"), ("last", "b")] {
        let flow =
            PER_MODEL.replace("'json:model'", &format!("'json:model', on_duplicate_key: {taken}"));
        gateway.edit(&yaml(server.address, &route(&flow.replace("per-model", taken))));
        assert_eq!(status(gateway.web(), twice), 200);
        let plain = format!("{{\"model\":\"{other}\"}}");
        assert_eq!([&plain; 2].map(|body| status(gateway.web(), body)), [200, 429], "{taken}");
    }
}

#[test]
fn a_long_body_is_passed_on_while_it_comes() {
    let server = Script::start(|_, mut connection: Connection| {
        while let Some(request) = connection.read_head() {
            connection.write("HTTP/1.1 100 Continue\r\n\r\n");
            let length =
                request.header("content-length").map_or(0, |n| n.parse().expect("a length"));
            let mut body = vec![0; length];
            std::io::Read::read_exact(&mut connection.stream, &mut body).expect("the body");
            connection.write(ok(&length.to_string()));
        }
    });
    let gateway = start(&server, PER_MODEL);
    let mut client = Client::new(gateway.web());
    let fields = [("content-length", "1000000")];
    client.send(http::head("POST", "/", &fields));
    client.send([b'{'; 10]);
    // Long before its end, and within no deadline for what is held back.
    eventually("the server is asked", || (server.connections() == 1).then_some(()));
    client.send(vec![b' '; 999_990]);
    assert_eq!(client.read("POST").text(), "1000000");
}

#[test]
fn a_client_that_waits_for_100_is_asked_once() {
    let server = server();
    let gateway = start(&server, PER_MODEL);
    let body = r#"{"model":"a"}"#;
    let length = body.len().to_string();
    let fields = [("content-length", &*length), ("expect", "100-continue")];
    for expected in [200, 200, 429] {
        let mut client = Client::new(gateway.web());
        client.send(http::head("POST", "/", &fields));
        let interim = client.read_head().expect("an interim response");
        assert_eq!(interim.status, 100);
        client.send(body);
        assert_eq!(client.read_head().expect("the response").status, expected);
    }

    // In HTTP/2 too. Frames of the stream are read until there is data or a response.
    let mut client = http2::Client::new(gateway.web());
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    client.fields(1, &[&head[..], &fields].concat(), false);
    let interim = client.read_of(1).expect("an interim response");
    assert_eq!((interim.kind, interim.flags & 1), (1, 0));
    client.last_data(1, br#"{"model":"c"}"#);
    assert_eq!(body_of(&mut client, 1), r#"{"model":"c"}"#);
}

fn body_of(client: &mut http2::Client, stream: u32) -> String {
    let frames = client.answer(stream);
    let heads = frames.iter().filter(|frame| frame.kind == 1).count();
    assert_eq!(heads, 1, "one response, and no second 100");
    body(&frames)
}

#[test]
fn streams_of_http_2_have_keys_and_each_waits_for_its_own_body() {
    let server = server();
    let gateway = start(&server, PER_MODEL);
    let mut client = http2::Client::new(gateway.web());
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    client.fields(1, &head, false);
    client.data(1, b"{\"model\":");
    client.post(3, "/", "13");
    client.data(3, br#"{"model":"a"}"#);
    // All that was declared is there, and the stream is still open.
    assert_eq!(body_of(&mut client, 3), r#"{"model":"a"}"#);
    client.data(1, b"\"a\"");
    client.data(1, b"");
    client.last_data(1, b"}");
    assert_eq!(body_of(&mut client, 1), r#"{"model":"a"}"#);
    client.fields(5, &head, false);
    client.last_data(5, br#"{"model":"a"}"#);
    let frames = client.answer(5);
    assert!(body(&frames).contains("per-model"), "{frames:?}");
}

#[test]
fn what_was_held_of_a_rejected_body_counts_no_more() {
    let server = server();
    let gateway = start(&server, PER_MODEL);
    assert_eq!([r#"{"model":"a"}"#; 2].map(|body| status(gateway.web(), body)), [200, 200]);
    let mut client = http2::Client::new(gateway.web());
    client.post(1, "/", "20");
    // Not held back, so that a body of the connection is on its way meanwhile.
    client.data(1, b"no JSON");
    eventually("it is on its way", || {
        let in_flight = metrics(&gateway, "flowgate_upstream_in_flight");
        (in_flight.values().sum::<f64>() >= 1.0).then_some(())
    });
    client.post(3, "/", "13");
    client.last_data(3, br#"{"model":"a"}"#);
    assert!(body_of(&mut client, 3).contains("per-model"));
    eventually("nothing is held", || {
        let held = metrics(&gateway, "flowgate_upload_buffer_bytes");
        (held.values().sum::<f64>() <= 0.0).then_some(())
    });
    client.last_data(1, &[b'x'; 13]);
    assert_eq!(body_of(&mut client, 1).len(), 20);
}

#[test]
fn a_client_that_does_not_send_its_body_gets_408() {
    let server = server();
    let file = yaml(server.address, &route(PER_MODEL));
    let gateway = Gateway::start(&format!("timeouts: {{ header_read: 300ms }}\n{file}"));
    let mut client = Client::new(gateway.web());
    client.send(http::head("POST", "/", &[("content-length", "20")]));
    client.send("{\"model\":");
    let answer = client.read("POST");
    assert_eq!((answer.status, server.connections()), (408, 0));
    assert!(client.is_closed());

    let mut client = http2::Client::new(gateway.web());
    client.post(1, "/", "20");
    client.data(1, b"{\"model\":");
    let frames = client.answer(1);
    assert!(body(&frames).contains("did not arrive in time"), "{frames:?}");
    // The others of the connection go on.
    client.post(3, "/", "13");
    client.last_data(3, br#"{"model":"a"}"#);
    assert_eq!(body_of(&mut client, 3), r#"{"model":"a"}"#);
}

#[test]
fn a_malformed_body_gets_400_and_nothing_counts() {
    let server = server();
    let gateway = start(&server, PER_MODEL);
    let mut client = Client::new(gateway.web());
    client.send(http::head("POST", "/", &[("transfer-encoding", "chunked")]));
    client.send("5\r\n{\"mod\r\nx\r\n");
    let answer = client.read("POST");
    assert_eq!((answer.status, server.connections()), (400, 0));
    assert!(client.is_closed());
    assert_eq!([r#"{"model":"a"}"#; 3].map(|body| status(gateway.web(), body)), [200, 200, 429]);
}

#[test]
fn another_server_gets_the_same_body_if_the_first_cannot_be_reached() {
    let server = server();
    let flow = route(&PER_MODEL.replace("2/6h, burst: 2", "9/6h, burst: 9"));
    let file = yaml(server.address, &flow);
    let url = format!("{{ url: \"http://{}\" }}", server.address);
    let dead = format!("{{ url: \"http://127.0.0.1:{}\" }}, {url}", free_port());
    let gateway = Gateway::start(&file.replace(&url, &dead));
    let mut client = Client::new(gateway.web());
    for n in 0..4 {
        let sent = format!("{{\"n\":{n},\"model\":\"a\"}}");
        let answer = post(&mut client, &[], &sent);
        assert_eq!((answer.status, answer.text()), (200, sent));
    }
}

#[test]
fn curl_sends_bodies_by_both_versions() {
    let server = server();
    let gateway = start(&server, &PER_MODEL.replace("2/6h, burst: 2", "1/6h, burst: 1"));
    let url = format!("http://{}/", gateway.web());
    for (version, model) in [("--http1.1", "a"), ("--http2-prior-knowledge", "b")] {
        let sent = format!("{{\"model\":\"{model}\",\"text\":\"{}\"}}", "x".repeat(50_000));
        let file = gateway.dir.path().join("body");
        fs::write(&file, &sent).expect("written");
        let data = format!("@{}", file.display());
        let ask = || curl(&[version, "--data-binary", &data, &url]);
        assert_eq!(ask(), sent);
        assert!(ask().contains("per-model"), "{version}");
    }
}

#[test]
fn budgets_overrides_plans_and_hash_keys_look_at_members() {
    let one = Script::answering(|_| ok("one"));
    let other = Script::answering(|_| ok("other"));
    let file = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         budgets:\n  - {{ name: models, limit: 3/6h, burst: 3, key: ['json:model', 'json:o.user'], on_missing_key: skip }}\n\
         upstreams: [{{ name: up, balance: hash, hash_key: 'json:session', servers: [{{ url: 'http://{}' }}, {{ url: 'http://{}' }}] }}]\n\
         routes:\n  - name: chat\n    match: {{ path: /chat }}\n    upstream: up\n    flow: [{{ budget: models }}]\n\
         \x20 - name: planned\n    match: {{ path: /planned }}\n    respond: {{ status: 204 }}\n    flow:\n\
         \x20     - {{ name: r, limit: 1/6h, plans: {{ by: 'json:plan', limits: {{ gold: 3/6h }} }} }}\n",
        one.address, other.address
    );
    let gateway = Gateway::start(&file);
    let ask = |path: &str, sent: &str| {
        let mut client = Client::new(gateway.web());
        let length = sent.len().to_string();
        client.send(http::head("POST", path, &[("content-length", &length)]) + sent);
        client.read("POST")
    };
    let mut seen = Vec::new();
    for session in 0..16 {
        let sent = format!("{{\"session\":{session}}}");
        let first = ask("/chat", &sent).text();
        assert_eq!(ask("/chat", &sent).text(), first, "the same server for a session");
        seen.push(first);
    }
    assert!(seen.contains(&"one".to_owned()) && seen.contains(&"other".to_owned()));

    let statuses = |user: &str| {
        let sent = format!("{{\"model\":\"a\",\"o\":{{\"user\":\"{user}\"}}}}");
        [(); 4].map(|()| ask("/chat", &sent).status)
    };
    assert_eq!(["ann", "bob"].map(statuses), [[200, 200, 200, 429]; 2]);
    let planned = [(); 4].map(|()| ask("/planned", r#"{"plan":"gold"}"#).status);
    assert_eq!(planned, [204, 204, 204, 429]);
}

#[test]
fn keys_are_shown_explained_logged_and_replayed() {
    let server = server();
    let file = yaml(server.address, &route(PER_MODEL));
    let file = file.replace(
        "admin: { listen: 127.0.0.1:0 }",
        "admin: { listen: 127.0.0.1:0, show_keys: true }",
    );
    let gateway = Gateway::start(&format!("access_log: access.log\n{file}"));
    let sent = ["a", "a", "b", "a", "a"].map(|model| format!("{{\"model\":\"{model}\"}}"));
    let statuses: Vec<u16> = sent.iter().map(|body| status(gateway.web(), body)).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);

    let keys = run(&gateway, &["keys", "chat", "per-model"]);
    assert!(
        keys.contains("json:model") && keys.lines().any(|line| line.ends_with("  a")),
        "{keys}"
    );
    let explain = run(&gateway, &["explain", "POST", "/", "--json", "model=a"]);
    assert!(explain.contains("json:model = a") && explain.contains("rejected (rate)"), "{explain}");
    let question = json!({ "method": "POST", "path": "/", "json": [["model", "c"]] });
    let said = explained(&gateway, &question);
    assert_eq!(said["rules"][0]["value"], "c", "{said}");
    assert_eq!(said["rules"][0]["decision"], "passed", "{said}");

    let log = gateway.dir.path().join("access.log");
    let lines = eventually("all are logged", || {
        let text = fs::read_to_string(&log).ok()?;
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).ok()).collect::<Option<_>>()?;
        (lines.len() == statuses.len()).then_some(lines)
    });
    let mut keys: Vec<&str> = lines
        .iter()
        .map(|line| line["flow"]["keys"]["per-model"].as_str().expect("a key"))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 2, "{lines:?}");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    let replay =
        replay.args(["replay", "-c"]).arg(&gateway.config).arg(&log).output().expect("runs");
    let text = String::from_utf8_lossy(&replay.stdout).into_owned();
    assert!(text.contains("per-model") && text.contains('2'), "{text}");
    assert!(!text.contains("lack"), "{text}");

    run(&gateway, &["reset", "chat", "per-model", "a"]);
    assert_eq!(status(gateway.web(), &sent[0]), 200);
}

/// A server whose chats cost 10, and that responds to each once it may.
fn chats() -> (Script, mpsc::Sender<()>) {
    let (may, waits) = mpsc::channel();
    let waits = Mutex::new(waits);
    let script = Script::answering(move |_| {
        waits.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test goes on");
        ok(r#"{"usage":{"total_tokens":10}}"#)
    });
    (script, may)
}

const TOKENS: &str = "{ name: tokens, limit: 1000/6h, burst: 1000, cost: { \
     reserve: { json: { max_tokens: 1, o.max: 0.5 }, otherwise: 100 }, \
     settle: { json: { usage.total_tokens: 1 }, otherwise: { events: 1 } } } }";

#[test]
fn the_most_tokens_of_a_response_are_reserved_and_then_settled() {
    let (server, may) = chats();
    let file = yaml(server.address, &route(TOKENS));
    let gateway = Gateway::start(&format!("access_log: access.log\n{file}"));
    let web = gateway.web();
    let ask = |body: &str| {
        may.send(()).expect("the server waits");
        status(web, body)
    };
    assert_eq!(ask(r#"{"max_tokens":900}"#), 200);
    await_ends(&gateway);
    assert_eq!(ask(r#"{"max_tokens":985,"o":{"max":9}}"#), 200, "989.5, rounded up once");
    await_ends(&gateway);
    assert_eq!(status(web, r#"{"max_tokens":985}"#), 429, "20 are used");
    assert_eq!(status(web, r#"{"max_tokens":985,"max_tokens":1}"#), 429, "the larger one");
    assert_eq!(ask("{}"), 200, "otherwise");
    await_ends(&gateway);
    assert_eq!(status(web, r#"{"max_tokens":5000}"#), 429, "as much as the bucket holds");

    // Each worker writes its lines when it likes.
    let mut reserved = eventually("all are logged", || {
        let text = fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        let lines = lines.ok().filter(|lines| lines.len() == 6)?;
        let of = |line: &Value, what: &str| line["flow"][what]["tokens"].as_u64();
        let both = |line: &Value| Some((of(line, "reserved")?, of(line, "settled")?));
        Some(lines.iter().filter_map(both).collect::<Vec<_>>())
    });
    reserved.sort_unstable();
    assert_eq!(reserved, [(100, 10), (900, 10), (990, 10)]);
}

#[test]
fn a_reserve_holds_while_the_response_is_awaited() {
    let (server, may) = chats();
    let gateway = start(&server, TOKENS);
    let mut first = Client::new(gateway.web());
    let sent = r#"{"max_tokens":900}"#;
    first.send(http::head("POST", "/", &[("content-length", &sent.len().to_string())]) + sent);
    eventually("the server is asked", || (server.connections() == 1).then_some(()));
    assert_eq!(status(gateway.web(), r#"{"max_tokens":200}"#), 429);
    may.send(()).expect("it waits");
    assert_eq!(first.read("POST").status, 200);
    await_ends(&gateway);
    may.send(()).expect("it waits");
    assert_eq!(status(gateway.web(), r#"{"max_tokens":200}"#), 200);
}
