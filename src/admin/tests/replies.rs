//! Answers that pages of several kinds are made of.

use super::*;
use crate::{
    admin::{
        endpoint::{Access, Answer, Ask, Endpoint},
        reply::{json, stream},
    },
    small_http::{Client, Endless},
};

#[tokio::test]
async fn a_stream_sends_what_comes_and_ends_with_its_senders() {
    let fixture = Fixture::new();
    let (sender, pieces) = mpsc::channel(4);
    let reply = stream(&fixture.router.admin, "text/event-stream", pieces);
    assert_eq!(reply.headers()[header::CONTENT_TYPE], "text/event-stream");
    assert!(reply.extensions().get::<Endless>().is_some());
    for piece in ["data: 1\n\n", "data: 2\n\n"] {
        sender.send(Bytes::from_static(piece.as_bytes())).await.unwrap();
    }
    drop(sender);
    assert_eq!(read(reply).1, "data: 1\n\ndata: 2\n\n");
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_makes_room_for_another() {
    let fixture = Fixture::new();
    let admin = &fixture.router.admin;
    let open = || {
        let (sender, pieces) = mpsc::channel(1);
        (sender, stream(admin, "text/event-stream", pieces))
    };
    let mut all: Vec<_> = (0..16).map(|_| open()).collect();
    assert_eq!(open().1.status(), StatusCode::SERVICE_UNAVAILABLE);
    let (sender, reply) = all.pop().unwrap();
    drop(reply);
    assert!(sender.is_closed());
    assert_eq!(open().1.status(), StatusCode::OK);
}

#[test]
fn json_is_indented_and_ends_with_a_line() {
    let (status, text) = read(json(StatusCode::OK, &["a"]));
    assert_eq!((status, text.as_str()), (StatusCode::OK, "[\n  \"a\"\n]\n"));
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_up_to_its_bound_and_in_time() {
    let echo = Endpoint {
        path: "/echo",
        methods: "POST",
        about: "",
        access: Access::Operators,
        most_body: 4,
        answer: Answer::Later(|_, Ask { body, .. }| {
            Box::pin(async { reply::page(StatusCode::OK, "text/plain", body) })
        }),
    };
    let router = Fixture::new().router;
    let ask = async |body: &'static str| {
        let request = Request::post("/echo").body(()).unwrap();
        let reply = router.run(&echo, request.into_parts().0, Full::new(Bytes::from(body))).await;
        read(reply)
    };
    assert_eq!(ask("1234").await, (StatusCode::OK, "1234".to_owned()));
    assert_eq!(ask("12345").await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let stalled = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, std::convert::Infallible>,
    >());
    let head = Request::post("/echo").body(()).unwrap().into_parts().0;
    let reply = router.run(&echo, head, stalled).await;
    assert_eq!(reply.status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_too_often_learns_when_to_come_again() {
    let fixture = Fixture::new();
    let ask = |path: &str| {
        let mut request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let address = "127.0.0.1:1".parse().unwrap();
        request.extensions_mut().insert(Client { address, is_certified: false });
        fixture.router.answer(request).now_or_never().unwrap()
    };
    for _ in 0..1000 {
        assert_eq!(ask("/nothing").status(), StatusCode::NOT_FOUND);
    }
    let rejected = ask("/routes");
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rejected.headers()[header::RETRY_AFTER], "1");
    let rejections = &fixture.router.admin.state.counters.admin_rejections;
    assert_eq!(rejections.of(AdminRejection::Rate), 1);
    assert_eq!(ask("/healthz").status(), StatusCode::OK, "probes are counted apart");
    let clock = &fixture.router.admin.state.clock;
    clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
    assert_eq!(ask("/routes").status(), StatusCode::OK);
}

#[test]
fn rejected_requests_are_counted_by_reason() {
    let fixture = Fixture::new();
    let counted = || {
        let rejections = &fixture.router.admin.state.counters.admin_rejections;
        AdminRejection::ALL.map(|reason| (reason.label(), rejections.of(reason)))
    };
    assert_eq!(fixture.ask("GET", "/routes", &[]).status(), StatusCode::OK);
    assert_eq!(fixture.ask("GET", "/none", &[]).status(), StatusCode::NOT_FOUND);
    assert_eq!(counted(), [("rate", 0), ("host", 0), ("site", 0), ("auth", 0)]);
    let host = [("host", "evil.example")];
    assert_eq!(fixture.ask("GET", "/routes", &host).status(), StatusCode::FORBIDDEN);
    for field in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        assert_eq!(fixture.ask("POST", "/reload", &[field]).status(), StatusCode::FORBIDDEN);
    }
    let token = "admin: { token: 0123456789abcdef }";
    let plan = fixture.read(&format!("{CONFIG}{token}")).unwrap();
    let now = fixture.router.admin.state.clock.now();
    fixture.router.admin.state.live.apply(plan, now, &mut config::Retired::default());
    for wrong in ["Bearer 0123456789abcdeF", "Bearer", "Basic eDp5"] {
        let reply = fixture.ask("GET", "/routes", &[("authorization", wrong)]);
        assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(counted(), [("rate", 0), ("host", 1), ("site", 2), ("auth", 3)]);
    let bearer = [("authorization", "Bearer 0123456789abcdef")];
    let page = read(fixture.ask("GET", "/metrics", &bearer)).1;
    assert!(page.contains("flowgate_admin_rejected_total{reason=\"auth\"} 3\n"), "{page}");
}
