//! A server of the simulation that speaks HTTP/1.1.

use super::{
    message::{Content, Head, body},
    server::{Behaviour, Framing, ServerBehavior, Servers},
};
use crate::clock::Clock;
use tokio::io::{AsyncWriteExt, DuplexStream};

/// Serves a connection until it ends; `first` has come on it.
pub(super) async fn serve(servers: &Servers, mut stream: DuplexStream, clock: &Clock, first: Head) {
    let mut next = Some(first);
    while let Some(head) = next {
        if answer(servers, &mut stream, clock, &head).await.is_none() {
            return;
        }
        next = Head::read(&mut stream).await;
    }
}

/// Answers one request. `None`: the connection ends.
async fn answer(
    servers: &Servers,
    stream: &mut DuplexStream,
    clock: &Clock,
    head: &Head,
) -> Option<()> {
    let mut words = head.first.split(' ');
    let method = words.next()?.to_owned();
    let id: u64 = words.next()?.strip_prefix("/r/")?.parse().expect("a number");
    let (behavior, index) = servers.arrive(id, &method);
    if behavior.behaviour == Behaviour::Close {
        return None;
    }
    let is_early = matches!(behavior.behaviour, Behaviour::AnswerEarly { .. });
    if head.has("expect", "100-continue") && !is_early {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
    }
    if !is_early {
        read_body(servers, stream, head, (id, index)).await?;
    }
    clock.sleep_until(clock.now() + behavior.delay).await;
    if behavior.behaviour == Behaviour::Hang {
        // Until the gateway closes the connection.
        while Head::read(stream).await.is_some() {}
        return None;
    }
    if behavior.behaviour == Behaviour::Garbage {
        stream.write_all(b"this is not HTTP\r\n\r\n").await.ok()?;
        return None;
    }
    write_answer(stream, &behavior, (id, &method)).await?;
    if let Behaviour::AnswerEarly { reads } = behavior.behaviour {
        if !reads && has_body(head) {
            return None;
        }
        read_body(servers, stream, head, (id, index)).await?;
    }
    (!behavior.closes).then_some(())
}

async fn read_body(
    servers: &Servers,
    stream: &mut DuplexStream,
    head: &Head,
    arrival: (u64, usize),
) -> Option<()> {
    let content = Content::read(stream, head, (false, false), |_| async {}).await;
    servers.receive(arrival, &content.bytes, content.is_whole);
    content.is_whole.then_some(())
}

fn has_body(head: &Head) -> bool {
    head.get("content-length").is_some_and(|length| length != "0")
        || head.get("transfer-encoding").is_some()
}

async fn write_answer(
    stream: &mut DuplexStream,
    behavior: &ServerBehavior,
    (id, method): (u64, &str),
) -> Option<()> {
    for _ in 0..behavior.interim {
        stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n").await.ok()?;
    }
    let status = behavior.status;
    let has_none = method == "HEAD" || status == 204 || status == 304;
    let length = if has_none { 0 } else { behavior.length };
    let mut head = format!("HTTP/1.1 {status} X\r\nx-id: {id}\r\n");
    if behavior.closes {
        head.push_str("connection: close\r\n");
    }
    if !has_none {
        let framing = match &behavior.framing {
            Framing::Length => format!("content-length: {length}\r\n"),
            Framing::Chunks => "transfer-encoding: chunked\r\n".to_owned(),
            Framing::Close => String::new(),
        };
        head.push_str(&framing);
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    if has_none {
        return Some(());
    }
    let body = body(id, length);
    for (number, piece) in body.chunks(behavior.piece).enumerate() {
        if behavior.behaviour == Behaviour::CloseInAnswer && number > 0 {
            return None;
        }
        if behavior.framing == Framing::Chunks {
            let size = format!("{:x}\r\n", piece.len());
            stream.write_all(size.as_bytes()).await.ok()?;
        }
        stream.write_all(piece).await.ok()?;
        if behavior.framing == Framing::Chunks {
            stream.write_all(b"\r\n").await.ok()?;
        }
    }
    if behavior.behaviour == Behaviour::CloseInAnswer {
        return None;
    }
    if behavior.framing == Framing::Chunks {
        stream.write_all(b"0\r\n\r\n").await.ok()?;
    }
    Some(())
}
