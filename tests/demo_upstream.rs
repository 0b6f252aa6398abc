//! The demo's upstream over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod port;

use flowgate::demo::Upstream;
use futures_util::{SinkExt, StreamExt};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};
use tokio_tungstenite::tungstenite::Message;

/// Longer than any of these tests takes; a read that waits so long has failed.
const DEADLINE: Duration = Duration::from_mins(5);

#[test]
fn one_connection_asks_for_everything() {
    let upstream = start();
    let mut client = connect(&upstream);
    for (path, status, wanted) in [
        ("/hello?a=b", "200 OK", "\"path\": \"/hello\""),
        ("/status/503", "503 Service Unavailable", "as you asked"),
        ("/bytes/64", "200 OK", "XYZ+\n"),
        ("/delay/1", "200 OK", "\"x-marker\": \"yes\""),
    ] {
        let response = ask(&mut client, &format!("GET {path}"), "");
        assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{response}");
        assert!(response.contains(wanted), "{response}");
    }
}

#[test]
fn a_posted_body_is_counted_whether_sized_or_chunked() {
    let upstream = start();
    let mut client = connect(&upstream);
    let sized = format!("content-length: 100000\r\n\r\n{}", "x".repeat(100_000));
    assert!(ask(&mut client, "POST /", &sized).contains("\"body_bytes\": 100000"));
    let chunked = "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    assert!(ask(&mut client, "PUT /", chunked).contains("\"body_bytes\": 7"));
}

#[test]
fn head_of_a_terabyte_is_only_its_head() {
    let upstream = start();
    let mut client = connect(&upstream);
    client.write_all(b"HEAD /bytes/1099511627776 HTTP/1.1\r\nhost: demo\r\n\r\n").unwrap();
    let head = read_head(&mut client);
    assert!(head.contains("content-length: 1099511627776\r\n"), "{head}");
}

#[test]
fn trailers_reach_a_client_that_wants_them() {
    let upstream = start();
    let mut client = connect(&upstream);
    let request =
        "GET /trailers HTTP/1.1\r\nhost: demo\r\nte: trailers\r\nconnection: close, te\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.contains("transfer-encoding: chunked\r\n"), "{response}");
    assert!(response.ends_with("\r\n0\r\nx-demo-trailer: the end\r\n\r\n"), "{response}");
}

#[test]
fn dropping_the_upstream_ends_idle_connections_and_its_port() {
    let upstream = start();
    let address = upstream.address();
    let mut client = connect(&upstream);
    ask(&mut client, "GET /", "");
    drop(upstream);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    TcpStream::connect(address).unwrap_err();
}

#[tokio::test]
async fn a_websocket_client_gets_its_messages_back() {
    let upstream = start();
    let url = format!("ws://{}/ws", upstream.address());
    let talk = async {
        let (mut socket, response) = tokio_tungstenite::connect_async(url).await.unwrap();
        assert_eq!(response.status(), 101);
        let long = "ü".repeat(100_000);
        for message in [
            Message::text("hello"),
            Message::text(long),
            Message::binary(vec![0, 255, 7]),
            Message::text(""),
        ] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        socket.send(Message::Ping("are you there".into())).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("are you there".into()));
        socket.close(None).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Close(None));
        assert!(socket.next().await.is_none());
    };
    tokio::time::timeout(DEADLINE, talk).await.unwrap();
}

#[tokio::test]
async fn a_message_over_a_mebibyte_closes_the_websocket() {
    let upstream = start();
    let url = format!("ws://{}/ws", upstream.address());
    let talk = async {
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let largest = Message::binary(vec![7; 1024 * 1024]);
        socket.send(largest.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), largest);
        // It may close before all of it is written.
        let _written = socket.send(Message::binary(vec![7; 1024 * 1024 + 1])).await;
        assert!(!matches!(socket.next().await, Some(Ok(Message::Binary(_)))));
    };
    tokio::time::timeout(DEADLINE, talk).await.unwrap();
}

#[test]
fn a_request_that_is_no_websocket_handshake_is_asked_to_upgrade() {
    let upstream = start();
    let mut client = connect(&upstream);
    client.write_all(b"GET /ws HTTP/1.1\r\nhost: demo\r\n\r\n").unwrap();
    let head = read_head(&mut client);
    assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
}

fn start() -> Upstream {
    Upstream::start((Ipv4Addr::LOCALHOST, port::free_port()).into()).unwrap()
}

fn connect(upstream: &Upstream) -> TcpStream {
    let client = TcpStream::connect(upstream.address()).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client
}

/// Sends a request whose `rest` is its last fields and its body, and reads the answer.
fn ask(client: &mut TcpStream, line: &str, rest: &str) -> String {
    let rest = if rest.is_empty() { "\r\n" } else { rest };
    let request = format!("{line} HTTP/1.1\r\nhost: demo\r\nx-marker: yes\r\n{rest}");
    client.write_all(request.as_bytes()).unwrap();
    let head = read_head(client);
    let (_, length) = head.split_once("content-length: ").unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    client.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn read_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}
