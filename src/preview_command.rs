//! `flowgate preview` and `flowgate apply`: they ask a running gateway through its admin listener.

use crate::{
    cli::{ApplyOptions, Format, PreviewOptions},
    clock::Clock,
    config,
    preview::{Cost, Report, State},
    shutdown::Signals,
};
use bytes::Bytes;
use bytesize::ByteSize;
use core::time::Duration;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::{
    fs,
    io::{self, BufRead, IsTerminal, Read, Write},
    net::SocketAddr,
    path::Path,
};
use tokio::net::TcpStream;

/// How often the report is read.
const LOOK: Duration = Duration::from_secs(1);

/// How often a line is written where that is no terminal, in looks.
const QUIET_LOOKS: u32 = 10;

/// How much longer than its time a preview may go on, until it is applied.
const MARGIN: Duration = Duration::from_mins(1);

/// Why a command ended without success.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The gateway does not do it, and says why: the new file has errors, for example.
    #[error("{0}")]
    Rejected(String),
    /// The configuration has no admin listener, or cannot be read.
    #[error("{0}")]
    NoListener(String),
    /// The new file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The gateway does not answer.
    #[error("cannot ask the admin listener at {address}: {cause}; is the gateway running?")]
    Unreachable {
        /// Where it should be.
        address: SocketAddr,
        /// Why it does not answer.
        cause: String,
    },
    /// The preview was not begun.
    #[error("not begun")]
    Declined,
    /// The output cannot be written, or no signal received.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Previews a new file until its time is over, a signal comes, or the gateway ends it. Writes the
/// report to `out`.
///
/// # Errors
///
/// See [`PreviewError`].
pub fn preview(
    new: &Path,
    config: &Path,
    options: &PreviewOptions,
    out: &mut impl Write,
) -> Result<(), PreviewError> {
    let text = read(new)?;
    let client = Client::find(config, options.admin)?;
    run(async {
        let cost: Cost = client.ask(Method::POST, "/preview?check", &text).await?;
        say_cost(new, &cost);
        if !options.yes && !confirm()? {
            return Err(PreviewError::Declined);
        }
        let query = options.time.map_or_else(String::new, |time| {
            let most = if options.apply { time + MARGIN } else { time };
            format!("?for={}s", most.as_secs().max(1))
        });
        let _cost: Cost = client.ask(Method::POST, &format!("/preview{query}"), &text).await?;
        let report = follow(&client, options).await?;
        match options.output {
            Format::Text => write!(out, "{report}")?,
            Format::Json => {
                writeln!(
                    out,
                    "{}",
                    serde_json::to_string_pretty(&report).map_err(io::Error::from)?
                )?;
            }
        }
        out.flush()?;
        Ok(())
    })
}

/// Puts the new file of the running preview in force, and writes what that did to `out`.
///
/// # Errors
///
/// See [`PreviewError`].
pub fn apply(
    config: &Path,
    options: &ApplyOptions,
    out: &mut impl Write,
) -> Result<(), PreviewError> {
    let client = Client::find(config, options.admin)?;
    run(async {
        let summary = client.apply().await?;
        writeln!(out, "{summary}")?;
        Ok(out.flush()?)
    })
}

/// Reads the report until the preview is over.
async fn follow(client: &Client, options: &PreviewOptions) -> Result<Report, PreviewError> {
    let clock = Clock::start();
    let mut signals = Signals::listen()?;
    let end = options.time.map(|time| clock.now() + time);
    let is_terminal = io::stderr().is_terminal();
    let mut looks = 0;
    loop {
        let report: Report = client.ask(Method::GET, "/preview", &[]).await?;
        looks += 1;
        if is_terminal {
            eprint!("\r\x1b[2K{}", report.line());
        } else if looks % QUIET_LOOKS == 0 {
            eprintln!("{}", report.line());
        }
        let is_signalled = tokio::select! {
            () = signals.end() => true,
            () = clock.timer(clock.now() + LOOK) => false,
        };
        let is_over = end.is_some_and(|end| end <= clock.now());
        if !is_signalled && !is_over && report.state == State::Running {
            continue;
        }
        if is_terminal {
            eprintln!();
        }
        if report.state == State::Ended {
            return Ok(report);
        }
        if is_over && !is_signalled && options.apply {
            eprintln!("{}", client.apply().await?);
            return client.ask(Method::GET, "/preview", &[]).await;
        }
        return client.ask(Method::DELETE, "/preview", &[]).await;
    }
}

