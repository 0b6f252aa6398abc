//! The task that keeps a worker's leases: it renews those of requests in flight, and gives back what
//! has ended. Beside the one that sees to the connection, so that neither waits for the other; nor
//! does what lies at one node of a Redis Cluster wait for another node.

use super::{
    client::{Inner, Link},
    error::Failure,
    leases::{Lease, Renewal},
    slots::tag,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use tokio::task::JoinSet;

/// How many calls are under way at a node at once.
const CALLS: usize = 32;

/// How many leases these name together: so many take the store about a millisecond.
const LEASES: usize = 500;

/// Which node of a Redis Cluster, if it is one.
type Node = Option<usize>;

/// Leases that one call names: of one hash tag in a Redis Cluster, and not too many.
type Batch<T> = Vec<T>;

/// Keeps leases for as long as the worker lasts.
pub(super) async fn keep(inner: Arc<Inner>) {
    let mut next = inner.clock.now() + inner.beat();
    let (mut renewals, mut releases) = (Lanes::default(), Lanes::default());
    // Over which connection it was tried to give back what was kept.
    let mut tried = 0;
    loop {
        let mut is_beat = false;
        tokio::select! {
            () = renewals.end() => {}
            () = releases.end() => {}
            () = inner.leases.ended.notified() => {}
            () = inner.clock.timer(next) => is_beat = true,
        }
        if is_beat {
            next = inner.clock.now() + inner.beat();
        }
        let Some(link) = inner.link().clone() else { continue };
        if is_beat {
            for (node, batches) in link.batches(inner.leases.held()) {
                renewals.begin(&link, node, renew_own(link.clone(), batches));
            }
        }
        if is_beat || link.number != tried {
            tried = link.number;
            let is_one = link.connection.nodes().is_none();
            let node_of = |tag: &str| link.connection.node_of(tag);
            let is_reached = |tag: &str| node_of(tag).map_or(is_one, |node| !link.is_out(node));
            inner.leases.put_back_kept(is_reached);
        }
        let is_free = |tag: &str| releases.is_free(&link, link.connection.node_of(tag));
        let ended = inner.leases.take_ended(is_free);
        for (node, batches) in link.batches(ended) {
            releases.begin(&link, node, give_back(link.clone(), batches));
        }
    }
}

/// What is under way at nodes: at each one thing after the other, so that what ends meanwhile is
/// given back together.
#[derive(Default)]
struct Lanes {
    under_way: JoinSet<Lane>,
    busy: HashSet<Lane>,
}

/// A connection, by its number, and which node is reached over it.
type Lane = (u64, Node);

impl Lanes {
    fn is_free(&self, link: &Link, node: Node) -> bool {
        !self.busy.contains(&(link.number, node))
    }

    /// Begins something, unless something is under way there.
    fn begin(&mut self, link: &Link, node: Node, work: impl Future<Output = ()> + Send + 'static) {
        let lane = (link.number, node);
        if self.busy.insert(lane) {
            self.under_way.spawn(async move {
                work.await;
                lane
            });
        }
    }

    /// Waits until something has ended.
    async fn end(&mut self) {
        match self.under_way.join_next().await {
            Some(Ok(lane)) => drop(self.busy.remove(&lane)),
            // The runtime ends.
            Some(Err(_)) => {}
            None => core::future::pending().await,
        }
    }
}

/// What the store is told of leases.
#[derive(Clone, Copy)]
enum What {
    Renewed,
    Ended,
}

/// What becomes of a batch.
enum Fate {
    /// The store knows, or refuses to.
    Told,
    /// It cannot be told now.
    Later,
    /// The store fails, for this reason if it was asked.
    Failed(Option<Failure>),
}

/// Something to tell of a lease.
trait News: Send + 'static {
    fn lease(&self) -> &Lease;

    /// Whether it is true still.
    fn is_true(&self) -> bool;
}

