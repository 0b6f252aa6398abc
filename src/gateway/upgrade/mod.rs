//! An upgrade without an outage: a new process takes the listening sockets and the state over.
//!
//! At `SIGUSR2` the running process starts its own program anew, with one end of a socket pair as
//! its standard input. The new process reads its configuration, gets the sockets, and starts its
//! workers, while the old one serves. If anything fails, the old one serves on.
//!
//! The sockets themselves move, not their addresses: connections that wait in their queues wait
//! for the new process. `channel` has the messages' transport, `message` their order.
//!
//! **State.** The old process exports its gates while it serves (`flow::transfer`), and sends each
//! later change. Once it accepts no more connections and the new process knows every change, that
//! one accepts. From then on the old process decides only about requests on connections that it has
//! still: each HTTP/1.1 connection may bring one, each HTTP/2 connection those that came before its
//! client knew. It decides by its own copy and reports to the new process, which counts them
//! whatever its limit is. So at most that many requests pass beyond a limit, once, and they are
//! counted.

mod channel;
mod inherited;
mod message;
mod predecessor;
mod state;
mod successor;

pub(super) use inherited::{Inherited, Taken};
pub(super) use message::{ClockReading, Hello, PROTOCOL, SocketName};
pub(super) use predecessor::{Predecessor, TakeoverError};
pub(super) use state::IncomingState;
pub(super) use successor::Program;
pub(super) use successor::{Job, Successor, SuccessorEvent};

/// Returns the old process, if this one is to take over, and the sockets of that or of systemd.
pub(super) fn find() -> Result<(Option<Predecessor>, Inherited), TakeoverError> {
    match Predecessor::find()? {
        Some((predecessor, inherited)) => Ok((Some(predecessor), inherited)),
        None => Ok((None, Inherited::of_systemd())),
    }
}
