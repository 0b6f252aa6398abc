//! Requests to the authority, with a bound on each wait and each size.
//!
//! An authority is trusted to issue certificates, not to be well: each response is checked before
//! `instant-acme` reads it, which panics at URLs that are none and at waits of centuries.

use crate::{clock::Clock, config::Acme};
use bytes::Bytes;
use core::{pin::Pin, time::Duration};
use http::{
    Request, Response, StatusCode, Uri,
    header::{HOST, HeaderValue, RETRY_AFTER},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde::Deserialize;
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest time of a request, its connection and its response.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The largest body of a response: a chain of ten certificates has some 20 KiB.
const BODY_LIMIT: usize = 1 << 20;

/// A response of the authority, or why there is none.
type Responding = Pin<Box<dyn Future<Output = io::Result<Response<Bytes>>> + Send>>;

/// Sends a request to an authority: over the network, or to one in memory in tests.
pub type Transport = Arc<dyn Fn(Arc<Acme>, Request<Bytes>) -> Responding + Send + Sync>;

/// Returns what sends requests over the network.
pub fn over_network() -> Transport {
    Arc::new(|acme, request| Box::pin(async move { send(&acme, request).await }))
}

/// The URLs of the directory that are checked or used here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Directory {
    new_nonce: String,
    new_account: String,
    new_order: String,
    #[serde(default)]
    renewal_info: Option<String>,
}

/// The facts in responses that `instant-acme` does not pass on.
#[derive(Debug, Default)]
struct Seen {
    /// The wait that the last response demands.
    retry_after: Option<Duration>,
    /// The address of the authority's renewal information.
    renewal_info: Option<String>,
}

/// A client of one authority. Clones share what they have seen.
#[derive(Clone)]
pub(super) struct Client {
    acme: Arc<Acme>,
    transport: Transport,
    clock: Clock,
    seen: Arc<Mutex<Seen>>,
}

impl Client {
    pub(super) fn new(acme: Arc<Acme>, transport: Transport, clock: Clock) -> Self {
        Self { acme, transport, clock, seen: Arc::default() }
    }

    /// Returns the wait that the last response demands, if it does.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).retry_after
    }

    /// Returns where the authority has renewal information, by the directory that was read last.
    pub(super) fn renewal_info(&self) -> Option<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).renewal_info.clone()
    }

    /// Reads the directory of the authority.
    ///
    /// # Errors
    ///
    /// See [`Self::send`].
    pub(super) async fn read_directory(&self) -> io::Result<()> {
        self.get(&self.acme.directory).await.map(drop)
    }

    /// Requests a resource without a signature.
    ///
    /// # Errors
    ///
    /// See [`Self::send`], and any status but 200.
    pub(super) async fn get(&self, url: &str) -> io::Result<Bytes> {
        let request = Request::get(url).body(Bytes::new()).map_err(io::Error::other)?;
        let response = self.send(request).await?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(io::Error::other(format!("the authority responds {status} to {url}")));
        }
        Ok(response.into_body())
    }

    /// Sends a request, and checks the response.
    ///
    /// # Errors
    ///
    /// The authority cannot be reached, or its response is late, too large, or not what it must be.
    async fn send(&self, request: Request<Bytes>) -> io::Result<Response<Bytes>> {
        let uri = request.uri().clone();
        if uri.scheme_str() != Some("https") || uri.host().is_none() {
            return Err(io::Error::other(format!("`{uri}` is no URL with https")));
        }

        let sending = (self.transport)(Arc::clone(&self.acme), request);
        let sent = self.clock.timeout(REQUEST_LIMIT, sending).await;
        let late = || io::Error::other("the authority does not respond within 30s");
        let mut response = sent.map_err(|_| late())??;
        if response.body().len() > BODY_LIMIT {
            return Err(io::Error::other("the authority's response is larger than 1 MiB"));
        }

        let value = response.headers_mut().remove(RETRY_AFTER);
        let retry_after = value.and_then(|value| self.wait(&value));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retry_after = retry_after;
        if response.status() == StatusCode::OK && uri == *self.acme.directory {
            seen.renewal_info = directory(response.body())?.renewal_info;
        }
        drop(seen);
        Ok(response)
    }

    /// Reads `Retry-After`: seconds, or a time.
    fn wait(&self, value: &HeaderValue) -> Option<Duration> {
        let text = value.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second();
        let at = super::schedule::instant(u64::try_from(at).ok()?);
        Some(at.since(self.clock.wall_now()))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes);
            let request = Request::from_parts(parts, body.unwrap_or_default());
            let response =
                client.send(request).await.map_err(|error| Error::Other(error.into()))?;
            let (parts, body) = response.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// Reads a directory, whose URLs must be some.
