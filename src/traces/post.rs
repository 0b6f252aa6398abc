//! One export: a request over HTTP/1.1, on a connection that is kept.

use crate::config::{Collector, CollectorEndpoint};
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
use std::{io, sync::Arc};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The most that is read of an answer.
const MOST_ANSWER: usize = 64 * 1024;

/// The longest wait that a collector may ask for.
const LONGEST: Duration = Duration::from_mins(1);

/// How many letters of a collector's message are logged.
const MOST_MESSAGE: usize = 200;

/// Sends exports, one after the other.
#[derive(Debug, Default)]
pub(super) struct Post {
    connection: Option<(CollectorEndpoint, SendRequest<Full<Bytes>>)>,
}

/// What a collector said to an export that it took.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// How many spans it did not take.
    pub rejected: u64,
    /// Why.
    pub message: String,
}

/// Why an export failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExportFailure {
    pub cause: String,
    pub again: Again,
}

/// Whether an export may be repeated.
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
    /// There is no answer, or one that says that the export failed.
    pub(super) async fn send(
        &mut self,
        collector: &Collector,
        body: Bytes,
    ) -> Result<Taken, ExportFailure> {
        let kept = self.connection.take().filter(|(to, _)| *to == collector.endpoint);
        // A collector closes what is idle: then the export goes over a new connection.
        if let Some((_, mut sender)) = kept
            && sender.ready().await.is_ok()
            && let Ok(answer) = self.exchange(collector, sender, body.clone()).await
        {
            return answer;
        }
        let sender = connect(collector)
            .await
            .map_err(|error| ExportFailure::again(format!("cannot connect: {error}")))?;
        let answer = self.exchange(collector, sender, body).await;
        answer.map_err(|error| ExportFailure::again(format!("no answer: {error}")))?
    }

    /// Gives up the connection.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a request, and keeps the connection once its answer is read.
    async fn exchange(
        &mut self,
        collector: &Collector,
        mut sender: SendRequest<Full<Bytes>>,
        body: Bytes,
    ) -> hyper::Result<Result<Taken, ExportFailure>> {
        let response = sender.send_request(request(collector, body)).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MOST_ANSWER).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes);
        if body.is_ok() {
            self.connection = Some((collector.endpoint.clone(), sender));
        }
        Ok(answered(head.status, &head.headers, &body.unwrap_or_default()))
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

/// Says what an answer means (OTLP, "OTLP/HTTP Response").
fn answered(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<Taken, ExportFailure> {
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

/// Reads what the collector did not take. An answer that is no JSON says nothing.
fn taken(body: &[u8]) -> Taken {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Answer {
        partial_success: Partial,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Partial {
        /// A number of 64 bits, as a text or not.
        rejected_spans: serde_json::Value,
        error_message: String,
    }

    let answer: Answer = serde_json::from_slice(body).unwrap_or_default();
    let Partial { rejected_spans, error_message } = answer.partial_success;
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
    fn an_answer_says_whether_an_export_may_be_repeated() {
        let answered = |status: u16, after: Option<&'static str>| {
            let after = after.map(|after| (RETRY_AFTER, HeaderValue::from_static(after)));
            let status = StatusCode::from_u16(status).unwrap();
            answered(status, &after.into_iter().collect(), b"{}")
        };
        for status in [200, 202, 204] {
            assert_eq!(answered(status, None), Ok(Taken::default()));
        }
        for status in [429, 502, 503, 504] {
            assert_eq!(answered(status, None).unwrap_err().again, Again::Later);
            let seven = Again::After(Duration::from_secs(7));
            assert_eq!(answered(status, Some(" 7")).unwrap_err().again, seven);
            let longest = Again::After(LONGEST);
            assert_eq!(answered(status, Some("100000")).unwrap_err().again, longest);
            let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
            assert_eq!(answered(status, date).unwrap_err().again, Again::Later);
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            let failure = answered(status, Some("7")).unwrap_err();
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
