//! Connections to servers that only one client connection may use.
//!
//! Some logins hold for a connection, not for a request: NTLM, and Kerberos as IIS uses it. A server
//! takes all requests on such a connection for those of the client that has logged in. NTLM also needs
//! one connection for all its steps.

use super::pool::Idle;
use crate::{
    config::{Server, Upstream},
    flow::Instant,
    http1::FieldList,
};
use http::HeaderName;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The schemes of such logins, by their first letters: `NTLM`, `Negotiate`, `Nego2`, and those of
/// Windows Remote Management, `Kerberos` and `CredSSP`.
const SCHEMES: [&[u8]; 4] = [b"ntlm", b"nego", b"kerb", b"cred"];

/// The requests that may follow on a connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Those of all clients.
    All,
    /// Those of the same client connection.
    OneClient,
    /// None: it is closed after the response.
    Closed,
}

/// The connection to a server that is reserved for a client connection, while no request uses it.
#[derive(Debug, Default)]
pub(crate) struct Reservation(OnceLock<Box<Mutex<Option<Reserved>>>>);

#[derive(Debug)]
struct Reserved {
    server: Arc<Server>,
    idle: Idle,
}

impl Reservation {
    /// True if there has ever been one.
    pub(crate) fn is_used(&self) -> bool {
        self.0.get().is_some()
    }

    /// Closes the connection.
    #[cold]
    pub(crate) fn clear(&self) {
        if let Some(slot) = self.0.get() {
            *lock(slot) = None;
        }
    }

    /// Reserves a connection to `server`, and closes the one that was reserved before.
    #[cold]
    pub(super) fn put(&self, server: &Arc<Server>, idle: Idle) {
        let reserved = Reserved { server: Arc::clone(server), idle };
        *lock(self.0.get_or_init(Box::default)) = Some(reserved);
    }

    /// Returns the place of its server in `upstream`, if that server can get the next request. A connection
    /// that cannot be used any more is closed.
    #[cold]
    pub(crate) fn place(&self, upstream: &Upstream, now: Instant) -> Option<usize> {
        let mut slot = lock(self.0.get()?);
        let members = upstream.members();
        let reserved = slot.as_mut()?;
        let id = reserved.server.id;
        let place = members.servers.iter().position(|server| server.id == id)?;
        if !reserved.idle.fits(&reserved.server, upstream, now) {
            *slot = None;
            return None;
        }
        Some(place).filter(|_| !members.servers[place].health.is_out())
    }

    /// Takes it, if it can be used for a request to `server`.
    #[cold]
    pub(super) fn take(&self, server: &Server, upstream: &Upstream, now: Instant) -> Option<Idle> {
        let taken = lock(self.0.get()?).take_if(|reserved| reserved.server.id == server.id)?;
        let mut idle = taken.idle;
        idle.fits(server, upstream, now).then_some(idle)
    }
}

fn lock(slot: &Mutex<Option<Reserved>>) -> MutexGuard<'_, Option<Reserved>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if a field `name` of `headers` belongs to a login that holds for the connection.
pub(crate) fn binds_login(headers: &FieldList, name: &HeaderName) -> bool {
    headers.contains_key(name) && headers.get_all(name).any(names_scheme)
}

/// True if credentials, or one of the challenges in a list, are of such a scheme.
#[inline(never)]
fn names_scheme(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|item| {
        let first = item.trim_ascii_start().get(..4);
        first.is_some_and(|first| SCHEMES.iter().any(|name| first.eq_ignore_ascii_case(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_whose_login_holds_for_the_connection_are_found() {
        for (value, expected) in [
            (&b"NTLM"[..], true),
            (b"ntlm TlRMTVNTUAAB", true),
            (b"Negotiate YIIB", true),
            (b"Nego2", true),
            (b"Kerberos YIIB", true),
            (b"CredSSP", true),
            (b"Basic realm=\"a, b\",\tNegotiate", true),
            (b"Basic bnRsbQ==", false),
            (b"Bearer ntlm", false),
            (b"Digest realm=\"ntlm\"", false),
            (b"NTL", false),
            (b"", false),
        ] {
            assert_eq!(names_scheme(value), expected, "{}", value.escape_ascii());
        }
    }
}
