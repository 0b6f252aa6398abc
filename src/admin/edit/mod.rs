//! Editing the file in the dashboard: its text, checks of an edited text, and saving it.
//!
//! The file is read and compiled beside the control thread, which only puts the result in force.

mod checked;
mod loaded;
mod save;
mod schema;

pub(super) use checked::Checked;
pub(super) use loaded::{LoadError, Loaded};
pub use save::{Save, SaveError};
pub(super) use schema::completion;
