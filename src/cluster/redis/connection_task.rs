//! The task that sees to a worker's way to the store: connects, greets, and has what is down looked
//! for.

use super::{
    nodes::Nodes,
    probe::Probe,
    search::{Pause, Search, connect},
    sentinels::Watch,
    store_connection::{Inner, StoreConnection},
};
use crate::cluster::{
    error::Failure,
    hello::HelloReply,
    limits::{PATIENCE, PAUSES},
};
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// Connects, and again whenever the connection is given up.
pub(in crate::cluster) async fn run(inner: Arc<Inner>) {
    let mut pause = Pause::new();
    let mut failures = inner.store.failures();
    // Where the nodes of a Redis Cluster were last: those that the file names may all be gone.
    let mut former: Option<Nodes> = None;
    loop {
        let seen = *failures.borrow_and_update();
        match begin(&inner, former.as_ref()).await {
            Ok(link) => {
                install(&link);
                inner.made.notify_one();
                inner.store.on_up(inner.number, seen);
                let began = inner.clock.now();
                let given_up = attend(link, &mut failures, seen).await;
                former = given_up.connection.nodes().map(Nodes::without_connections);
                // One that breaks at once is no success.
                if inner.clock.now().since(began) > PAUSES[1] {
                    pause = Pause::new();
                }
            }
            Err(failure) => inner.store.on_error(&failure),
        }
        let next = pause.next(inner.clock.now());
        inner.clock.timer(next).await;
    }
}

/// Has requests use a connection.
fn install(link: &StoreConnection) {
    let inner = &link.inner;
    let mut current = inner.link();
    *current = Some(link.clone());
    // What waits to be given back.
    inner.leases.ended.notify_one();
    if let Some(nodes) = link.connection.nodes() {
        inner.store.on_nodes(inner.number, nodes.out(), nodes.slots());
        if !nodes.is_well() {
            inner.hurt.notify_one();
        }
    }
}

/// Returns a connection over which the store has answered, and knows what is in flight.
async fn begin(inner: &Arc<Inner>, former: Option<&Nodes>) -> Result<StoreConnection, Failure> {
    let link = connect(inner, former).await?;
    link.renew_anew().await?;
    Ok(link)
}

/// Does what is to be done over a connection, after so many failures that were seen, until it is
/// given up. Returns the last one.
async fn attend(
    mut link: StoreConnection,
    failures: &mut watch::Receiver<u64>,
    mut seen: u64,
) -> StoreConnection {
    let inner = Arc::clone(&link.inner);
    let beat = inner.beat();
    let mut next = inner.clock.now() + beat;
    let (mut search, mut probe) = (Search::new(), Probe::default());
    let mut watch = Watch::default();
    probe.begin(&link, seen);
    loop {
        let soonest = search.next().map_or(next, |it| it.min(next));
        let done = tokio::select! {
            biased;
            () = inner.broken.notified() => return link,
            // Another client's connection broke: then this one may have, too, which nobody has
            // noticed if nobody asks.
            Ok(()) = failures.changed() => {
                seen = *failures.borrow_and_update();
                greet_again(&mut link, &mut probe, seen).await
            }
            () = inner.hurt.notified() => {
                search.want(inner.clock.now());
                Ok(())
            }
            () = inner.doubted.notified() => {
                next = next.min(inner.clock.now() + PAUSES[1]);
                Ok(())
            }
            Some(primary) = watch.end(link.connection.server()) => {
                inner.replace_primary(primary);
                search.want(inner.clock.now());
                Ok(())
            }
            Some(found) = search.end() => {
                if let Some(new) = adopt(&link, found).await {
                    link = new;
                    probe.begin_anew(&link, seen);
                }
                if link.connection.nodes().is_some_and(|it| !it.is_well()) {
                    search.want(inner.clock.now());
                }
                Ok(())
            }
            () = inner.clock.timer(soonest) => {
                let now = inner.clock.now();
                search.begin(&link, now);
                if next <= now {
                    next = now + beat;
                    search.on_beat(&link, now);
                    let settings = &inner.store.settings;
                    watch.begin(settings, &inner.clock, settings.connect_timeout);
                    beat_and_probe(&mut link, &mut probe, seen).await
                } else {
                    Ok(())
                }
            }
        };
        if let Err(failure) = done {
            link.end(&failure).await;
            return link;
        }
    }
}

