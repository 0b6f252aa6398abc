//! Saving the file for the dashboard: the new text is checked, written and put in force, or nothing
//! happens.

use super::{
    Gateway,
    adoption::{Adoption, NewFile},
    edit::{EditEvent, Ready},
    files::FileStates,
};
use crate::{
    admin::{Save, SaveError},
    config::{self, Diagnostics, Plan, Text, Watched},
};
use std::sync::Arc;
use tokio::task::spawn_blocking;

impl Gateway {
    /// Does what a client wants saved. The text is read on a thread of its own.
    pub(super) fn on_edit(&mut self, event: EditEvent) {
        match event {
            EditEvent::Save(save) => self.read_edit(save),
            EditEvent::Ready(ready) => {
                let Ready { save: Save { text, of, reply }, plan } = *ready;
                // The client may have left.
                drop(reply.send(self.save(plan, text, of)));
            }
        }
    }

    fn read_edit(&self, save: Save) {
        let live = Arc::clone(&self.live);
        let path = self.path.clone();
        let on_ready = self.edit.on_ready.clone();
        tokio::spawn(async move {
            let read = spawn_blocking(move || {
                let text = Text::given(&path, &save.text);
                let plan = text.and_then(|text| text.plan()).and_then(|plan| live.sealed(plan));
                Ready { save, plan }
            });
            match read.await {
                Ok(ready) => drop(on_ready.send(ready).await),
                Err(error) => tracing::error!(%error, "cannot read an edited file"),
            }
        });
    }

    /// Replaces the file, which must be the one that was edited, and puts it in force.
    fn save(
        &mut self,
        plan: Result<Plan, Diagnostics>,
        text: Vec<u8>,
        of: u64,
    ) -> Result<String, SaveError> {
        let plan = plan.map_err(SaveError::Invalid)?;
        if self.readings.latest().is_some() || self.successor.is_busy() {
            return Err(SaveError::Conflict("a reload or an upgrade is under way: try again"));
        }
        // As late as can be: another editor may have written the file meanwhile.
        if config::fingerprint(&Watched::File(self.path.clone())) != of {
            return Err(SaveError::Changed);
        }
        let files = plan.files.clone();
        let adoption = Adoption { path: self.path.clone(), new: NewFile::Edited(text) };
        let applied = self.apply(plan, Some(&adoption));
        let summary = applied.map_err(|rejected| SaveError::Failed(rejected.drawing))?;
        tracing::info!(config = %self.path.display(), "the file was edited in the dashboard");
        self.seen = FileStates::look(&files);
        self.rejected = None;
        Ok(summary)
    }
}
