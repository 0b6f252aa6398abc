//! From a request to its page: the guard, the path, the method, the body.

use super::{
    context::Admin,
    endpoint::{Access, Answer, Ask, Endpoint},
    guard::Guard,
    pages,
    reply::{Reply, plain},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{fmt::Write, sync::Arc, time::Duration};

/// The time that a client may take to send its body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Every answer has these: no page of another site may show it in a frame, take it as a script, or
/// learn from where a link was followed.
const FIELDS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

const INDEX: Endpoint = Endpoint::get("/", "this page", |_, _| plain(StatusCode::OK, index()));

/// Answers requests.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) admin: Arc<Admin>,
    guard: Guard,
}

impl Router {
    pub(super) fn new(admin: Admin) -> Self {
        let guard = Guard::new(admin.state.clock.now());
        Self { admin: Arc::new(admin), guard }
    }

    pub(super) async fn answer<B>(&self, request: Request<B>) -> Reply
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let mut reply = match self.endpoint(&head) {
            Err(reply) => *reply,
            Ok(endpoint) => self.run(endpoint, head, body).await,
        };
        for (name, value) in FIELDS {
            // A page may have a policy of its own.
            reply.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
        }
        reply
    }

    /// Returns the page, or why there is none for this request.
    fn endpoint(&self, head: &Parts) -> Result<&'static Endpoint, Box<Reply>> {
        let endpoint = all().find(|known| known.path == head.uri.path());
        // Only clients with access learn which paths do not exist.
        let access = endpoint.map_or(Access::Operators, |known| known.access);
        let admin = &self.admin;
        let settings = admin.settings();
        let now = admin.state.clock.now();
        let listener = (settings.as_ref(), admin.address);

        if let Some((reason, reply)) = self.guard.check(now, listener, access, head) {
            admin.state.counters.admin_rejections.count(reason);
            return Err(Box::new(reply));
        }

        let Some(endpoint) = endpoint else {
            let text = "no such page; / lists those there are\n";
            return Err(Box::new(plain(StatusCode::NOT_FOUND, text)));
        };

        if !endpoint.methods.split(", ").any(|method| method == head.method.as_str()) {
            let text = "this page takes another method\n";
            let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, text);
            let allowed = HeaderValue::from_static(endpoint.methods);
            reply.headers_mut().insert(header::ALLOW, allowed);
            return Err(Box::new(reply));
        }
        Ok(endpoint)
    }

    /// Answers by a page.
    pub(super) async fn run<B>(&self, endpoint: &Endpoint, head: Parts, body: B) -> Reply
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = match self.body(endpoint, &head, body).await {
            Ok(body) => body,
            Err(reply) => return *reply,
        };
        let ask = Ask { head, body };
        match endpoint.answer {
            Answer::Now(answer) => answer(&self.admin, &ask),
            Answer::Later(answer) => answer(Arc::clone(&self.admin), ask).await,
        }
    }

    /// Reads a request's body.
    async fn body<B>(&self, endpoint: &Endpoint, head: &Parts, body: B) -> Result<Bytes, Box<Reply>>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // A body that a page does not take is not read; the connection ends after the answer.
        if endpoint.most_body == 0 || matches!(head.method, http::Method::GET | http::Method::HEAD)
        {
            return Ok(Bytes::new());
        }
        let read = Limited::new(body, endpoint.most_body).collect();
        let (status, text) = match self.admin.state.clock.timeout(BODY_TIME, read).await {
            Ok(Ok(read)) => return Ok(read.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let text = format!("the body is longer than {} bytes\n", endpoint.most_body);
                (StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            Ok(Err(_)) => (StatusCode::BAD_REQUEST, "the body ends early\n".to_owned()),
            Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body comes too slowly\n".to_owned()),
        };
        Err(Box::new(plain(status, text)))
    }
}

/// Returns every page.
pub(super) fn all() -> impl Iterator<Item = &'static Endpoint> {
    [&INDEX].into_iter().chain(pages::ALL.iter().copied().flatten())
}

fn index() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!("flowgate {version}\n\n");
    for Endpoint { path, methods, about, .. } in all().filter(|page| !page.about.is_empty()) {
        let method = methods.split(", ").next().unwrap_or_default();
        // Writing to a String cannot fail.
        _ = writeln!(page, "{method:<4} {path:<14} {about}");
    }
    page
}
