//! The scripts that run in the store, and the limits of time for calls.

use crate::clock::{Clock, Elapsed};
use core::{
    future::{Future, poll_fn, ready},
    pin::pin,
    task::Poll,
    time::Duration,
};
use redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, cmd};
use std::sync::Arc;
use tokio::task::yield_now;

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

/// Returns whether the store does not know a script that was called by its digest.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    /// Decides about a request.
    pub(super) decide: Lua,
    /// Settles costs of requests that were charged before.
    pub(super) settle: Lua,
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
                concat!(
                    include_str!("state.lua"),
                    include_str!("decide/algorithms.lua"),
                    include_str!("settle/settle.lua"),
                    include_str!("decide/decide.lua"),
                ),
            ),
            settle: Lua::new(
                "settlement",
                concat!(
                    include_str!("state.lua"),
                    include_str!("decide/algorithms.lua"),
                    include_str!("settle/settle.lua"),
                    include_str!("settle/settlements.lua"),
                ),
            ),
            sync: Lua::new(
                "sync",
                concat!(include_str!("state.lua"), include_str!("sync/sync.lua")),
            ),
            release: Lua::new("release of leases", include_str!("release.lua")),
            renew: Lua::new("renewal of leases", include_str!("renew.lua")),
            // The word of the log for a registration.
            hello: Lua::new("greeting", include_str!("hello.lua")),
        }
    }
}

/// Runs `future` for at most `limit`. The time begins after all ready tasks have run once, because
/// the connection's task must send the call first. After `limit` they run once more, because that
/// task may have an answer to read. So a delay of the gateway itself does not count.
pub(super) async fn in_time<F: Future>(
    clock: &Clock,
    limit: Duration,
    future: F,
) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
    {
        return Ok(output);
    }
    yield_now().await;
    match clock.timeout(limit, &mut future).await {
        Ok(output) => Ok(output),
        Err(elapsed) => {
            yield_now().await;
            tokio::select! {
                biased;
                output = &mut future => Ok(output),
                () = ready(()) => Err(elapsed),
            }
        }
    }
}

/// The first wait before a new attempt to connect, and the longest: soon enough for a failover, seldom
/// enough for a store that comes up under the load of all gateways. Each is shortened by up to a
/// half, so that gateways do not come at once.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_millis(20);
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// The shortest limit of a call that no request waits for.
pub(super) const BACKGROUND_CALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The longest time between two registrations: soon enough to notice a new gateway, seldom enough
/// for a store that hundreds of workers register with.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    const LIMIT: Duration = Duration::from_millis(20);
    const MOMENT: Duration = Duration::from_millis(1);

    /// Makes a call through two other tasks, as a connection does. The store answers after so long.
    async fn call(clock: &Clock, after: Duration) {
        let (request, sent) = oneshot::channel();
        let (answer, received) = oneshot::channel();
        let clock = clock.clone();
        tokio::spawn(async move {
            sent.await.expect("a call");
            clock.timer(clock.now() + after).await;
            tokio::spawn(async move {
                // A caller that gave up needs none.
                let _gone = answer.send(());
            });
        });
        request.send(()).expect("the connection is there");
        received.await.expect("an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_arrives_with_the_limit_is_in_time_and_a_later_one_is_not() {
        let clock = Clock::start();
        let began = clock.now();
        assert_eq!(in_time(&clock, LIMIT, call(&clock, LIMIT)).await, Ok(()));
        assert_eq!(clock.now().since(began), LIMIT, "no time passes meanwhile");
        assert_eq!(in_time(&clock, LIMIT, call(&clock, LIMIT + MOMENT)).await, Err(Elapsed));
        assert_eq!(clock.now().since(began), 2 * LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_other_tasks_take_before_the_call_is_sent_does_not_count() {
        let clock = Clock::start();
        // It is ahead of the connection's task, and busy for longer than the limit.
        tokio::spawn(tokio::time::advance(2 * LIMIT));
        assert_eq!(in_time(&clock, LIMIT, call(&clock, MOMENT)).await, Ok(()));
    }
}
