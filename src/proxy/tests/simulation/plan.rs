//! What one run does, drawn from its seed.

use core::time::Duration;
use fastrand::Rng;

/// Ports of the upstream's servers; nothing listens there.
pub(super) const PORTS: [u16; 3] = [9001, 9002, 9003];

/// Before a request is sent; the longest is longer than an idle connection is kept.
const PAUSES: [Duration; 6] =
    [Duration::ZERO, Duration::ZERO, Duration::from_millis(30), secs(1), secs(3), secs(90)];

/// One run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// The configuration to begin with, and those of the edits.
    pub(super) configurations: Vec<String>,
    pub(super) edits: Vec<Edit>,
    pub(super) connections: Vec<Connection>,
    /// When the gateway begins to end, if it does before its clients.
    pub(super) drain_at: Option<Duration>,
    /// Whether servers always accept connections and answer well.
    pub(super) are_servers_well: bool,
    /// Servers cannot be reached in these times.
    pub(super) outages: Vec<Outage>,
}

/// An edit of the file.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) at: Duration,
    /// Which of the configurations.
    pub(super) to: usize,
}

/// A time in which a server refuses connections, or does not answer them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) port: u16,
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) is_silent: bool,
}

/// A client's connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) seed: u64,
    pub(super) starts_at: Duration,
    /// How many bytes its stream holds in each direction.
    pub(super) buffer: usize,
    /// The most bytes that the gateway reads or writes at once.
    pub(super) portion: usize,
    /// The gateway sees the connection reset after so many bytes.
    pub(super) reset_after: Option<usize>,
    /// Whether requests are sent before the answers to those before them, in HTTP/1.1.
    pub(super) is_pipelined: bool,
    /// How the client speaks HTTP/2; `None`: it speaks HTTP/1.1.
    pub(super) http2: Option<Http2>,
    pub(super) requests: Vec<Request>,
}

/// A client of HTTP/2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Http2 {
    /// What it takes of an answer at once, in bytes.
    pub(super) window: u32,
    /// When it closes the connection, whatever its requests are at.
    pub(super) leaves_after: Option<Duration>,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) method: &'static str,
    pub(super) body: Body,
    /// The value of the field that one rule counts by.
    pub(super) client: u32,
    pub(super) expects_continue: bool,
    pub(super) closes: bool,
    /// Before it is sent.
    pub(super) pause: Duration,
    /// How many bytes are sent at once, and the pause after each of these.
    pub(super) piece: usize,
    pub(super) piece_pause: Duration,
    pub(super) leave: Leave,
    /// The pause after each 512 bytes that the client reads.
    pub(super) read_pause: Duration,
}

/// A request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Length(usize),
    /// Chunks, and whether a trailer follows.
    Chunks(Vec<usize>, bool),
}

impl Body {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Length(length) => *length,
            Self::Chunks(chunks, _) => chunks.iter().sum(),
        }
    }
}

/// When a client leaves of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Never,
    /// After so many bytes of the request.
    Sending(usize),
    /// So long after the request was sent.
    Waiting(Duration),
    /// It ends its own direction once the request is sent, and reads on.
    HalfClosing,
    /// After so many bytes of the answer.
    Reading(usize),
    /// It reads so many bytes of the answer, then nothing for a long time.
    Stalling(usize),
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let are_servers_well = rng.u8(..3) == 0;
        let servers = rng.usize(1..=PORTS.len());
        let configurations: Vec<String> =
            (0..rng.usize(1..4)).map(|_| configuration(rng, servers)).collect();
        let mut edits: Vec<Edit> = (0..rng.usize(..5))
            .map(|_| Edit { at: millis(rng, 20_000), to: rng.usize(..configurations.len()) })
            .collect();
        edits.sort_by_key(|edit| edit.at);
        let outages = if are_servers_well { 0 } else { rng.usize(..4) };
        let outages = (0..outages).map(|_| Outage::draw(rng, servers)).collect();
        let mut next = 0;
        let connections = (0..rng.usize(4..20)).map(|_| Connection::draw(rng, &mut next)).collect();
        let drain_at = (rng.u8(..4) == 0).then(|| millis(rng, 15_000));
        Self { seed, configurations, edits, connections, drain_at, are_servers_well, outages }
    }
}

impl Outage {
    fn draw(rng: &mut Rng, servers: usize) -> Self {
        let from = millis(rng, 15_000);
        let to = from + millis(rng, 10_000);
        Self { port: PORTS[rng.usize(..servers)], from, to, is_silent: rng.bool() }
    }
}

impl Connection {
    fn draw(rng: &mut Rng, next: &mut u64) -> Self {
        let portion = *one_of(rng, &[1, 7, 100, 1 << 20, 1 << 20]);
        let requests = (0..rng.usize(1..10))
            .map(|_| {
                *next += 1;
                Request::draw(rng, *next, portion)
            })
            .collect();
        let seed = rng.u64(..);
        let starts_at = millis(rng, 5_000);
        let buffer = *one_of(rng, &[64, 1024, 64 * 1024]);
        let reset_after = (rng.u8(..10) == 0).then(|| rng.usize(..4_000));
        let http2 = (rng.u8(..3) == 0).then(|| Http2::draw(rng));
        let is_pipelined = rng.u8(..6) == 0 && http2.is_none();
        Self { seed, starts_at, buffer, portion, reset_after, is_pipelined, http2, requests }
    }
}

