//! A reader's shell: runs blocks, and ends what it has started.

#![expect(clippy::disallowed_types, reason = "programs run in real time")]

use super::{
    page::{Block, Command, Kind},
    ports::Ports,
    shown::{appeared, is_shown},
};
use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, PipeReader},
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{self, Child, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

/// How long a command may take, and a line to appear, on a busy machine too.
const LONGEST: Duration = Duration::from_mins(1);

/// Runs what a reader would, in a folder of its own.
pub(crate) struct Shell {
    /// Where output goes, `bin` and `home`.
    files: PathBuf,
    /// Where the reader is.
    folder: PathBuf,
    ports: Ports,
    background: Vec<Background>,
    commands: usize,
}

/// A process group that runs on.
struct Background {
    process: Process,
    /// Lines as a thread reads them.
    output: Receiver<String>,
    /// Lines that the page has not shown yet.
    printed: Vec<String>,
}

/// A process in a group of its own, and those that it has started.
struct Process {
    group: u32,
    /// Sent once by a thread that waits for the end.
    ending: Receiver<ExitStatus>,
    status: Option<ExitStatus>,
}

impl Shell {
    /// Begins in `folder`; `files` is for the shell's own files.
    pub(crate) fn new(folder: &Path, files: &Path, ports: Ports) -> Self {
        let bin = files.join("bin");
        fs::create_dir(&bin).expect("made");
        fs::create_dir_all(files.join("home")).expect("made");
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
            Kind::Interrupt => self.interrupt(*line),
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
        let shown = indented(shown);
        let printed = indented(&printed);
        Err(format!("{line}: `{text}` ends with {status}; shown:\n{shown}\nprinted:\n{printed}"))
    }

    /// Runs a text to its end, and returns its status, unless it takes too long, and what it printed.
    fn run(&mut self, text: &str) -> (Option<ExitStatus>, Vec<String>) {
        let folder = self.files.join("folder");
        // The next command begins where this one ends.
        let text = format!("trap 'pwd > {}' EXIT\n{text}", folder.display());
        self.commands += 1;
        // A file has all of it when the command ends, though a process that it started runs on.
        let path = self.files.join(format!("output-{}", self.commands));
        let output = File::create(&path).expect("made");
        let both = [output.try_clone().expect("cloned"), output].map(Stdio::from);
        let mut process = self.spawn(&text, both);
        let status = process.ended(LONGEST);
        if status.is_none() {
            process.end();
        }
        if let Ok(now) = fs::read_to_string(&folder) {
            self.folder = now.trim_end().into();
        }
        // A configuration that a command wrote has the ports that pages show.
        let written = self.folder.join("gateway.yaml");
        if let Ok(text) = fs::read_to_string(&written) {
            let real = self.ports.real(&text);
            if real != text {
                fs::write(&written, real).expect("written");
            }
        }
        let printed = fs::read(&path).unwrap_or_default();
        (status, self.lines(&String::from_utf8_lossy(&printed)))
    }

    /// Ends the latest background command as Ctrl-C does.
    fn interrupt(&mut self, line: usize) -> Result<(), String> {
        let mut latest = self.background.pop().ok_or_else(|| format!("{line}: nothing runs"))?;
        latest.process.signal("-INT");
        if latest.process.ended(LONGEST).is_some() {
            return Ok(());
        }
        latest.process.end();
        Err(format!("{line}: Ctrl-C does not end it"))
    }

    fn start(&mut self, command: &Command) {
        let (reader, writer) = std::io::pipe().expect("made");
        let both = [writer.try_clone().expect("cloned"), writer].map(Stdio::from);
        let process = self.spawn(&command.text, both);
        self.background.push(Background { process, output: read(reader), printed: Vec::new() });
    }

    fn spawn(&self, text: &str, [stdout, stderr]: [Stdio; 2]) -> Process {
        let paths = env::var_os("PATH").unwrap_or_default();
        let bin = self.files.join("bin");
        let all = [bin].into_iter().chain(env::split_paths(&paths));
        let child = process::Command::new("bash")
            .args(["-c", &self.ports.real(text)])
            .current_dir(&self.folder)
            .env("PATH", env::join_paths(all).expect("no colon in it"))
            .env("HOME", self.files.join("home"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .expect("bash is there");
        Process::new(child)
    }

    /// Waits until the lines shown have appeared in the output of the latest background command.
    fn wait_for(&mut self, line: usize, shown: &[String], vary: bool) -> Result<(), String> {
        let deadline = Instant::now() + LONGEST;
        loop {
            let latest =
                self.background.last_mut().ok_or_else(|| format!("{line}: nothing runs"))?;
            if let Some(count) = appeared(shown, &latest.printed, vary) {
                latest.printed.drain(..count);
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(next) = latest.output.recv_timeout(left) else {
                let shown = indented(shown);
                let printed = indented(&latest.printed);
                return Err(format!("{line}: did not appear:\n{shown}\nprinted:\n{printed}"));
            };
            let next = self.lines(&next);
            if let Some(latest) = self.background.last_mut() {
                latest.printed.extend(next);
            }
        }
    }

    /// Returns the lines of what was printed, as the page would show them.
    fn lines(&self, printed: &str) -> Vec<String> {
        let text = self.ports.shown(printed);
        text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.background.iter_mut().for_each(|background| background.process.end());
    }
}

impl Process {
    fn new(mut child: Child) -> Self {
        let group = child.id();
        let (sender, ending) = mpsc::channel();
        thread::spawn(move || {
            let status = child.wait().expect("it is ours");
            _ = sender.send(status);
        });
        Self { group, ending, status: None }
    }

    /// Waits for its end, `most` at most.
    fn ended(&mut self, most: Duration) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.ending.recv_timeout(most).ok();
        }
        self.status
    }

    /// Sends a signal to its group.
    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.group);
        // A group that is empty already is no failure.
        let _gone = process::Command::new("kill")
            .args([signal, "--", &group])
            .stderr(Stdio::null())
            .status();
    }

    /// Ends its group.
    fn end(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(10);
        for (signal, patience) in [("-TERM", PATIENCE), ("-KILL", LONGEST)] {
            self.signal(signal);
            if self.ended(patience).is_some() {
                return;
            }
        }
    }
}

/// Reads lines as they are printed, until all writers have closed the pipe.
fn read(pipe: PipeReader) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

fn indented(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["    ", line.as_str(), "\n"]).collect()
}
