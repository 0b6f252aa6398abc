//! `/requests`: the lines of requests as they end.

use super::*;
use crate::{
    access_log::{StreamLine, StreamState, sample},
    config::LogFormat,
    small_http::{Endless, Stopping},
};
use http_body_util::combinators::UnsyncBoxBody;
use std::convert::Infallible;
use tokio_util::sync::CancellationToken;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// More than wait for one client, each line with this path.
const FLOOD: u64 = 20_000;

impl Fixture {
    /// A gateway that may show its requests.
    fn open() -> Self {
        let fixture = Self::new();
        fixture.apply(&format!("admin: {{ show_keys: true }}\n{CONFIG}"));
        fixture
    }

    fn apply(&self, text: &str) {
        let state = &self.router.admin.state;
        let plan = self.read(text).unwrap();
        state.live.apply(plan, state.clock.now(), &mut config::Retired::default());
    }

    fn log(&self, count: u64) {
        let handle = self.access_log.handle(0);
        (0..count).for_each(|_| handle.log(&sample("/a"), LogFormat::Json));
    }

    fn status(&self, target: &str) -> u16 {
        self.ask("GET", target, &[]).status().as_u16()
    }
}

/// Reads the next piece: how many lines of requests it has, and what the last line says of the stream.
async fn piece(body: &mut Body) -> Option<(u64, Option<StreamState>)> {
    let piece = body.frame().await?.unwrap().into_data().unwrap();
    let text = String::from_utf8(piece.to_vec()).unwrap();
    assert!(text.ends_with('\n'));
    let requests = text.lines().filter(|line| line.contains(r#""path":"/a""#)).count();
    let state = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    assert_eq!(text.lines().count(), requests + usize::from(state.is_some()), "{text}");
    Some((requests as u64, state.map(|StreamLine { stream }| stream)))
}

/// Reads to the end: how many lines of requests came, and the last line as JSON.
async fn rest(mut body: Body) -> (u64, Value) {
    let mut requests = 0;
    let mut last = None;
    while let Some((more, state)) = piece(&mut body).await {
        requests += more;
        last = state;
    }
    (requests, serde_json::to_value(last).unwrap())
}

#[tokio::test(start_paused = true)]
async fn lines_come_as_requests_end_and_the_last_one_says_how_many() {
    let fixture = Fixture::open();
    fixture.log(1);
    let reply = fixture.ask("GET", "/requests?for=12s", &[]);
    assert_eq!(reply.headers()[header::CONTENT_TYPE], "application/x-ndjson");
    assert!(reply.extensions().get::<Endless>().is_some());
    let mut body = reply.into_body();
    fixture.log(2);
    assert_eq!(piece(&mut body).await, Some((2, None)));
    let quiet = StreamState { requests: 2, lost: 0, seconds: 5.0, ended: None };
    let (requests, state) = piece(&mut body).await.unwrap();
    assert_eq!((requests, state.map(|state| state.requests)), (0, Some(2)));
    assert!(state.unwrap().seconds >= quiet.seconds);
    fixture.log(3);
    let (requests, state) = rest(body).await;
    assert_eq!((requests, &state["requests"], &state["lost"]), (3, &5.into(), &0.into()));
    assert_eq!((&state["seconds"], &state["ended"]), (&12.0.into(), &"time".into()));
    assert!(!fixture.access_log.handle(0).is_on());
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_loses_lines_and_reads_how_many() {
    let fixture = Fixture::open();
    let mut slow = fixture.ask("GET", "/requests?for=10s", &[]).into_body();
    let fast = fixture.ask("GET", "/requests?for=10s", &[]).into_body();
    fixture.log(1);
    assert_eq!(piece(&mut slow).await, Some((1, None)));
    let reading = tokio::spawn(rest(fast));
    for _ in 0..10 {
        fixture.log(FLOOD / 10);
        let clock = &fixture.router.admin.state.clock;
        clock.sleep_until(clock.now() + Duration::from_millis(500)).await;
    }
    let (requests, state) = rest(slow).await;
    let lost = state["lost"].as_u64().unwrap();
    assert!(lost > 0);
    assert_eq!(requests + lost, FLOOD);
    assert_eq!((&state["requests"], &state["ended"]), (&(requests + 1).into(), &"time".into()));
    let (requests, state) = reading.await.unwrap();
    assert_eq!((requests, &state["lost"]), (FLOOD + 1, &0.into()));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_dropped_and_one_that_leaves_makes_room() {
    let fixture = Fixture::open();
    let open = || fixture.ask("GET", "/requests?for=1h", &[]).into_body();
    let mut all: Vec<_> = (0..4).map(|_| open()).collect();
    assert_eq!(fixture.status("/requests"), 503);
    let (_, text) = fixture.get("/requests");
    assert!(text.contains("4 clients follow the requests"), "{text}");
    drop(all.pop());
    tokio::task::yield_now().await;
    all.push(open());
    assert_eq!(fixture.status("/requests"), 503);
    let clock = &fixture.router.admin.state.clock;
    clock.sleep_until(clock.now() + Duration::from_mins(1)).await;
    assert!(!fixture.access_log.handle(0).is_on());
    assert_eq!(fixture.status("/requests"), 200);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_gateway_and_with_the_setting() {
    let fixture = Fixture::open();
    let token = CancellationToken::new();
    let request = Request::get("/requests").extension(Stopping(token.clone()));
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let reply = fixture.router.answer(request).await;
    fixture.log(3);
    token.cancel();
    let (requests, state) = rest(reply.into_body()).await;
    assert_eq!((requests, &state["ended"]), (3, &"shutdown".into()));

    let body = fixture.ask("GET", "/requests", &[]).into_body();
    fixture.log(4);
    fixture.apply(CONFIG);
    let (requests, state) = rest(body).await;
    assert_eq!((requests, &state["ended"]), (4, &"show_keys".into()));
}

#[tokio::test(start_paused = true)]
async fn requests_are_shown_to_operators_only_and_only_if_the_file_says_so() {
    let fixture = Fixture::new();
    let (status, text) = fixture.get("/requests");
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(text.contains("`show_keys: true` under `admin`"), "{text}");
    let with = |fields: &[(&str, &str)]| fixture.ask("GET", "/requests", fields).status().as_u16();
    let token = "0123456789abcdef";
    fixture.apply(&format!("admin: {{ show_keys: true, token: {token} }}\n{CONFIG}"));
    let bearer = format!("Bearer {token}");
    assert_eq!(with(&[("host", "localhost")]), 401);
    assert_eq!(with(&[("authorization", &bearer)]), 200);
    assert_eq!(with(&[("authorization", &bearer), ("origin", "http://evil.example")]), 403);
    assert_eq!(fixture.ask("HEAD", "/requests", &[("authorization", &bearer)]).status(), 405);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_is_wrong_is_rejected_with_what_is_right() {
    let fixture = Fixture::open();
    for query in ["for=1s", "for=24h", "for=1h%2030m", "", "for=600000ms"] {
        assert_eq!(fixture.status(&format!("/requests?{query}")), 200, "{query}");
        tokio::task::yield_now().await;
    }
    for query in ["for=", "for=0s", "for=999ms", "for=25h", "for=soon", "for=1m&for=2m", "for"] {
        let (status, text) = fixture.get(&format!("/requests?{query}"));
        assert_eq!((status.as_u16(), text.contains("from 1s to 24h")), (400, true), "{query}");
    }
    let (status, text) = fixture.get("/requests?for=1m&route=%0aapi");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("no field `route`"), "{text}");
}