impl Http2 {
    fn draw(rng: &mut Rng) -> Self {
        let window = *one_of(rng, &[64, 1_000, 65_535]);
        let leaves_after = (rng.u8(..8) == 0).then(|| millis(rng, 10_000));
        Self { window, leaves_after }
    }
}

impl Request {
    fn draw(rng: &mut Rng, id: u64, portion: usize) -> Self {
        let method = *one_of(rng, &["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE"]);
        // Byte by byte, a large body would take as long as many seeds.
        let largest = if portion < 50 { 2_000 } else { 100_000 };
        let body = match (method, rng.u8(..4)) {
            ("GET" | "HEAD", _) | (_, 0) => Body::None,
            (_, 1) => Body::Length((*one_of(rng, &[0, 1, 100, 5_000, 100_000])).min(largest)),
            _ => {
                let chunks = (0..rng.usize(..6)).map(|_| rng.usize(1..largest / 10)).collect();
                Body::Chunks(chunks, rng.u8(..4) == 0)
            }
        };
        let expects_continue = body != Body::None && rng.u8(..4) == 0;
        Self {
            id,
            method,
            body,
            client: rng.u32(..6),
            expects_continue,
            closes: rng.u8(..16) == 0,
            pause: *one_of(rng, &PAUSES),
            piece: *one_of(rng, &[3, 50, 1_000, 1 << 20, 1 << 20]),
            piece_pause: if rng.u8(..4) == 0 { millis(rng, 50) } else { Duration::ZERO },
            leave: Leave::draw(rng),
            read_pause: if rng.u8(..6) == 0 { millis(rng, 100) } else { Duration::ZERO },
        }
    }
}

impl Leave {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..40) {
            0 => Self::Sending(rng.usize(..300)),
            1 => Self::Sending(rng.usize(..20_000)),
            2 => Self::Waiting(millis(rng, 100)),
            3 => Self::Waiting(millis(rng, 5_000)),
            4 => Self::HalfClosing,
            5 => Self::Reading(rng.usize(1..40_000)),
            6 => Self::Stalling(rng.usize(1..1_000)),
            _ => Self::Never,
        }
    }
}

/// Returns a configuration. All have the same servers, as tests have no others.
fn configuration(rng: &mut Rng, servers: usize) -> String {
    let urls: Vec<String> = PORTS[..servers]
        .iter()
        .map(|port| format!("{{ url: \"http://127.0.0.1:{port}\" }}"))
        .collect();
    let balance = one_of(rng, &["round_robin", "least_request", "random", "hash"]);
    // The servers speak both.
    let protocol = one_of(rng, &["h1", "h1", "h2"]);
    let ejection = if rng.bool() { "" } else { ", ejection: { most_percent: 0 }" };
    format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         upstreams:\n  - {{ name: up, servers: [{}], balance: {balance}, connect_timeout: 2s, protocol: {protocol}{ejection} }}\n\
         routes:\n  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n    \
         timeouts: {{ first_byte: 5s, idle: 5s, request: 30s }}\n{}{}{}{}",
        urls.join(", "),
        rules(rng),
        optional(rng, "    pacing: { rate: 20/1s, max_wait: 2s, max_queue: 10 }\n"),
        optional(rng, "    breaker: { error_ratio: 0.5, min_requests: 5, open_for: 2s }\n"),
        optional(
            rng,
            "    retry: { attempts: 3, on: [connect, reset, 502, 503], methods: [GET, HEAD] }\n"
        ),
    )
}

fn rules(rng: &mut Rng) -> String {
    let limit = rng.u32(1..30);
    let width = rng.u32(1..6);
    let rules = [
        format!("      - {{ name: rate, limit: {limit}/1s }}\n"),
        format!("      - {{ name: window, algorithm: sliding_window, limit: {limit}/2s }}\n"),
        "      - { name: each, limit: 3/1s, key: header:x-client, max_keys: 4 }\n".to_owned(),
        format!("      - {{ name: width, concurrency: {width} }}\n"),
        "      - { name: each-width, concurrency: 2, key: header:x-client }\n".to_owned(),
        "      - { name: log, algorithm: sliding_log, limit: 20/1s, dry_run: true }\n".to_owned(),
    ];
    let chosen: String = rules.into_iter().filter(|_| rng.u8(..3) == 0).collect();
    if chosen.is_empty() { chosen } else { format!("    flow:\n{chosen}") }
}

fn optional(rng: &mut Rng, line: &'static str) -> &'static str {
    if rng.u8(..3) == 0 { line } else { "" }
}

pub(super) fn one_of<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}

pub(super) fn millis(rng: &mut Rng, most: u64) -> Duration {
    Duration::from_millis(rng.u64(..=most))
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
