//! Connections to servers that close them when they are idle.

use super::{TestProxy, read_head, secs};
use core::time::Duration;
use tokio::io::AsyncWriteExt;

/// Has a request answered with `headers`, and another one `pause` later. Returns whether the
/// second one came over the connection of the first.
async fn is_used_again(headers: &str, pause: Duration) -> bool {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    let mut server = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut server).await.expect("a head");
    let answer = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 2\r\n\r\nok");
    server.write_all(answer.as_bytes()).await.expect("sent");
    let head = read_head(&mut client.stream).await.expect("an answer");
    assert!(!head.contains("keep-alive"), "it is the server's word to the gateway: {head}");
    proxy.pass(pause).await;
    let mut other = proxy.client();
    other.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    proxy.pass(Duration::from_millis(1)).await;
    proxy.upstream.try_recv().is_err()
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_given_up_before_node_closes_it() {
    assert!(is_used_again("", Duration::from_millis(3_990)).await);
    assert!(!is_used_again("", Duration::from_millis(4_010)).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_sooner_is_believed() {
    let announced = "keep-alive: timeout=3\r\n";
    assert!(is_used_again(announced, Duration::from_millis(1_990)).await);
    assert!(!is_used_again(announced, Duration::from_millis(2_010)).await);
    assert!(!is_used_again("keep-alive: timeout=0\r\n", Duration::ZERO).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_later_does_not_lengthen_the_setting() {
    assert!(!is_used_again("keep-alive: timeout=60\r\n", secs(5)).await);
}