impl News for Lease {
    fn lease(&self) -> &Lease {
        self
    }

    fn is_true(&self) -> bool {
        true
    }
}

impl News for Renewal {
    fn lease(&self) -> &Lease {
        &self.lease
    }

    fn is_true(&self) -> bool {
        self.is_held()
    }
}

/// Gives leases at one node back, or leaves them to the next connection.
async fn give_back(link: Link, batches: Vec<Batch<Lease>>) {
    let count = batches.iter().map(Vec::len).sum();
    let leases = Arc::clone(&link.inner.leases);
    for (batch, fate) in link.tell(What::Ended, batches).await {
        match fate {
            Fate::Told => {}
            Fate::Later => leases.keep(batch),
            Fate::Failed(failure) => {
                failure.map(|failure| link.fail(failure));
                leases.put_back(batch);
            }
        }
    }
    leases.given_back(count);
}

/// Renews what the worker holds at one node.
async fn renew_own(link: Link, batches: Vec<Batch<Renewal>>) {
    if let Err(failure) = link.renew(batches).await {
        link.fail(failure);
    }
}

impl Link {
    /// Renews all that is held, but for what others than new connections have to see to. To be done
    /// before any request: the store would grant it what has run out meanwhile.
    pub(super) async fn renew_anew(&self) -> Result<(), Failure> {
        let mut held = self.inner.store.leases.held();
        held.retain(|it| !self.is_kept(&it.lease.0));
        let mut nodes = JoinSet::new();
        for (_, batches) in self.batches(held) {
            let link = self.clone();
            nodes.spawn(async move { link.renew(batches).await });
        }
        let mut all = Ok(());
        // Otherwise, the runtime ends.
        while let Some(Ok(renewed)) = nodes.join_next().await {
            all = all.and(renewed);
        }
        all
    }

    /// Renews leases at one node. The error is that of the whole store.
    async fn renew(&self, batches: Vec<Batch<Renewal>>) -> Result<(), Failure> {
        let mut renewed = Ok(());
        for (batch, fate) in self.tell(What::Renewed, batches).await {
            batch.into_iter().for_each(Renewal::renewed);
            if let Fate::Failed(Some(failure)) = fate {
                renewed = Err(failure);
            }
        }
        renewed
    }

    /// Divides leases into batches for each node.
    fn batches<T: News>(&self, leases: Vec<T>) -> HashMap<Node, Vec<Batch<T>>> {
        if self.connection.nodes().is_none() {
            let batches = cut(leases);
            return if batches.is_empty() { HashMap::new() } else { [(None, batches)].into() };
        }
        let mut nodes: HashMap<Node, Vec<Batch<T>>> = HashMap::new();
        for (tag, leases) in by_tag(leases) {
            nodes.entry(self.connection.node_of(&tag)).or_default().extend(cut(leases));
        }
        nodes
    }

    /// Tells one node, with some calls at once.
    async fn tell<T: News>(&self, what: What, batches: Vec<Batch<T>>) -> Vec<(Batch<T>, Fate)> {
        let whole = few_at_once(batches, |batch| self.clone().ask(what, batch, true)).await;
        let is_apart = |(_, fate): &(Batch<T>, Option<Fate>)| fate.is_none();
        let (apart, told): (Vec<_>, Vec<_>) = whole.into_iter().partition(is_apart);
        let apart = apart.into_iter().flat_map(|(batch, _)| by_tag(batch));
        let apart = apart.map(|(_, batch)| batch).collect();
        let apart = few_at_once(apart, |batch| self.clone().ask(what, batch, false)).await;
        let fate = |(batch, fate): (_, Option<_>)| Some((batch, fate?));
        told.into_iter().chain(apart).filter_map(fate).collect()
    }

