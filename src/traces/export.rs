//! Sends spans to the collector: a batch at a time, again if need be, and never later than there is
//! room for. An export is a request over HTTP/1.1, on a connection that is kept.

use super::otlp::export_body;
use crate::{
    clock::Clock,
    config::{Collector, CollectorEndpoint, Live, Tracing},
    meter::Counters,
};
use bytes::Bytes;
use core::time::Duration;
use http::{
    HeaderMap, Method, Request, StatusCode, Version,
    header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::{
    net::TcpStream,
    sync::mpsc::{Receiver, Sender, channel},
};
use tokio_rustls::TlsConnector;

/// The most requests whose spans wait. The spans of others are dropped and counted.
const ROOM: usize = 2048;

/// The number of spans that are sent at once.
const BATCH: u64 = 512;

/// The longest time that the first span of a batch waits for others.
const GATHERING: Duration = Duration::from_secs(1);

/// The first wait before an export is repeated; each further one is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The time for which an export is repeated.
const PATIENCE: Duration = Duration::from_mins(1);

/// Spans of one request, as JSON with commas between them.
#[derive(Debug)]
pub(super) struct Spans {
    pub json: Vec<u8>,
    pub count: u64,
}

/// The queue of spans from recorders to the exporter.
#[derive(Clone, Debug)]
pub struct SpanQueue {
    pub(super) sender: Sender<Spans>,
    pub(super) counters: Arc<Counters>,
}

/// Returns a queue for recorders, and its other end for the [`Exporter`].
pub fn queue(counters: Arc<Counters>) -> (SpanQueue, Queued) {
    let (sender, receiver) = channel(ROOM);
    (SpanQueue { sender, counters }, Queued(receiver))
}

/// Spans to be exported.
#[derive(Debug)]
pub struct Queued(Receiver<Spans>);

/// Sends the spans that recorders put into the queue.
#[derive(Debug)]
pub struct Exporter {
    queue: Receiver<Spans>,
    live: Arc<Live>,
    clock: Clock,
    counters: Arc<Counters>,
    /// Distinguishes this process from others of the same name.
    instance: String,
    post: Post,
    /// True if the latest export failed.
    is_failing: bool,
}

impl Exporter {
    /// Returns an exporter that is to be [run](Self::run). It sends to the collector of the
    /// configuration in force.
    pub fn new(queued: Queued, live: Arc<Live>, clock: Clock, counters: Arc<Counters>) -> Self {
        Self {
            queue: queued.0,
            live,
            clock,
            counters,
            instance: format!("{:032x}", fastrand::u128(..)),
            post: Post::default(),
            is_failing: false,
        }
    }

    /// Runs until all recorders are gone, and everything is sent or given up.
    pub async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let mut count = first.count;
            let spans = self.gather(first, &mut count).await;
            let is_sent = self.send(&spans, count).await;
            let counter =
                if is_sent { &self.counters.spans_exported } else { &self.counters.spans_failed };
            counter.fetch_add(count, Relaxed);
        }
    }

    /// Waits until there are enough spans, or the first of them has waited long enough.
    async fn gather(&mut self, first: Spans, count: &mut u64) -> Vec<Vec<u8>> {
        let mut spans = vec![first.json];
        let end = self.clock.now() + GATHERING;
        while *count < BATCH {
            tokio::select! {
                biased;
                next = self.queue.recv() => match next {
                    Some(next) => {
                        *count += next.count;
                        spans.push(next.json);
                    }
                    None => break,
                },
                () = self.clock.sleep_until(end) => break,
            }
        }
        spans
    }

    /// Sends a batch, again if the collector may take it later. Each time goes by the configuration
    /// that is in force then. Returns whether the batch was taken.
    async fn send(&mut self, spans: &[Vec<u8>], count: u64) -> bool {
        let give_up = self.clock.now() + PATIENCE;
        let mut wait = FIRST_WAIT;

        loop {
            let tracing = self.live.load().settings.tracing.clone();
            // An edit has turned tracing off.
            let Some(tracing) = tracing else { return false };
            let failure = match self.post(&tracing, spans).await {
                Ok(taken) => return self.note_success(&tracing, &taken, count),
                Err(failure) => failure,
            };
            self.note_failure(&tracing, &failure);

            let pause = match failure.again {
                Again::Never => return false,
                Again::After(pause) => pause,
                // A part more or less, so that gateways do not come back together.
                Again::Later => wait.mul_f64(0.5 + fastrand::f64()),
            };

            let next = self.clock.now() + pause;
            if next > give_up {
                return false;
            }
            self.clock.sleep_until(next).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Sends a batch once.
    async fn post(&mut self, tracing: &Tracing, spans: &[Vec<u8>]) -> Result<Taken, ExportFailure> {
        let collector = &tracing.collector;
        let body = export_body(tracing, &self.instance, spans);
        let posted = self.post.send(collector, body.into());
        let Ok(posted) = self.clock.timeout(collector.timeout, posted).await else {
            self.post.disconnect();
            return Err(ExportFailure::again("no response within tracing.otlp.timeout"));
        };
        posted
    }

    /// Notes that a batch was taken, perhaps without some of its spans.
    fn note_success(&mut self, tracing: &Tracing, taken: &Taken, count: u64) -> bool {
        if taken.rejected > 0 {
            let rejected = taken.rejected.min(count);
            self.counters.spans_rejected.fetch_add(rejected, Relaxed);
            tracing::warn!(
                collector = %tracing.collector.endpoint,
                spans = rejected,
                "the collector of traces has rejected spans: {}",
                taken.message
            );
        }
        if core::mem::take(&mut self.is_failing) {
            tracing::info!(collector = %tracing.collector.endpoint, "traces are exported again");
        }
        true
    }

    /// Logs the first of several failures.
    fn note_failure(&mut self, tracing: &Tracing, failure: &ExportFailure) {
        if !core::mem::replace(&mut self.is_failing, true) {
            let cause = &failure.cause;
            tracing::warn!(collector = %tracing.collector.endpoint, "cannot export traces: {cause}");
        }
    }
}

/// The most bytes that are read of a response.
const MOST_RESPONSE: usize = 64 * 1024;

/// The longest wait that a collector may ask for.
const LONGEST: Duration = Duration::from_mins(1);

/// The most letters of a collector's message that are logged.
const MOST_MESSAGE: usize = 200;

/// Sends exports, one after the other.
#[derive(Debug, Default)]
pub(super) struct Post {
    connection: Option<(CollectorEndpoint, SendRequest<Full<Bytes>>)>,
}

/// The response of a collector that took an export.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// The number of spans that it did not take.
    pub rejected: u64,
    /// The reason.
    pub message: String,
}

