//! A reload: an edit is waited for, read, and put in force whole, or refused whole.
//!
//! Reading and compiling take seconds where there are a hundred thousand routes, and touch
//! nothing that is in force: they have a thread beside the control thread, which answers
//! probes and signals meanwhile, and puts in force what they came to.

use super::{
    Gateway,
    catch_up::catch_up,
    error::chain,
    files::Seen,
    prepare::{open_log, warn, warn_of_descriptors},
    reading::{Contents, Look, Reading, Refusal, Why, read},
};
use crate::{
    config::{Plan, Summary, watch},
    shutdown::Wish,
};
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use tokio::{sync::mpsc, task::JoinHandle};

impl Gateway {
    pub(super) fn watch(&self, guard: Option<&mut watch::Watcher>) {
        if let Some(guard) = guard
            && let Err(error) = guard.set(&self.seen.files())
        {
            tracing::debug!(%error, "a folder cannot be watched");
        }
    }

    /// Reports whether to look is to wait until a writer closes its file, and logs once that it
    /// takes long. Called every [`watch::POLL`].
    pub(super) fn is_held(&mut self, guard: Option<&watch::Watcher>) -> bool {
        /// A minute.
        const LONG: u32 = 12;
        let is_held = guard.is_some_and(watch::Watcher::is_being_written);
        self.held = if is_held { self.held.saturating_add(1) } else { 0 };
        if self.held == LONG {
            tracing::warn!(
                config = %self.path.display(),
                "the file or a certificate was written to a minute ago and is still open: \
                 flowgate reads it when its writer closes it; SIGHUP reads it now"
            );
        }
        is_held
    }

    /// Waits until an edit is over, or until a signal comes, which it returns.
    pub(super) async fn settle(&mut self, changes: &mut mpsc::Receiver<()>) -> Option<Wish> {
        let latest = self.clock.now() + watch::QUIET_MOST;
        while self.clock.now() < latest {
            tokio::select! {
                wish = self.signals.next() => return Some(wish),
                more = self.clock.timeout(watch::QUIET, changes.recv()) => {
                    if !matches!(more, Ok(Some(()))) {
                        break;
                    }
                }
            }
        }
        None
    }

    /// Begins to look at the files.
    pub(super) fn look(&mut self, why: Why) -> JoinHandle<Look> {
        self.retired.sweep();
        let latest = self.readings.latest().map(|contents| &contents.seen);
        let before = latest.unwrap_or(&self.seen).clone();
        tokio::task::spawn_blocking(move || {
            let seen = Seen::look(&before.files());
            Look { why, changed: seen != before, seen }
        })
    }

    /// Reports whether the files are the same at two looks in a row that nothing but the time has
    /// called for: who writes them may not have come to the end.
    fn are_settled(&mut self, look: &Look) -> bool {
        if look.why > Why::Poll || !look.changed {
            self.unsettled = None;
            return true;
        }
        self.unsettled.replace(look.seen.clone()).as_ref() == Some(&look.seen)
    }

    /// Begins to read the files if they have changed. Files that are as they were are read
    /// again only if they were refused, and a reload is asked for or the cause is not in them.
    pub(super) fn read_if_needed(&mut self, look: Look) {
        if !self.are_settled(&look) {
            return;
        }
        let Look { why, changed, mut seen } = look;
        let asked = why == Why::Asked;
        let again = self.refused.as_ref().is_some_and(|refusal| asked || refusal.is_outside);
        match self.readings.latest() {
            Some(contents) if !changed => return contents.asked |= asked,
            None if !changed && !again => {
                if asked {
                    tracing::info!(config = %self.path.display(), "unchanged");
                }
                return;
            }
            Some(_) | None => {}
        }
        let (path, live) = (self.path.clone(), Arc::clone(&self.live));
        let contents = Contents { seen: seen.clone(), asked };
        // Its thread is started by this one, and gives way to the workers as this one does.
        let reading = tokio::task::spawn_blocking(move || {
            // An edit since the look is seen by the next one.
            let plan = read(&path, &mut seen, || live.read(&path));
            // Here, as to draw ten thousand errors takes a while too.
            Reading { changed, seen, plan: plan.map_err(Refusal::from) }
        });
        self.readings.begin(contents, reading);
    }

    /// Puts in force what was read if nothing is wrong with it. What looks cut short must be asked
    /// for.
    pub(super) fn reload(&mut self, Contents { asked, .. }: Contents, reading: Reading) {
        let Reading { changed, seen, plan } = reading;
        self.seen = seen;
        let plan = plan.and_then(|plan| match self.live.doubt(&plan).filter(|_| !asked) {
            Some(doubt) => Err(Refusal::from(doubt)),
            None => Ok(plan),
        });
        match plan.and_then(|plan| self.take(plan)) {
            Ok(()) => self.refused = None,
            Err(refusal) => {
                let is_news =
                    self.refused.as_ref().is_none_or(|last| last.drawing != refusal.drawing);
                if changed || asked || is_news {
                    self.refuse(&refusal);
                }
                self.refused = Some(refusal);
            }
        }
    }

    /// Puts `plan` in force, listeners included, or leaves everything as it was.
    fn take(&mut self, plan: Plan) -> Result<(), Refusal> {
        let opened =
            self.listeners.open_new(&plan, self.workers.len()).map_err(Refusal::outside)?;
        let elsewhere = plan.settings.access_log != self.live.load().settings.access_log;
        let moved_log = elsewhere.then(|| open_log(&plan)).transpose().map_err(Refusal::outside)?;
        warn(&plan, self.clock.wall_now());
        let connections = plan.settings.limits.connections;
        if connections != self.live.load().settings.limits.connections {
            warn_of_descriptors(self.descriptors, connections);
        }
        let summary = self.live.apply(plan, self.clock.now(), &mut self.retired);
        tokio::spawn(catch_up(self.live.load_full()));
        for listener in opened {
            if let Err(error) = self.listeners.listen(listener, &self.live, &self.workers) {
                tracing::error!(error = %chain(&error), "cannot start a listener of the new configuration");
            }
        }
        self.listeners.close_others(&self.live.load());
        if let Some(output) = moved_log
            && let Err(error) = self.access_log.switch(output)
        {
            tracing::error!(%error, "cannot switch the access log yet");
        }
        self.counters.reloads_ok.fetch_add(1, Relaxed);
        self.counters
            .last_reload_seconds
            .store(self.clock.wall_now().as_nanos() / 1_000_000_000, Relaxed);
        self.readiness.reloaded(self.clock.wall_now(), &summary.to_string());
        self.log(&summary);
        Ok(())
    }

    /// Logs what a reload did; for programs in fields as well.
    fn log(&self, summary: &Summary) {
        let warning = summary.warning();
        if !self.log_has_fields {
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

    /// Says what is wrong, and keeps what is in force.
    fn refuse(&self, Refusal { line, drawing, .. }: &Refusal) {
        self.counters.reloads_failed.fetch_add(1, Relaxed);
        self.readiness.refused(self.clock.wall_now(), drawing);
        tracing::error!(
            "configuration rejected, the last good one stays in force: {line}\n{drawing}"
        );
    }
}
