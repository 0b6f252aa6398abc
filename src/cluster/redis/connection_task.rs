//! The task that keeps a worker connected to the store: it connects, announces the gateway, and
//! looks for nodes that fail.

use super::{
    nodes::Nodes,
    search::{Backoff, Probe, Search, connect},
    sentinels::Watch,
    store_connection::{ClientState, StoreConnection},
};
use crate::cluster::{
    error::CallFailure,
    gateways::HelloReply,
    scripts::{BACKGROUND_CALL_TIMEOUT, LONGEST_BACKOFF},
};
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// Connects to the store, and connects again whenever the connection is given up.
pub(in crate::cluster) async fn run(client: Arc<ClientState>) {
    let mut backoff = Backoff::new();
    let mut failures = client.store.failures();
    // The last known nodes of a Redis Cluster: the nodes that the file names may all be gone.
    let mut former: Option<Nodes> = None;
    loop {
        let seen = *failures.borrow_and_update();
        match begin(&client, former.as_ref()).await {
            Ok(connection) => {
                install(&connection);
                client.connected.notify_one();
                client.store.on_up(client.number, seen);
                let began = client.clock.now();
                let given_up = maintain(connection, &mut failures, seen).await;
                former = given_up.servers.nodes().map(Nodes::without_connections);
                // A connection that breaks at once is no success.
                if client.clock.now().since(began) > LONGEST_BACKOFF {
                    backoff = Backoff::new();
                }
            }
            Err(failure) => client.store.on_error(&failure, client.clock.wall_now()),
        }

        let next = backoff.next(client.clock.now());
        client.clock.timer(next).await;
    }
}

/// Makes a connection the one that requests use.
fn install(connection: &StoreConnection) {
    let client = &connection.client;
    let mut current = client.connection();
    *current = Some(connection.clone());
    // Leases wait to be given back.
    client.leases.ended.notify_one();
    if let Some(nodes) = connection.servers.nodes() {
        client.store.on_nodes(client.number, nodes.failed());
        if !nodes.is_healthy() {
            client.node_failed.notify_one();
        }
    }
}

/// Returns a connection over which the store has answered and learned the leases of requests in
/// flight.
async fn begin(
    client: &Arc<ClientState>,
    former: Option<&Nodes>,
) -> Result<StoreConnection, CallFailure> {
    let connection = connect(client, former).await?;
    connection.renew_anew().await?;
    Ok(connection)
}

/// Keeps a connection until it is given up, after so many failures of the store. Returns the
/// connection that was used last.
async fn maintain(
    mut connection: StoreConnection,
    failures: &mut watch::Receiver<u64>,
    mut seen: u64,
) -> StoreConnection {
    let client = Arc::clone(&connection.client);
    let heartbeat = client.heartbeat();
    let mut next = client.clock.now() + heartbeat;
    let mut search = Search::new();
    let mut probe = Probe::default();
    let mut watch = Watch::default();
    probe.begin(&connection, seen);

    loop {
        let soonest = search.next().map_or(next, |search| search.min(next));

        let done = tokio::select! {
            biased;
            () = client.lost.notified() => return connection,
            // When another client's connection broke, an idle one may be broken, too.
            Ok(()) = failures.changed() => {
                seen = *failures.borrow_and_update();
                register_again(&mut connection, &mut probe, seen).await
            }
            () = client.node_failed.notified() => {
                search.want(client.clock.now());
                Ok(())
            }
            () = client.check_soon.notified() => {
                next = next.min(client.clock.now() + LONGEST_BACKOFF);
                Ok(())
            }
            Some(primary) = watch.end(connection.servers.address()) => {
                client.replace_primary(primary);
                search.want(client.clock.now());
                Ok(())
            }
            Some(found) = search.end() => {
                if let Some(new) = adopt(&connection, found).await {
                    connection = new;
                    probe.begin_anew(&connection, seen);
                }
                if connection.servers.nodes().is_some_and(|nodes| !nodes.is_healthy()) {
                    search.want(client.clock.now());
                }
                Ok(())
            }
            () = client.clock.timer(soonest) => {
                let now = client.clock.now();
                search.begin(&connection, now);
                if next <= now {
                    next = now + heartbeat;
                    search.on_beat(&connection, now);
                    let settings = &client.store.settings;
                    watch.begin(settings, &client.clock, settings.connect_timeout);
                    beat_and_probe(&mut connection, &mut probe, seen).await
                } else {
                    Ok(())
                }
            }
        };

        if let Err(failure) = done {
            connection.end(&failure).await;
            return connection;
        }
    }
}

