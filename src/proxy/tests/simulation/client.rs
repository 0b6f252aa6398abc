//! A client of the simulation, and what it saw.

use super::{
    connect, http2_client,
    message::{Content, Head, body, is_of},
    plan::{Body, Connection, Leave, Request},
};
use crate::clock::Clock;
use crate::proxy::tests::TestProxy;
use core::time::Duration;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::{
    io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split},
    sync::watch,
    task::JoinHandle,
};

/// How long a client reads nothing that stalls. Longer than the gateway waits for it.
pub(super) const STALL: Duration = Duration::from_mins(10);

/// What a client saw of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) id: u64,
    pub(super) method: &'static str,
    /// Whether all of its head was sent.
    pub(super) is_head_sent: bool,
    /// The final answer.
    pub(super) answer: Option<Answer>,
    /// Statuses of the interim answers.
    pub(super) interim: Vec<u16>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The request that the server answered; `None`: the gateway did.
    pub(super) of: Option<u64>,
    pub(super) length: usize,
    pub(super) is_whole: bool,
    pub(super) is_right: bool,
}

impl Exchange {
    pub(super) fn is_whole(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.is_whole)
    }
}

/// How far a connection is, known to its two halves.
struct Progress {
    /// Final answers that have come.
    answered: watch::Sender<usize>,
    /// Interim answers 100 that have come.
    continued: watch::Sender<usize>,
    heads_sent: AtomicUsize,
}

/// Starts a client. Returns what it will have seen, and the gateway's task that serves it.
pub(super) fn start(
    proxy: &TestProxy,
    plan: &Connection,
) -> (JoinHandle<Vec<Exchange>>, JoinHandle<()>) {
    let (stream, served) = connect(proxy, plan);
    let clock = proxy.worker.clock.clone();
    let plan = plan.clone();
    let talking = async move {
        match plan.http2 {
            None => talk(stream, &clock, &plan).await,
            Some(http2) => http2_client::talk(stream, &clock, &plan, http2).await,
        }
    };
    (tokio::spawn(talking), served)
}

async fn talk(stream: DuplexStream, clock: &Clock, plan: &Connection) -> Vec<Exchange> {
    clock.sleep_until(clock.now() + plan.starts_at).await;
    let (mut reader, mut writer) = split(stream);
    let progress = Progress {
        answered: watch::channel(0).0,
        continued: watch::channel(0).0,
        heads_sent: AtomicUsize::new(0),
    };
    let mut seen = Vec::new();
    let sending = async {
        for (index, request) in plan.requests.iter().enumerate() {
            if send(&mut writer, clock, plan, (index, request), &progress).await.is_none() {
                return;
            }
        }
        // The reader ends the conversation.
        core::future::pending::<()>().await;
    };
    let reading = receive(&mut reader, clock, plan, &progress, &mut seen);
    tokio::select! {
        biased;
        () = reading => {}
        () = sending => {}
    }
    let heads = progress.heads_sent.load(Relaxed);
    let rest = plan.requests.iter().take(heads).skip(seen.len());
    let rest: Vec<_> = rest.map(unanswered).collect();
    seen.extend(rest);
    for (index, exchange) in seen.iter_mut().enumerate() {
        exchange.is_head_sent = index < heads;
    }
    seen
}

pub(super) fn unanswered(request: &Request) -> Exchange {
    Exchange {
        id: request.id,
        method: request.method,
        is_head_sent: false,
        answer: None,
        interim: Vec::new(),
    }
}

/// Sends one request. `None`: the client leaves, or cannot send.
async fn send(
    writer: &mut WriteHalf<DuplexStream>,
    clock: &Clock,
    plan: &Connection,
    (index, request): (usize, &Request),
    progress: &Progress,
) -> Option<()> {
    if !plan.is_pipelined {
        let mut answered = progress.answered.subscribe();
        answered.wait_for(|answered| *answered >= index).await.ok()?;
        clock.sleep_until(clock.now() + request.pause).await;
    }
    let head = head(request);
    let most = if let Leave::Sending(most) = request.leave { most } else { usize::MAX };
    send_pieces(writer, clock, request, &head[..head.len().min(most)]).await?;
    if head.len() > most {
        return None;
    }
    progress.heads_sent.fetch_add(1, Relaxed);
    if request.expects_continue {
        wait_for_continue(clock, index, progress).await;
    }
    let content = content(request);
    let rest = most - head.len().min(most);
    send_pieces(writer, clock, request, &content[..content.len().min(rest)]).await?;
    if content.len() > rest {
        return None;
    }
    match request.leave {
        Leave::Waiting(pause) => {
            clock.sleep_until(clock.now() + pause).await;
            None
        }
        Leave::HalfClosing => {
            writer.shutdown().await.ok()?;
            core::future::pending().await
        }
        Leave::Never | Leave::Sending(_) | Leave::Reading(_) | Leave::Stalling(_) => Some(()),
    }
}

