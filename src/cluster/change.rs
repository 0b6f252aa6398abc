//! What operators change in the store: the state of one key, or how much is granted to it.

use super::{
    decide::call::key_of,
    error::{Failure, StoreError},
    limits::PATIENCE,
    redis::{search::connect, store_connection::ClientState},
    store::Store,
};
use crate::clock::Clock;
use core::time::Duration;
use redis::{Cmd, Value, cmd};
use std::sync::Arc;

/// How long gateways may be away and still learn that something has changed: a month.
const REMEMBERED: Duration = Duration::from_hours(31 * 24);

/// A change to one state.
#[derive(Clone, Copy, Debug)]
pub enum StateChange {
    /// The rule is to treat the key as one that it has never seen.
    Reset,
    /// The rule is to admit so much more than it would, for so long.
    Grant(u64, Duration),
}

impl StateChange {
    fn call(self, key: &str) -> Cmd {
        match self {
            Self::Reset => {
                let mut call = cmd("DEL");
                call.arg(key);
                call
            }
            Self::Grant(count, time) => set(&format!("{key}:grant"), count, time),
        }
    }
}

impl Store {
    /// Changes a state for all gateways, over a connection of its own. The state is that of a rule
    /// by its [name](crate::config::Shared::name) there, and of a key by its fingerprint. This
    /// gateway forgets its cached rejections at once, the others with their next greeting, within
    /// five seconds. Returns whether there was something to change.
    ///
    /// # Errors
    ///
    /// The store did not answer, or with an error. It may have done it.
    pub async fn change(
        self: &Arc<Self>,
        clock: &Clock,
        states: &[(Arc<str>, Option<u128>)],
        change: StateChange,
    ) -> Result<bool, StoreError> {
        // Without the secret the fingerprint would be another one.
        if !self.has_learned() {
            return Err(StoreError::Down);
        }
        let limit = self.settings.timeout.max(PATIENCE);
        let client = ClientState::new(Arc::clone(self), clock.clone(), limit, self.number());
        let client = Arc::new(client);
        let error = |failure: Failure| failure.error;
        let mut connection = connect(&client, None).await.map_err(error)?;
        let mut had_state = false;
        let keys = states.iter().map(|(name, key)| key_of(&self.settings.prefix, name, *key));
        let calls = keys.map(|key| (change.call(&key), key));
        let number = fastrand::u64(..);
        let noted = self.key("change");
        // Last, so that no gateway asks before it is done.
        let note = (set(&noted, number, REMEMBERED), noted);
        for (call, key) in calls.chain([note]) {
            let mut node = connection.servers.node_of(&key);
            let answer = connection.servers.query(&mut node, &call);
            let answer = clock.timeout(limit, answer).await.map_err(|_| StoreError::Timeout)?;
            let answer = answer.map_err(|failure| StoreError::from(&failure))?;
            had_state |= matches!(answer, Value::Int(1..));
        }
        self.forget_rejections();
        Ok(had_state || matches!(change, StateChange::Grant(..)))
    }
}

fn set(key: &str, number: u64, time: Duration) -> Cmd {
    let mut call = cmd("SET");
    call.arg(key).arg(number).arg("PX").arg(time.as_millis().max(1).to_string());
    call
}
