//! A worker's way to the store: one connection that its requests share, and a task that sees to it.
//!
//! A request never waits for a connection, nor for longer than the limit of a call. When a call
//! fails, the connection is given up: requests go by `on_store_error` at once, until the task has a
//! new one over which the store has answered and taken a write. Only what the store answers about
//! one call, as of a key that holds something else, concerns that call alone.

use super::{
    Ask, Page, Push, StoreError, Verdicts, call,
    dial::{Connection, dial},
    error::Failure,
    greeting::Told,
    leases::{Held, Lease, Leases, by_tag},
    script::Lua,
    store::Store,
};
use crate::{
    clock::Clock,
    flow::{Instant, RoundTrip},
    route::Seed,
};
use core::{fmt, time::Duration};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

/// The first pause before a new attempt to connect, and the longest: soon enough for a failover,
/// seldom enough for a store that comes up under the load of all gateways. Each is shortened by up
/// to a half, so that gateways do not come at once.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The most between two greetings: soon enough to notice a new gateway, seldom enough for a store
/// that hundreds of workers greet.
const BEAT: Duration = Duration::from_secs(4);

/// The least that a call may take that no request waits for.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// A worker's client of the store.
pub struct Client {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    store: Arc<Store>,
    clock: Clock,
    /// Tells it from the other clients of this store.
    number: u64,
    /// The most that a call may take.
    limit: Duration,
    /// `None` while the store is down.
    link: Mutex<Option<Link>>,
    /// The secret of the fingerprints, as it was told last.
    seed: Mutex<Seed>,
    /// Rings when there is a link.
    made: Notify,
    /// Rings when it was given up.
    broken: Notify,
    leases: Arc<Leases>,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
    connection: Connection,
    seed: Seed,
    /// Tells it from others.
    number: u64,
}

/// What the store decided, and what the request holds of it.
#[derive(Debug)]
pub struct Decided {
    /// The decisions. Waits are what is left of them at `came`.
    pub verdicts: Verdicts,
    /// When they came, by this process's clock.
    pub came: Instant,
    /// To be kept until the request ends.
    pub held: Held,
}

impl Client {
    /// Returns a client, and has its task connect. To be called on the worker's runtime.
    pub fn start(store: Arc<Store>, clock: Clock) -> Self {
        let limit = store.settings.timeout;
        Self::with_limit(store, clock, limit)
    }

    /// The same for the exchange, whose calls may take longer, as no request waits for them. Nor do
    /// its greetings overtake them.
    pub(super) fn start_patient(store: Arc<Store>, clock: Clock) -> Self {
        let limit = store.settings.timeout.max(PATIENCE);
        Self::with_limit(store, clock, limit)
    }

    fn with_limit(store: Arc<Store>, clock: Clock, limit: Duration) -> Self {
        let number = store.number();
        let inner = Arc::new(Inner {
            seed: Mutex::new(store.seed()),
            number,
            leases: store.leases.add(format!("{}-{number}", store.name)),
            limit,
            store,
            clock,
            link: Mutex::default(),
            made: Notify::new(),
            broken: Notify::new(),
        });
        let task = tokio::spawn(run(Arc::clone(&inner)));
        Self { inner, task }
    }

