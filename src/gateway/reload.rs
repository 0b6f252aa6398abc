//! A reload: wait for the end of an edit, read it, and apply or reject it as a whole.
//!
//! Reading and compiling many routes takes seconds on a thread of its own, while the control thread
//! answers probes and signals. The result is then applied here.

use super::{
    Gateway,
    edit::Adoption,
    error::{StartError, chain},
    listeners::OpenedAdmin,
    preview,
    reading::{Cause, Contents, FileCheck, FileStates, Reading, Readings, RejectedEdit, read},
};
use crate::{
    access_log,
    config::{Plan, Retired, Snapshot, Summary, watch},
    flow::Instant,
    preview::EndCause,
    proxy::Descriptors,
    shutdown::SignalEvent,
};
use core::sync::atomic::Ordering::Relaxed;
use std::{path::PathBuf, sync::Arc};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle},
};

/// The file as it was last read, and the readings in progress.
pub(super) struct Reloads {
    pub(super) path: PathBuf,
    /// The files of the last configuration read, applied or rejected.
    pub(super) seen: FileStates,
    /// The reason for its rejection, if it was rejected.
    pub(super) rejected: Option<RejectedEdit>,
    pub(super) readings: Readings<Contents, Reading>,
    /// Changes found by the last check, which may be incomplete.
    unsettled: Option<FileStates>,
    /// The number of polls in a row that found a file being written.
    held: u32,
    retired: Retired,
    /// True if the gateway's log is JSON.
    pub(super) log_has_fields: bool,
}

impl Reloads {
    /// Begins with the file at `path`, which was read as `seen`.
    pub(super) fn new(path: PathBuf, seen: FileStates) -> Self {
        Self {
            path,
            seen,
            rejected: None,
            readings: Readings::default(),
            unsettled: None,
            held: 0,
            retired: Retired::default(),
            log_has_fields: false,
        }
    }
}

impl Gateway {
    pub(super) fn watch(&self, guard: Option<&mut watch::Watcher>) {
        if let Some(guard) = guard
            && let Err(error) = guard.set(&self.reloads.seen.files())
        {
            tracing::debug!(%error, "a folder cannot be watched");
        }
    }

    /// Returns whether a check must wait until a writer closes its file, and logs once that it
    /// takes long. Called every [`watch::POLL`].
    pub(super) fn is_held(&mut self, guard: Option<&watch::Watcher>) -> bool {
        /// A minute.
        const LONG: u32 = 12;
        let is_held = guard.is_some_and(watch::Watcher::is_being_written);
        self.reloads.held = if is_held { self.reloads.held.saturating_add(1) } else { 0 };
        if self.reloads.held == LONG {
            tracing::warn!(
                config = %self.reloads.path.display(),
                "the file or a certificate was written to a minute ago and is still open: \
                 flowgate reads it when its writer closes it; SIGHUP reads it now"
            );
        }
        is_held
    }

    /// Waits until an edit is over, or returns a signal.
    pub(super) async fn settle(&mut self, changes: &mut mpsc::Receiver<()>) -> Option<SignalEvent> {
        let latest = self.clock.now() + watch::QUIET_MOST;
        while self.clock.now() < latest {
            tokio::select! {
                signal = self.signals.next() => return Some(signal),
                more = self.clock.timeout(watch::QUIET, changes.recv()) => {
                    if !matches!(more, Ok(Some(()))) {
                        break;
                    }
                }
            }
        }
        None
    }

    /// Starts a check of the files.
    pub(super) fn check_files(&mut self, cause: Cause) -> JoinHandle<FileCheck> {
        if cause == Cause::Requested {
            self.live.request_reload();
        }
        self.reloads.retired.sweep();
        let latest = self.reloads.readings.latest().map(|contents| &contents.seen);
        let before = latest.unwrap_or(&self.reloads.seen).clone();
        tokio::task::spawn_blocking(move || {
            let seen = FileStates::look(&before.files());
            FileCheck { cause, changed: seen != before, seen }
        })
    }

    /// Returns whether two timed checks in a row found the same files: an edit may be incomplete.
    fn are_settled(&mut self, check: &FileCheck) -> bool {
        if check.cause > Cause::Poll || !check.changed {
            self.reloads.unsettled = None;
            return true;
        }
        self.reloads.unsettled.replace(check.seen.clone()).as_ref() == Some(&check.seen)
    }

