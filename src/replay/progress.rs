//! A progress bar for long inputs on a terminal.

use core::fmt;
use std::{fs, io::Write, path::PathBuf};

pub(super) struct Progress<'a> {
    out: Option<&'a mut dyn Write>,
    total: u64,
    /// In hundredths.
    shown: u64,
}

/// Smaller inputs are read before a bar can be seen.
const LEAST: u64 = 16 * 1024 * 1024;

/// Characters of the bar.
const WIDTH: usize = 40;

impl<'a> Progress<'a> {
    /// Draws to `terminal`, if all of `inputs` are files and together large.
    pub(super) fn new(inputs: &[PathBuf], terminal: Option<&'a mut dyn Write>) -> Self {
        let size = |path: &PathBuf| fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let sizes: Option<Vec<u64>> = inputs.iter().map(|path| Some(size(path)?.len())).collect();
        let total = sizes.map_or(0, |sizes| sizes.iter().sum());
        Self { out: terminal.filter(|_| total >= LEAST), total, shown: u64::MAX }
    }

    pub(super) fn at(&mut self, bytes: u64) {
        let Some(out) = &mut self.out else { return };
        let share = (bytes.saturating_mul(100) / self.total).min(100);
        if share != self.shown {
            self.shown = share;
            let full = usize::try_from(share).unwrap_or(0) * WIDTH / 100;
            let bar = "#".repeat(full);
            // Errors of the terminal do not matter.
            let _gone = write!(out, "\r[{bar:<WIDTH$}] {share:>3} %").and_then(|()| out.flush());
        }
    }

    pub(super) fn clear(&mut self) {
        if let Some(out) = &mut self.out
            && self.shown != u64::MAX
        {
            let _gone = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("total", &self.total).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_for_files_that_are_large() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = fs::File::create(&path).unwrap();
        let drawn = |inputs: &[PathBuf]| {
            let mut out = Vec::new();
            let mut progress = Progress::new(inputs, Some(&mut out));
            for bytes in [LEAST / 2, LEAST / 2 + 1, 3 * LEAST] {
                progress.at(bytes);
            }
            progress.clear();
            String::from_utf8(out).unwrap()
        };
        file.set_len(LEAST - 1).unwrap();
        assert_eq!(drawn(std::slice::from_ref(&path)), "");
        file.set_len(LEAST).unwrap();
        let bar = drawn(std::slice::from_ref(&path));
        assert_eq!(bar.matches('\r').count(), 3, "{bar:?}");
        assert!(bar.contains(" 50 %") && bar.contains("100 %"), "{bar:?}");
        assert_eq!(drawn(&[path, "-".into()]), "");
    }
}
