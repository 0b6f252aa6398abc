//! Unreadable lines: a count, and the first few.

use super::{longest::LONGEST, reason::Reason};
use crate::replay::printable;
use std::{fmt, io};

#[derive(Clone, Debug, Default)]
/// The count and examples of unreadable lines.
pub struct BadLines {
    /// The count.
    pub count: u64,
    /// The first few lines.
    pub shown: Vec<BadLine>,
}

/// An unreadable line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The input.
    pub input: String,
    /// From 1.
    pub line: u64,
    /// Its problem.
    pub reason: String,
}

/// Bad lines to show.
const MOST_SHOWN: usize = 5;

impl BadLines {
    pub(super) fn note(&mut self, input: &str, line: u64, reason: &str) {
        self.count += 1;
        if self.shown.len() < MOST_SHOWN {
            self.shown.push(BadLine::new(input, line, reason));
        }
    }
}

impl BadLine {
    pub(super) fn new(input: &str, line: u64, reason: &str) -> Self {
        /// The longest reason, in characters.
        const LONGEST: usize = 300;
        // It may contain control characters of the line.
        Self { input: input.to_owned(), line, reason: printable(reason, LONGEST) }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.input, self.line, self.reason)
    }
}

pub(super) fn too_long() -> Reason {
    format!("it is longer than {LONGEST} bytes").into()
}

pub(super) fn cut_short(error: &io::Error) -> String {
    format!("{error}; the rest is not read")
}
