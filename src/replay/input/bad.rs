//! Lines that cannot be read: counted, and the first few shown.

use super::{lines::LONGEST, reason::Reason};
use std::{fmt, io};

/// Lines that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Bad {
    /// How many.
    pub count: u64,
    /// The first few.
    pub shown: Vec<BadLine>,
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The input.
    pub input: String,
    /// From 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// How many bad lines are shown.
const MOST_SHOWN: usize = 5;

impl Bad {
    pub(super) fn note(&mut self, input: &str, line: u64, reason: &str) {
        self.count += 1;
        if self.shown.len() < MOST_SHOWN {
            // It may hold what the line holds, which a terminal would obey.
            let mut clean = String::with_capacity(reason.len());
            for c in reason.chars() {
                if c.is_control() { clean.extend(c.escape_debug()) } else { clean.push(c) }
            }
            let reason = clean;
            self.shown.push(BadLine { input: input.to_owned(), line, reason });
        }
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
