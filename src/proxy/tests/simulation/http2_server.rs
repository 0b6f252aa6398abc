//! A server of the simulation that speaks HTTP/2.

use super::{
    http2_body::{piece_of, send_part},
    message::body,
    plan::one_of,
    server::{Behaviour, Framing, ServerBehavior, Servers},
};
use crate::clock::Clock;
use bytes::Bytes;
use core::future::poll_fn;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{Request, Response};
use tokio::{
    io::{AsyncReadExt, DuplexStream, Join, join, split},
    sync::mpsc,
    task::JoinSet,
};

/// What a client sends first, as far as it looks like a request of HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// What becomes of a connection after a request.
enum After {
    /// It takes no more requests.
    GoAway,
    /// It breaks off.
    Close,
}

/// Serves connection `number` until it ends; the first lines of its preface have come.
pub(super) async fn serve(servers: &Servers, stream: DuplexStream, clock: &Clock, number: u64) {
    let mut rng = servers.rng_of(number);
    let begun = h2::server::Builder::new()
        .initial_window_size(*one_of(&mut rng, &[64, 1_000, 65_535, 1 << 20]))
        .max_concurrent_streams(servers.streams_max(&mut rng))
        .handshake::<_, Bytes>(with_preface(stream))
        .await;
    let Ok(mut connection) = begun else { return };
    let (after, mut events) = mpsc::unbounded_channel();
    // Requests end with their connection.
    let mut requests = JoinSet::new();
    loop {
        let (request, respond) = tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(After::GoAway) => {
                    connection.graceful_shutdown();
                    continue;
                }
                Some(After::Close) | None => return,
            },
            accepted = connection.accept() => match accepted {
                Some(Ok(accepted)) => accepted,
                Some(Err(_)) | None => return,
            },
        };
        let servers = servers.clone();
        let clock = clock.clone();
        let after = after.clone();
        requests.spawn(async move {
            if let Some(event) = answer(&servers, &clock, request, respond).await {
                // The connection may have ended.
                let _gone = after.send(event);
            }
        });
    }
}

/// Puts what has been read of the preface before the rest.
fn with_preface(
    stream: DuplexStream,
) -> Join<impl tokio::io::AsyncRead + Unpin, impl tokio::io::AsyncWrite + Unpin> {
    let (rest, writer) = split(stream);
    join(PREFACE.chain(rest), writer)
}

/// Answers one request.
async fn answer(
    servers: &Servers,
    clock: &Clock,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<After> {
    let (head, mut content) = request.into_parts();
    let id: u64 = head.uri.path().strip_prefix("/r/")?.parse().expect("a number");
    if servers.refuses(id) {
        respond.send_reset(Reason::REFUSED_STREAM);
        return None;
    }
    let (behavior, index) = servers.arrive(id, head.method.as_str());
    let arrival = (id, index);
    if behavior.behaviour == Behaviour::Close {
        return Some(After::Close);
    }
    let is_early = matches!(behavior.behaviour, Behaviour::AnswerEarly { .. });
    if !is_early {
        read_body(servers, &mut content, arrival).await?;
    }
    clock.sleep_until(clock.now() + behavior.delay).await;
    match behavior.behaviour {
        Behaviour::Hang => {
            // Until the gateway resets the stream.
            let _reset = poll_fn(|context| respond.poll_reset(context)).await;
            return None;
        }
        Behaviour::Garbage => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return None;
        }
        Behaviour::Answer
        | Behaviour::AnswerEarly { .. }
        | Behaviour::Close
        | Behaviour::CloseInAnswer => {}
    }
    write_answer(respond, &behavior, id, head.method == "HEAD").await?;
    if behavior.behaviour == (Behaviour::AnswerEarly { reads: true }) {
        read_body(servers, &mut content, arrival).await?;
    }
    behavior.closes.then_some(After::GoAway)
}

/// Reads the body. `None`: its end does not come.
async fn read_body(
    servers: &Servers,
    content: &mut RecvStream,
    arrival: (u64, usize),
) -> Option<()> {
    let mut bytes = Vec::new();
    let is_whole = loop {
        match content.data().await {
            None => break content.trailers().await.is_ok(),
            Some(Err(_)) => break false,
            Some(Ok(part)) => {
                bytes.extend_from_slice(&part);
                let _released = content.flow_control().release_capacity(part.len());
            }
        }
    };
    servers.receive(arrival, &bytes, is_whole);
    is_whole.then_some(())
}

/// Sends the answer. `None`: it is not whole.
async fn write_answer(
    mut respond: SendResponse<Bytes>,
    behavior: &ServerBehavior,
    id: u64,
    is_head: bool,
) -> Option<()> {
    for _ in 0..behavior.interim {
        let hints = Response::builder().status(103).header("link", "</a.css>");
        respond.send_informational(hints.body(()).expect("an answer")).ok()?;
    }
    let has_none = is_head || matches!(behavior.status, 204 | 304);
    let length = if has_none { 0 } else { behavior.length };
    let mut head = Response::builder().status(behavior.status).header("x-id", id);
    if !has_none && behavior.framing == Framing::Length {
        head = head.header("content-length", length);
    }
    let breaks = behavior.behaviour == Behaviour::CloseInAnswer;
    let is_end = length == 0 && !breaks;
    let mut stream = respond.send_response(head.body(()).expect("an answer"), is_end).ok()?;
    for piece in body(id, length).chunks(piece_of(length, behavior.piece)) {
        send_part(&mut stream, Bytes::copy_from_slice(piece)).await?;
        if breaks {
            break;
        }
    }
    if breaks {
        stream.send_reset(Reason::INTERNAL_ERROR);
        return None;
    }
    if !is_end {
        stream.send_data(Bytes::new(), true).ok()?;
    }
    Some(())
}
