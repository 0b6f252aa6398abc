//! The store's decisions about recorded arrivals: by the scripts of live ones, at a given time.

use super::{
    decide::call::{self, Ask, Lease, Verdicts, key, line},
    error::StoreError,
    scripts::Scripts,
    sync::call::Push,
};
use crate::flow::Instant;
use redis::{Cmd, Pipeline, Value};

/// Makes calls at recorded times, and reads their answers.
#[derive(Debug)]
pub struct RecordedCalls {
    scripts: Scripts,
}

impl RecordedCalls {
    /// Returns the calls of the scripts as they are live.
    #[expect(clippy::new_without_default, reason = "nothing holds one by default")]
    pub fn new() -> Self {
        Self { scripts: Scripts::new() }
    }

    /// Returns the calls that make the store know the scripts, before all others.
    pub fn load(&self) -> Pipeline {
        let mut load = redis::pipe();
        for script in [&self.scripts.decide, &self.scripts.release, &self.scripts.sync] {
            load.add_command(script.load());
        }
        load
    }

    /// Returns the call that decides about `asks` at `now`. States outlive an hour.
    pub fn call(&self, asks: &[Ask<'_>], lease: Lease<'_>, now: Instant) -> Cmd {
        let keys: Vec<String> = asks.iter().map(|ask| key("", ask)).collect();
        let time = format!("{} {}", now.as_nanos() / 1000, now.as_nanos() % 1000);
        let lines = asks.iter().map(|ask| line(ask, lease, now, &[]));
        self.scripts.decide.call(true, &keys, [time].into_iter().chain(lines))
    }

    /// Reads the answer.
    ///
    /// # Errors
    ///
    /// The answer is malformed, or contradicts the rules.
    pub fn read(asks: &[Ask<'_>], answer: &Value) -> Result<Verdicts, StoreError> {
        call::read(asks, answer)
    }

    /// Returns the call that syncs a rule's states at `now`.
    /// [`SyncReply::read`](super::SyncReply::read) reads the answer.
    pub fn sync(&self, push: &Push<'_>, now: Instant) -> Cmd {
        let time = format!("{} {}", now.as_nanos() / 1000, now.as_nanos() % 1000);
        self.scripts.sync.call(true, &push.keys(""), push.arguments(&time))
    }

    /// Returns the leases that `asks` take if they are granted: where they are kept, and under
    /// which name.
    pub fn leases(asks: &[Ask<'_>], lease: Lease<'_>) -> Vec<(String, String)> {
        call::leases("", asks, lease).collect()
    }

    /// Returns the call that gives leases back.
    pub fn release(&self, leases: &[(String, String)]) -> Cmd {
        let (keys, names): (Vec<String>, Vec<String>) = leases.iter().cloned().unzip();
        self.scripts.release.call(true, &keys, names)
    }
}