fn directory(text: &[u8]) -> io::Result<Directory> {
    let wrong = |what: &str| io::Error::other(format!("the authority's directory {what}"));
    let read: Result<Directory, _> = serde_json::from_slice(text);
    let read = read.map_err(|_| wrong("is no directory of ACME"))?;
    let Directory { new_nonce, new_account, new_order, renewal_info } = &read;
    let urls = [Some(new_nonce), Some(new_account), Some(new_order), renewal_info.as_ref()];
    let is_wrong =
        |url: &&String| url.parse::<Uri>().ok().is_none_or(|uri| uri.scheme_str() != Some("https"));
    if urls.into_iter().flatten().any(|url| is_wrong(&url)) {
        return Err(wrong("has a URL without https"));
    }
    Ok(read)
}

/// Sends a request over a connection of its own.
async fn send(acme: &Acme, request: Request<Bytes>) -> io::Result<Response<Bytes>> {
    let uri = request.uri().clone();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);

    let stream = TcpStream::connect((&*host, port)).await;
    let stream = stream
        .map_err(|error| io::Error::other(format!("cannot connect to {host}:{port}: {error}")))?;
    stream.set_nodelay(true)?;
    let name = acme.tls.name_of(&host);
    let name = name.ok_or_else(|| io::Error::other("no certificate can be for the authority"))?;
    let connector = TlsConnector::from(Arc::clone(acme.tls.config_of_http1()));
    let stream = connector.connect(name, stream).await;
    let stream =
        stream.map_err(|error| io::Error::other(format!("no TLS with {host}:{port}: {error}")))?;

    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let (mut parts, body) = request.into_parts();
    parts.uri = uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let authority = HeaderValue::from_str(authority).map_err(io::Error::other)?;
    parts.headers.insert(HOST, authority);

    let responding = async {
        let request = Request::from_parts(parts, Full::new(body));
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, BODY_LIMIT).collect().await.map_err(io::Error::other)?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    };
    // The connection is driven here, so that it ends with this future.
    tokio::pin!(connection);
    tokio::pin!(responding);
    tokio::select! {
        biased;
        response = &mut responding => response,
        ended = &mut connection => match ended {
            // The response may have arrived whole before.
            Ok(()) => responding.await,
            Err(error) => Err(io::Error::other(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
        let mut value = serde_json::json!({
            "newNonce": "https://ca.example/nonce",
            "newAccount": "https://ca.example/account",
            "newOrder": "https://ca.example/order",
            "renewalInfo": "https://ca.example/renewal",
            "meta": { "termsOfService": "https://ca.example/terms" },
        });
        change(&mut value);
        value.to_string().into_bytes()
    }

    #[test]
    fn a_directory_has_urls_with_https() {
        let whole = directory(&text(|_| {})).unwrap();
        assert_eq!(whole.renewal_info.unwrap(), "https://ca.example/renewal");
        assert!(directory(&text(|value| value["renewalInfo"] = serde_json::Value::Null)).is_ok());
        for (key, url) in [
            ("newNonce", ""),
            ("newNonce", ":::"),
            ("newNonce", "/nonce"),
            ("newAccount", "http://ca.example/account"),
            ("newOrder", "https://"),
            ("renewalInfo", "https:// "),
        ] {
            let error = directory(&text(|value| value[key] = url.into())).unwrap_err();
            assert!(error.to_string().contains("directory"), "{key} {url}: {error}");
        }
        for text in ["", "<html>", "[]", "{}", "null", "{\"newNonce\":1}"] {
            assert!(directory(text.as_bytes()).is_err(), "{text}");
        }
    }
}
