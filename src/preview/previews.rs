//! The preview of a process, which workers look at for each request.

use super::{
    report::PreviewReport,
    running::{Preview, Start},
    trial::{Here, Trial},
};
use crate::{
    config::Snapshot,
    flow::{Instant, WallOffset},
};
use arc_swap::{ArcSwapOption, Guard};
use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The time for which a preview goes on after its report was read for the last time.
pub const UNREAD: Duration = Duration::from_secs(30);

/// The preview of a process, if there is one.
#[derive(Debug, Default)]
pub struct Previews {
    /// Looked at by each request; the rest only if it is set.
    is_on: AtomicBool,
    current: ArcSwapOption<Preview>,
    ended: Mutex<Ended>,
}

#[derive(Debug, Default)]
struct Ended {
    /// Counts previews.
    count: u64,
    /// The report of the last one.
    last: Option<PreviewReport>,
    /// Previews that workers may still look at. Their memory must not be freed by a worker.
    retired: Vec<Arc<Preview>>,
}

/// A worker's view of the preview.
#[derive(Clone, Debug)]
pub struct PreviewHandle {
    previews: Arc<Previews>,
    worker: usize,
}

/// The preview that runs while a worker looks at it.
#[derive(Debug)]
pub struct RunningPreview(Guard<Option<Arc<Preview>>>);

impl RunningPreview {
    /// Returns the preview.
    pub fn get(&self) -> Option<&Preview> {
        self.0.as_deref()
    }
}

impl Previews {
    /// Begins a preview at `now`, in place of the one before.
    pub fn begin(&self, start: Start, now: Instant) {
        self.end(EndCause::Replaced, now);
        let mut ended = self.ended();
        ended.count += 1;
        ended.last = None;
        let preview = Preview::new(start, ended.count, now);
        self.current.store(Some(Arc::new(preview)));
        self.is_on.store(true, Relaxed);
    }

    /// Ends the preview, if there is one, and returns it. Its last report remains.
    pub fn end(&self, cause: EndCause, now: Instant) -> Option<Arc<Preview>> {
        let mut ended = self.ended();
        self.is_on.store(false, Relaxed);
        let preview = self.current.swap(None);
        if let Some(preview) = &preview {
            ended.last = Some(preview.report(now, Some(cause)));
            ended.retired.push(Arc::clone(preview));
        }
        ended.retired.retain(|preview| Arc::strong_count(preview) > 1);
        preview
    }

    /// Returns the preview that runs.
    pub fn running(&self) -> Option<Arc<Preview>> {
        self.current.load_full()
    }

    /// Returns the report at `now`: of the preview that runs, or of the last one. Who reads it
    /// keeps the preview going.
    pub fn report(&self, now: Instant) -> Option<PreviewReport> {
        if let Some(preview) = self.running() {
            preview.read_at.fetch_max(now.as_nanos(), Relaxed);
            return Some(preview.report(now, None));
        }
        self.ended().last.clone()
    }

    /// Returns why the preview must end at `now`, if it must, and frees those that ended.
    pub fn is_over(&self, now: Instant) -> Option<EndCause> {
        self.ended().retired.retain(|preview| Arc::strong_count(preview) > 1);
        let preview = self.running()?;
        if preview.until.is_some_and(|until| until <= now) {
            return Some(EndCause::Time);
        }
        let read_at = Instant::from_nanos(preview.read_at.load(Relaxed));
        (read_at + UNREAD <= now).then_some(EndCause::Unread)
    }

    /// Has rules that count by the clock or the calendar follow a step of the wall clock.
    pub fn set_wall(&self, wall: WallOffset, now: Instant) {
        if let Some(preview) = self.running() {
            for (_, gate) in preview.snapshot.gates() {
                gate.set_wall(wall, now);
            }
        }
    }

    /// Returns the handle of a worker.
    pub fn handle(self: &Arc<Self>, worker: usize) -> PreviewHandle {
        PreviewHandle { previews: Arc::clone(self), worker }
    }

    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PreviewHandle {
    /// Returns whether there may be a preview.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.previews.is_on.load(Relaxed)
    }

    /// Returns the preview, if there is one beside the file in force, `base`.
    pub fn running(&self, base: &Arc<Snapshot>) -> Option<RunningPreview> {
        let running = RunningPreview(self.previews.current.load());
        let is_beside = running.get().is_some_and(|preview| Arc::ptr_eq(&preview.base, base));
        is_beside.then_some(running)
    }

    /// Returns the number of the worker.
    pub const fn worker(&self) -> usize {
        self.worker
    }

    /// Compares the decisions about a request that came at `at`, by the wall's clock.
    pub fn compare(&self, trial: &mut Trial, here: &Here<'_>, at: Instant) {
        if let Some(preview) = &*self.previews.current.load() {
            preview.compare(trial, here, at, self.worker);
        }
    }
}

/// Why a preview ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its time is over.
    Time,
    /// No client read its report.
    Unread,
    /// An operator ended it.
    Stopped,
    /// The file in force was replaced by another one.
    Reload,
    /// The new file is in force.
    Applied,
    /// Another one began.
    Replaced,
}

impl EndCause {
    /// Says it in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Time => "its time is over",
            Self::Unread => "its report was not read",
            Self::Stopped => "it was stopped",
            Self::Reload => "the file in force was replaced by another one",
            Self::Applied => "the new file was applied",
            Self::Replaced => "another preview began",
        }
    }
}
