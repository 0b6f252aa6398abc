//! A reader's shell: runs blocks, and ends what it has started.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "programs run in real time"
)]

use super::{
    page::{Block, Command, Kind},
    ports::Ports,
    shown::{appeared, is_shown},
};
use std::{
    env,
    fs::{self, File},
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{self, Child, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a command may take, and a line to appear, on a busy machine too.
const LONGEST: Duration = Duration::from_mins(1);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Runs what a reader would, in a folder of its own.
pub(crate) struct Shell {
    /// Where output goes, and `bin`.
    files: PathBuf,
    /// Where the reader is.
    folder: PathBuf,
    ports: Ports,
    background: Vec<Background>,
    commands: usize,
}

/// A process group that runs on.
struct Background {
    child: Child,
    output: PathBuf,
    /// Lines that have appeared.
    seen: usize,
}

impl Shell {
    /// Begins in `folder`; `files` is for the shell's own files.
    pub(crate) fn new(folder: &Path, files: &Path, ports: Ports) -> Self {
        let bin = files.join("bin");
        fs::create_dir(&bin).expect("made");
        symlink(env!("CARGO_BIN_EXE_flowgate"), bin.join("flowgate")).expect("linked");
        let folder = folder.to_owned();
        Self { files: files.to_owned(), folder, ports, background: Vec::new(), commands: 0 }
    }

    /// Follows a block, or says what went otherwise, beginning with its line.
    pub(crate) fn follow(&mut self, block: &Block) -> Result<(), String> {
        let Block { line, kind, numbers_vary } = block;
        match kind {
            Kind::NotRun => Ok(()),
            Kind::Script(text) => {
                let (status, printed) = self.run(&format!("set -euo pipefail\n{text}"));
                if status.is_some_and(|status| status.success()) {
                    Ok(())
                } else {
                    Err(format!("{line}: the script fails\n{}", indented(&printed)))
                }
            }
            Kind::Console(commands) => {
                commands.iter().try_for_each(|command| self.console(command, *numbers_vary))
            }
            Kind::Background(command) => {
                self.start(command);
                self.wait_for(*line, &command.shown, *numbers_vary)
            }
            Kind::Log(shown) => self.wait_for(*line, shown, *numbers_vary),
        }
    }

    fn console(&mut self, command: &Command, numbers_vary: bool) -> Result<(), String> {
        let Command { line, text, shown } = command;
        let (status, printed) = self.run(text);
        let Some(status) = status else {
            return Err(format!("{line}: `{text}` does not end\n{}", indented(&printed)));
        };
        // Where output is shown, a failure may be what it is about.
        let is_fine = status.success() || !shown.is_empty();
        if is_fine && is_shown(shown, &printed, numbers_vary) {
            return Ok(());
        }
        let [shown, printed] = [indented(shown), indented(&printed)];
        Err(format!("{line}: `{text}` ends with {status}; shown:\n{shown}\nprinted:\n{printed}"))
    }

    /// Runs a text to its end, and returns its status, unless it takes too long, and what it printed.
    fn run(&mut self, text: &str) -> (Option<ExitStatus>, Vec<String>) {
        let folder = self.files.join("folder");
        // The next command begins where this one ends.
        let text = format!("trap 'pwd > {}' EXIT\n{text}", folder.display());
        let (mut child, output) = self.spawn(&text);
        let status = ended(&mut child, LONGEST);
        if status.is_none() {
            end(&mut child);
        }
        if let Ok(now) = fs::read_to_string(&folder) {
            self.folder = now.trim_end().into();
        }
        (status, self.printed(&output))
    }

    fn start(&mut self, command: &Command) {
        let (child, output) = self.spawn(&command.text);
        self.background.push(Background { child, output, seen: 0 });
    }

    fn spawn(&mut self, text: &str) -> (Child, PathBuf) {
        self.commands += 1;
        let path = self.files.join(format!("output-{}", self.commands));
        let output = File::create(&path).expect("made");
        let paths = env::var_os("PATH").unwrap_or_default();
        let bin = self.files.join("bin");
        let all = [bin].into_iter().chain(env::split_paths(&paths));
        let child = process::Command::new("bash")
            .args(["-c", &self.ports.real(text)])
            .current_dir(&self.folder)
            .env("PATH", env::join_paths(all).expect("no colon in it"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("cloned"))
            .stderr(output)
            .process_group(0)
            .spawn()
            .expect("bash is there");
        (child, path)
    }

    /// Waits until the lines shown have appeared in the output of the latest background command.
    fn wait_for(&mut self, line: usize, shown: &[String], vary: bool) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let latest = self.background.last().ok_or_else(|| format!("{line}: nothing runs"))?;
            let printed = self.printed(&latest.output);
            let new = &printed[latest.seen.min(printed.len())..];
            if let Some(count) = appeared(shown, new, vary) {
                if let Some(latest) = self.background.last_mut() {
                    latest.seen += count;
                }
                return Ok(());
            }
            if begin.elapsed() > LONGEST {
                let [shown, printed] = [indented(shown), indented(new)];
                return Err(format!("{line}: did not appear:\n{shown}\nprinted:\n{printed}"));
            }
            thread::sleep(LOOK);
        }
    }

    /// Returns what was printed so far, as the page would show it, without colours.
    fn printed(&self, output: &Path) -> Vec<String> {
        let bytes = fs::read(output).unwrap_or_default();
        let text = self.ports.shown(&String::from_utf8_lossy(&bytes));
        text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.background.iter_mut().for_each(|background| end(&mut background.child));
    }
}

/// Waits for the end of a process, `most` at most.
fn ended(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < most {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return Some(status);
        }
        thread::sleep(LOOK);
    }
    None
}

/// Ends a process and those that it has started, which are a group of their own.
fn end(child: &mut Child) {
    const PATIENCE: Duration = Duration::from_secs(10);
    for (signal, patience) in [("-TERM", PATIENCE), ("-KILL", LONGEST)] {
        let group = format!("-{}", child.id());
        // A group that is empty already is no failure.
        let _gone = process::Command::new("kill")
            .args([signal, "--", &group])
            .stderr(Stdio::null())
            .status();
        if ended(child, patience).is_some() {
            return;
        }
    }
}

fn indented(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["    ", line.as_str(), "\n"]).collect()
}
