//! Watches the health of all servers, once for the process: it sends requests to those with health
//! checks, and looks at the share of requests that fail.

use super::{
    connect::{Connector, Offer, Opened},
    error::cause,
    health::{log, observe},
    http2::Stream,
    proxy_header,
};
use crate::proxy::body::request_body::RequestBody;
use crate::proxy::message::Request;
use crate::{
    clock::Clock,
    config::{Live, Server, Snapshot, Upstream},
    flow::Instant,
    health::Check,
};
use core::time::Duration;
use http::{Method, header};
use std::{collections::HashMap, io, sync::Arc};
use tokio::task::JoinSet;

/// The interval in which the configuration in force and the failures are looked at.
const TICK: Duration = Duration::from_secs(1);

/// A server of an upstream: the upstream's name and the server's id.
type Name = (Arc<str>, usize);

/// The health checks of one server.
struct Schedule {
    server: Arc<Server>,
    /// The time of the next one; `None` while one is in progress.
    next: Option<Instant>,
}

/// Watches the servers of the configuration in force, until it is dropped.
#[derive(Debug)]
pub struct HealthWatch {
    clock: Clock,
    live: Arc<Live>,
    connector: Arc<Connector>,
}

impl HealthWatch {
    /// Returns a watch that is to be [run](Self::run). It connects as workers do.
    pub fn new(clock: Clock, live: Arc<Live>, connector: Connector) -> Self {
        Self { clock, live, connector: Arc::new(connector) }
    }

    /// Runs for ever.
    pub async fn run(self) {
        let mut schedules = HashMap::new();
        let mut under_way = JoinSet::new();
        let mut looked = self.clock.now();
        loop {
            let snapshot = self.live.load_full();
            let now = self.clock.now();

            if now.since(looked) >= TICK {
                looked = now;
                observe(snapshot.upstreams.iter().map(|upstream| &**upstream), now);
            }

            follow(&mut schedules, &snapshot, now);
            self.start_due(&mut schedules, &snapshot, &mut under_way, now);

            let due = schedules.values().filter_map(|schedule| schedule.next).min();
            let wake = due.unwrap_or(Instant::FAR_FUTURE).min(looked + TICK);
            drop(snapshot);
            tokio::select! {
                () = self.clock.sleep_until(wake) => {}
                Some(Ok((name, result))) = under_way.join_next() => {
                    self.finish(&mut schedules, &name, result);
                }
            }
        }
    }

    /// Begins the checks that are due.
    fn start_due(
        &self,
        schedules: &mut HashMap<Name, Schedule>,
        snapshot: &Snapshot,
        under_way: &mut JoinSet<(Name, Result<(), String>)>,
        now: Instant,
    ) {
        for upstream in &snapshot.upstreams {
            let Some(check) = &upstream.options.health else { continue };
            for server in &upstream.servers() {
                let name = (Arc::clone(&upstream.name), server.id);
                let Some(schedule) = schedules.get_mut(&name) else { continue };
                if schedule.next.take_if(|next| *next <= now).is_none() {
                    continue;
                }

                let clock = self.clock.clone();
                let connector = Arc::clone(&self.connector);
                let upstream = Arc::clone(upstream);
                let server = Arc::clone(server);
                let check = check.clone();
                under_way.spawn(async move {
                    let checking = send_check(&connector, &clock, &upstream, &server, &check);
                    let result = clock.timeout(check.timeout, checking).await;
                    let late = |_| Err("no answer within health.timeout".to_owned());
                    (name, result.unwrap_or_else(late))
                });
            }
        }
    }

    /// Notes the result of a check, and schedules the next one.
    fn finish(
        &self,
        schedules: &mut HashMap<Name, Schedule>,
        name: &Name,
        result: Result<(), String>,
    ) {
        let now = self.clock.now();
        let snapshot = self.live.load();
        let upstream = snapshot.upstreams.iter().find(|upstream| upstream.name == name.0);
        let check =
            upstream.and_then(|upstream| Some((upstream, upstream.options.health.as_ref()?)));
        let (Some((upstream, check)), Some(schedule)) = (check, schedules.get_mut(name)) else {
            return;
        };

        let server = &schedule.server;
        if let Some(change) = server.health.checked(now, result.is_ok(), check) {
            log(upstream, server, change, result.err().as_deref().unwrap_or("checks passed"));
        }
        // A tenth more or less, so that gateways that began together do not send checks together.
        schedule.next = Some(now + check.interval.mul_f64(0.9 + fastrand::f64() * 0.2));
    }
}

/// Adds the servers that are to be checked from now on, and forgets all others.
fn follow(schedules: &mut HashMap<Name, Schedule>, snapshot: &Snapshot, now: Instant) {
    let checked = snapshot.upstreams.iter().filter(|upstream| upstream.options.health.is_some());
    let mut before = core::mem::take(schedules);
    for upstream in checked {
        let interval = upstream.options.health.as_ref().map_or(TICK, |check| check.interval);
        for server in &upstream.servers() {
            let name = (Arc::clone(&upstream.name), server.id);
            let next = match before.remove(&name) {
                Some(schedule) => schedule.next,
                None => Some(now + interval.min(TICK).mul_f64(fastrand::f64())),
            };
            schedules.insert(name, Schedule { server: Arc::clone(server), next });
        }
    }
    for gone in before.into_values() {
        gone.server.health.forget_checks();
    }
}

