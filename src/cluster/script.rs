//! The scripts that run in the store, and how they are called.

use redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, cmd};
use std::sync::Arc;

/// A script, called by its digest so that its text travels once.
#[derive(Clone, Debug)]
pub(super) struct Lua {
    /// Its name in the log.
    pub(super) name: &'static str,
    text: &'static str,
    /// In hexadecimal digits.
    digest: Arc<str>,
}

impl Lua {
    fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, digest: Script::new(text).get_hash().into() }
    }

    /// Returns the call that makes the store know it.
    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(self.text);
        load
    }

    /// Returns the call with these keys and arguments, by the digest or else by the text,
    /// which the store then remembers.
    pub(super) fn call<A: AsRef<[u8]>>(
        &self,
        is_known: bool,
        keys: &[String],
        arguments: impl IntoIterator<Item = A>,
    ) -> Cmd {
        let mut call = if is_known { cmd("EVALSHA") } else { cmd("EVAL") };
        call.arg(if is_known { &self.digest } else { self.text }).arg(keys.len()).arg(keys);
        for argument in arguments {
            call.arg(argument.as_ref());
        }
        call
    }
}

/// Whether the store does not know a script that was called by its digest.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    /// Decides about a request.
    pub(super) decide: Lua,
    /// Merges what a gateway has charged, and returns what has changed.
    pub(super) sync: Lua,
    /// Gives back leases.
    pub(super) release: Lua,
    /// Renews them.
    pub(super) renew: Lua,
    /// Announces a gateway.
    pub(super) hello: Lua,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            decide: Lua::new(
                "decision",
                concat!(include_str!("state.lua"), include_str!("decide/decide.lua")),
            ),
            sync: Lua::new(
                "sync",
                concat!(include_str!("state.lua"), include_str!("sync/sync.lua")),
            ),
            release: Lua::new("release of leases", include_str!("leases/release.lua")),
            renew: Lua::new("renewal of leases", include_str!("leases/renew.lua")),
            // The word of the log for a registration.
            hello: Lua::new("greeting", include_str!("hello.lua")),
        }
    }
}
