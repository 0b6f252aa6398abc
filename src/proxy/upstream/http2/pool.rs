//! One worker's connections of HTTP/2 to one server.

use super::{Connection, STREAMS_MAX, Stream};
use crate::proxy::upstream::connect::Opened;
use crate::{
    config::{Server, Upstream, UpstreamProtocol},
    flow::Instant,
};
use core::time::Duration;
use std::{io, sync::Arc};
use tokio::sync::{Notify, watch};

/// Connections of one worker to one server at most. They are opened one after the other, and only when
/// the open ones carry as many requests as the server allows.
const CONNECTIONS_MAX: usize = 100;

/// The connections to a server.
#[derive(Debug, Default)]
pub(crate) struct Http2Pool {
    connections: Vec<Arc<Connection>>,
    /// The one that is being opened; requests that find no room wait for it.
    opening: Option<watch::Receiver<Opening>>,
    /// Whether the server chose HTTP/1.1 last, so that no request waits for another's connection.
    is_http1: bool,
    /// How many requests at once the server allowed last.
    streams: Option<usize>,
    /// Notified when there may be room.
    room: Arc<Notify>,
}

/// What becomes of a connection that is being opened.
#[derive(Clone, Debug)]
pub(crate) enum Opening {
    Pending,
    Done,
    Failed(io::ErrorKind, Arc<str>),
}

/// What a request gets.
pub(crate) enum Shared {
    /// A place on a connection.
    Stream(Box<Stream>),
    /// The server speaks HTTP/1.1.
    Http1,
    /// It opens a connection.
    Open(Opener),
    /// It waits and asks again.
    Wait(Wait),
}

/// What a request waits for.
pub(crate) enum Wait {
    Opening(watch::Receiver<Opening>),
    Room(Arc<Notify>),
}

/// The duty to open a connection. If it is dropped, another request takes it over.
#[derive(Debug)]
pub(crate) struct Opener {
    opening: watch::Sender<Opening>,
    streams: usize,
}

impl Opener {
    /// Returns how many requests at once the server is expected to allow.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }
}

impl Wait {
    /// Waits until it is worth asking again.
    ///
    /// # Errors
    ///
    /// The connection that was waited for could not be opened.
    pub(crate) async fn over(self) -> io::Result<()> {
        match self {
            Self::Room(room) => room.notified().await,
            Self::Opening(mut opening) => {
                let ended = opening.wait_for(|opening| !matches!(opening, Opening::Pending)).await;
                if let Ok(ended) = ended
                    && let Opening::Failed(kind, why) = &*ended
                {
                    return Err(io::Error::new(*kind, why.to_string()));
                }
            }
        }
        Ok(())
    }
}

impl Http2Pool {
    /// Returns what a request to `server` gets at `now`. A connection that has been idle for longer
    /// than the upstream keeps it is left to [`Self::sweep`].
    pub(crate) fn offer(
        &mut self,
        server: &Arc<Server>,
        upstream: &Upstream,
        now: Instant,
    ) -> Shared {
        let limit = upstream.options.idle_timeout;
        self.connections.retain(|connection| !connection.is_over());
        let mut fitting = self
            .connections
            .iter()
            .filter(|connection| connection.settings().fit(server, upstream))
            .filter(|connection| !connection.is_idle(now, limit));
        if let Some(connection) = fitting.clone().find(|connection| connection.has_room()) {
            return Shared::Stream(Stream::on(connection, &self.room, server));
        }
        if let Some(full) = fitting.next() {
            self.streams = Some(full.streams_max()).filter(|streams| *streams > 0);
        } else if self.is_http1 && upstream.options.protocol == UpstreamProtocol::Auto {
            return Shared::Http1;
        }
        if let Some(opening) = self.opening.as_ref().filter(|opening| opening.has_changed().is_ok())
        {
            return Shared::Wait(Wait::Opening(opening.clone()));
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            return Shared::Wait(Wait::Room(Arc::clone(&self.room)));
        }
        let (sender, opening) = watch::channel(Opening::Pending);
        self.opening = Some(opening);
        let streams = self.streams.unwrap_or(STREAMS_MAX).max(1);
        Shared::Open(Opener { opening: sender, streams })
    }

    /// Notes what was opened, and returns a place on it if it is of HTTP/2. `opener` is of the
    /// request that opened it for others too.
    pub(crate) fn note(
        &mut self,
        server: &Arc<Server>,
        result: &io::Result<Opened>,
        opener: Option<Opener>,
    ) -> Option<Box<Stream>> {
        if opener.is_some() {
            self.opening = None;
        }
        let (ended, stream) = match result {
            Err(error) => (Opening::Failed(error.kind(), error.to_string().into()), None),
            Ok(Opened::Http1(_)) => {
                self.is_http1 = true;
                (Opening::Done, None)
            }
            Ok(Opened::Http2(connection)) => {
                self.is_http1 = false;
                self.connections.push(Arc::clone(connection));
                (Opening::Done, Some(Stream::on(connection, &self.room, server)))
            }
        };
        if let Some(opener) = opener {
            // No request may wait for it.
            opener.opening.send_replace(ended);
        }
        stream
    }

    /// Lets go of connections that are over, have been idle for `limit`, or that none of the `users`
    /// would open in the same way with the current configuration. Returns when the next one will have
    /// been idle for so long.
    pub(crate) fn sweep<'u>(
        &mut self,
        users: &(impl Iterator<Item = (&'u Upstream, &'u Server)> + Clone),
        now: Instant,
        limit: Duration,
    ) -> Option<Instant> {
        self.connections.retain(|connection| {
            let is_wanted =
                users.clone().any(|(upstream, server)| connection.settings().fit(server, upstream));
            is_wanted && !connection.is_over() && !connection.is_idle(now, limit)
        });
        self.room.notify_waiters();
        let idle = self.connections.iter().filter_map(|connection| connection.idle_since());
        idle.min().map(|since| since + limit)
    }
}
