//! What is wrong with a file: all of it, each problem at its place, drawn with a hint.

mod list;
mod place;
mod problem;
mod secrets;

pub(super) use list::Source;
pub use list::{Diagnostics, Entry};
pub(super) use place::Place;
pub use problem::{Problem, Severity};
pub(super) use problem::{Problems, quoted};
