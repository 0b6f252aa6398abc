//! A client of the simulation that speaks HTTP/2: its requests are streams of one connection.

use super::{
    client::{Answer, Exchange, STALL, unanswered},
    http2_body::{LONG_PIECE, piece_of, send_part},
    message::{body, is_of},
    plan::{Body, Connection, Http2, Leave, Request},
};
use crate::clock::Clock;
use bytes::Bytes;
use core::{future::pending, time::Duration};
use h2::{RecvStream, SendStream, client::SendRequest};
use http::HeaderMap;
use tokio::{io::DuplexStream, task::JoinSet};

/// What the client takes of all answers, in bytes. More than all streams together may have, so that
/// a stream that stalls keeps no other one waiting.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Sends all requests, and returns what came of those that were sent.
pub(super) async fn talk(
    stream: DuplexStream,
    clock: &Clock,
    plan: &Connection,
    http2: Http2,
) -> Vec<Exchange> {
    clock.sleep_until(clock.now() + plan.starts_at).await;
    let begun = h2::client::Builder::new()
        .initial_window_size(http2.window)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(stream)
        .await;
    let Ok((client, connection)) = begun else { return Vec::new() };
    let driver = tokio::spawn(connection);
    let mut streams = JoinSet::new();
    for request in &plan.requests {
        streams.spawn(exchange(client.clone(), clock.clone(), request.clone()));
    }
    let seen = async {
        let mut seen = Vec::new();
        while let Some(ended) = streams.join_next().await {
            seen.extend(ended.expect("no panic"));
        }
        seen
    };
    let seen = match http2.leaves_after {
        None => seen.await,
        // All at once, without a word.
        Some(time) => clock.timeout(time, seen).await.unwrap_or_default(),
    };
    if http2.leaves_after.is_some() {
        driver.abort();
    }
    // The connection says GOAWAY, and closes.
    drop(client);
    drop(streams);
    let _ended = driver.await;
    seen
}

/// Sends one request and reads its answer. `None`: it was not sent.
async fn exchange(client: SendRequest<Bytes>, clock: Clock, request: Request) -> Option<Exchange> {
    clock.sleep_until(clock.now() + request.pause).await;
    let mut client = client.ready().await.ok()?;
    let has_none = request.body == Body::None;
    let (response, stream) = client.send_request(head(&request), has_none).ok()?;
    drop(client);
    let mut exchange = Exchange { is_head_sent: true, ..unanswered(&request) };
    let leaving = async {
        if send(stream, &clock, &request).await.is_some() {
            // The answer ends the exchange.
            pending::<()>().await;
        }
    };
    let reading = async {
        let response = response.await.ok()?;
        Some(receive(response, &clock, &request).await)
    };
    exchange.answer = tokio::select! {
        biased;
        answer = reading => answer,
        // Its stream is reset.
        () = leaving => None,
    };
    Some(exchange)
}

fn head(request: &Request) -> http::Request<()> {
    let Request { id, method, client, .. } = request;
    let mut head = http::Request::builder()
        .method(*method)
        .uri(format!("http://a.test/r/{id}"))
        .header("x-client", format!("c{client}"));
    if let Body::Length(length) = request.body {
        head = head.header("content-length", length);
    }
    head.body(()).expect("a request")
}

/// Sends the body. `None`: the client leaves.
async fn send(mut stream: SendStream<Bytes>, clock: &Clock, request: &Request) -> Option<()> {
    let content = body(request.id, request.body.length());
    let most = if let Leave::Sending(most) = request.leave { most } else { usize::MAX };
    let sent = &content[..content.len().min(most)];
    for part in sent.chunks(piece_of(content.len(), request.piece)) {
        if send_part(&mut stream, Bytes::copy_from_slice(part)).await.is_none() {
            // The gateway takes no more. Its answer may still come.
            return pending().await;
        }
        if !request.piece_pause.is_zero() && content.len() < LONG_PIECE {
            clock.sleep_until(clock.now() + request.piece_pause).await;
        }
    }
    if content.len() > most {
        return None;
    }
    if request.body != Body::None {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().expect("a value"));
        let _ended = match request.body {
            Body::Chunks(_, true) => stream.send_trailers(trailers),
            Body::None | Body::Length(_) | Body::Chunks(_, false) => {
                stream.send_data(Bytes::new(), true)
            }
        };
    }
    if let Leave::Waiting(pause) = request.leave {
        clock.sleep_until(clock.now() + pause).await;
        return None;
    }
    Some(())
}

/// Reads an answer, as fast as the request's client does.
async fn receive(response: http::Response<RecvStream>, clock: &Clock, request: &Request) -> Answer {
    let (head, mut stream) = response.into_parts();
    let of =
        head.headers.get("x-id").map(|id| id.to_str().expect("text").parse().expect("a number"));
    let mut bytes = Vec::new();
    let is_whole = loop {
        let part = match stream.data().await {
            None => break stream.trailers().await.is_ok(),
            Some(Err(_)) => break false,
            Some(Ok(part)) => part,
        };
        let before = bytes.len();
        bytes.extend_from_slice(&part);
        if matches!(request.leave, Leave::Reading(most) if bytes.len() >= most) {
            break false;
        }
        let stalls =
            matches!(request.leave, Leave::Stalling(at) if (before..bytes.len()).contains(&at));
        let is_due = before / 512 != bytes.len() / 512;
        let pause = if is_due { request.read_pause } else { Duration::ZERO };
        let pause = if stalls { STALL } else { pause };
        if !pause.is_zero() {
            clock.sleep_until(clock.now() + pause).await;
        }
        let _released = stream.flow_control().release_capacity(part.len());
    };
    let is_right = of.is_none_or(|of| is_of(of, &bytes));
    Answer { status: head.status.as_u16(), of, length: bytes.len(), is_whole, is_right }
}
