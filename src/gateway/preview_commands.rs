//! What clients of the admin listener ask for: previews of new files.

use super::{
    Gateway,
    adoption::{Adoption, NewFile},
    files::FileStates,
    preview::{PreviewEvent, Ready, begin, end, failed, prepare},
};
use crate::{
    config::{self, Text, Watched},
    preview::{Command, CommandError, EndCause, Preview},
};
use std::sync::Arc;
use tokio::{sync::oneshot, task::spawn_blocking};

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
                let path = self.path.clone();
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
        let path = self.path.clone();
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
            let adoption = Adoption { path: self.path.clone(), new };
            let applied = self.apply(plan, Some(&adoption));
            let summary = applied.map_err(|rejected| CommandError::Failed(rejected.drawing))?;
            self.seen = FileStates::look(&files);
            self.rejected = None;
            Ok(summary)
        });
        drop(reply.send(applied));
    }

    /// Returns what is in the way of putting the preview's file in force.
    fn may_apply(&mut self, preview: &Arc<Preview>, on_disk: u64) -> Result<(), CommandError> {
        let running = self.preview.previews.running();
        let file = self.path.display();
        let conflict = if running.is_none_or(|running| !Arc::ptr_eq(&running, preview)) {
            "the preview has ended".to_owned()
        } else if self.rejected.is_some() {
            format!(
                "{file} has an edit that was rejected, which would be lost: take it back, then begin the preview again"
            )
        } else if on_disk != preview.on_disk() {
            format!("{file} has changed since the preview began: begin it again")
        } else if self.readings.latest().is_some() || self.successor.is_busy() {
            "a reload or an upgrade is under way: try again".to_owned()
        } else {
            return Ok(());
        };
        Err(CommandError::Conflict(conflict))
    }
}
