//! All problems of a file, each with its span, drawn with a hint.

mod lint;
mod list;
mod literal;
mod problem;
mod secrets;
mod source;
mod substitutions;

pub use lint::Lint;
pub(super) use lint::{Allow, Allowed};
pub use list::{Diagnostic, Diagnostics};
pub(super) use literal::has_secret;
pub use literal::line_of_secret;
pub use problem::{Problem, Severity};
pub(super) use problem::{Problems, quoted};
pub(super) use source::{Environment, File, Source, SourceSpan};
pub(super) use substitutions::{HIDDEN, Substitution, Substitutions};
