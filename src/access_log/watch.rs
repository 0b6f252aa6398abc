//! The lines of requests as they end, for clients that watch them.

use super::{
    buffers::Shared,
    watchers::{Line, MOST, Queue},
};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, mpsc::Receiver};

/// Begins watches, whether or not the log has an output.
#[derive(Clone, Debug)]
pub struct Watching(pub(super) Arc<Shared>);

/// The lines of all requests that end from now on. Dropping it ends it.
///
/// Up to 4 MiB and 16,384 lines wait to be taken; lines beyond are counted as lost. Lines of one
/// worker stay in order.
#[derive(Debug)]
pub struct Watch {
    /// `None` once no more lines are to come.
    shared: Option<Arc<Shared>>,
    queue: Arc<Queue>,
    lines: Receiver<Line>,
    taken: u64,
}

/// How a stream of lines goes on: a line of its own among them, as `{"stream":{"requests":5,…}}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamLine {
    /// All that it has to say.
    pub stream: StreamState,
}

/// See [`StreamLine`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamState {
    /// How many lines were sent.
    pub requests: u64,
    /// How many were not, as the client read too slowly.
    pub lost: u64,
    /// How long it has lasted.
    pub seconds: f64,
    /// Why it ends, in the last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<StreamEnd>,
}

/// Why a stream of lines ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamEnd {
    /// Its time is over.
    Time,
    /// The gateway ends, or another process serves in its place.
    Shutdown,
    /// An edit has taken `admin.show_keys` back.
    ShowKeys,
}

impl Watching {
    /// The most watches at once.
    pub const MOST: usize = MOST;

    /// Begins a watch; `None` if there are [`MOST`](Self::MOST).
    pub fn begin(&self) -> Option<Watch> {
        let (queue, lines) = self.0.watchers.add()?;
        Some(Watch { shared: Some(Arc::clone(&self.0)), queue, lines, taken: 0 })
    }
}

impl Watch {
    /// Appends waiting lines to `text` until it has at least `most` bytes. Returns whether lines may
    /// be left.
    pub fn take(&mut self, text: &mut Vec<u8>, most: usize) -> bool {
        while text.len() < most {
            let Ok(line) = self.lines.try_recv() else { return false };
            self.queue.taken(&line);
            text.extend_from_slice(&line);
            self.taken += 1;
        }
        true
    }

    /// Has no more lines come. Those that wait can still be taken.
    pub fn stop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.watchers.remove(&self.queue);
        }
    }

    /// Returns how many lines were taken.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns how many lines were lost.
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}
