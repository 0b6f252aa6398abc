//! The task that sees to a worker's way to the store: connects, greets, renews leases and gives
//! them back, and has what is down looked for.

use super::{
    check::Check,
    client::{Inner, Link, PATIENCE, PAUSES},
    error::Failure,
    greeting::Told,
    leases::{Lease, by_tag},
    nodes::Nodes,
    search::{Pause, Search, connect},
};
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// The most between two greetings: soon enough to notice a new gateway, seldom enough for a store
/// that hundreds of workers greet.
const BEAT: Duration = Duration::from_secs(4);

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
fn install(link: &Link) {
    let inner = &link.inner;
    let mut current = inner.link();
    *current = Some(link.clone());
    if let Some(nodes) = link.connection.nodes() {
        inner.store.on_nodes(inner.number, nodes);
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

/// Does what is to be done over a connection, after so many failures that were seen, until it is
/// given up. Returns the last one.
async fn attend(mut link: Link, failures: &mut watch::Receiver<u64>, mut seen: u64) -> Link {
    let inner = Arc::clone(&link.inner);
    // Three times in a lease: two may fail.
    let beat = (inner.store.settings.lease / 3).min(BEAT);
    let mut next = inner.clock.now() + beat;
    let (mut search, mut check) = (Search::new(), Check::default());
    check.begin(&link, seen);
    loop {
        let soonest = search.next().map_or(next, |it| it.min(next));
        let done = tokio::select! {
            biased;
            () = inner.broken.notified() => return link,
            // Another client's connection broke: then this one may have, too, which nobody has
            // noticed if nobody asks.
            Ok(()) = failures.changed() => {
                seen = *failures.borrow_and_update();
                let greeted = link.greet(false).await;
                if greeted.is_ok() {
                    link.confirm(seen);
                    check.begin_anew(&link, seen);
                }
                greeted
            }
            () = inner.hurt.notified() => {
                search.want(inner.clock.now());
                Ok(())
            }
            () = inner.doubted.notified() => {
                next = next.min(inner.clock.now() + PAUSES[1]);
                Ok(())
            }
            Some(found) = search.end() => {
                if let Some(new) = adopt(&link, found).await {
                    link = new;
                    check.begin_anew(&link, seen);
                }
                if link.connection.nodes().is_some_and(|it| !it.is_well()) {
                    search.want(inner.clock.now());
                }
                link.give_back_kept().await
            }
            () = inner.clock.timer(soonest) => {
                let now = inner.clock.now();
                search.begin(&link, now);
                if next <= now {
                    next = now + beat;
                    search.on_beat(&link, now);
                    let beaten = link.beat().await;
                    check.begin(&link, seen);
                    beaten
                } else {
                    Ok(())
                }
            }
            () = inner.leases.ended.notified() => link.give_back().await,
        };
        if let Err(failure) = done {
            link.end(&failure).await;
            return link;
        }
    }
}

/// Has requests use what a search has found instead of `link`, unless that was given up.
async fn adopt(link: &Link, found: Result<Link, Failure>) -> Option<Link> {
    let renewed = async {
        let mut new = found?;
        // Here, so that nothing is given back at the same time: what is renewed after that is held
        // until its lease ends.
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

impl Link {
    /// Tells the store that this gateway is there, `is_first` over this connection, and learns what
    /// it has to tell.
    pub(super) async fn greet(&mut self, is_first: bool) -> Result<(), Failure> {
        let store = Arc::clone(&self.inner.store);
        let keys = ["gateways", "secret"].map(|name| store.key(name));
        let micros = store.settings.lease.as_micros().to_string();
        let arguments = [store.name.clone(), micros, store.secret()];
        // A new connection is for who answers as soon as requests want it.
        let limit = if is_first { self.inner.limit } else { self.inner.limit.max(PATIENCE) };
        let answer = self.run_within(limit, &store.scripts.hello, &keys, &arguments).await;
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
        self.give_back_kept().await
    }

    /// Gives back what has ended.
    async fn give_back(&mut self) -> Result<(), Failure> {
        let ended = self.inner.leases.take_ended();
        self.release(ended).await
    }

    /// Gives back what could not be before, but for that of nodes which are out still.
    async fn give_back_kept(&mut self) -> Result<(), Failure> {
        let node_of = |tag: &str| self.connection.node_of(tag);
        let is_reached = |tag: &str| node_of(tag).is_none_or(|node| !self.is_out(node));
        let kept = self.inner.leases.take_kept(is_reached);
        self.release(kept).await
    }

    /// Gives leases back, or leaves them to the next connection.
    async fn release(&mut self, leases: Vec<Lease>) -> Result<(), Failure> {
        let inner = Arc::clone(&self.inner);
        let mut tags = by_tag(leases);
        while let Some(groups) = tags.next() {
            let mut groups = groups.into_iter();
            while let Some(group) = groups.next() {
                let (keys, names): (Vec<String>, Vec<String>) = group.iter().cloned().unzip();
                let given = self.run(&inner.store.scripts.release, &keys, &names).await;
                let Err(failure) = given else { continue };
                let (is_of_part, is_late) = (failure.is_of_part(), failure.is_late());
                if let Err(failure) = self.heed(failure) {
                    let rest = groups.chain(tags.flatten()).flatten();
                    inner.leases.put_back(group.into_iter().chain(rest));
                    return Err(failure);
                }
                if is_of_part {
                    inner.leases.keep(group);
                }
                if is_late {
                    inner.leases.keep(groups.by_ref().flatten());
                }
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
    pub(super) fn is_kept(&self, key: &str) -> bool {
        self.connection.nodes().is_some_and(|nodes| nodes.is_kept(key))
    }

    /// Renews leases.
    async fn renew(&mut self, leases: Vec<Lease>) -> Result<(), Failure> {
        let store = Arc::clone(&self.inner.store);
        let micros = store.settings.lease.as_micros().to_string();
        for groups in by_tag(leases) {
            for group in groups {
                let (keys, names): (Vec<String>, Vec<String>) = group.into_iter().unzip();
                let arguments: Vec<String> = [micros.clone()].into_iter().chain(names).collect();
                let Err(failure) = self.run(&store.scripts.renew, &keys, &arguments).await else {
                    continue;
                };
                let is_late = failure.is_late();
                self.heed(failure)?;
                // Nor would the others of its tag be in time.
                if is_late {
                    break;
                }
            }
        }
        Ok(())
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
