//! Takes a sample a second.

use super::board::{Board, STEP};
use crate::{clock::Clock, config::Live, flow::Instant};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

const SECOND: Duration = Duration::from_secs(1);

/// Takes samples, and wakes clients when there is another one.
#[derive(Debug)]
pub(crate) struct Sampler {
    board: Mutex<Board>,
    /// How many samples there are.
    taken: watch::Sender<u64>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { board: Mutex::default(), taken: watch::Sender::new(0) }
    }
}

impl Sampler {
    /// Samples the configuration in force once a second, for ever, and calls `each` after it.
    pub(crate) async fn run(&self, live: &Live, clock: &Clock, each: impl Fn()) {
        self.sample(live, clock).await;
        let mut next = clock.now() + SECOND;
        loop {
            clock.sleep_until(next).await;
            self.sample(live, clock).await;
            each();
            // After a suspended machine the next one is a second away.
            next = (next + SECOND).max(clock.now());
        }
    }

    /// Takes a sample.
    pub(crate) async fn sample(&self, live: &Live, clock: &Clock) {
        let now = clock.now();
        let count = self.board().begin(live.load_full(), now);
        for from in (0..count).step_by(STEP) {
            self.board().sample(from, now);
            tokio::task::yield_now().await;
        }
        self.board().end(clock.wall(now));
        self.taken.send_modify(|taken| *taken += 1);
    }

    /// Takes the routes of the configuration in force, if it is another one than that of the latest
    /// sample, so that a page shows one configuration. While a sample is being taken, it changes
    /// nothing.
    pub(super) fn catch_up(&self, live: &Live, clock: &Clock) {
        self.board().catch_up(live.load_full(), clock.now());
    }

    /// Returns the share of a server's latest requests that failed, if at least half of them did.
    pub(crate) fn failing(&self, server: usize) -> Option<f64> {
        self.board().server(server).failing()
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what changes with each sample.
    pub(super) fn taken(&self) -> watch::Receiver<u64> {
        self.taken.subscribe()
    }
}

/// Returns an instant of the wall clock in seconds since the Unix epoch.
pub(super) fn unix_seconds(wall: Instant) -> u64 {
    wall.as_nanos() / 1_000_000_000
}
