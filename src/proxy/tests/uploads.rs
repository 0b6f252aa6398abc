//! Bodies of requests on their way: who may take how long, and who is blamed.

use super::{House, read_head, secs};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    task::JoinHandle,
};

#[tokio::test(start_paused = true)]
async fn an_upload_under_way_does_not_use_up_the_first_byte_timeout() {
    let mut house = House::new(", timeouts: { first_byte: 60s, idle: 50s }");
    let mut client = house.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n").await;
    let mut upstream = house.upstream.recv().await.expect("a connection");
    let answering = tokio::spawn(async move {
        read_head(&mut upstream).await.expect("a head");
        let mut body = [0; 4];
        upstream.read_exact(&mut body).await.expect("the whole body");
        upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
        upstream
    });
    for byte in ["a", "b", "c", "d"] {
        house.worker.clock.sleep_until(house.now() + secs(40)).await;
        client.send(byte).await;
    }
    assert_eq!(client.status().await, Some(204));
    drop(answering.await.expect("no panic"));
}

/// Reads a request with a body of four bytes, and answers `pause` seconds after it.
fn answer_later(house: &House, mut upstream: DuplexStream, pause: u64) -> JoinHandle<()> {
    let clock = house.worker.clock.clone();
    tokio::spawn(async move {
        read_head(&mut upstream).await.expect("a head");
        let mut body = [0; 4];
        upstream.read_exact(&mut body).await.expect("the whole body");
        clock.sleep_until(clock.now() + secs(pause)).await;
        // The gateway may have given up.
        let _sent = upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    })
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_timeout_begins_at_the_end_of_the_upload() {
    for (upload, pause, status, total) in
        [(59, 50, 204, 109), (59, 70, 504, 119), (61, 70, 504, 121), (0, 70, 504, 60)]
    {
        let mut house = House::new(", timeouts: { first_byte: 60s, idle: 2m }");
        let begun = house.now();
        let mut client = house.client();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab").await;
        let upstream = house.upstream.recv().await.expect("a connection");
        let answering = answer_later(&house, upstream, pause);
        house.pass(secs(upload)).await;
        client.send("cd").await;
        assert_eq!(client.status().await, Some(status), "{upload} s, then {pause} s");
        let took = house.now().since(begun);
        assert!((secs(total)..secs(total + 1)).contains(&took), "{upload}, {pause}: {took:?}");
        answering.await.expect("no panic");
    }
}
