//! Single keys of rules: which are the fullest and the most rejected, and how operators change
//! them.

mod change;
mod names;
mod surveys;
mod view;

pub(super) use change::{Done, NotDone, Wanted, WantedRule, grant, reset};
pub(super) use names::Names;
pub(super) use surveys::Surveys;
pub(super) use view::{KeyView, RejectedKeysView, list, rejected};
