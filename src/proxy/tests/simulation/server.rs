//! The servers of the simulation, and what came to them.

use super::{
    message::{Content, Head, body, is_of},
    plan::{Outage, Plan, millis, one_of},
};
use crate::proxy::upstream::connect::Dialer;
use crate::{clock::Clock, flow::Instant};
use core::time::Duration;
use fastrand::Rng;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

/// All servers.
#[derive(Clone)]
pub(super) struct Servers {
    shared: Arc<Shared>,
}

struct Shared {
    seed: u64,
    are_well: bool,
    outages: Vec<Outage>,
    clock: OnceLock<(Clock, Instant)>,
    /// Connections that are open.
    open: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connections: u64,
    arrivals: Vec<Arrival>,
    /// How often each request has come.
    attempts: HashMap<u64, u32>,
}

/// A request that came to a server.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) id: u64,
    pub(super) method: String,
    /// What came of its body, if the server read it.
    pub(super) body: Option<Received>,
}

/// A request's body as a server got it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) length: usize,
    pub(super) is_whole: bool,
    pub(super) is_right: bool,
}

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Answer,
    /// It answers before it has read the body, and then reads it, or not.
    AnswerEarly {
        reads: bool,
    },
    /// It closes the connection without an answer.
    Close,
    /// It closes the connection in the middle of the answer.
    CloseInAnswer,
    /// It never answers.
    Hang,
    /// It sends what is no HTTP.
    Garbage,
}

/// How the answer comes.
#[derive(Clone, Copy, Debug)]
struct ServerBehavior {
    behaviour: Behaviour,
    delay: Duration,
    status: u16,
    interim: usize,
    length: usize,
    framing: Framing,
    piece: usize,
    closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
    Close,
}

impl Servers {
    pub(super) fn new(plan: &Plan) -> Self {
        let shared = Shared {
            seed: plan.seed,
            are_well: plan.are_servers_well,
            outages: plan.outages.clone(),
            clock: OnceLock::new(),
            open: AtomicUsize::new(0),
            state: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Lets them know the time, from now on.
    pub(super) fn keep_time(&self, clock: &Clock) {
        self.shared.clock.get_or_init(|| (clock.clone(), clock.now()));
    }

    /// What connects to them.
    pub(super) fn dialer(&self) -> Dialer {
        let servers = self.clone();
        Dialer::new(move |port| {
            let servers = servers.clone();
            Box::pin(async move { servers.dial(port).await })
        })
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.lock().arrivals.clone()
    }

    pub(super) fn open(&self) -> usize {
        self.shared.open.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn dial(&self, port: u16) -> io::Result<DuplexStream> {
        let (clock, start) = self.shared.clock.get().expect("time is kept").clone();
        let now = clock.now().since(start);
        let outage = self
            .shared
            .outages
            .iter()
            .find(|outage| outage.port == port && outage.from <= now && now < outage.to);
        match outage {
            Some(Outage { is_silent: true, .. }) => core::future::pending().await,
            Some(_) => return Err(io::ErrorKind::ConnectionRefused.into()),
            None => {}
        }
        let number = {
            let mut state = self.lock();
            state.connections += 1;
            state.connections
        };
        let mut rng = Rng::with_seed(self.shared.seed ^ (number << 20));
        if !self.shared.are_well && rng.u8(..10) == 0 {
            clock.sleep_until(clock.now() + millis(&mut rng, 3_000)).await;
        }
        let (near, far) = duplex(*one_of(&mut rng, &[64, 1024, 64 * 1024]));
        let servers = self.clone();
        self.shared.open.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            servers.serve(far, &clock).await;
            servers.shared.open.fetch_sub(1, Relaxed);
        });
        Ok(near)
    }

    /// Serves a connection until it ends.
    async fn serve(&self, mut stream: DuplexStream, clock: &Clock) {
        while let Some(head) = Head::read(&mut stream).await {
            if self.answer(&mut stream, clock, &head).await.is_none() {
                return;
            }
        }
    }

    /// Answers one request. `None`: the connection ends.
    async fn answer(&self, stream: &mut DuplexStream, clock: &Clock, head: &Head) -> Option<()> {
        let mut words = head.first.split(' ');
        let method = words.next()?.to_owned();
        let id: u64 = words.next()?.strip_prefix("/r/")?.parse().expect("a number");
        let (behavior, index) = self.arrive(id, &method);
        if behavior.behaviour == Behaviour::Close {
            return None;
        }
        let is_early = matches!(behavior.behaviour, Behaviour::AnswerEarly { .. });
        if head.has("expect", "100-continue") && !is_early {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
        }
        if !is_early {
            self.read_body(stream, head, (id, index)).await?;
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
            self.read_body(stream, head, (id, index)).await?;
        }
        (!behavior.closes).then_some(())
    }

    fn arrive(&self, id: u64, method: &str) -> (ServerBehavior, usize) {
        let mut state = self.lock();
        let attempt = state.attempts.entry(id).or_default();
        *attempt += 1;
        let behavior = ServerBehavior::draw(self.shared.seed, id, *attempt, self.shared.are_well);
        let index = state.arrivals.len();
        state.arrivals.push(Arrival { id, method: method.to_owned(), body: None });
        (behavior, index)
    }

    async fn read_body(
        &self,
        stream: &mut DuplexStream,
        head: &Head,
        (id, index): (u64, usize),
    ) -> Option<()> {
        let content = Content::read(stream, head, (false, false), |_| async {}).await;
        let received = Received {
            length: content.bytes.len(),
            is_whole: content.is_whole,
            is_right: is_of(id, &content.bytes),
        };
        self.lock().arrivals[index].body = Some(received);
        content.is_whole.then_some(())
    }
}

impl ServerBehavior {
    fn draw(seed: u64, id: u64, attempt: u32, is_well: bool) -> Self {
        let rng = &mut Rng::with_seed(seed ^ (id << 32) ^ (u64::from(attempt) << 56));
        let bad = if is_well { 99 } else { rng.u8(..32) };
        let behaviour = match bad {
            0 => Behaviour::Close,
            1 => Behaviour::CloseInAnswer,
            2 => Behaviour::Hang,
            3 => Behaviour::Garbage,
            4 => Behaviour::AnswerEarly { reads: true },
            5 => Behaviour::AnswerEarly { reads: false },
            _ => Behaviour::Answer,
        };
        let framing = *one_of(
            rng,
            &[
                Framing::Length,
                Framing::Length,
                Framing::Length,
                Framing::Chunks,
                Framing::Chunks,
                Framing::Close,
            ],
        );
        let status =
            if is_well { 200 } else { *one_of(rng, &[200, 200, 200, 204, 304, 404, 500, 503]) };
        let delay = match rng.u8(..6) {
            0 => millis(rng, 1_000),
            1 if !is_well => millis(rng, 8_000),
            _ => Duration::ZERO,
        };
        Self {
            behaviour,
            delay,
            status,
            interim: if rng.u8(..8) == 0 { rng.usize(1..4) } else { 0 },
            length: *one_of(rng, &[0, 2, 2, 300, 1_500, 3_000, 40_000]),
            framing,
            piece: *one_of(rng, &[5, 700, 1 << 20]),
            closes: framing == Framing::Close || rng.u8(..12) == 0,
        }
    }
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
