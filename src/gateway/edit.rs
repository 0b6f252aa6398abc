//! What the dashboard wants saved, on its way to the control thread.

use crate::{
    admin::Save,
    config::{Diagnostics, Plan},
};
use tokio::sync::mpsc;

/// The control thread's part in saving.
pub(super) struct Control {
    /// Requests from the admin listener.
    saves: mpsc::Receiver<Save>,
    /// Where the admin listener sends them.
    pub(super) sender: mpsc::Sender<Save>,
    /// Texts that were read.
    ready: mpsc::Receiver<Ready>,
    pub(super) on_ready: mpsc::Sender<Ready>,
}

/// What the control thread has to do.
pub(super) enum EditEvent {
    Save(Save),
    Ready(Box<Ready>),
}

/// A text that was read.
pub(super) struct Ready {
    pub(super) save: Save,
    pub(super) plan: Result<Plan, Diagnostics>,
}

impl Default for Control {
    fn default() -> Self {
        let (sender, saves) = mpsc::channel(1);
        let (on_ready, ready) = mpsc::channel(1);
        Self { saves, sender, ready, on_ready }
    }
}

impl Control {
    /// Waits for the next event.
    pub(super) async fn event(&mut self) -> EditEvent {
        tokio::select! {
            Some(save) = self.saves.recv() => EditEvent::Save(save),
            Some(ready) = self.ready.recv() => EditEvent::Ready(Box::new(ready)),
            else => core::future::pending().await,
        }
    }
}
