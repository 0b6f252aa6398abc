//! The servers of the simulation, and what came to them.

use super::{
    http1_server, http2_server,
    message::{Head, is_of},
    plan::{Outage, Plan, millis, one_of},
};
use crate::proxy::upstream::connect::SimulatedNetwork;
use crate::{clock::Clock, flow::Instant};
use core::time::Duration;
use fastrand::Rng;
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::io::{DuplexStream, duplex};

/// What the gateway keeps of a request's body, to send it again.
const KEPT_BYTES: usize = 64 * 1024;

/// All servers.
#[derive(Clone)]
pub(super) struct Servers {
    shared: Arc<Shared>,
}

struct Shared {
    seed: u64,
    are_well: bool,
    /// Requests with more of a body than the gateway keeps.
    large: HashSet<u64>,
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
    /// Requests that a server has refused without looking at them.
    refused: HashSet<u64>,
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
    /// It closes the connection in the middle of the answer; in HTTP/2 it resets the stream.
    CloseInAnswer,
    /// It never answers.
    Hang,
    /// It sends what is no HTTP; in HTTP/2 it resets the stream.
    Garbage,
}

/// How the answer comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerBehavior {
    pub(super) behaviour: Behaviour,
    pub(super) delay: Duration,
    pub(super) status: u16,
    pub(super) interim: usize,
    pub(super) length: usize,
    /// In HTTP/1.1.
    pub(super) framing: Framing,
    pub(super) piece: usize,
    /// Whether the connection takes no more requests.
    pub(super) closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length,
    Chunks,
    Close,
}

impl Servers {
    pub(super) fn new(plan: &Plan) -> Self {
        let requests = plan.connections.iter().flat_map(|connection| &connection.requests);
        let large = requests.filter(|request| request.body.length() > KEPT_BYTES);
        let shared = Shared {
            seed: plan.seed,
            are_well: plan.are_servers_well,
            large: large.map(|request| request.id).collect(),
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
    pub(super) fn network(&self) -> SimulatedNetwork {
        let servers = self.clone();
        SimulatedNetwork::new(move |port| {
            let servers = servers.clone();
            Box::pin(async move { servers.connect(port).await })
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

    async fn connect(&self, port: u16) -> io::Result<DuplexStream> {
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
        let mut rng = self.rng_of(number);
        if !self.shared.are_well && rng.u8(..10) == 0 {
            clock.sleep_until(clock.now() + millis(&mut rng, 3_000)).await;
        }
        let (near, far) = duplex(*one_of(&mut rng, &[64, 1024, 64 * 1024]));
        let servers = self.clone();
        self.shared.open.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            servers.serve(far, &clock, number).await;
            servers.shared.open.fetch_sub(1, Relaxed);
        });
        Ok(near)
    }

    /// Serves connection `number` until it ends, in the protocol that the gateway speaks.
    async fn serve(&self, mut stream: DuplexStream, clock: &Clock, number: u64) {
        let Some(first) = Head::read(&mut stream).await else { return };
        if first.first == "PRI * HTTP/2.0" {
            http2_server::serve(self, stream, clock, number).await;
        } else {
            http1_server::serve(self, stream, clock, first).await;
        }
    }

    /// Draws how connection `number` behaves.
    pub(super) fn rng_of(&self, number: u64) -> Rng {
        Rng::with_seed(self.shared.seed ^ (number << 20))
    }

    /// Draws how many requests a connection of HTTP/2 carries at once. A good server allows as many
    /// as the gateway expects: of what waits for its turn when a connection ends, the gateway cannot
    /// know that it was not sent.
    pub(super) fn streams_max(&self, rng: &mut Rng) -> u32 {
        if self.shared.are_well { 100 } else { *one_of(rng, &[1, 3, 100]) }
    }

    /// Whether request `id` is refused before anything of it is looked at: once at most, and by a
    /// good server only if the gateway can send all of it again.
    pub(super) fn refuses(&self, id: u64) -> bool {
        let mut rng = Rng::with_seed(self.shared.seed ^ (id << 40));
        let is_spared = self.shared.are_well && self.shared.large.contains(&id);
        let is_chosen = rng.u8(..8) == 0 && !is_spared;
        is_chosen && self.lock().refused.insert(id)
    }

    /// Notes that a request has come. Returns how it is answered, and its number among all.
    pub(super) fn arrive(&self, id: u64, method: &str) -> (ServerBehavior, usize) {
        let mut state = self.lock();
        let attempt = state.attempts.entry(id).or_default();
        *attempt += 1;
        let behavior = ServerBehavior::draw(self.shared.seed, id, *attempt, self.shared.are_well);
        let index = state.arrivals.len();
        state.arrivals.push(Arrival { id, method: method.to_owned(), body: None });
        (behavior, index)
    }

    /// Notes what came of the body of the request `id`, the arrival number `index`.
    pub(super) fn receive(&self, (id, index): (u64, usize), bytes: &[u8], is_whole: bool) {
        let received = Received { length: bytes.len(), is_whole, is_right: is_of(id, bytes) };
        self.lock().arrivals[index].body = Some(received);
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