/// Registers with the store after so many of its failures, and begins another probe.
async fn register_again(
    connection: &mut StoreConnection,
    probe: &mut Probe,
    failures: u64,
) -> Result<(), CallFailure> {
    connection.register(false).await?;
    connection.confirm(failures);
    probe.begin_anew(connection, failures);
    Ok(())
}

/// Registers with the store, and begins a probe unless one is running.
async fn beat_and_probe(
    connection: &mut StoreConnection,
    probe: &mut Probe,
    failures: u64,
) -> Result<(), CallFailure> {
    let registered = connection.heartbeat().await;
    probe.begin(connection, failures);
    registered
}

/// Replaces `connection` by the one that a search has made, unless `connection` was given up.
async fn adopt(
    connection: &StoreConnection,
    found: Result<StoreConnection, CallFailure>,
) -> Option<StoreConnection> {
    let renewed = async {
        let new = found?;
        new.renew_anew().await?;
        Ok(new)
    };
    let new = renewed.await.map_err(|failure| connection.client.store.count_once(&failure)).ok()?;
    if !connection.is_current() {
        return None;
    }
    install(&new);
    Some(new)
}

impl StoreConnection {
    /// Announces this gateway to the store, and learns the number of gateways and the secret.
    /// `is_first` over this connection.
    pub(super) async fn register(&mut self, is_first: bool) -> Result<(), CallFailure> {
        let store = Arc::clone(&self.client.store);
        let keys = ["gateways", "secret", "change"].map(|name| store.key(name));
        let micros = store.settings.lease.as_micros().to_string();
        let arguments = [store.name.clone(), micros, store.secret()];

        // A new connection must be as fast as requests need it.
        let limit = if is_first {
            self.client.limit
        } else {
            self.client.limit.max(BACKGROUND_CALL_TIMEOUT)
        };

        let answer = self.run_within(limit, &store.scripts.hello, &keys, &arguments).await;
        let now = self.client.clock.now();
        let read = |answer| {
            HelloReply::read(&answer).ok_or_else(|| CallFailure::invalid_reply("to a greeting"))
        };

        let reply = match answer.and_then(read) {
            Ok(reply) => reply,
            // With the secret, the gateway can use the other nodes all the same.
            Err(failure) if failure.is_of_part() && store.has_learned() => {
                return self.record(failure);
            }
            // The store does not count a gateway that cannot register.
            Err(failure) => return Err(failure.about(&keys)),
        };

        if let Some(key) = &reply.rewritten {
            tracing::warn!(
                key,
                "the store had an invalid secret; flowgate has written this key again"
            );
        }

        self.seed = store.learn(&reply, is_first, now);
        *self.client.seed.lock().unwrap_or_else(PoisonError::into_inner) = self.seed;
        Ok(())
    }

    /// Registers with the store, and gives requests the secret that it returns.
    async fn heartbeat(&mut self) -> Result<(), CallFailure> {
        self.register(false).await?;
        self.share_seed();
        Ok(())
    }

    /// Returns whether the connection to the node that has a key is an old one.
    pub(in crate::cluster) fn is_kept(&self, key: &str) -> bool {
        self.servers.nodes().is_some_and(|nodes| nodes.is_kept(key))
    }

    /// Gives the connection up.
    async fn end(&self, failure: &CallFailure) {
        self.client.store.on_error(failure, self.client.clock.wall_now());
        self.give_up();
        // Consumes the notification of `give_up`, or of a request that came first.
        self.client.lost.notified().await;
    }

    /// Notes that the connection works after so many failures of the store, unless it was given up.
    fn confirm(&self, failures: u64) {
        if self.is_current() {
            self.client.store.on_up(self.client.number, failures);
        }
    }

    /// Returns whether requests use this connection.
    fn is_current(&self) -> bool {
        self.client.connection().as_ref().is_some_and(|current| current.number == self.number)
    }

    /// Gives new requests the latest secret.
    fn share_seed(&self) {
        let mut current = self.client.connection();
        if let Some(current) = current.as_mut().filter(|current| current.number == self.number) {
            current.seed = self.seed;
        }
    }
}
