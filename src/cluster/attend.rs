//! The task that sees to a worker's way to the store: connects, greets, renews leases and gives
//! them back, and looks for what is down.

use super::{
    StoreError,
    client::{Inner, Link, PAUSES},
    dial::dial,
    error::Failure,
    greeting::Told,
    leases::{Lease, by_tag},
    nodes::Nodes,
};
use crate::flow::Instant;
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use tokio::{sync::watch, task::JoinSet};

/// The most between two greetings: soon enough to notice a new gateway, seldom enough for a store
/// that hundreds of workers greet.
const BEAT: Duration = Duration::from_secs(4);

/// How long to wait before the next attempt: longer each time.
struct Pause(Duration);

impl Pause {
    const fn new() -> Self {
        Self(PAUSES[0])
    }

    /// Returns when, jittered.
    fn next(&mut self, now: Instant) -> Instant {
        let jittered = self.0.mul_f64(1.0 - fastrand::f64() / 2.0);
        self.0 = (self.0 * 2).min(PAUSES[1]);
        now + jittered
    }
}

/// Connects, and again whenever the connection is given up.
pub(super) async fn run(inner: Arc<Inner>) {
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
                former = attend(link, &mut failures).await.connection.nodes().cloned();
                if let Some(nodes) = &former {
                    nodes.give_up();
                }
                // One that breaks at once is no success.
                if inner.clock.now().since(began) > PAUSES[1] {
                    pause = Pause::new();
                }
            }
            Err(failure) => inner.store.on_error(failure.error, &failure.detail),
        }
        let next = pause.next(inner.clock.now());
        inner.clock.timer(next).await;
    }
}

/// Has requests use a connection.
fn install(link: &Link) {
    let inner = &link.inner;
    let mut current = inner.link();
    *current = Some(link.clone());
    if let Some(nodes) = link.connection.nodes() {
        inner.store.on_nodes(inner.number, nodes.out());
        if !nodes.is_well() {
            inner.hurt.notify_one();
        }
    }
}

/// Returns a connection over which the store has answered, and knows what is in flight.
async fn begin(inner: &Arc<Inner>, former: Option<&Nodes>) -> Result<Link, Failure> {
    let mut link = connect(inner, former).await?;
    link.renew_anew().await?;
    Ok(link)
}

/// Returns a connection over which the store has answered: one that takes over those of `former`
/// that work.
async fn connect(inner: &Arc<Inner>, former: Option<&Nodes>) -> Result<Link, Failure> {
    let (store, settings) = (&inner.store, &inner.store.settings);
    let limit = settings.connect_timeout;
    let connection = match inner.clock.timeout(limit, dial(settings, &inner.clock, former)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(Failure::from(&error)),
        Err(elapsed) => {
            return Err(Failure {
                error: StoreError::Connection,
                ..Failure::timeout(elapsed.to_string())
            });
        }
    };
    let (inner, number) = (Arc::clone(inner), store.number());
    let mut link = Link { inner, connection, seed: store.seed(), number };
    link.greet(!link.is_kept(&format!("{}{{gateways}}", settings.prefix))).await?;
    Ok(link)
}

/// Does what is to be done over a connection until it is given up. Returns the last one.
async fn attend(mut link: Link, failures: &mut watch::Receiver<u64>) -> Link {
    let inner = Arc::clone(&link.inner);
    // Three times in a lease: two may fail.
    let beat = (inner.store.settings.lease / 3).min(BEAT);
    let mut next = inner.clock.now() + beat;
    // When to look for nodes that are out, which is done beside all else: one that hangs takes long.
    let (mut pause, mut look, mut search) = (Pause::new(), None, JoinSet::new());
    loop {
        let soonest = look.map_or(next, |look: Instant| look.min(next));
        let done = tokio::select! {
            biased;
            () = inner.broken.notified() => return link,
            // Another client's connection broke: then this one may have, too, which nobody has
            // noticed if nobody asks.
            Ok(()) = failures.changed() => {
                let seen = *failures.borrow_and_update();
                let greeted = link.greet(false).await;
                if greeted.is_ok() {
                    link.confirm(seen);
                }
                greeted
            }
            () = inner.hurt.notified() => {
                if search.is_empty() {
                    look = look.or_else(|| Some(pause.next(inner.clock.now())));
                }
                Ok(())
            }
            Some(found) = search.join_next() => {
                if let Ok(Ok(new)) = found {
                    link = adopt(link, new).await;
                }
                let is_hurt = link.connection.nodes().is_some_and(|it| !it.is_well());
                look = is_hurt.then(|| pause.next(inner.clock.now()));
                Ok(())
            }
            () = inner.clock.timer(soonest) => {
                let now = inner.clock.now();
                if look.is_some_and(|look| look <= now) {
                    look = None;
                    search.spawn(another(link.clone()));
                }
                if next <= now {
                    next = now + beat;
                    if look.is_none() && search.is_empty() {
                        pause = Pause::new();
                    }
                    link.beat().await
                } else {
                    Ok(())
                }
            }
            () = inner.leases.ended.notified() => link.give_back().await,
        };
        if let Err(failure) = done {
            inner.store.on_error(failure.error, &failure.detail);
            link.give_up();
            // What give_up rang, unless a request came first: either way it is taken here.
            inner.broken.notified().await;
            return link;
        }
    }
}

