//! What is wrong with a file: all of it, each problem at its place, drawn with a hint.

mod allowed;
mod lint;
mod list;
mod literal;
mod place;
mod problem;
mod secret_value;
mod secrets;
mod source;
mod substitutions;

pub(super) use allowed::{Allow, Allowed};
pub use lint::Lint;
pub use list::{Diagnostic, Diagnostics};
pub use literal::line_of_secret;
pub(super) use place::Place;
pub use problem::{Problem, Severity};
pub(super) use problem::{Problems, quoted};
pub(super) use source::{Environment, File, Source};
pub(super) use substitutions::{Substitution, Substitutions};
