//! The task that keeps a worker's leases: it renews those of requests in flight, and gives back what
//! has ended. Beside the one that sees to the connection, so that neither waits for the other; nor
//! does what lies at one node of a Redis Cluster wait for another node.

use super::{
    client::{Inner, Link},
    error::{Failure, Scope},
    leases::{Lease, Renewal},
    slots::tag,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use tokio::task::JoinSet;

/// How many calls are under way at a node at once.
const CALLS: usize = 16;

/// How many leases these name together: so many take the store about a millisecond.
const LEASES: usize = 500;

/// Which node of a Redis Cluster, if it is one.
type Node = Option<usize>;

/// Leases that one call may name: of one hash tag in a Redis Cluster, and not too many.
type Batch<T> = Vec<T>;

/// Keeps leases for as long as the worker lasts.
pub(super) async fn keep(inner: Arc<Inner>) {
    let mut next = inner.clock.now() + inner.beat();
    let (mut releases, mut renewal) = (Releases::default(), JoinSet::new());
    // Over which connection it was tried to give back what was kept.
    let mut tried = 0;
    loop {
        let mut is_beat = false;
        tokio::select! {
            () = releases.end() => {}
            () = inner.leases.ended.notified() => {}
            () = inner.clock.timer(next) => is_beat = true,
        }
        let link = inner.link().clone();
        if is_beat {
            next = inner.clock.now() + inner.beat();
            while renewal.try_join_next().is_some() {}
        }
        let Some(link) = link else { continue };
        if is_beat && renewal.is_empty() {
            renewal.spawn(renew_own(link.clone()));
        }
        if is_beat || link.number != tried {
            tried = link.number;
            let is_reached = |tag: &str| {
                let node = link.connection.node_of(tag);
                node.is_some_and(|node| !link.is_out(node))
            };
            inner.leases.put_back_kept(is_reached);
        }
        releases.begin(&link);
    }
}

/// What is being given back: at each node one thing after the other, so that what ends meanwhile is
/// given back together.
#[derive(Default)]
struct Releases {
    under_way: JoinSet<Node>,
    busy: HashSet<Node>,
}

impl Releases {
    /// Gives back what has ended, but for that of nodes where something is under way.
    fn begin(&mut self, link: &Link) {
        let busy = &self.busy;
        let is_free = |tag: &str| !busy.contains(&link.connection.node_of(tag));
        let ended = link.inner.leases.take_ended(is_free);
        for (node, batches) in link.batches(ended, |(key, _)| key) {
            self.busy.insert(node);
            let link = link.clone();
            self.under_way.spawn(async move {
                few_at_once(batches, |batch| release(link.clone(), batch)).await;
                node
            });
        }
    }

    /// Waits until something has been given back.
    async fn end(&mut self) {
        match self.under_way.join_next().await {
            Some(Ok(node)) => drop(self.busy.remove(&node)),
            // The runtime ends.
            Some(Err(_)) => {}
            None => core::future::pending().await,
        }
    }
}

/// Gives leases back, or leaves them to the next connection.
async fn release(mut link: Link, batch: Batch<Lease>) {
    let inner = Arc::clone(&link.inner);
    let (keys, names): (Vec<String>, Vec<String>) = batch.iter().cloned().unzip();
    let given = link.run(&inner.store.scripts.release, &keys, &names).await;
    let count = batch.len();
    if let Err(failure) = given {
        let (is_of_part, is_of_store) = (failure.is_of_part(), failure.scope == Scope::Store);
        link.fail(failure);
        if is_of_part {
            inner.leases.keep(batch);
        } else if is_of_store {
            inner.leases.put_back(batch);
        }
    }
    inner.leases.given_back(count);
}

/// Renews what the worker holds.
async fn renew_own(link: Link) {
    if let Err(failure) = link.renew(link.inner.leases.held()).await {
        link.fail(failure);
    }
}

async fn renew(mut link: Link, mut batch: Batch<Renewal>) -> Result<(), Failure> {
    batch.retain(Renewal::is_held);
    if batch.is_empty() {
        return Ok(());
    }
    let store = Arc::clone(&link.inner.store);
    let (keys, names): (Vec<String>, Vec<String>) = batch.iter().map(|it| it.lease.clone()).unzip();
    let micros = store.settings.lease.as_micros().to_string();
    let arguments: Vec<String> = [micros].into_iter().chain(names).collect();
    let renewed = link.run(&store.scripts.renew, &keys, &arguments).await;
    batch.into_iter().for_each(Renewal::renewed);
    renewed.map(drop).or_else(|failure| link.heed(failure))
}

impl Link {
    /// Renews all that is held, but for what others than new connections have to see to. To be done
    /// before any request: the store would grant it what has run out meanwhile.
    pub(super) async fn renew_anew(&self) -> Result<(), Failure> {
        let mut held = self.inner.store.leases.held();
        held.retain(|it| !self.is_kept(&it.lease.0));
        self.renew(held).await
    }

    /// Renews leases, at all nodes at once. The error is that of the whole store.
    async fn renew(&self, leases: Vec<Renewal>) -> Result<(), Failure> {
        let mut nodes = JoinSet::new();
        for (_, batches) in self.batches(leases, |it| &it.lease.0) {
            let link = self.clone();
            nodes.spawn(few_at_once(batches, move |batch| renew(link.clone(), batch)));
        }
        let mut renewed = Vec::new();
        // Otherwise, the runtime ends.
        while let Some(Ok(of_node)) = nodes.join_next().await {
            renewed.extend(of_node);
        }
        renewed.into_iter().collect()
    }

    /// Divides leases, which have such a key, into batches for each node.
    fn batches<T>(
        &self,
        leases: Vec<T>,
        key: impl Fn(&T) -> &String,
    ) -> HashMap<Node, Vec<Batch<T>>> {
        let is_one = self.connection.nodes().is_none();
        let mut tags: HashMap<String, Vec<Batch<T>>> = HashMap::new();
        for lease in leases {
            let tag = if is_one { String::new() } else { tag(key(&lease)).to_owned() };
            let of_tag = tags.entry(tag).or_default();
            match of_tag.last_mut().filter(|batch| batch.len() < LEASES) {
                Some(batch) => batch.push(lease),
                None => of_tag.push(vec![lease]),
            }
        }
        let mut nodes: HashMap<Node, Vec<Batch<T>>> = HashMap::new();
        for (tag, of_tag) in tags {
            nodes.entry(self.connection.node_of(&tag)).or_default().extend(of_tag);
        }
        nodes
    }
}

/// Makes a call for each batch, some at once: few enough that the last is answered in time.
async fn few_at_once<T, F>(batches: Vec<Batch<T>>, call: impl Fn(Batch<T>) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut answers = Vec::with_capacity(batches.len());
    let (mut under_way, mut leases) = (JoinSet::new(), 0);
    for batch in batches {
        let count = batch.len();
        while under_way.len() == CALLS || (leases > 0 && leases + count > LEASES) {
            let Some(Ok((done, answer))) = under_way.join_next().await else { return answers };
            leases -= done;
            answers.push(answer);
        }
        leases += count;
        let answer = call(batch);
        under_way.spawn(async move { (count, answer.await) });
    }
    while let Some(Ok((_, answer))) = under_way.join_next().await {
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
            (vec![30; 100], [CALLS, 30 * CALLS]),
        ] {
            let [now, met] = [(); 2].map(|()| Arc::new([const { AtomicUsize::new(0) }; 2]));
            let call = |batch: Batch<()>| {
                let (now, met) = (Arc::clone(&now), Arc::clone(&met));
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
                    batch.len()
                }
            };
            let batches = sizes.iter().map(|size| vec![(); *size]).collect();
            let answered: usize = few_at_once(batches, call).await.into_iter().sum();
            assert_eq!(answered, sizes.iter().sum::<usize>(), "each is called");
            assert_eq!(met.each_ref().map(|it| it.load(SeqCst)), most, "{sizes:?}");
        }
    }
}
