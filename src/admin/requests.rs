//! Requests as they end, sent to one client: lines of the access log.
//!
//! Lines wait in the watch's queue and are written when the client has taken those before, so a slow
//! client costs no more memory than that queue; what it loses is counted. One that takes nothing for
//! 15 seconds is dropped.

use super::context::Admin;
use crate::{
    access_log::{StreamEnd, StreamLine, StreamState, Watch},
    flow::Instant,
};
use bytes::Bytes;
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How often lines are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// How often a line says how the stream goes on.
const STATE: Duration = Duration::from_secs(5);

/// How long a client may take no lines.
const PATIENCE: Duration = Duration::from_secs(15);

/// How many bytes are written at once, but for the rest of a line.
const PIECE: usize = 256 * 1024;

/// What one client follows.
#[derive(Debug)]
pub(super) struct Stream {
    pub admin: Arc<Admin>,
    pub watch: Watch,
    pub started: Instant,
    /// When it ends.
    pub until: Instant,
    /// Cancelled when the listener closes.
    pub stopping: CancellationToken,
}

impl Stream {
    /// Sends lines until the time is over, the client leaves or is too slow, or the gateway ends.
    pub(super) async fn send(mut self, pieces: mpsc::Sender<Bytes>) {
        let clock = self.admin.state.clock.clone();
        let mut next_state = self.started + STATE;
        let mut ended = None;
        loop {
            let Ok(Ok(room)) = clock.timeout(PATIENCE, pieces.reserve()).await else { return };
            let now = clock.now();
            ended = ended.or_else(|| self.end(now));
            if ended.is_some() {
                // What waits is sent, and nothing that comes later.
                self.watch.stop();
            }
            let mut text = Vec::new();
            let has_more = self.watch.take(&mut text, PIECE);
            let is_last = ended.is_some() && !has_more;
            if is_last || now >= next_state {
                self.write_state(&mut text, now, ended.filter(|_| is_last));
                next_state = now + STATE;
            }
            if !text.is_empty() {
                room.send(text.into());
            }
            if is_last {
                return;
            }
            if has_more {
                continue;
            }
            tokio::select! {
                () = pieces.closed() => return,
                () = self.stopping.cancelled() => {}
                () = clock.sleep_until((now + LOOK).min(self.until)) => {}
            }
        }
    }

    /// Returns why the stream is to end, if it is.
    fn end(&self, now: Instant) -> Option<StreamEnd> {
        if self.stopping.is_cancelled() {
            Some(StreamEnd::Shutdown)
        } else if now >= self.until {
            Some(StreamEnd::Time)
        } else if !self.admin.state.live.load().settings.shows_keys() {
            Some(StreamEnd::ShowKeys)
        } else {
            None
        }
    }

    fn write_state(&self, text: &mut Vec<u8>, now: Instant, ended: Option<StreamEnd>) {
        let seconds = now.since(self.started).as_secs_f64();
        let requests = self.watch.taken();
        let line = StreamLine {
            stream: StreamState { requests, lost: self.watch.lost(), seconds, ended },
        };
        // Writing to memory cannot fail.
        if serde_json::to_writer(&mut *text, &line).is_ok() {
            text.push(b'\n');
        }
    }
}
