//! The task that renews the leases of a worker's requests in flight, and gives back those of
//! requests that ended.
//!
//! It does not wait for the connection task, nor one node of a Redis Cluster for another.

use super::{
    decide::call::tag,
    error::CallFailure,
    leases::{Lease, Renewal},
    redis::{ClientState, StoreConnection},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use tokio::task::JoinSet;

/// Keeps leases for as long as the worker lasts.
pub(super) async fn keep(client: Arc<ClientState>) {
    let mut next = client.clock.now() + client.heartbeat();
    let mut renewals = Lanes::default();
    let mut releases = Lanes::default();
    // The connection over which the kept leases were last given back.
    let mut tried = 0;

    loop {
        let mut is_beat = false;
        tokio::select! {
            () = renewals.end() => {}
            () = releases.end() => {}
            () = client.leases.ended.notified() => {}
            () = client.clock.timer(next) => is_beat = true,
        }

        if is_beat {
            next = client.clock.now() + client.heartbeat();
        }

        let Some(connection) = client.connection().clone() else { continue };
        if is_beat {
            for (node, batches) in connection.batches(client.leases.held()) {
                renewals.begin(&connection, node, renew_own(connection.clone(), batches));
            }
        }

        if is_beat || connection.number != tried {
            tried = connection.number;
            let is_one = connection.is_one_server();
            let node_of = |tag: &str| connection.node_of(tag);
            let is_reached =
                |tag: &str| node_of(tag).map_or(is_one, |node| !connection.is_failed(node));
            client.leases.put_back_kept(is_reached);
        }

        let is_free = |tag: &str| releases.is_free(&connection, connection.node_of(tag));
        let ended = client.leases.take_ended(is_free);
        for (node, batches) in connection.batches(ended) {
            releases.begin(&connection, node, give_back(connection.clone(), batches));
        }
    }
}

/// The updates that run, one at a time for each node, so that leases that end meanwhile are given
/// back together.
#[derive(Default)]
struct Lanes {
    running: JoinSet<Lane>,
    busy: HashSet<Lane>,
}

/// The number of a connection, and a node.
type Lane = (u64, Node);

impl Lanes {
    fn is_free(&self, connection: &StoreConnection, node: Node) -> bool {
        !self.busy.contains(&(connection.number, node))
    }

    /// Begins an update, unless one is running there.
    fn begin(
        &mut self,
        connection: &StoreConnection,
        node: Node,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let lane = (connection.number, node);
        if self.busy.insert(lane) {
            self.running.spawn(async move {
                work.await;
                lane
            });
        }
    }

    /// Waits until an update has ended.
    async fn end(&mut self) {
        match self.running.join_next().await {
            Some(Ok(lane)) => drop(self.busy.remove(&lane)),
            // The runtime ends.
            Some(Err(_)) => {}
            None => core::future::pending().await,
        }
    }
}

/// Gives leases at one node back, or keeps them for the next connection.
async fn give_back(connection: StoreConnection, batches: Vec<Batch<Lease>>) {
    let count = batches.iter().map(Vec::len).sum();
    let leases = Arc::clone(&connection.client.leases);
    for (batch, result) in connection.update(Update::Release, batches).await {
        match result {
            BatchResult::Done => leases.heard(&batch),
            BatchResult::Later | BatchResult::Apart => leases.keep(batch),
            BatchResult::Failed(failure) => {
                failure.map(|failure| connection.fail(failure));
                leases.put_back(batch);
            }
        }
    }
    leases.given_back(count);
}

/// Renews what the worker holds at one node.
async fn renew_own(connection: StoreConnection, batches: Vec<Batch<Renewal>>) {
    if let Err(failure) = connection.renew(batches).await {
        connection.fail(failure);
    }
}

impl StoreConnection {
    /// Renews the leases of all workers at nodes with new connections. It must come before any
    /// request: the store would grant a lease that has run out to another.
    pub(super) async fn renew_anew(&self) -> Result<(), CallFailure> {
        let mut held = self.client.store.leases.held();
        held.retain(|renewal| !self.is_kept(&renewal.lease.0));

        let mut nodes = JoinSet::new();
        for (_, batches) in self.batches(held) {
            let connection = self.clone();
            nodes.spawn(async move { connection.renew(batches).await });
        }

        let mut all = Ok(());
        // Otherwise, the runtime ends.
        while let Some(Ok(renewed)) = nodes.join_next().await {
            all = all.and(renewed);
        }
        all
    }

    /// Renews leases at one node. The error concerns the whole store.
    async fn renew(&self, batches: Vec<Batch<Renewal>>) -> Result<(), CallFailure> {
        let mut renewed = Ok(());
        for (batch, result) in self.update(Update::Renew, batches).await {
            batch.into_iter().for_each(Renewal::renewed);
            if let BatchResult::Failed(Some(failure)) = result {
                renewed = Err(failure);
            }
        }
        renewed
    }
}

/// The most calls in flight at a node.
const CALLS: usize = 32;

/// The most leases that these name together: they take the store about a millisecond.
const LEASES: usize = 500;

/// A node of a Redis Cluster; `None` if the store is one server.
pub(super) type Node = Option<usize>;

/// Leases that one call names: of one hash tag in a Redis Cluster, and not too many.
pub(super) type Batch<T> = Vec<T>;

/// The purpose of a call.
#[derive(Clone, Copy)]
pub(super) enum Update {
    Renew,
    Release,
}

/// The result of a batch.
pub(super) enum BatchResult {
    /// The store has done it, or rejected it.
    Done,
    /// The call cannot be made now.
    Later,
    /// The store fails, for this reason if the call was made.
    Failed(Option<CallFailure>),
    /// Each hash tag needs a call of its own, because the user may not use one of them.
    Apart,
}

impl BatchResult {
    const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// A lease to renew or to give back.
pub(super) trait LeaseUpdate: Send + 'static {
    fn lease(&self) -> &Lease;

    /// Returns whether the update is still needed.
    fn is_needed(&self) -> bool;
}

impl LeaseUpdate for Lease {
    fn lease(&self) -> &Lease {
        self
    }

    fn is_needed(&self) -> bool {
        true
    }
}

impl LeaseUpdate for Renewal {
    fn lease(&self) -> &Lease {
        &self.lease
    }

    fn is_needed(&self) -> bool {
        self.is_held()
    }
}

impl StoreConnection {
    /// Divides leases into batches for each node.
    pub(super) fn batches<T: LeaseUpdate>(&self, leases: Vec<T>) -> HashMap<Node, Vec<Batch<T>>> {
        if self.is_one_server() {
            let batches = cut(leases);
            return if batches.is_empty() { HashMap::new() } else { [(None, batches)].into() };
        }
        let mut nodes: HashMap<Node, Vec<Batch<T>>> = HashMap::new();
        for (tag, leases) in by_tag(leases) {
            nodes.entry(self.node_of(&tag)).or_default().extend(cut(leases));
        }
        nodes
    }

    /// Updates the leases at one node, with some calls at once.
    pub(super) async fn update<T: LeaseUpdate>(
        &self,
        what: Update,
        batches: Vec<Batch<T>>,
    ) -> Vec<(Batch<T>, BatchResult)> {
        let mut results = few_at_once(batches, |batch| self.clone().ask(what, batch, true)).await;

        let apart = results.extract_if(.., |(_, result)| matches!(result, BatchResult::Apart));
        let apart = apart.flat_map(|(batch, _)| by_tag(batch)).map(|(_, batch)| batch).collect();

        if results.iter().any(|(_, result)| result.is_failure()) {
            let unasked = |batch| (batch, BatchResult::Failed(None));
            results.extend(Vec::into_iter(apart).map(unasked));
        } else {
            results.extend(few_at_once(apart, |batch| self.clone().ask(what, batch, false)).await);
        }
        results
    }

    /// Makes one call. If the store rejects several hash tags together and `or_apart`, each needs a
    /// call of its own.
    async fn ask<T: LeaseUpdate>(
        mut self,
        what: Update,
        mut batch: Batch<T>,
        or_apart: bool,
    ) -> (Batch<T>, BatchResult) {
        batch.retain(T::is_needed);
        if batch.is_empty() {
            return (batch, BatchResult::Done);
        }

        let store = Arc::clone(&self.client.store);
        let (keys, names): (Vec<String>, Vec<String>) =
            batch.iter().map(|update| update.lease().clone()).unzip();

        let answer = match what {
            Update::Renew => {
                let micros = store.settings.lease.as_micros().to_string();
                let arguments: Vec<String> = [micros].into_iter().chain(names).collect();
                self.run(&store.scripts.renew, &keys, &arguments).await
            }
            Update::Release => self.run(&store.scripts.release, &keys, &names).await,
        };

        let Err(failure) = answer else { return (batch, BatchResult::Done) };
        if or_apart && failure.is_of_call() && are_several(&keys) {
            return (batch, BatchResult::Apart);
        }

        let is_of_part = failure.is_of_part();
        // At once, so that the next call does not wait for the same node.
        let result = match self.record(failure) {
            Err(failure) => BatchResult::Failed(Some(failure)),
            Ok(()) if is_of_part => BatchResult::Later,
            Ok(()) => BatchResult::Done,
        };
        (batch, result)
    }
}

/// Returns whether keys have several hash tags.
fn are_several(keys: &[String]) -> bool {
    keys.windows(2).any(|pair| tag(&pair[0]) != tag(&pair[1]))
}

fn by_tag<T: LeaseUpdate>(leases: Vec<T>) -> HashMap<String, Vec<T>> {
    let mut tags: HashMap<String, Vec<T>> = HashMap::new();
    for lease in leases {
        tags.entry(tag(&lease.lease().0).to_owned()).or_default().push(lease);
    }
    tags
}

/// Cuts leases into batches.
fn cut<T>(leases: Vec<T>) -> Vec<Batch<T>> {
    let mut leases = leases.into_iter().peekable();
    let mut batches = Vec::new();
    while leases.peek().is_some() {
        batches.push(leases.by_ref().take(LEASES).collect());
    }
    batches
}

/// Makes a call for each batch, some at once: few enough that the last is answered in time. None
/// follows after the store has failed.
async fn few_at_once<T, F>(
    batches: Vec<Batch<T>>,
    call: impl Fn(Batch<T>) -> F,
) -> Vec<(Batch<T>, BatchResult)>
where
    T: Send + 'static,
    F: Future<Output = (Batch<T>, BatchResult)> + Send + 'static,
{
    let mut answers: Vec<(Batch<T>, BatchResult)> = Vec::with_capacity(batches.len());

    let mut running = JoinSet::new();
    let mut leases = 0;
    let mut fails = false;

    for batch in batches {
        let count = batch.len();
        while running.len() == CALLS || (leases > 0 && leases + count > LEASES) {
            // Otherwise, the runtime ends.
            let Some(Ok((done, answer))) = running.join_next().await else { return answers };
            leases -= done;
            let answer: (_, BatchResult) = answer;
            fails |= answer.1.is_failure();
            answers.push(answer);
        }

        if fails {
            answers.push((batch, BatchResult::Failed(None)));
        } else {
            leases += count;
            let answer = call(batch);
            running.spawn(async move { (count, answer.await) });
        }
    }

    while let Some(Ok((_, answer))) = running.join_next().await {
        answers.push(answer);
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[tokio::test]
    async fn calls_are_made_some_at_once_and_name_no_more_leases_together_than_one_may() {
        for (sizes, most) in [
            (vec![], [0, 0]),
            (vec![1; 100], [CALLS, CALLS]),
            (vec![LEASES; 3], [1, LEASES]),
            (vec![LEASES / 2; 4], [2, LEASES]),
            (vec![LEASES, 1, 1], [2, LEASES]),
            (vec![12; 100], [CALLS, 12 * CALLS]),
        ] {
            let [now, met] = [(); 2].map(|()| Arc::new([const { AtomicUsize::new(0) }; 2]));
            let call = |batch: Batch<()>| {
                let now = Arc::clone(&now);
                let met = Arc::clone(&met);
                async move {
                    let both = [1, batch.len()];
                    for at in [0, 1] {
                        let sum = now[at].fetch_add(both[at], SeqCst) + both[at];
                        met[at].fetch_max(sum, SeqCst);
                    }
                    tokio::task::yield_now().await;
                    for at in [0, 1] {
                        now[at].fetch_sub(both[at], SeqCst);
                    }
                    (batch, BatchResult::Done)
                }
            };
            let batches = sizes.iter().map(|size| vec![(); *size]).collect();
            let results = few_at_once(batches, call).await;
            let count: usize = results.iter().map(|(batch, _)| batch.len()).sum();
            assert_eq!(count, sizes.iter().sum::<usize>(), "each is called");
            assert_eq!(met.each_ref().map(|count| count.load(SeqCst)), most, "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn no_call_follows_one_over_which_the_store_failed() {
        let calls = Arc::new(AtomicUsize::new(0));
        let call = |batch: Batch<()>| {
            let calls = Arc::clone(&calls);
            async move {
                calls.fetch_add(1, SeqCst);
                (batch, BatchResult::Failed(Some(CallFailure::invalid_reply(""))))
            }
        };
        let results = few_at_once(vec![vec![(); LEASES]; 9], call).await;
        assert!(results.len() == 9);
        assert!(results.iter().all(|(_, result)| result.is_failure()));
        assert_eq!(calls.load(SeqCst), 1);
    }

    #[test]
    fn leases_are_cut_into_batches_and_divided_by_their_tags() {
        let sizes: Vec<usize> = cut(vec![(); 2 * LEASES + 1]).iter().map(Vec::len).collect();
        assert_eq!(sizes, [LEASES, LEASES, 1]);
        assert!(cut(Vec::<()>::new()).is_empty());
        let lease = |key: &str| (key.to_owned(), String::new());
        let mut tags: Vec<_> =
            by_tag(["p:{a}:x", "p:{b}:x", "p:{a}:y", "none"].map(lease).to_vec())
                .into_iter()
                .map(|(tag, leases)| (tag, leases.len()))
                .collect();
        tags.sort();
        assert_eq!(tags, [("a".to_owned(), 2), ("b".to_owned(), 1), ("none".to_owned(), 1)]);
        let several = |keys: [&str; 2]| are_several(&keys.map(str::to_owned));
        assert!(several(["p:{a}:x", "p:{b}:x"]) && !several(["p:{a}:x", "p:{a}:y"]));
    }
}