async fn wait_for_continue(clock: &Clock, index: usize, progress: &Progress) {
    let mut answered = progress.answered.subscribe();
    let mut continued = progress.continued.subscribe();
    let expected = *continued.borrow() + 1;
    tokio::select! {
        biased;
        _ = continued.wait_for(|continued| *continued >= expected) => {}
        _ = answered.wait_for(|answered| *answered > index) => {}
        () = clock.sleep_until(clock.now() + Duration::from_secs(1)) => {}
    }
}

async fn send_pieces(
    writer: &mut WriteHalf<DuplexStream>,
    clock: &Clock,
    request: &Request,
    bytes: &[u8],
) -> Option<()> {
    for piece in bytes.chunks(request.piece) {
        writer.write_all(piece).await.ok()?;
        // A long body in small pieces would take hours.
        if !request.piece_pause.is_zero() && bytes.len() < 1_000 {
            clock.sleep_until(clock.now() + request.piece_pause).await;
        }
    }
    Some(())
}

fn head(request: &Request) -> Vec<u8> {
    let Request { id, method, client, .. } = request;
    let mut head = format!("{method} /r/{id} HTTP/1.1\r\nhost: a.test\r\nx-client: c{client}\r\n");
    let framing = match &request.body {
        Body::None => String::new(),
        Body::Length(length) => format!("content-length: {length}\r\n"),
        Body::Chunks(..) => "transfer-encoding: chunked\r\n".to_owned(),
    };
    head.push_str(&framing);
    if request.expects_continue {
        head.push_str("expect: 100-continue\r\n");
    }
    if request.closes {
        head.push_str("connection: close\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

fn content(request: &Request) -> Vec<u8> {
    let whole = body(request.id, request.body.length());
    match &request.body {
        Body::None | Body::Length(_) => whole,
        Body::Chunks(chunks, has_trailer) => {
            let mut bytes = Vec::new();
            let mut rest = &whole[..];
            for length in chunks {
                let (chunk, after) = rest.split_at(*length);
                bytes.extend_from_slice(format!("{length:x}\r\n").as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
                rest = after;
            }
            let end = if *has_trailer { "0\r\nx-sum: 1\r\n\r\n" } else { "0\r\n\r\n" };
            bytes.extend_from_slice(end.as_bytes());
            bytes
        }
    }
}

/// Reads answers until the connection ends or the client leaves.
async fn receive(
    reader: &mut ReadHalf<DuplexStream>,
    clock: &Clock,
    plan: &Connection,
    progress: &Progress,
    seen: &mut Vec<Exchange>,
) {
    for request in &plan.requests {
        let mut exchange = unanswered(request);
        let answer = answer(reader, clock, request, progress, &mut exchange.interim).await;
        let is_last = match &answer {
            None => true,
            Some((answer, closes)) => {
                *closes || !answer.is_whole || matches!(request.leave, Leave::Reading(_))
            }
        };
        exchange.answer = answer.map(|(answer, _)| answer);
        seen.push(exchange);
        if is_last {
            return;
        }
        progress.answered.send_modify(|answered| *answered += 1);
    }
}

/// Reads the final answer, and whether the connection ends behind it.
async fn answer(
    reader: &mut ReadHalf<DuplexStream>,
    clock: &Clock,
    request: &Request,
    progress: &Progress,
    interim: &mut Vec<u16>,
) -> Option<(Answer, bool)> {
    let head = loop {
        let head = Head::read(reader).await?;
        let status: u16 = head.first.split(' ').nth(1)?.parse().ok()?;
        if status >= 200 {
            break head;
        }
        interim.push(status);
        if status == 100 {
            progress.continued.send_modify(|continued| *continued += 1);
        }
    };
    let status: u16 = head.first.split(' ').nth(1)?.parse().ok()?;
    let has_none = request.method == "HEAD" || status == 204 || status == 304;
    let read = AtomicUsize::new(0);
    let pace = |bytes: usize| {
        let before = read.fetch_add(bytes, Relaxed);
        let range = before..before + bytes;
        let stalls = matches!(request.leave, Leave::Stalling(at) if range.contains(&at));
        let is_due = range.start / 512 != range.end / 512;
        let pause = if is_due { request.read_pause } else { Duration::ZERO };
        let pause = if stalls { STALL } else { pause };
        async move {
            if !pause.is_zero() {
                clock.sleep_until(clock.now() + pause).await;
            }
        }
    };
    let reading = Content::read(reader, &head, (has_none, true), pace);
    let content = reading.await;
    let of = head.get("x-id").map(|id| id.parse().expect("a number"));
    let answer = Answer {
        status,
        of,
        length: content.bytes.len(),
        is_whole: content.is_whole,
        is_right: of.is_none_or(|of| is_of(of, &content.bytes)),
    };
    Some((answer, head.has("connection", "close")))
}