    /// Starts a reading if the files have changed. Unchanged files are read again only if they were
    /// rejected, and either a reload is requested or the cause is outside of them.
    fn read_if_needed(&mut self, check: FileCheck) {
        if !self.are_settled(&check) {
            return;
        }

        let FileCheck { cause, changed, mut seen } = check;
        let requested = cause == Cause::Requested;
        let again =
            self.reloads.rejected.as_ref().is_some_and(|rejected| requested || rejected.is_outside);

        match self.reloads.readings.latest() {
            Some(contents) if !changed => return contents.requested |= requested,
            None if !changed && !again => {
                if requested {
                    tracing::info!(config = %self.reloads.path.display(), "unchanged");
                }
                return;
            }
            Some(_) | None => {}
        }

        let path = self.reloads.path.clone();
        let live = Arc::clone(&self.live);
        let contents = Contents { seen: seen.clone(), requested };
        // The new thread inherits this one's lower priority.
        let reading = tokio::task::spawn_blocking(move || {
            // The next check finds an edit made since this one.
            let plan = read(&mut seen, || live.read(&path));
            // Ten thousand errors take time to render.
            Reading { changed, seen, plan: plan.map_err(RejectedEdit::from) }
        });

        self.reloads.readings.begin(contents, reading);
    }

    /// Reads the files if a check says so.
    pub(super) fn on_check(&mut self, result: Result<FileCheck, JoinError>) {
        match result {
            Ok(check) => self.read_if_needed(check),
            Err(error) => {
                tracing::error!(%error, "cannot compare the configuration with the one in force");
            }
        }
    }

    /// Applies what was read if it has no errors. A configuration that looks truncated must be
    /// requested.
    pub(super) fn reload(&mut self, Contents { requested, .. }: Contents, reading: Reading) {
        let Reading { changed, seen, plan } = reading;
        self.reloads.seen = seen;
        let plan = plan.and_then(|plan| match self.live.doubt(&plan).filter(|_| !requested) {
            Some(doubt) => Err(RejectedEdit::from(doubt)),
            None => Ok(plan),
        });
        match plan.and_then(|plan| self.apply(plan, None)) {
            Ok(_) => self.reloads.rejected = None,
            Err(rejected) => {
                let is_new = self
                    .reloads
                    .rejected
                    .as_ref()
                    .is_none_or(|last| last.drawing != rejected.drawing);
                if changed || requested || is_new {
                    self.reject(&rejected);
                }
                self.reloads.rejected = Some(rejected);
            }
        }
    }

    /// Applies `plan` with its listeners, or changes nothing. Returns what that did, in words. With
    /// an `adoption` it also replaces the file.
    pub(super) fn apply(
        &mut self,
        plan: Plan,
        adoption: Option<&Adoption>,
    ) -> Result<String, RejectedEdit> {
        let moved_admin = self.open_moved_admin(&plan).map_err(RejectedEdit::outside)?;
        let left = self.serving.admin.address().filter(|_| !self.admin_stays(&plan));
        let opened = self
            .serving
            .listeners
            .open_new(&plan, self.serving.workers.len(), left)
            .map_err(RejectedEdit::outside)?;

        let elsewhere = plan.settings.access_log != self.live.load().settings.access_log;
        let moved_log =
            elsewhere.then(|| open_log(&plan)).transpose().map_err(RejectedEdit::outside)?;

        adoption.map_or(Ok(()), Adoption::write)?;
        warn(&plan, self.clock.wall_now());
        let connections = plan.settings.limits.connections;
        if connections != self.live.load().settings.limits.connections {
            warn_of_descriptors(self.serving.descriptors, connections);
        }

        let now = self.clock.now();
        let summary = match adoption.and_then(Adoption::snapshot) {
            None => self.live.apply(plan, now, &mut self.reloads.retired),
            Some(previewed) => {
                self.live.apply_previewed(plan, previewed, now, &mut self.reloads.retired)
            }
        };

        let cause = adoption.map_or(EndCause::Reload, Adoption::end_cause);
        preview::end(&self.preview.previews, cause, &self.clock);
        tokio::spawn(catch_up(self.live.load_full()));

        for listener in opened {
            if let Err(error) =
                self.serving.listeners.listen(listener, &self.live, &self.serving.workers)
            {
                tracing::error!(error = %chain(&error), "cannot start a listener of the new configuration");
            }
        }
        self.serving.listeners.close_others(&self.live.load());

        self.move_admin(moved_admin);
        self.warn_of_certificates();
        if let Some(output) = moved_log
            && let Err(error) = self.serving.access_log.switch(output)
        {
            tracing::error!(%error, "cannot switch the access log yet");
        }

        self.counters.reloads_ok.fetch_add(1, Relaxed);
        self.counters
            .last_reload_seconds
            .store(self.clock.wall_now().as_nanos() / 1_000_000_000, Relaxed);
        self.readiness.reloaded(self.clock.wall_now(), &summary.to_string());
        self.log(&summary);
        Ok(summary.to_string())
    }