    /// Returns the secret of the fingerprints of clients whose states are exchanged.
    pub fn seed(&self) -> Seed {
        *self.inner.seed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether states cannot be exchanged.
    pub fn is_cut_off(&self) -> bool {
        self.inner.store.is_cut_off()
    }

    /// Waits until the store has come up, perhaps before this was asked.
    pub(super) fn connected(&self) -> impl Future<Output = ()> + use<> {
        let inner = Arc::clone(&self.inner);
        async move { inner.made.notified().await }
    }

    /// Returns the way to the store, if it is up.
    pub fn link(&self) -> Option<Link> {
        self.inner.link().clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
        self.inner.link().take();
        self.inner.store.on_end(self.inner.number);
    }
}

impl Link {
    /// Returns the secret of the fingerprints that all gateways share.
    pub const fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Has the store decide about a request, in one round trip.
    ///
    /// # Errors
    ///
    /// Why it has not, as far as is known: what failed on the way may have been charged.
    pub async fn decide(mut self, asks: &[Ask<'_>]) -> Result<Decided, StoreError> {
        let inner = Arc::clone(&self.inner);
        let (store, settings) = (&inner.store, &inner.store.settings);
        let asked = inner.clock.now();
        let name = if asks.iter().any(|ask| ask.rule.holds()) {
            inner.leases.name()
        } else {
            String::new()
        };
        let micros = u64::try_from(settings.lease.as_micros()).unwrap_or(u64::MAX);
        let lease = call::Lease { name: &name, micros };
        // Before the call, as it may be lost on the way back.
        let held = inner.leases.ask(call::leases(&settings.prefix, asks, lease));
        let keys: Vec<String> = asks.iter().map(|ask| call::key(&settings.prefix, ask)).collect();
        let lines = asks.iter().map(|ask| call::line(ask, lease, asked));
        let arguments: Vec<String> = [String::new()].into_iter().chain(lines).collect();
        let answer = self.run(&store.scripts.decide, &keys, &arguments).await;
        let read =
            |answer| call::read(asks, &answer).map_err(|_| Failure::nonsense("to a question"));
        let mut verdicts = answer.and_then(read).map_err(|failure| self.fail(&failure))?;
        let came = inner.clock.now();
        store.on_decision(came.since(asked));
        let way = RoundTrip { asked, given: verdicts.now, came };
        store.offsets.heed(way, asks, &mut verdicts);
        let held = held.decided(verdicts.is_admitted);
        Ok(Decided { verdicts, came, held })
    }

    /// Runs a script within the limit of a call.
    async fn run(
        &mut self,
        script: &Lua,
        keys: &[String],
        arguments: &[String],
    ) -> Result<Value, Failure> {
        let Self { inner, connection, .. } = self;
        let call = async {
            let first = script.call(true, keys, arguments);
            match connection.query(&first).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    let again: Cmd = script.call(false, keys, arguments);
                    connection.query(&again).await
                }
                answer => answer,
            }
        };
        match inner.clock.timeout(inner.limit, call).await {
            Ok(answer) => answer.map_err(|error| Failure::from(&error)),
            Err(elapsed) => Err(Failure::timeout(elapsed.to_string())),
        }
    }

    /// Counts a failure, which is an error if it is not that of one call.
    fn heed(&self, failure: &Failure) -> Result<(), StoreError> {
        let Inner { store, clock, .. } = &*self.inner;
        if failure.is_of_call {
            store.on_refusal(failure.error, &failure.detail, clock.now());
            return Ok(());
        }
        store.on_error(failure.error, &failure.detail);
        Err(failure.error)
    }

    /// The same, and gives the connection up then.
    fn fail(&self, failure: &Failure) -> StoreError {
        if self.heed(failure).is_err() {
            self.give_up();
        }
        failure.error
    }

