//! Clients that stop reading a response.

use super::{TestProxy, read_head, secs};
use crate::proxy::connections::registry::Protocol;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// What the connection to the upstream holds by itself.
const LINE: usize = 64 * 1024;

#[tokio::test(start_paused = true)]
async fn nothing_more_is_read_for_a_client_that_has_stopped_reading() {
    // Whatever part of a block its connection takes.
    for taken in [8, 24, 40, 56, 64] {
        let mut proxy = TestProxy::new("");
        let (mut client, far) = duplex(taken * 1024);
        let _connection = proxy.serve(far, Protocol::Http1);
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
        upstream.write_all(response).await.expect("sent");
        read_head(&mut client).await.expect("the answer's head");
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        tokio::spawn(async move {
            let block = vec![0; LINE];
            while let Ok(count) = upstream.write(&block).await {
                counted.fetch_add(count, Ordering::Relaxed);
            }
        });
        // Until it reads as much at once as it ever does.
        let already_read = 1_000_000;
        client.read_exact(&mut vec![0; already_read]).await.expect("passed on");
        proxy.pass(secs(1)).await;
        let buffered = sent.load(Ordering::Relaxed) - already_read - taken * 1024 - LINE;
        assert!(buffered <= 64 * 1024, "{buffered} where {taken} KiB are taken");
    }
}