/// The reason why an export failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExportFailure {
    pub cause: String,
    pub again: Again,
}

/// The time at which an export may be repeated, if it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    Never,
    /// The collector does not say when.
    Later,
    After(Duration),
}

impl ExportFailure {
    pub(super) fn again(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), again: Again::Later }
    }
}

impl Post {
    /// Sends `body` to a collector. The caller bounds the time.
    ///
    /// # Errors
    ///
    /// There is no response, or one that says that the export failed.
    pub(super) async fn send(
        &mut self,
        collector: &Collector,
        body: Bytes,
    ) -> Result<Taken, ExportFailure> {
        let kept = self.connection.take().filter(|(to, _)| *to == collector.endpoint);
        // A collector closes idle connections: then the export uses a new one.
        if let Some((_, mut sender)) = kept
            && sender.ready().await.is_ok()
            && let Ok(response) = self.exchange(collector, sender, body.clone()).await
        {
            return response;
        }

        let sender = connect(collector)
            .await
            .map_err(|error| ExportFailure::again(format!("cannot connect: {error}")))?;
        let response = self.exchange(collector, sender, body).await;
        response.map_err(|error| ExportFailure::again(format!("no response: {error}")))?
    }

    /// Gives up the connection.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a request, and keeps the connection once the response is read.
    async fn exchange(
        &mut self,
        collector: &Collector,
        mut sender: SendRequest<Full<Bytes>>,
        body: Bytes,
    ) -> hyper::Result<Result<Taken, ExportFailure>> {
        let response = sender.send_request(request(collector, body)).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MOST_RESPONSE).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes);
        if body.is_ok() {
            self.connection = Some((collector.endpoint.clone(), sender));
        }
        Ok(outcome(head.status, &head.headers, &body.unwrap_or_default()))
    }
}

