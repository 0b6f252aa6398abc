//! Asks the sentinels periodically which server is the primary: a deposed primary may go on
//! serving, and then no connection breaks.

use super::connect::{open, open_as};
use crate::{
    clock::Clock,
    config::{StoreKind, StoreSettings},
};
use core::time::Duration;
use redis::{
    ErrorKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, Value,
    aio::MultiplexedConnection, cmd,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::task::JoinSet;

/// The primary that sentinels name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Primary {
    /// Grows with each failover.
    epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Asks the sentinels in a task of its own, because a sentinel that hangs takes long.
#[derive(Default)]
pub(super) struct Watch {
    running: JoinSet<Option<Primary>>,
    /// The latest failover that any sentinel has named.
    epoch: u64,
}

impl Watch {
    /// Begins to ask, unless that is running or the store has no sentinels. Each sentinel may take
    /// `limit`.
    pub(super) fn begin(&mut self, settings: &Arc<StoreSettings>, clock: &Clock, limit: Duration) {
        if matches!(settings.kind, StoreKind::Sentinel { .. }) && self.running.is_empty() {
            self.running.spawn(ask_all(Arc::clone(settings), clock.clone(), limit));
        }
    }

    /// Returns the primary that they name, if it is not the one at `current`. The answer of a
    /// sentinel that has missed a failover does not count.
    pub(super) async fn end(&mut self, current: Option<&(String, u16)>) -> Option<Primary> {
        let named = self.running.join_next().await?.ok().flatten();
        let latest = named.filter(|primary| primary.epoch >= self.epoch);
        self.epoch = latest.as_ref().map_or(self.epoch, |primary| primary.epoch);
        latest.filter(|primary| {
            current.is_some_and(|(host, port)| (&primary.host, primary.port) != (host, *port))
        })
    }
}

/// Returns the primary of the latest failover that any sentinel names; if they differ, the one that
/// most of them name.
async fn ask_all(settings: Arc<StoreSettings>, clock: Clock, limit: Duration) -> Option<Primary> {
    let mut asked = JoinSet::new();
    for (host, port) in settings.nodes.clone() {
        let settings = Arc::clone(&settings);
        let clock = clock.clone();
        asked.spawn(async move {
            let answer = clock.timeout(limit, ask(&settings, &host, port)).await;
            answer.ok()?.ok().flatten()
        });
    }
    let mut named: BTreeMap<Primary, usize> = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        if let Ok(Some(primary)) = answer {
            *named.entry(primary).or_default() += 1;
        }
    }
    named
        .into_iter()
        .max_by_key(|(primary, count)| (primary.epoch, *count))
        .map(|(primary, _)| primary)
}

async fn ask(settings: &StoreSettings, host: &str, port: u16) -> RedisResult<Option<Primary>> {
    let StoreKind::Sentinel { primary, user, password } = &settings.kind else { return Ok(None) };
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = user {
        login = login.set_username(user);
    }
    if let Some(password) = password {
        login = login.set_password(password.reveal());
    }
    let mut sentinel = open_as(settings, host, port, login).await?;
    let all: Vec<HashMap<String, String>> =
        cmd("SENTINEL").arg("MASTERS").query_async(&mut sentinel).await?;
    Ok(all.iter().find(|named| named.get("name") == Some(primary)).and_then(read))
}

fn read(fields: &HashMap<String, String>) -> Option<Primary> {
    Some(Primary {
        epoch: fields.get("config-epoch")?.parse().ok()?,
        host: fields.get("ip")?.clone(),
        port: fields.get("port")?.parse().ok()?,
    })
}

/// Connects to a server, if its role is that of a primary.
pub(super) async fn connect(
    settings: &StoreSettings,
    primary: &Primary,
) -> RedisResult<MultiplexedConnection> {
    let mut connection = open(settings, &primary.host, primary.port).await?;
    let role: Value = cmd("ROLE").query_async(&mut connection).await?;
    let is_primary = matches!(&role, Value::Array(role)
        if matches!(role.first(), Some(Value::BulkString(role)) if role == b"master"));
    if is_primary {
        return Ok(connection);
    }
    let kind = ErrorKind::Server(ServerErrorKind::ReadOnly);
    Err(RedisError::from((kind, "the server that the sentinels name is not a primary")))
}
