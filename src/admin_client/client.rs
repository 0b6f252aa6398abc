//! Requests to the admin listener: each on a connection of its own.

use super::{
    endpoint::{AdminEndpoint, ClientCertificate, tls_config},
    error::{ClientError, TOKEN_VARIABLE},
    events::{Pieces, Received, ServerSentEvents},
    search::{self, AdminOptions, Found, INSTALLED},
};
use crate::{
    config::{AdminAddress, Secret},
    terminal_text::terminal_lines,
};
use bytes::Bytes;
use core::time::Duration;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    sync::Arc,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

/// The time that a connection may take, TLS included.
const CONNECT: Duration = Duration::from_secs(10);

/// The time that an answer may take. Reading a file of ten thousand routes takes a second or two.
const ANSWER: Duration = Duration::from_mins(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The longest answer, in bytes. `/routes` of ten thousand busy routes is 70 MB.
const MOST: usize = 256 << 20;

/// A client of one admin listener.
#[derive(Debug)]
pub struct AdminClient {
    endpoint: AdminEndpoint,
    token: Option<Secret>,
    /// Why the configuration's token is not known.
    token_problem: Option<String>,
    tls: Option<Arc<ClientConfig>>,
}

impl AdminClient {
    /// Returns a client of the listener that the options name, or of the one of the configuration,
    /// with its token. Another listener gets no token of the configuration: it may belong to
    /// another gateway. If the configuration names no listener because it is missing or has errors,
    /// the client is that of `INSTALLED` or of the default address, which is written to the
    /// standard error.
    ///
    /// # Errors
    /// A valid configuration has no admin listener, the one that the command names is missing, or a
    /// named file cannot be used.
    pub fn find(config: &Path, options: &AdminOptions) -> Result<Self, ClientError> {
        let given = given_token(options)?;
        if let Some(endpoint) = &options.admin {
            return Self::new(endpoint.clone(), given, options.ca.as_deref(), options);
        }
        let Found { address, tried } = search::search(config, Path::new(INSTALLED))?;
        let AdminAddress { listen, token, token_problem, token_file, certificate } = address;
        let token = match (given, token_file) {
            (Some(given), _) => Some(given),
            (None, Some(file)) => Some(read_token(&file)?),
            (None, None) => token,
        };
        let endpoint = AdminEndpoint::of_listener(listen, certificate.is_some());
        let ca = options.ca.as_deref().or(certificate.as_deref());
        let client = Self::new(endpoint, token, ca, options)?;
        if !tried.is_empty() {
            // Nobody may read the standard error.
            drop(writeln!(io::stderr(), "{tried}"));
        }
        Ok(Self { token_problem, ..client })
    }

    fn new(
        endpoint: AdminEndpoint,
        token: Option<Secret>,
        ca: Option<&Path>,
        options: &AdminOptions,
    ) -> Result<Self, ClientError> {
        let tls = match (endpoint.has_tls, ClientCertificate::of(options)) {
            (true, identity) => Some(tls_config(ca, identity.as_ref())?),
            (false, Some(identity)) => return Err(identity.without_tls()),
            (false, None) => None,
        };
        Ok(Self { endpoint, token, token_problem: None, tls })
    }

    /// Returns where the listener is.
    pub const fn endpoint(&self) -> &AdminEndpoint {
        &self.endpoint
    }

    /// Sends `body` and reads the JSON of the answer. `path` begins with `/` and may have a query.
    ///
    /// # Errors
    /// Every [`ClientError`]; [`ClientError::Rejected`] for a status that is no success.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<T, ClientError> {
        let text = self.text(method, path, body).await?;
        serde_json::from_slice(&text).map_err(|error| self.unreadable(&error))
    }

    /// Sends `value` as JSON and reads the JSON of the answer.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(value).map_err(|error| self.unreadable(&error))?;
        let mut request = self.request(Method::POST, path, body.into())?;
        request.headers_mut().insert(header::CONTENT_TYPE, JSON);
        let text = self.answer(request, path).await?;
        serde_json::from_slice(&text).map_err(|error| self.unreadable(&error))
    }

    /// Sends `body` and returns the answer as it is.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub async fn text(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Bytes, ClientError> {
        let request = self.request(method, path, body.into())?;
        self.answer(request, path).await
    }

    async fn answer(
        &self,
        request: Request<Full<Bytes>>,
        path: &str,
    ) -> Result<Bytes, ClientError> {
        let answered = async { self.whole(self.begin(request).await?).await };
        let (status, text) = timeout(ANSWER, answered).await.map_err(|_| self.late(ANSWER))??;
        self.checked(status, path, text)
    }

    /// Follows a page of server-sent events.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub async fn follow(&self, path: &str) -> Result<ServerSentEvents, ClientError> {
        let pieces = self.stream(path).await?;
        Ok(ServerSentEvents { pieces, received: Received::default() })
    }

    /// Reads a page while it comes.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub async fn stream(&self, path: &str) -> Result<Pieces, ClientError> {
        let request = self.request(Method::GET, path, Bytes::new())?;
        let begun = timeout(ANSWER, self.begin(request)).await;
        let response = begun.map_err(|_| self.late(ANSWER))??;
        if !response.status().is_success() {
            let whole = timeout(ANSWER, self.whole(response)).await;
            let (status, text) = whole.map_err(|_| self.late(ANSWER))??;
            self.checked(status, path, text)?;
            return Err(self.unreadable(&"no stream"));
        }
        Ok(Pieces { endpoint: self.endpoint.clone(), body: response.into_body() })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, self.endpoint.authority()).body(Full::new(body));
        let mut request = request.map_err(|error| self.unreadable(&error))?;
        if let Some(token) = &self.token {
            let value = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
            let mut value = value.map_err(|_| ClientError::BadToken)?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// Connects, and waits for the head of the answer.
    async fn begin(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let connected = timeout(CONNECT, self.connect()).await;
        let stream = connected.map_err(|_| self.late(CONNECT))??;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = opened.map_err(|error| self.unreadable(&error))?;
        // It ends when the answer's body is read or dropped.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| self.unreadable(&error))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, ClientError> {
        let AdminEndpoint { host, port, .. } = &self.endpoint;
        let connected = TcpStream::connect((host.as_str(), *port)).await;
        let stream = connected.map_err(|cause| {
            let endpoint = self.endpoint.clone();
            ClientError::Unreachable { endpoint, cause }
        })?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let failed = |cause| ClientError::Tls { endpoint: self.endpoint.clone(), cause };
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other).map_err(failed)?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }

    async fn whole(
        &self,
        response: Response<Incoming>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST).collect().await;
        Ok((status, body.map_err(|error| self.unreadable(&error))?.to_bytes()))
    }

    /// Returns the text of a success.
    fn checked(&self, status: StatusCode, path: &str, text: Bytes) -> Result<Bytes, ClientError> {
        if status.is_success() {
            return Ok(text);
        }
        let endpoint = self.endpoint.clone();
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        Err(match status {
            StatusCode::UNAUTHORIZED if self.token.is_none() => ClientError::NoToken {
                endpoint,
                problem: self
                    .token_problem
                    .as_ref()
                    .map_or_else(String::new, |why| format!(" ({why})")),
            },
            StatusCode::UNAUTHORIZED => ClientError::WrongToken(endpoint),
            // Pages may answer 404 too, for a rule that is not there.
            StatusCode::NOT_FOUND if text.is_empty() || text.starts_with("no such page") => {
                let path = path.split('?').next().unwrap_or_default().to_owned();
                ClientError::NoPage { endpoint, path }
            }
            _ if text.is_empty() => self.unreadable(&format_args!("status {status}")),
            _ => ClientError::Rejected { status, text: terminal_lines(&text).into_owned() },
        })
    }

    fn late(&self, time: Duration) -> ClientError {
        ClientError::TooLate { endpoint: self.endpoint.clone(), seconds: time.as_secs() }
    }

    fn unreadable(&self, cause: &impl ToString) -> ClientError {
        ClientError::Unreadable { endpoint: self.endpoint.clone(), cause: cause.to_string() }
    }
}

/// The stream of a connection.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Returns the token of the options, or of the environment.
fn given_token(options: &AdminOptions) -> Result<Option<Secret>, ClientError> {
    if let Some(file) = &options.token_file {
        return read_token(file).map(Some);
    }
    let given = env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    Ok(given.map(Secret::new))
}

fn read_token(file: &Path) -> Result<Secret, ClientError> {
    let unusable = |cause: String| ClientError::File { path: file.into(), cause };
    let text = fs::read_to_string(file).map_err(|error| unusable(error.to_string()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(unusable("it is empty".to_owned()));
    }
    Ok(Secret::new(token.to_owned()))
}