fn request(collector: &Collector, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = collector.endpoint.target.clone().into();
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    headers.insert(HOST, collector.endpoint.authority.clone());
    let agent = concat!("OTel-OTLP-Exporter-flowgate/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, http::HeaderValue::from_static(agent));
    for (name, value) in &collector.headers {
        headers.insert(name, value.clone());
    }
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    request
}

/// Returns the meaning of a response (OTLP, "OTLP/HTTP Response").
fn outcome(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<Taken, ExportFailure> {
    if status.is_success() {
        return Ok(taken(body));
    }
    let after = headers.get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.trim().parse().ok());
    let again = match (status.as_u16(), after) {
        (429 | 502 | 503 | 504, None) => Again::Later,
        (429 | 502 | 503 | 504, Some(seconds)) => {
            Again::After(Duration::from_secs(seconds).min(LONGEST))
        }
        _ => Again::Never,
    };
    Err(ExportFailure { cause: format!("status {}", status.as_u16()), again })
}

/// Reads the number of spans that the collector did not take. A response that is no JSON has none.
fn taken(body: &[u8]) -> Taken {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Response {
        partial_success: Partial,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Partial {
        /// A number of 64 bits, as a text or not.
        rejected_spans: serde_json::Value,
        error_message: String,
    }

    let response: Response = serde_json::from_slice(body).unwrap_or_default();
    let Partial { rejected_spans, error_message } = response.partial_success;
    let rejected = rejected_spans.as_u64().or_else(|| rejected_spans.as_str()?.parse().ok());
    let message = error_message.chars().filter(|c| !c.is_control()).take(MOST_MESSAGE).collect();
    Taken { rejected: rejected.unwrap_or_default(), message }
}

/// Connects to a collector.
async fn connect(collector: &Collector) -> io::Result<SendRequest<Full<Bytes>>> {
    let CollectorEndpoint { host, port, .. } = &collector.endpoint;
    let stream = TcpStream::connect((&**host, *port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &collector.tls else { return begin(stream).await };
    let name = tls.name_of(host).ok_or_else(|| io::Error::other("no certificate can be for it"))?;
    let connector = TlsConnector::from(Arc::clone(tls.config_of_http1()));
    begin(connector.connect(name, stream).await?).await
}

async fn begin<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the sender.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_response_says_whether_an_export_may_be_repeated() {
        let outcome_of = |status: u16, after: Option<&'static str>| {
            let after = after.map(|after| (RETRY_AFTER, HeaderValue::from_static(after)));
            let status = StatusCode::from_u16(status).unwrap();
            outcome(status, &after.into_iter().collect(), b"{}")
        };
        for status in [200, 202, 204] {
            assert_eq!(outcome_of(status, None), Ok(Taken::default()));
        }
        for status in [429, 502, 503, 504] {
            assert_eq!(outcome_of(status, None).unwrap_err().again, Again::Later);
            let seven = Again::After(Duration::from_secs(7));
            assert_eq!(outcome_of(status, Some(" 7")).unwrap_err().again, seven);
            let longest = Again::After(LONGEST);
            assert_eq!(outcome_of(status, Some("100000")).unwrap_err().again, longest);
            let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
            assert_eq!(outcome_of(status, date).unwrap_err().again, Again::Later);
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            let failure = outcome_of(status, Some("7")).unwrap_err();
            assert_eq!((failure.again, failure.cause), (Again::Never, format!("status {status}")));
        }
    }

    #[test]
    fn what_a_collector_did_not_take_is_counted() {
        let some = br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too\nold"}}"#;
        assert_eq!(taken(some), Taken { rejected: 3, message: "tooold".to_owned() });
        assert_eq!(taken(br#"{"partialSuccess":{"rejectedSpans":4}}"#).rejected, 4);
        for nothing in [
            &b""[..],
            b"{}",
            br#"{"partialSuccess":{}}"#,
            b"ok",
            b"\xff",
            b"[1]",
            b"{\"partialSuccess\":1}",
        ] {
            assert_eq!(taken(nothing), Taken::default());
        }
    }
}
