//! Programs in other languages, which are in `tests/e2e/programs`.

use super::eventually;
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

/// A running server; ended when dropped.
pub(crate) struct Program {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Program {
    /// Starts a server that prints its port.
    pub(crate) fn start(mut command: Command) -> Self {
        // It ends with its standard input: also if this process is killed.
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap_or_else(|error| {
                panic!("{command:?}: {error}: run .ci/setup, which installs it")
            });
        let output = child.stdout.take().expect("piped");
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let sink = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                sink.lock().expect("no panic").push(line);
            }
        });
        Self { child, lines }
    }

    /// Returns the port that it has printed.
    #[track_caller]
    pub(crate) fn port(&mut self) -> u16 {
        eventually("it prints its port", || {
            let ended = self.child.try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "it has ended, and its error is above: {ended:?}");
            self.lines.lock().expect("no panic").first()?.parse().ok()
        })
    }

    /// Returns how often it has printed this line.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines.lock().expect("no panic").iter().filter(|printed| *printed == line).count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn script(program: &str, file: &str, arguments: &[&str]) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs");
    let mut command = Command::new(program);
    command.arg(folder.join(file)).args(arguments);
    command
}

pub(crate) fn node(file: &str, arguments: &[&str]) -> Command {
    script("node", file, arguments)
}

/// With the modules of Debian's packages, which another Python does not have.
pub(crate) fn python(file: &str, arguments: &[&str]) -> Command {
    let of_debian = "/usr/bin/python3";
    let program = if Path::new(of_debian).exists() { of_debian } else { "python3" };
    script(program, file, arguments)
}
