//! Changes by operators in the store: to the state of one key, or to the grant for it.

use super::{
    decide::call::key_of,
    error::{CallFailure, StoreError},
    redis::{ClientState, StoreConnection},
    scripts::BACKGROUND_CALL_TIMEOUT,
    store::Store,
    sync::{call::Push, rule::late},
};
use crate::{
    clock::Clock,
    flow::{StateName, Stored},
};
use core::time::Duration;
use redis::{Cmd, Value, cmd};
use std::sync::Arc;

/// The longest absence after which a gateway still learns of a change: a month.
const REMEMBERED: Duration = Duration::from_hours(31 * 24);

/// A change to one state.
#[derive(Clone, Copy, Debug)]
pub enum StateChange {
    /// The rule is to treat the key as one that it has never seen.
    Reset,
    /// The rule is to admit so much more than it would, for so long.
    Grant(u64, Duration),
}

/// A state that gateways share.
#[derive(Clone, Debug)]
pub struct SharedState {
    /// The [name](crate::config::Shared::name) of its rule in the store.
    pub rule: Arc<str>,
    /// The fingerprint of its key, if the rule has keys.
    pub key: Option<u128>,
    /// The terms of the sync, if the store does not decide about each request.
    pub sync: Option<SyncTerms>,
}

/// The terms by which gateways sync a rule.
#[derive(Clone, Debug)]
pub struct SyncTerms {
    /// The rule itself.
    pub rule: Arc<Stored>,
    /// The time between two syncs.
    pub interval: Duration,
}

impl SharedState {
    /// Returns the call that makes the change, and a key that it is about.
    fn call(&self, change: StateChange, store: &Store) -> (Cmd, String) {
        let prefix = &store.settings.prefix;
        if let (Some(sync), StateChange::Reset) = (&self.sync, change) {
            let name = self.key.map_or(StateName::All, StateName::Key);
            let states = [name.to_string()];
            let push = Push::reset(&self.rule, &sync.rule, late(sync.interval), &states);
            let keys = push.keys(prefix);
            let call = store.scripts.sync.call(false, &keys, push.arguments(""));
            let [key, ..] = keys;
            return (call, key);
        }

        let key = key_of(prefix, &self.rule, self.key);
        let call = match change {
            StateChange::Reset => {
                let mut call = cmd("DEL");
                call.arg(&key);
                call
            }
            StateChange::Grant(count, time) => set(&format!("{key}:grant"), count, time),
        };
        (call, key)
    }
}

impl Store {
    /// Changes states for all gateways, over a connection of its own. If the store decides about
    /// the rule, this gateway forgets its cached rejections at once, the others with their next
    /// registration, within five seconds. If gateways sync it, they learn of a reset with their next
    /// sync; they cannot learn of a grant. Returns whether there was something to change.
    ///
    /// # Errors
    ///
    /// The store did not answer, or answered with an error. The change may have been made all the
    /// same.
    pub async fn change(
        self: &Arc<Self>,
        clock: &Clock,
        states: &[SharedState],
        change: StateChange,
    ) -> Result<bool, StoreError> {
        // Without the secret the fingerprint would be another one.
        if !self.has_learned() {
            return Err(StoreError::Down);
        }

        let limit = self.settings.timeout.max(BACKGROUND_CALL_TIMEOUT);
        let client = ClientState::new(Arc::clone(self), clock.clone(), limit, self.number());
        let client = Arc::new(client);
        let error = |failure: CallFailure| failure.error;
        let mut connection = StoreConnection::open(&client).await.map_err(error)?;

        let mut had_state = false;
        let calls = states.iter().map(|state| state.call(change, self));
        let number = fastrand::u64(..);
        let noted = self.key("change");
        // Last, so that no gateway asks before it is done.
        let note = (set(&noted, number, REMEMBERED), noted);

        for (call, key) in calls.chain([note]) {
            let answer = connection.query(&key, &call);
            let answer = clock.timeout(limit, answer).await.map_err(|_| StoreError::Timeout)?;
            let answer = answer.map_err(|failure| StoreError::from(&failure))?;
            // A sync does not say what it has reset, and the rest of it may be at other gateways.
            had_state |= matches!(answer, Value::Int(1..) | Value::Array(_));
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