    /// Has the store merge what was charged here, and tell what all have charged: of several
    /// rules, in one round trip. Returns what came of each, in their order; of a rule that the
    /// store refuses nothing is merged.
    ///
    /// # Errors
    ///
    /// Why it has answered nothing that can be used, as far as is known: some of it may be merged.
    pub async fn exchange(
        mut self,
        pushes: &[Push<'_>],
    ) -> Result<Vec<Result<Page, StoreError>>, StoreError> {
        let inner = Arc::clone(&self.inner);
        let answers = match inner.clock.timeout(inner.limit, self.push(pushes)).await {
            Ok(Ok(answers)) if answers.len() == pushes.len() => answers,
            Ok(Ok(_)) => return Err(self.fail(&Failure::nonsense("to an exchange"))),
            Ok(Err(error)) => return Err(self.fail(&Failure::from(&error))),
            Err(elapsed) => return Err(self.fail(&Failure::timeout(elapsed.to_string()))),
        };
        let read = |answer: RedisResult<Value>| {
            let answer = answer.map_err(|error| Failure::from(&error))?;
            Page::read(&answer).map_err(|_| Failure::nonsense("to an exchange"))
        };
        let heard = |answer| match read(answer) {
            Err(failure) if !failure.is_of_call => Err(self.fail(&failure)),
            page => Ok(page.map_err(|failure| self.fail(&failure))),
        };
        answers.into_iter().map(heard).collect()
    }

    /// Makes a call for each of these, and again where the store did not know the script.
    async fn push(&mut self, pushes: &[Push<'_>]) -> RedisResult<Vec<RedisResult<Value>>> {
        let Self { inner, connection, .. } = self;
        let (prefix, script) = (&inner.store.settings.prefix, &inner.store.scripts.exchange);
        let call = |push: &Push<'_>, is_known| {
            script.call(is_known, &push.keys(prefix), push.arguments(""))
        };
        let calls: Vec<Cmd> = pushes.iter().map(|push| call(push, true)).collect();
        let mut answers = connection.query_all(&calls).await?;
        let mut unknown: Vec<_> = pushes.iter().zip(&mut answers).collect();
        unknown.retain(|(_, answer)| {
            let kind = answer.as_ref().err().map(RedisError::kind);
            kind == Some(ErrorKind::Server(ServerErrorKind::NoScript))
        });
        if !unknown.is_empty() {
            let calls: Vec<Cmd> = unknown.iter().map(|(push, _)| call(push, false)).collect();
            let again = connection.query_all(&calls).await?;
            unknown.into_iter().zip(again).for_each(|((_, answer), it)| *answer = it);
        }
        Ok(answers)
    }

    /// Has the task look for another connection, unless it does.
    fn give_up(&self) {
        let mut link = self.inner.link();
        if link.as_ref().is_some_and(|it| it.number == self.number) {
            *link = None;
            self.inner.store.on_down(self.inner.number);
            self.inner.broken.notify_one();
        }
    }

    /// Tells the store that this gateway is there, `is_first` over this connection, and learns what
    /// it has to tell.
    async fn greet(&mut self, is_first: bool) -> Result<(), StoreError> {
        let store = Arc::clone(&self.inner.store);
        let prefix = &store.settings.prefix;
        let keys = ["gateways", "secret"].map(|name| format!("{prefix}{{gateways}}:{name}"));
        let micros = store.settings.lease.as_micros().to_string();
        let arguments = [store.name.clone(), micros, store.secret()];
        let answer = self.run(&store.scripts.hello, &keys, &arguments).await;
        let now = self.inner.clock.now();
        let read = |answer| Told::read(&answer).ok_or_else(|| Failure::nonsense("to a greeting"));
        // Who may not greet does not count among the gateways, whatever else would work.
        let told = answer.and_then(read).map_err(|failure| {
            store.on_error(failure.error, &failure.detail);
            failure.error
        })?;
        self.seed = store.learn(&told, is_first, now);
        *self.inner.seed.lock().unwrap_or_else(PoisonError::into_inner) = self.seed;
        Ok(())
    }

    /// Gives back what has ended, or leaves it to the next connection.
    async fn give_back(&mut self) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        let mut groups = by_tag(inner.leases.take_ended()).into_iter();
        while let Some(group) = groups.next() {
            let (keys, names): (Vec<String>, Vec<String>) = group.iter().cloned().unzip();
            let given = self.run(&inner.store.scripts.release, &keys, &names).await;
            if let Err(error) = given.map_or_else(|failure| self.heed(&failure), |_| Ok(())) {
                inner.leases.put_back(group.into_iter().chain(groups.flatten()));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Renews leases.
    async fn renew(&mut self, leases: Vec<Lease>) -> Result<(), StoreError> {
        let store = Arc::clone(&self.inner.store);
        for group in by_tag(leases) {
            let (keys, names): (Vec<String>, Vec<String>) = group.into_iter().unzip();
            let micros = store.settings.lease.as_micros().to_string();
            let arguments: Vec<String> = [micros].into_iter().chain(names).collect();
            let renewed = self.run(&store.scripts.renew, &keys, &arguments).await;
            renewed.map_or_else(|failure| self.heed(&failure), |_| Ok(()))?;
        }
        Ok(())
    }
}

impl Inner {
    fn link(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, and again whenever the connection is given up.
async fn run(inner: Arc<Inner>) {
    let [mut pause, longest] = PAUSES;
    let mut failures = inner.store.failures();
    for number in 0.. {
        let seen = *failures.borrow_and_update();
        if let Some(link) = connect(&inner, number).await {
            *inner.link() = Some(link.clone());
            inner.made.notify_one();
            inner.store.on_up(inner.number, seen);
            let began = inner.clock.now();
            attend(link, &mut failures).await;
            // One that breaks at once is no success.
            if inner.clock.now().since(began) > longest {
                pause = PAUSES[0];
            }
        }
        let jittered = pause.mul_f64(1.0 - fastrand::f64() / 2.0);
        inner.clock.timer(inner.clock.now() + jittered).await;
        pause = (pause * 2).min(longest);
    }
}

/// Returns a connection over which the store has answered, and knows what is in flight.
async fn connect(inner: &Arc<Inner>, number: u64) -> Option<Link> {
    let (store, settings) = (&inner.store, &inner.store.settings);
    let dialled = inner.clock.timeout(settings.connect_timeout, dial(settings)).await;
    let connection = match dialled {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            store.on_error(StoreError::from(&error), &error.to_string());
            return None;
        }
        Err(elapsed) => {
            store.on_error(StoreError::Connection, &elapsed.to_string());
            return None;
        }
    };
    let mut link = Link { inner: Arc::clone(inner), connection, seed: Seed::new([0; 2]), number };
    link.greet(true).await.ok()?;
    // Before any request: the store would grant it what has run out meanwhile.
    link.renew(store.leases.held()).await.ok()?;
    Some(link)
}

/// Does what is to be done over a connection until it is given up.
async fn attend(mut link: Link, failures: &mut watch::Receiver<u64>) {
    let inner = Arc::clone(&link.inner);
    // Three times in a lease: two may fail.
    let beat = (inner.store.settings.lease / 3).min(BEAT);
    let mut next = inner.clock.now() + beat;
    loop {
        let done = tokio::select! {
            biased;
            () = inner.broken.notified() => return,
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
            () = inner.clock.timer(next) => {
                next = inner.clock.now() + beat;
                let greeted = link.greet(false).await;
                let renewed = match greeted {
                    Ok(()) => link.renew(inner.leases.held()).await,
                    Err(error) => Err(error),
                };
                if renewed.is_ok() {
                    link.share_seed();
                }
                renewed
            }
            () = inner.leases.ended.notified() => link.give_back().await,
        };
        if done.is_err() {
            link.give_up();
            // What give_up rang, unless a request came first: either way it is taken here.
            inner.broken.notified().await;
            return;
        }
    }
}

impl Link {
    /// Notes that it works after so many failures of the store, unless it was given up.
    fn confirm(&self, failures: u64) {
        let link = self.inner.link();
        if link.as_ref().is_some_and(|it| it.number == self.number) {
            self.inner.store.on_up(self.inner.number, failures);
        }
    }

    /// Has the requests to come use what the last greeting told.
    fn share_seed(&self) {
        let mut link = self.inner.link();
        if let Some(it) = link.as_mut().filter(|it| it.number == self.number) {
            it.seed = self.seed;
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("is_up", &self.inner.link().is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("number", &self.number).finish_non_exhaustive()
    }
}
