//! The preview of a new file: its decisions about live requests.
//!
//! While a preview runs, each request is also decided by the new file, with state of its own, and
//! nobody is rejected or delayed for it. The decisions are compared with those of the file in
//! force. At most one preview runs. It ends when its time is over, when nobody reads its report any
//! more, and when the file in force is replaced.
//!
//! Each worker has its own counts. A reader of the report adds them up, which takes an instant.

mod alike;
mod command;
mod previews;
mod report;
mod running;
mod tally;
mod text;
mod treatment;
mod trial;

pub use alike::{Alike, LiveRequest};
pub use command::{Command, CommandError, Cost};
pub use previews::{EndCause, PreviewHandle, Previews, RunningPreview, UNREAD};
pub use report::{
    BudgetReport, ChangeReport, ClientReport, Example, PreviewReport, RequestCounts, RouteReport,
    RuleReport, State,
};
pub use running::{Preview, Start};
pub use treatment::{OwnRejection, Treatment, TreatmentChange};
pub use trial::{Arrival, Here, Identified, Trial, TrialRecord};

#[cfg(test)]
mod tests;