fn say_cost(new: &Path, cost: &Cost) {
    if let Some(warnings) = &cost.warnings {
        eprintln!("{}", warnings.trim_end());
    }
    if cost.is_in_force {
        eprintln!("{} is the file in force: the preview will show no change", new.display());
    }
    eprintln!(
        "The preview takes up to {} of memory in the gateway. It rejects and delays nobody.",
        ByteSize(cost.memory_bytes)
    );
}

/// Asks whether to begin, if there is somebody to ask.
fn confirm() -> io::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    eprint!("Begin? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn read(path: &Path) -> Result<Vec<u8>, PreviewError> {
    let read = if path == Path::new(config::STDIN) {
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        fs::read(path)
    };
    let path = path.display().to_string();
    read.map_err(|source| PreviewError::Unreadable { path, source })
}

fn run<T>(work: impl Future<Output = Result<T, PreviewError>>) -> Result<T, PreviewError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// A client of the admin listener.
struct Client {
    address: SocketAddr,
    token: Option<config::Secret>,
}

impl Client {
    /// Returns a client of the listener at `given`, or of the one that the configuration names, with
    /// its token. Another address gets no token: it may be somebody else's.
    fn find(config: &Path, given: Option<SocketAddr>) -> Result<Self, PreviewError> {
        if let Some(address) = given {
            return Ok(Self { address, token: None });
        }
        let none = PreviewError::NoListener;
        let admin = config::read_admin(config).map_err(|problems| none(problems.to_string()))?;
        let Some(config::AdminAddress { listen: address, token, token_file, certificate }) = admin
        else {
            let file = config.display();
            return Err(none(format!(
                "{file} has no admin listener: write `admin: {{ listen: 127.0.0.1:9901 }}` and restart the gateway"
            )));
        };
        if certificate.is_some() {
            let file = config.display();
            return Err(none(format!(
                "the admin listener of {file} has TLS, which this command does not speak: ask it with \
                 `curl https://{address}/preview`"
            )));
        }
        let Some(path) = token_file else { return Ok(Self { address, token }) };
        let text = fs::read_to_string(&path);
        let path = path.display().to_string();
        let text = text.map_err(|source| PreviewError::Unreadable { path, source })?;
        let token = Some(config::Secret::new(text.trim().to_owned()));
        Ok(Self { address, token })
    }

    async fn apply(&self) -> Result<String, PreviewError> {
        let applied: serde_json::Value = self.ask(Method::POST, "/preview/apply", &[]).await?;
        Ok(applied["summary"].as_str().unwrap_or_default().to_owned())
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
    ) -> Result<T, PreviewError> {
        let unreachable =
            |cause: String| PreviewError::Unreachable { address: self.address, cause };
        let (status, text) = match self.send(method, path, body).await {
            Ok(answer) => answer,
            Err(error) => return Err(unreachable(error.to_string())),
        };
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&text);
            return Err(PreviewError::Rejected(text.trim_end().to_owned()));
        }
        serde_json::from_slice(&text).map_err(|error| unreachable(error.to_string()))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
    ) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .body(Full::new(Bytes::copy_from_slice(body)))?;
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let response = sender.send_request(request).await?;
        let status = response.status();
        let text = response.into_body().collect().await?.to_bytes();
        connection.abort();
        Ok((status, text))
    }
}