/// Connects to the nodes of a Redis Cluster that were out, or have keys that others had; until that
/// is done, and if it fails, those that are not are asked as before.
async fn another(link: Link) -> Result<Link, Failure> {
    connect(&link.inner, link.connection.nodes()).await
}

/// Has requests use what was found, unless the store fails again.
async fn adopt(link: Link, mut new: Link) -> Link {
    // Here, so that nothing is given back at the same time: what is renewed after that is held
    // until its lease ends.
    if new.renew_anew().await.is_err() || !link.is_current() {
        return link;
    }
    install(&new);
    // What could not be given back.
    new.inner.leases.ended.notify_one();
    new
}

impl Link {
    /// Tells the store that this gateway is there, `is_first` over this connection, and learns what
    /// it has to tell.
    async fn greet(&mut self, is_first: bool) -> Result<(), Failure> {
        let store = Arc::clone(&self.inner.store);
        let prefix = &store.settings.prefix;
        let keys = ["gateways", "secret"].map(|name| format!("{prefix}{{gateways}}:{name}"));
        let micros = store.settings.lease.as_micros().to_string();
        let arguments = [store.name.clone(), micros, store.secret()];
        let answer = self.run(&store.scripts.hello, &keys, &arguments).await;
        let now = self.inner.clock.now();
        let read = |answer| Told::read(&answer).ok_or_else(|| Failure::nonsense("to a greeting"));
        let told = match answer.and_then(read) {
            Ok(told) => told,
            // Other keys are decided about all the same, for who knows the secret.
            Err(failure) if failure.is_of_part() && store.has_learned() => {
                return self.heed(failure);
            }
            // Who may not greet does not count among the gateways, whatever else would work.
            Err(failure) => return Err(failure),
        };
        self.seed = store.learn(&told, is_first, now);
        *self.inner.seed.lock().unwrap_or_else(PoisonError::into_inner) = self.seed;
        Ok(())
    }

    /// Greets the store, and renews what is in flight.
    async fn beat(&mut self) -> Result<(), Failure> {
        self.greet(false).await?;
        self.renew(self.inner.leases.held()).await?;
        self.share_seed();
        Ok(())
    }

    /// Gives back what has ended, or leaves it to the next connection.
    async fn give_back(&mut self) -> Result<(), Failure> {
        let inner = Arc::clone(&self.inner);
        let mut groups = by_tag(inner.leases.take_ended()).into_iter();
        while let Some(group) = groups.next() {
            let (keys, names): (Vec<String>, Vec<String>) = group.iter().cloned().unzip();
            let given = self.run(&inner.store.scripts.release, &keys, &names).await;
            let Err(failure) = given else { continue };
            if failure.is_of_part() {
                inner.leases.keep(group);
                self.heed(failure)?;
            } else if let Err(failure) = self.heed(failure) {
                inner.leases.put_back(group.into_iter().chain(groups.flatten()));
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Renews all that is held, but for what others than new connections have to see to. To be done
    /// before any request: the store would grant it what has run out meanwhile.
    async fn renew_anew(&mut self) -> Result<(), Failure> {
        let mut held = self.inner.store.leases.held();
        held.retain(|(key, _)| !self.is_kept(key));
        self.renew(held).await
    }

    /// Whether the node that has a key is reached as before.
    fn is_kept(&self, key: &str) -> bool {
        self.connection.nodes().is_some_and(|nodes| nodes.is_kept(key))
    }

    /// Renews leases.
    async fn renew(&mut self, leases: Vec<Lease>) -> Result<(), Failure> {
        let store = Arc::clone(&self.inner.store);
        for group in by_tag(leases) {
            let (keys, names): (Vec<String>, Vec<String>) = group.into_iter().unzip();
            let micros = store.settings.lease.as_micros().to_string();
            let arguments: Vec<String> = [micros].into_iter().chain(names).collect();
            if let Err(failure) = self.run(&store.scripts.renew, &keys, &arguments).await {
                self.heed(failure)?;
            }
        }
        Ok(())
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
