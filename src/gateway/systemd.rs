//! Reports the state of the service to systemd: the protocol of `sd_notify(3)`.
//!
//! It is a datagram of a few words to the socket that `NOTIFY_SOCKET` names, so no crate is needed.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub(super) struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// Whether it waits for the end of a reload.
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
    fn both_kinds_of_names_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("flowgate-test-{}", std::process::id());
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
