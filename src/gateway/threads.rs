//! The threads of the workers and of the syncs with the store.

use super::{
    error::{StartError, cannot},
    preview::Control,
};
use crate::{
    access_log,
    acme::Challenges,
    clock::Clock,
    cluster::{Store, StoreClient, SyncTask},
    config::Live,
    key_names::KeyNames,
    meter::Counters,
    proxy::{
        BodyMemory, ClientConnections, Connections, Connector, CopyPlaces, DateCache, Descriptors,
        EncoderPlaces, Passwords, Pools, Records, RequestIdMaker, RequestLog, ServerConnections,
        TimeoutLog, Worker,
    },
    rejections::Rejections,
    traces::{Recorder, SpanQueue},
    workers::WorkerHandle,
    worst_paths::WorstPaths,
};
use core::time::Duration;
use std::{io, sync::Arc, thread};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

/// The values that the workers share.
pub(super) struct Shared<'a> {
    pub(super) clock: &'a Clock,
    pub(super) live: &'a Arc<Live>,
    pub(super) counters: &'a Arc<Counters>,
    pub(super) descriptors: Descriptors,
    pub(super) preview: &'a Control,
    pub(super) recorded: &'a Recorded,
    /// Where the spans of sampled requests go.
    pub(super) spans: SpanQueue,
}

/// The parts of requests that workers record for the admin pages.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// The names of keys that pages may show.
    pub(super) key_names: Arc<KeyNames>,
    /// The last rejections.
    pub(super) rejections: Arc<Rejections>,
    /// The paths whose requests fail or are slow.
    pub(super) worst_paths: Arc<WorstPaths>,
}

/// Starts the workers without listeners.
pub(super) fn start_workers(
    Shared { clock, live, counters, descriptors, preview, recorded, spans }: Shared<'_>,
    log: &access_log::Sink,
    store: Option<&Arc<Store>>,
) -> Result<Vec<WorkerHandle>, StartError> {
    let seed = preview.seed;
    let count = live.load().settings.workers;
    let passwords = Arc::new(Passwords::new(count));
    let clients = Arc::<ClientConnections>::default();

    let workers = (0..count.get())
        .map(|index| {
            let live = Arc::clone(live);
            let counters = Arc::clone(counters);
            let log = log.handle(index);
            let store = store.cloned();
            let passwords = Arc::clone(&passwords);
            let clients = Arc::clone(&clients);
            let preview = preview.previews.handle(index);
            let rejections = recorded.rejections.recorder();
            let worst_paths = recorded.worst_paths.recorder();
            let spans = spans.clone();
            let key_names = Arc::clone(&recorded.key_names);
            WorkerHandle::start(index, clock.clone(), move |clock| Worker {
                live,
                servers: Arc::new(ServerConnections {
                    clock: clock.clone(),
                    pools: Pools::default(),
                    connector: Connector::default(),
                }),
                tasks: TaskTracker::new(),
                counters,
                store: store.map(|store| StoreClient::start(store, clock.clone())),
                clock,
                descriptors,
                connections: Connections::default(),
                dates: DateCache::default(),
                bodies: BodyMemory::default(),
                encoders: EncoderPlaces::default(),
                copies: CopyPlaces::default(),
                challenges: Challenges::default(),
                seed,
                passwords,
                clients,
                records: Records {
                    request_ids: RequestIdMaker::default(),
                    access_log: log,
                    traces: Recorder::new(spans),
                    request_log: RequestLog::default(),
                    timeout_log: TimeoutLog::default(),
                    preview,
                    rejections,
                    worst_paths,
                    key_names,
                },
            })
        })
        .collect::<io::Result<_>>();
    workers.map_err(cannot("start a worker"))
}

/// The interval at which to look for the first synced rule.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The thread that syncs states with other gateways. The control thread may be busy with an edit,
/// and late syncs let too much pass.
pub(super) struct SyncThread {
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

/// Waits for a synced rule: without one no connection is needed.
async fn cause(live: &Live, clock: &Clock) {
    while !live.load_full().has_synced_rules() {
        clock.timer(clock.now() + POLL_INTERVAL).await;
    }
}

impl SyncThread {
    pub(super) fn start(
        store: &Arc<Store>,
        live: &Arc<Live>,
        clock: &Clock,
    ) -> Result<Self, StartError> {
        Self::spawn(store, live, clock).map_err(cannot("start the thread that syncs states"))
    }

    fn spawn(store: &Arc<Store>, live: &Arc<Live>, clock: &Clock) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = Arc::clone(store);
        let live = Arc::clone(live);
        let clock = clock.clone();

        let (end, ended) = oneshot::channel();
        if live.load().has_synced_rules() {
            // Before the first call to the store, so that no failure is missed.
            store.want_states();
        }

        let thread = thread::Builder::new().name("sync".to_owned()).spawn(move || {
            runtime.block_on(async {
                // A dropped sender ends the thread too.
                let end = async { drop(ended.await) };
                tokio::pin!(end);
                tokio::select! {
                    biased;
                    () = &mut end => return,
                    () = cause(&live, &clock) => {}
                }
                store.want_states();
                SyncTask::new(store, live, clock).run(end).await;
            });
        })?;
        Ok(Self { end, thread })
    }

    /// Waits until the thread has sent the remaining charges, or a call fails.
    pub(super) fn end(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            tracing::error!("the thread that syncs states with other gateways panicked");
        }
    }
}