    /// Makes one call. No fate is told of several hash tags which the store refuses together
    /// (`or_apart`), as for a user who may not touch one of them: each is to be told by itself.
    async fn ask<T: News>(
        mut self,
        what: What,
        mut batch: Batch<T>,
        or_apart: bool,
    ) -> (Batch<T>, Option<Fate>) {
        batch.retain(T::is_true);
        if batch.is_empty() {
            return (batch, Some(Fate::Told));
        }
        let store = Arc::clone(&self.inner.store);
        let (keys, names): (Vec<String>, Vec<String>) =
            batch.iter().map(|it| it.lease().clone()).unzip();
        let told = match what {
            What::Renewed => {
                let micros = store.settings.lease.as_micros().to_string();
                let arguments: Vec<String> = [micros].into_iter().chain(names).collect();
                self.run(&store.scripts.renew, &keys, &arguments).await
            }
            What::Ended => self.run(&store.scripts.release, &keys, &names).await,
        };
        let Err(failure) = told else { return (batch, Some(Fate::Told)) };
        if or_apart && failure.is_of_call() && are_several(&keys) {
            return (batch, None);
        }
        let is_of_part = failure.is_of_part();
        // At once, so that the next call does not wait for the same node.
        let fate = match self.heed(failure) {
            Err(failure) => Fate::Failed(Some(failure)),
            Ok(()) if is_of_part => Fate::Later,
            Ok(()) => Fate::Told,
        };
        (batch, Some(fate))
    }
}

/// Whether keys have several hash tags.
fn are_several(keys: &[String]) -> bool {
    keys.windows(2).any(|pair| tag(&pair[0]) != tag(&pair[1]))
}

fn by_tag<T: News>(leases: Vec<T>) -> HashMap<String, Vec<T>> {
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
) -> Vec<(Batch<T>, Option<Fate>)>
where
    T: Send + 'static,
    F: Future<Output = (Batch<T>, Option<Fate>)> + Send + 'static,
{
    let mut answers: Vec<(Batch<T>, Option<Fate>)> = Vec::with_capacity(batches.len());
    let (mut under_way, mut leases, mut fails) = (JoinSet::new(), 0, false);
    for batch in batches {
        let count = batch.len();
        while under_way.len() == CALLS || (leases > 0 && leases + count > LEASES) {
            // Otherwise, the runtime ends.
            let Some(Ok((done, answer))) = under_way.join_next().await else { return answers };
            leases -= done;
            let answer: (_, Option<Fate>) = answer;
            fails |= matches!(answer.1, Some(Fate::Failed(_)));
            answers.push(answer);
        }
        if fails {
            answers.push((batch, Some(Fate::Failed(None))));
        } else {
            leases += count;
            let answer = call(batch);
            under_way.spawn(async move { (count, answer.await) });
        }
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
            (vec![12; 100], [CALLS, 12 * CALLS]),
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
                    (batch, Some(Fate::Told))
                }
            };
            let batches = sizes.iter().map(|size| vec![(); *size]).collect();
            let told = few_at_once(batches, call).await;
            let count: usize = told.iter().map(|(batch, _)| batch.len()).sum();
            assert_eq!(count, sizes.iter().sum::<usize>(), "each is called");
            assert_eq!(met.each_ref().map(|it| it.load(SeqCst)), most, "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn no_call_follows_one_over_which_the_store_failed() {
        let calls = Arc::new(AtomicUsize::new(0));
        let call = |batch: Batch<()>| {
            let calls = Arc::clone(&calls);
            async move {
                calls.fetch_add(1, SeqCst);
                (batch, Some(Fate::Failed(Some(Failure::nonsense("")))))
            }
        };
        let told = few_at_once(vec![vec![(); LEASES]; 9], call).await;
        let fails = |fate: &Option<Fate>| matches!(fate, Some(Fate::Failed(_)));
        assert!(told.len() == 9 && told.iter().all(|(_, fate)| fails(fate)));
        assert_eq!(calls.load(SeqCst), 1);
    }

    #[test]
    fn leases_are_cut_into_batches_and_told_apart_by_their_tags() {
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
