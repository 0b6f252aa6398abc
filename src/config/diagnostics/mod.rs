//! All problems of a file, each with its span, drawn with a hint.

mod allowed;
mod lint;
mod list;
mod literal;
mod problem;
mod secret_value;
mod secrets;
mod source;
mod source_span;
mod substitutions;

pub(super) use allowed::{Allow, Allowed};
pub use lint::Lint;
pub use list::{Diagnostic, Diagnostics};
pub(super) use literal::has_secret;
pub use literal::line_of_secret;
pub use problem::{Problem, Severity};
pub(super) use problem::{Problems, quoted};
pub(super) use source::{Environment, File, Source};
pub(super) use source_span::SourceSpan;
pub(super) use substitutions::{HIDDEN, Substitution, Substitutions};