/// Sends one check to a server, and returns why it failed.
async fn send_check(
    connector: &Connector,
    clock: &Clock,
    upstream: &Upstream,
    server: &Arc<Server>,
    check: &Check,
) -> Result<(), String> {
    let opened = connect(connector, server, upstream, clock).await;
    let opened = opened.map_err(|error| format!("cannot connect: {}", cause(&error)))?;

    let host = check.host.as_deref().map_or_else(|| server.host_field(), ToOwned::to_owned);
    let request: Request<RequestBody> = http::Request::builder()
        .method(Method::GET)
        .uri(&*check.path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, "flowgate-health-check")
        .header(header::CONNECTION, "close")
        .body(RequestBody::Empty)
        .map_err(|error| error.to_string())?
        .into();

    let status = match opened {
        Opened::Http1(mut connection) => {
            let response = connection.send(request).await;
            response.map_err(|error| cause(&error))?.status().as_u16()
        }
        Opened::Http2(connection) => {
            let mut stream = Stream::on(&connection, &Arc::default(), server);
            let response = stream.send(request).await;
            response.map_err(|unanswered| unanswered.why.to_string())?.status().as_u16()
        }
    };

    if check.expects(status) { Ok(()) } else { Err(format!("status {status}")) }
}

/// Connects for a check, which is flowgate's own.
async fn connect(
    connector: &Connector,
    server: &Server,
    upstream: &Upstream,
    clock: &Clock,
) -> io::Result<Opened> {
    let version = upstream.options.send_proxy_protocol;
    let own = version.map(|version| proxy_header::header(version, None));
    let offer = if own.is_some() { Offer::Http1 } else { Offer::Any { streams: 1 } };
    connector.connect(server, upstream, offer, own.as_deref(), clock).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tests::{live, read_head};
    use tokio::{io::AsyncWriteExt, sync::mpsc};

    #[tokio::test(start_paused = true)]
    async fn a_check_asks_for_the_host_of_the_file_or_the_servers_address() {
        for (url, more, expected) in [
            ("http://127.0.0.1:9", "", "127.0.0.1:9"),
            ("http://[::1]:9", "", "[::1]:9"),
            ("unix:/run/app.sock", "", "localhost"),
            ("http://127.0.0.1:9", ", host: app.example.com", "app.example.com"),
            ("unix:/run/app.sock", ", host: 'app.example.com:81'", "app.example.com:81"),
        ] {
            for protocol in ["h1", "h2"] {
                let (clock, live) = live(&format!(
                    "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
                     upstreams: [{{ name: up, servers: [{{ url: '{url}' }}], protocol: {protocol}, \
                     health: {{ path: /healthz{more} }} }}]\n\
                     routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
                ));
                let (accept, mut connections) = mpsc::unbounded_channel();
                tokio::spawn(HealthWatch::new(clock, live, Connector::Memory(accept)).run());
                let mut stream = connections.recv().await.expect("a check");
                if protocol == "h1" {
                    let head = read_head(&mut stream).await.expect("a head");
                    assert!(head.contains(&format!("\r\nhost: {expected}\r\n")), "{head}");
                } else {
                    let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                    let asked = connection.accept().await.expect("a stream").expect("a request");
                    assert_eq!(asked.0.uri().authority().expect("one").as_str(), expected);
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_asked_once_in_each_interval_a_tenth_sooner_or_later() {
        const CHECKS: usize = 361;
        let (clock, live) = live(
            "listeners: [{ name: web, listen: '127.0.0.1:0' }]\n\
             upstreams: [{ name: up, servers: [{ url: 'http://127.0.0.1:9' }], \
             health: { path: /healthz, interval: 10s } }]\n\
             routes: [{ name: all, match: { path_prefix: / }, upstream: up }]\n",
        );
        let (accept, mut connections) = mpsc::unbounded_channel();
        let watch = HealthWatch::new(clock.clone(), live, Connector::Memory(accept));
        tokio::spawn(watch.run());
        let mut times = Vec::new();
        while times.len() < CHECKS {
            let mut stream = connections.recv().await.expect("a check");
            times.push(clock.now());
            let head = read_head(&mut stream).await.expect("a head");
            assert!(head.starts_with("GET /healthz HTTP/1.1\r\n"), "{head}");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.expect("sent");
        }
        let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        let [shortest, longest] =
            [gaps.iter().min(), gaps.iter().max()].map(|gap| *gap.expect("one"));
        let millis = Duration::from_millis;
        // A timer fires up to a millisecond late.
        assert!((millis(9_000)..millis(9_100)).contains(&shortest), "{shortest:?}");
        assert!((millis(10_900)..millis(11_010)).contains(&longest), "{longest:?}");
        let hour = times[CHECKS - 1].since(times[0]).as_secs();
        assert!((3_500..3_700).contains(&hour), "{hour}");
    }
}
