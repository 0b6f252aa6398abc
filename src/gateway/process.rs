//! The process in the operating system: its limits, its priority, the file with its id, and systemd.

use crate::proxy::Descriptors;
use rustix::{
    process::{Resource, getpriority_process, getrlimit, setpriority_process, setrlimit},
    thread::disable_transparent_huge_pages,
};
use std::{
    env,
    ffi::OsStr,
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::{Path, PathBuf},
    process,
};

/// The control thread's niceness: compiling many routes must not take a core from a worker.
const NICENESS: i32 = 5;

/// Raises the limit of open files to its maximum; returns it.
pub(super) fn raise_file_limit() -> Descriptors {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    Descriptors::new(getrlimit(Resource::Nofile).current)
}

/// Disables large pages. A large page is cleared when it is first touched, which in a virtual
/// machine takes milliseconds; small ones also need less memory. A busy worker's CPU time is the
/// same.
pub fn take_small_pages() {
    // A kernel that cannot disable them has none.
    let _forbidden = disable_transparent_huge_pages(true);
}

/// Lowers the priority of the calling thread and of those that it starts.
pub(super) fn give_way() {
    if let Err(error) = lower_priority() {
        tracing::debug!(%error, "cannot lower the control thread's priority");
    }
}

fn lower_priority() -> rustix::io::Result<()> {
    // On Linux no id means the calling thread, and threads have their own priority.
    setpriority_process(None, getpriority_process(None)? + NICENESS)
}

/// The file, or nothing if none is wanted.
#[derive(Debug)]
pub(super) struct PidFile(Option<PathBuf>);

impl PidFile {
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self(path.map(Path::to_owned))
    }

    /// Writes this process's id, in place of another's. Readers see one or the other.
    pub(super) fn write(&self) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let mut aside = path.clone().into_os_string();
        aside.push(format!(".{}", process::id()));
        fs::write(&aside, own())?;
        fs::rename(&aside, path)
    }

    /// Removes the file if it still has this process's id.
    pub(super) fn remove(&self) {
        let Some(path) = &self.0 else { return };
        if fs::read_to_string(path).is_ok_and(|text| text == own())
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "cannot remove the pid file");
        }
    }
}

fn own() -> String {
    format!("{}\n", process::id())
}

/// Reports of the service's state to systemd, if it started this process: the protocol of
/// `sd_notify(3)`. It is a datagram of a few words to the socket that `NOTIFY_SOCKET` names, so no
/// crate is needed.
#[derive(Debug)]
pub(super) struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// True if it waits for the end of a reload.
    is_reloading: bool,
}

impl Notify {
    /// Connects to the manager that `NOTIFY_SOCKET` names.
    pub(super) fn from_env() -> Self {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let manager = name.and_then(|name| {
            let connected = connect(&name);
            connected
                .inspect_err(|error| tracing::warn!(%error, "cannot notify the service manager"))
                .ok()
        });
        Self { manager, is_reloading: false }
    }

    /// The service is ready.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// No reload is under way, or not any more.
    pub(super) fn reloaded(&mut self) {
        if core::mem::take(&mut self.is_reloading) {
            self.ready();
        }
    }

    /// A reload begins at this time of `CLOCK_MONOTONIC`, in nanoseconds. [`Self::reloaded`] reports
    /// its end.
    pub(super) fn reloading(&mut self, monotonic: u64) {
        self.is_reloading = true;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic / 1000));
    }

    /// The service ends.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Another process is the main one from now on.
    pub(super) fn main_process(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    fn send(&self, words: &str) {
        let Some((socket, manager)) = &self.manager else { return };
        if let Err(error) = socket.send_to_addr(words.as_bytes(), manager) {
            tracing::warn!(%error, words, "cannot notify the service manager");
        }
    }
}

fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold up the service.
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_way_from_where_it_stands() {
        let thread = std::thread::spawn(|| {
            let before = getpriority_process(None).unwrap();
            give_way();
            let once = getpriority_process(None).unwrap();
            give_way();
            (before, once, getpriority_process(None).unwrap())
        });
        let (before, once, twice) = thread.join().unwrap();
        // This is the most that a process can give way.
        let least = |priority: i32| priority.min(19);
        assert_eq!((once, twice), (least(before + NICENESS), least(before + 2 * NICENESS)));
    }
}

#[cfg(test)]
mod pid_file_tests {
    use super::*;

    #[test]
    fn only_the_process_that_it_names_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flowgate.pid");
        let file = PidFile::new(Some(&path));
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert!(path.exists(), "it is another's");
        file.write().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own());
        file.remove();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        PidFile::new(None).write().unwrap();
    }
}

#[cfg(test)]
mod systemd_tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("flowgate-test-{}", process::id());
        let address = SocketAddr::from_abstract_name(abstract_name.as_bytes()).unwrap();
        let listeners = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{abstract_name}").into(), UnixDatagram::bind_addr(&address).unwrap()),
        ];
        for (name, manager) in listeners {
            let mut notify = Notify { manager: Some(connect(&name).unwrap()), is_reloading: false };
            let said = || {
                let mut words = [0; 100];
                let length = manager.recv(&mut words).unwrap();
                String::from_utf8_lossy(&words[..length]).into_owned()
            };
            notify.reloading(7_000);
            assert_eq!(said(), "RELOADING=1\nMONOTONIC_USEC=7");
            notify.reloaded();
            notify.reloaded();
            assert_eq!(said(), "READY=1");
            notify.main_process(9);
            assert_eq!(said(), "MAINPID=9");
        }
        let none = Notify { manager: None, is_reloading: false };
        none.stopping();
    }
}
