//! Previews of new files: how they begin, end and are put in force.

use super::{
    Gateway,
    edit::{Adoption, NewFile},
    reading::FileStates,
};
use crate::{
    clock::Clock,
    config::{self, Diagnostics, Live, Plan, Snapshot, Text, Watched},
    preview::{Command, CommandError, Cost, EndCause, Preview, Previews, Start},
    route::Seed,
};
use bytesize::ByteSize;
use core::time::Duration;
use std::{path::PathBuf, sync::Arc};
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
};

/// The interval at which to look whether a preview is over.
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

/// An event of previews for the control thread.
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

impl Gateway {
    /// Does what a client asks for. Files are read on a thread of their own.
    pub(super) fn on_preview(&mut self, event: PreviewEvent) {
        match event {
            PreviewEvent::Command(command) => self.preview(command),
            PreviewEvent::Ready(ready) => self.apply_preview(*ready),
        }
    }

    fn preview(&self, command: Command) {
        match command {
            Command::Begin { text, most, is_check, reply } => {
                let live = Arc::clone(&self.live);
                let previews = Arc::clone(&self.preview.previews);
                let clock = self.clock.clone();
                let path = self.reloads.path.clone();
                let seed = self.preview.seed;

                tokio::spawn(async move {
                    let reader = Arc::clone(&live);
                    let at = clock.clone();
                    let read = spawn_blocking(move || prepare(&reader, path, text, &at)).await;
                    let prepared = read.unwrap_or_else(|error| Err(failed(error)));

                    let cost = prepared.map(|prepared| {
                        let cost = prepared.cost.clone();
                        if !is_check {
                            begin(&previews, &live, prepared, most, seed, &clock);
                        }
                        cost
                    });
                    // The client may have left.
                    drop(reply.send(cost));
                });
            }
            Command::Stop { reply } => {
                end(&self.preview.previews, EndCause::Stopped, &self.clock);
                // The client may have left.
                let _left = reply.send(());
            }
            Command::Apply { reply } => self.read_again(reply),
        }
    }

    /// Reads the new file of the preview as the file in force, unless something is in the way.
    fn read_again(&self, reply: oneshot::Sender<Result<String, CommandError>>) {
        let Some(preview) = self.preview.previews.running() else {
            let conflict = CommandError::Conflict("no preview is running".to_owned());
            drop(reply.send(Err(conflict)));
            return;
        };

        let live = Arc::clone(&self.live);
        let path = self.reloads.path.clone();
        let on_ready = self.preview.on_ready.clone();
        tokio::spawn(async move {
            let of = Arc::clone(&preview);
            let read = spawn_blocking(move || {
                let text = Text::given(&path, of.text());
                let plan = text.and_then(|text| text.plan()).and_then(|plan| live.sealed(plan));
                (plan, config::fingerprint(&Watched::File(path)))
            });

            match read.await {
                Ok((plan, on_disk)) => {
                    drop(on_ready.send(Ready { preview, plan, on_disk, reply }).await);
                }
                Err(error) => drop(reply.send(Err(failed(error)))),
            }
        });
    }

    /// Puts the new file of a preview in force.
    fn apply_preview(&mut self, ready: Ready) {
        let Ready { preview, plan, on_disk, reply } = ready;
        let applied = self.may_apply(&preview, on_disk).and_then(|()| {
            let plan = plan.map_err(|problems| CommandError::Invalid(problems.to_string()))?;
            if plan.hash != preview.snapshot().hash {
                let changed = "a file that the new file includes has changed since the preview \
                               began: begin it again";
                return Err(CommandError::Conflict(changed.to_owned()));
            }
            let files = plan.files.clone();
            let new = NewFile::Previewed(preview);
            let adoption = Adoption { path: self.reloads.path.clone(), new };
            let applied = self.apply(plan, Some(&adoption));
            let summary = applied.map_err(|rejected| CommandError::Failed(rejected.drawing))?;
            self.reloads.seen = FileStates::look(&files);
            self.reloads.rejected = None;
            Ok(summary)
        });
        drop(reply.send(applied));
    }

    /// Returns what is in the way of putting the preview's file in force.
    fn may_apply(&mut self, preview: &Arc<Preview>, on_disk: u64) -> Result<(), CommandError> {
        let running = self.preview.previews.running();
        let file = self.reloads.path.display();
        let conflict = if running.is_none_or(|running| !Arc::ptr_eq(&running, preview)) {
            "the preview has ended".to_owned()
        } else if self.reloads.rejected.is_some() {
            format!(
                "{file} has an edit that was rejected, which would be lost: take it back, then begin the preview again"
            )
        } else if on_disk != preview.on_disk() {
            format!("{file} has changed since the preview began: begin it again")
        } else if self.reloads.readings.latest().is_some() || self.upgrade.successor.is_busy() {
            "a reload or an upgrade is under way: try again".to_owned()
        } else {
            return Ok(());
        };
        Err(CommandError::Conflict(conflict))
    }
}
