//! Previews of new files: how they begin, end and are put in force.

use crate::{
    clock::Clock,
    config::{self, Diagnostics, Live, Plan, Snapshot, Text, Watched},
    preview::{Command, CommandError, Cost, EndCause, Preview, Previews, Start},
    route::Seed,
};
use bytesize::ByteSize;
use core::time::Duration;
use std::{path::PathBuf, sync::Arc};
use tokio::sync::{mpsc, oneshot};

/// How often to look whether a preview is over.
const LOOK: Duration = Duration::from_secs(1);

/// The control thread's part in previews.
pub(super) struct Control {
    pub(super) previews: Arc<Previews>,
    /// Requests from the admin listener.
    commands: mpsc::Receiver<Command>,
    /// Where the admin listener sends them.
    pub(super) sender: mpsc::Sender<Command>,
    /// New files that were read to be put in force.
    ready: mpsc::Receiver<Ready>,
    pub(super) on_ready: mpsc::Sender<Ready>,
    /// The key of fingerprints.
    pub(super) seed: Seed,
}

/// What the control thread has to do for previews.
pub(super) enum PreviewEvent {
    /// A client asks for it.
    Command(Command),
    /// A file is to be put in force.
    Ready(Box<Ready>),
}

/// A new file that was read again, to be put in force.
pub(super) struct Ready {
    pub(super) preview: Arc<Preview>,
    pub(super) plan: Result<Plan, Diagnostics>,
    /// Stands for what the file in force has on the disk.
    pub(super) on_disk: u64,
    pub(super) reply: oneshot::Sender<Result<String, CommandError>>,
}

/// A new file, and what else was found out beside the control thread.
pub(super) struct Prepared {
    snapshot: Snapshot,
    pub(super) cost: Cost,
    on_disk: u64,
    text: Vec<u8>,
}

impl Control {
    pub(super) fn new(seed: Seed) -> Self {
        let (sender, commands) = mpsc::channel(1);
        let (on_ready, ready) = mpsc::channel(1);
        Self { previews: Arc::default(), commands, sender, ready, on_ready, seed }
    }

    /// Waits for the next event.
    pub(super) async fn event(&mut self) -> PreviewEvent {
        tokio::select! {
            Some(command) = self.commands.recv() => PreviewEvent::Command(command),
            Some(ready) = self.ready.recv() => PreviewEvent::Ready(Box::new(ready)),
            else => core::future::pending().await,
        }
    }
}

/// Reads a new file, and makes a snapshot of it that is not in force.
pub(super) fn prepare(
    live: &Live,
    path: PathBuf,
    text: Vec<u8>,
    clock: &Clock,
) -> Result<Prepared, CommandError> {
    let invalid = |problems: Diagnostics| CommandError::Invalid(problems.to_string());
    let read = Text::given(&path, &text).and_then(|text| text.plan());
    let plan = read.and_then(|plan| live.sealed(plan)).map_err(invalid)?;
    let warnings = plan.warnings_at(clock.now());
    let cost = Cost {
        config_hash: plan.hash.clone(),
        is_in_force: plan.hash == live.load().hash,
        memory_bytes: config::most_bytes(&plan),
        warnings: (!warnings.is_empty()).then(|| warnings.to_string()),
    };
    let snapshot = live.preview(plan, clock.now());
    let on_disk = config::fingerprint(&Watched::File(path));
    Ok(Prepared { snapshot, cost, on_disk, text })
}

pub(super) fn begin(
    previews: &Previews,
    live: &Live,
    prepared: Prepared,
    most: Option<Duration>,
    seed: Seed,
    clock: &Clock,
) {
    let Prepared { snapshot, cost, on_disk, text } = prepared;
    let base = live.load_full();
    let workers = base.settings.workers.get();
    let shows_keys = base.settings.shows_keys();
    end(previews, EndCause::Replaced, clock);
    let hash = cost.config_hash;
    let limit =
        most.map_or_else(String::new, |most| format!(" for {}", humantime::format_duration(most)));
    let memory = cost.memory_bytes;
    let start = Start { base, snapshot, text, on_disk, memory, seed, shows_keys, most, workers };
    previews.begin(start, clock.now());
    // After it has: what waits for this line sends requests that it must see.
    let memory = ByteSize(memory);
    tracing::info!(%hash, "a preview begins{limit}: a new file decides about all requests without effect; its rules take up to {memory}");
}

/// Ends the preview, if there is one, and logs what it has found.
pub(super) fn end(previews: &Previews, cause: EndCause, clock: &Clock) {
    if let Some(preview) = previews.end(cause, clock.now()) {
        let hash = &preview.snapshot().hash;
        let found = previews
            .report(clock.now())
            .map_or_else(String::new, |report| report.requests.in_words());
        tracing::info!(%hash, "the preview ended because {}: {found}", cause.words());
    }
}

/// Ends previews that are over.
pub(super) async fn watch(previews: Arc<Previews>, clock: Clock) {
    loop {
        clock.timer(clock.now() + LOOK).await;
        if let Some(cause) = previews.is_over(clock.now()) {
            end(&previews, cause, &clock);
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
pub(super) fn failed(error: tokio::task::JoinError) -> CommandError {
    CommandError::Failed(format!("cannot read the new file: {error}"))
}