/// Greets the store after so many of its failures, and probes its nodes again.
async fn greet_again(
    link: &mut StoreConnection,
    probe: &mut Probe,
    failures: u64,
) -> Result<(), Failure> {
    link.greet(false).await?;
    link.confirm(failures);
    probe.begin_anew(link, failures);
    Ok(())
}

/// Greets the store, and probes its nodes unless that is under way.
async fn beat_and_probe(
    link: &mut StoreConnection,
    probe: &mut Probe,
    failures: u64,
) -> Result<(), Failure> {
    let beaten = link.beat().await;
    probe.begin(link, failures);
    beaten
}

/// Has requests use what a search has found instead of `link`, unless that was given up.
async fn adopt(
    link: &StoreConnection,
    found: Result<StoreConnection, Failure>,
) -> Option<StoreConnection> {
    let renewed = async {
        let new = found?;
        new.renew_anew().await?;
        Ok(new)
    };
    let new = renewed.await.map_err(|failure| link.inner.store.count_once(&failure)).ok()?;
    if !link.is_current() {
        return None;
    }
    install(&new);
    Some(new)
}

impl StoreConnection {
    /// Tells the store that this gateway is there, `is_first` over this connection, and learns what
    /// it has to tell.
    pub(in crate::cluster) async fn greet(&mut self, is_first: bool) -> Result<(), Failure> {
        let store = Arc::clone(&self.inner.store);
        let keys = ["gateways", "secret"].map(|name| store.key(name));
        let micros = store.settings.lease.as_micros().to_string();
        let arguments = [store.name.clone(), micros, store.secret()];
        // A new connection is for who answers as soon as requests want it.
        let limit = if is_first { self.inner.limit } else { self.inner.limit.max(PATIENCE) };
        let answer = self.run_within(limit, &store.scripts.hello, &keys, &arguments).await;
        let now = self.inner.clock.now();
        let read = |answer| {
            HelloReply::read(&answer).ok_or_else(|| Failure::invalid_reply("to a greeting"))
        };
        let told = match answer.and_then(read) {
            Ok(told) => told,
            // Other keys are decided about all the same, for who knows the secret.
            Err(failure) if failure.is_of_part() && store.has_learned() => {
                return self.record(failure);
            }
            // A gateway that may not greet does not count among them, whatever else would work.
            Err(failure) => return Err(failure.about(&keys)),
        };
        if let Some(key) = &told.rewritten {
            tracing::warn!(
                key,
                "the store held an invalid secret; flowgate has written this key anew"
            );
        }
        self.seed = store.learn(&told, is_first, now);
        *self.inner.seed.lock().unwrap_or_else(PoisonError::into_inner) = self.seed;
        Ok(())
    }

    /// Greets the store.
    async fn beat(&mut self) -> Result<(), Failure> {
        self.greet(false).await?;
        self.share_seed();
        Ok(())
    }

    /// Whether the node that has a key is reached as before.
    pub(in crate::cluster) fn is_kept(&self, key: &str) -> bool {
        self.connection.nodes().is_some_and(|nodes| nodes.is_kept(key))
    }

    /// Gives it up.
    async fn end(&self, failure: &Failure) {
        self.inner.store.on_error(failure);
        self.give_up();
        // What give_up rang, unless a request came first: either way it is taken here.
        self.inner.broken.notified().await;
    }

    /// Notes that it works after so many failures of the store, unless it was given up.
    fn confirm(&self, failures: u64) {
        let link = self.inner.link();
        if link.as_ref().is_some_and(|it| it.number == self.number) {
            self.inner.store.on_up(self.inner.number, failures);
        }
    }

    /// Whether requests use it.
    fn is_current(&self) -> bool {
        self.inner.link().as_ref().is_some_and(|it| it.number == self.number)
    }

    /// Has the requests to come use what the last greeting told.
    fn share_seed(&self) {
        let mut link = self.inner.link();
        if let Some(it) = link.as_mut().filter(|it| it.number == self.number) {
            it.seed = self.seed;
        }
    }
}