    /// Returns whether the admin listener is where `plan` has it.
    fn admin_stays(&self, plan: &Plan) -> bool {
        self.serving.admin.is_at(plan.settings.admin.as_ref().map(|admin| admin.listen))
    }

    /// Opens the admin listener of `plan`, if it is to listen at another address.
    fn open_moved_admin(&self, plan: &Plan) -> Result<Option<OpenedAdmin>, StartError> {
        let Some(admin) = plan.settings.admin.as_ref().filter(|_| !self.admin_stays(plan)) else {
            return Ok(None);
        };
        self.serving
            .listeners
            .open_admin(plan, admin.listen, self.serving.admin.address())
            .map(Some)
    }

    /// Serves the admin pages at the address of the configuration in force, or nowhere if it has
    /// none.
    fn move_admin(&mut self, moved: Option<OpenedAdmin>) {
        if self.live.load().settings.admin.is_none() {
            return self.serving.admin.remove();
        }
        let Some(opened) = moved else { return };
        let state = self.admin_state();
        if let Err(error) = self.serving.admin.open(opened, state) {
            tracing::error!(%error, "cannot serve the admin listener at its new address");
        }
    }

    /// Logs what a reload did, with fields if the log is JSON.
    fn log(&self, summary: &Summary) {
        let warning = summary.warning();
        if !self.reloads.log_has_fields {
            return match warning {
                None => tracing::info!("{summary}"),
                Some(warning) => tracing::warn!("{summary}; {warning}"),
            };
        }

        let version = summary.version;
        let changes = summary.changes.named.join(", ");
        let more = summary.changes.more;
        let kept = summary.rules_kept;
        let converted = summary.rules_converted;
        let reset = summary.rules_reset();

        match warning {
            None => tracing::info!(version, changes, more, kept, converted, reset, "{summary}"),
            Some(warning) => tracing::warn!(
                version,
                changes,
                more,
                kept,
                converted,
                reset,
                warning,
                "{summary}; {warning}"
            ),
        }
    }

    /// Reports a rejected configuration.
    fn reject(&self, RejectedEdit { line, drawing, problems, .. }: &RejectedEdit) {
        self.counters.reloads_failed.fetch_add(1, Relaxed);
        self.readiness.rejected(self.clock.wall_now(), drawing, problems);
        tracing::error!(
            "configuration rejected, the last good one stays in force: {line}\n{drawing}"
        );
    }
}

/// Converts the states that edited rules left, a few at a time, so that requests and signals are
/// handled in between.
pub(super) async fn catch_up(snapshot: Arc<Snapshot>) {
    for (_, gate) in snapshot.gates() {
        while gate.catch_up() {
            tokio::task::yield_now().await;
        }
    }
}

pub(super) fn open_log(plan: &Plan) -> Result<access_log::Output, StartError> {
    let opened = access_log::Output::open(&plan.settings.access_log);
    opened.map_err(|error| StartError::Open(plan.cannot_log(&error)))
}

/// Logs a configuration's warnings at `now`. [`super::expiry_watch`] warns of certificates that end.
pub(super) fn warn(plan: &Plan, now: Instant) {
    let warnings = plan.warnings_for_log(now);
    if !warnings.is_empty() {
        tracing::warn!("{}\n{warnings}", warnings.summary());
    }
}

/// Logs what is odd about a file, and about the process that runs it.
pub(super) fn warn_at_start(plan: &Plan, descriptors: Descriptors, now: Instant) {
    warn(plan, now);
    warn_of_descriptors(descriptors, plan.settings.limits.connections);
}

/// Logs that the process may have too few file descriptors for `connections`.
pub(super) fn warn_of_descriptors(descriptors: Descriptors, connections: usize) {
    if let Some(enough) = descriptors.missing_for(connections) {
        let most = descriptors.most();
        let for_clients = descriptors.for_clients();
        tracing::warn!(
            "limits.connections is {connections}, but the limit of open files is {most}: while \
             {for_clients} are in use, new connections are closed; {enough} would be enough \
             (`LimitNOFILE={enough}` in a systemd unit, `ulimit -Hn {enough}`), or lower \
             limits.connections"
        );
    }
}
