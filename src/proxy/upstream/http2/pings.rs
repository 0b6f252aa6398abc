//! Asks a server whether it has read what was written before. It reads frames in order, and
//! acknowledges a ping (RFC 9113, 6.7) after all that came before it.

use crate::clock::Clock;
use core::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use h2::{Ping, PingPong};
use tokio::sync::Mutex;

/// Pings at most until the next response begins: gRPC servers end connections that ping often.
const PINGS_MAX: u32 = 2;

/// How long a server may take to acknowledge one.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pings of a connection.
#[derive(Debug)]
pub(super) struct Pings {
    /// How many requests have asked.
    asked: AtomicU64,
    /// Pings since a response began.
    sent: AtomicU32,
    /// Whether one was not acknowledged.
    is_unanswered: AtomicBool,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ping_pong: Option<PingPong>,
    /// Those that had asked when the last ping was sent.
    acknowledged: u64,
}

impl Pings {
    pub(super) fn new(ping_pong: Option<PingPong>, clock: Clock) -> Self {
        let state = Mutex::new(State { ping_pong, acknowledged: 0 });
        Self {
            asked: AtomicU64::new(0),
            sent: AtomicU32::new(0),
            is_unanswered: AtomicBool::new(false),
            clock,
            state,
        }
    }

    /// Notes that the server has begun a response.
    pub(super) fn note_response(&self) {
        self.sent.store(0, Relaxed);
    }

    /// Whether the server may be asked now.
    pub(super) fn may_ask(&self) -> bool {
        self.sent.load(Relaxed) < PINGS_MAX && !self.is_unanswered.load(Relaxed)
    }

    /// Waits until the server has read what was written before this call. Returns whether it has. To
    /// be polled to its end.
    pub(super) async fn round_trip(&self) -> bool {
        let number = self.asked.fetch_add(1, Relaxed) + 1;
        let mut state = self.state.lock().await;
        if state.acknowledged >= number {
            return true;
        }
        let Some(ping_pong) = state.ping_pong.as_mut().filter(|_| self.may_ask()) else {
            return false;
        };
        self.sent.fetch_add(1, Relaxed);
        let asked = self.asked.load(Relaxed);
        let ping = ping_pong.ping(Ping::opaque());
        let is_acknowledged = matches!(self.clock.timeout(PATIENCE, ping).await, Ok(Ok(_)));
        if is_acknowledged {
            state.acknowledged = asked;
        } else {
            self.is_unanswered.store(true, Relaxed);
        }
        is_acknowledged
    }
}
