//! Docker's Engine API on its Unix socket: the running containers, and when they change.

use crate::clock::Clock;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header::HOST};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Deserializer};
use std::{
    collections::BTreeMap,
    error::Error,
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::net::UnixStream;

/// The time that a response may take.
const RESPONSE: Duration = Duration::from_secs(30);

/// The longest list of containers, in bytes: some 4 KiB each.
const MOST: usize = 64 << 20;

/// Only containers with the label that asks for a route: `{"label":["flowgate.enable=true"]}`.
const CONTAINERS: &str =
    "/containers/json?filters=%7B%22label%22%3A%5B%22flowgate.enable%3Dtrue%22%5D%7D";

/// Events of containers and of their networks: `{"type":["container","network"]}`.
const EVENTS: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%2C%22network%22%5D%7D";

/// The reason for which Docker's containers are not known.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The socket cannot be opened.
    #[error("cannot connect to Docker at {}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The connection has failed, or what came is not HTTP.
    #[error("Docker has given no valid response")]
    Http(#[source] Box<dyn Error + Send + Sync>),
    /// The response is an error.
    #[error("Docker has responded with status {0}")]
    Status(StatusCode),
    /// The list cannot be read.
    #[error("Docker's list of containers cannot be read")]
    List(#[source] serde_json::Error),
    /// The response has not come in time.
    #[error("Docker has not responded within {}s", RESPONSE.as_secs())]
    Late,
}

/// A running container, as Docker lists it. What it lacks is empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Container {
    pub id: String,
    /// Seconds since the Unix epoch.
    pub created: i64,
    #[serde(deserialize_with = "or_empty")]
    pub names: Vec<String>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The state in words, with the health in parentheses: `Up 2 minutes (unhealthy)`.
    pub status: String,
    pub ports: Option<Vec<Port>>,
    #[serde(deserialize_with = "or_empty")]
    pub network_settings: Networks,
    #[serde(deserialize_with = "or_empty")]
    pub host_config: HostConfig,
}

/// Reads what may be `null`, as the names of a container that is being removed.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    value: D,
) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// A port of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Port {
    /// The port inside the container.
    pub private_port: u16,
    /// `tcp`, `udp` or `sctp`.
    #[serde(rename = "Type")]
    pub kind: String,
}

/// The networks of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Networks {
    pub networks: Option<BTreeMap<String, Network>>,
}

/// A container's place in a network.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Network {
    #[serde(rename = "IPAddress")]
    pub address: String,
    #[serde(rename = "GlobalIPv6Address")]
    pub address_v6: String,
}

/// The state of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct HostConfig {
    /// `host` if the container uses the network of its host.
    pub network_mode: String,
}

/// The events of containers, while they come.
#[derive(Debug)]
pub(super) struct Events(Incoming);

/// A client of the API, with a connection for each request.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) socket: PathBuf,
    pub(super) clock: Clock,
}

impl Engine {
    /// Returns the running containers that ask for a route.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub(super) async fn containers(&self) -> Result<Vec<Container>, EngineError> {
        let read = async {
            let response = self.get(CONTAINERS).await?;
            let body = Limited::new(response.into_body(), MOST).collect().await;
            Ok::<Bytes, EngineError>(body.map_err(EngineError::Http)?.to_bytes())
        };
        let text = self.clock.timeout(RESPONSE, read).await.map_err(|_| EngineError::Late)??;
        serde_json::from_slice(&text).map_err(EngineError::List)
    }

    /// Begins to read events.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub(super) async fn events(&self) -> Result<Events, EngineError> {
        let begun = self.clock.timeout(RESPONSE, self.get(EVENTS)).await;
        let response = begun.map_err(|_| EngineError::Late)??;
        Ok(Events(response.into_body()))
    }

    async fn get(&self, target: &str) -> Result<Response<Incoming>, EngineError> {
        let other = |error: hyper::Error| EngineError::Http(error.into());
        let stream = connect(&self.socket).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(other)?;
        // It ends when the body of the response is read or dropped.
        tokio::spawn(connection);
        let request = Request::get(target).header(HOST, "docker").body(Empty::<Bytes>::new());
        let request = request.map_err(|error| EngineError::Http(error.into()))?;
        let response = sender.send_request(request).await.map_err(other)?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(EngineError::Status(status)),
        }
    }
}

async fn connect(socket: &Path) -> Result<UnixStream, EngineError> {
    let connected = UnixStream::connect(socket).await;
    connected.map_err(|source| EngineError::Connect { socket: socket.to_owned(), source })
}

impl Events {
    /// Waits for the next piece of an event. What the event says does not matter: all containers are
    /// listed anew.
    ///
    /// # Errors
    /// The connection has failed, or Docker has ended it.
    pub(super) async fn next(&mut self) -> Result<(), EngineError> {
        match self.0.frame().await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(EngineError::Http(error.into())),
            None => Err(EngineError::Http("the events have ended".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_lacks_is_empty() {
        let text = r#"[{ "Id": "0", "Names": null, "Labels": null, "Ports": null, "HostConfig": null,
            "NetworkSettings": null }, { "NetworkSettings": { "Networks": null }, "Other": 1 }]"#;
        let read: Vec<Container> = serde_json::from_str(text).unwrap();
        assert!(read.iter().all(|container| container.names.is_empty()), "{read:?}");
        assert_eq!(read.len(), 2);
    }
}
