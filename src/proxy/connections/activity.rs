//! What a client's connection of HTTP/2 is doing, so that one timer can watch it.
//!
//! h2 has no limit on an idle connection, or for a client that does not read. Each part notes when
//! it began to wait, and the connection's task looks now and then.

use super::{
    registry::{ConnectionHandle, GRACE},
    upload_buffer::UploadBuffer,
};
use crate::proxy::timeouts::{
    streams::{Stream, Streams},
    timeout::Timeout,
    timer::AtomicInstant,
};
use crate::{clock::Clock, config::ClientTimeouts, flow::Instant};
use core::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};
use std::sync::{Arc, OnceLock};

/// Notes of one connection, shared by its socket, its requests and their bodies.
#[derive(Debug)]
pub(crate) struct Activity {
    handle: Arc<ConnectionHandle>,
    clock: Clock,
    /// Requests whose answer has not ended.
    requests: AtomicU32,
    /// Since when no request is under way.
    idle_since: AtomicInstant,
    /// The time at which a request was last found to be under way.
    busy_at: AtomicInstant,
    /// Since when the preface is incomplete.
    preface_since: AtomicInstant,
    /// Since when the client does not take what is sent.
    write_since: AtomicInstant,
    /// Whether it did not take all at once since the connection was last judged.
    congested: AtomicBool,
    streams: Streams,
    /// What the connection holds of uploads.
    upload_buffer: Arc<UploadBuffer>,
    /// True if the client has sent anything since [`Self::was_heard`] was last called.
    heard: AtomicBool,
    /// Which limit the connection was cut off for.
    timeout: OnceLock<Timeout>,
}

/// What the connection's task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Look again at this instant at the latest.
    LookAgain(Instant),
    /// No request is served: close in good order.
    Close,
    /// The client has stopped in the middle of something: cut it off.
    Abort,
    /// The client has not sent the whole of the preface in time: cut it off.
    PrefaceLate,
}

impl Activity {
    /// Notes a connection that has just been accepted. Its preface has yet to come.
    pub(crate) fn new(
        clock: &Clock,
        handle: &Arc<ConnectionHandle>,
        upload_buffer: Arc<UploadBuffer>,
    ) -> Arc<Self> {
        let now = clock.now();
        let idle_since = AtomicInstant::default();
        let preface_since = AtomicInstant::default();
        idle_since.set(now);
        preface_since.set(now);
        Arc::new(Self {
            handle: Arc::clone(handle),
            clock: clock.clone(),
            requests: AtomicU32::new(0),
            idle_since,
            busy_at: AtomicInstant::default(),
            preface_since,
            write_since: AtomicInstant::default(),
            congested: AtomicBool::new(false),
            streams: Streams::default(),
            upload_buffer,
            heard: AtomicBool::new(false),
            timeout: OnceLock::new(),
        })
    }

    /// Notes that the client has sent something.
    pub(crate) fn on_read(&self) {
        self.heard.store(true, Relaxed);
    }

    /// Returns whether the client has sent anything since this was last asked.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard.swap(false, Relaxed)
    }

    /// Notes that HTTP/2's preface is complete.
    pub(crate) fn on_preface(&self) {
        self.preface_since.clear();
    }

    /// Notes that a request has come.
    pub(crate) fn on_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Notes that an answer has ended at `now`, and its stream with it.
    pub(crate) fn on_answered(&self, stream: Option<&Arc<Stream>>, now: Instant) {
        if let Some(stream) = stream {
            self.streams.leave(stream);
        }
        if self.requests.fetch_sub(1, Relaxed) == 1 {
            self.idle_since.set(now);
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns which limit the connection was cut off for, if it was.
    pub(crate) fn timeout(&self) -> Option<Timeout> {
        self.timeout.get().copied()
    }

    /// Notes whether the client accepts no more.
    pub(crate) fn on_write(&self, blocked: bool) {
        if blocked {
            self.congested.store(true, Relaxed);
        }
        self.write_since.note(blocked, &self.clock);
    }

    /// Whether the client accepts no more.
    pub(crate) fn is_blocked(&self) -> bool {
        self.write_since.is_set()
    }

    /// Returns what the connection holds of uploads.
    pub(crate) fn upload_buffer(&self) -> &Arc<UploadBuffer> {
        &self.upload_buffer
    }

    /// Notes a stream whose request has come.
    pub(crate) fn on_stream(&self) -> Arc<Stream> {
        self.streams.enter(&self.clock)
    }

    /// Returns the newest stream.
    pub(crate) fn newest_stream(&self) -> Option<Arc<Stream>> {
        self.streams.newest()
    }

    /// Has the request of `stream` wait for `deadline`, in the stream's task.
    pub(crate) fn poll_deadline(
        &self,
        stream: &Stream,
        deadline: Instant,
        context: &Context<'_>,
    ) -> Poll<()> {
        let polled = stream.poll_deadline(deadline, context);
        if polled.is_pending() && self.streams.wait_for(deadline) {
            self.handle.wake();
        }
        polled
    }

    /// Returns the deadline that may come before the one already watched for: of the preface, of the
    /// end in a drain, of a client that takes nothing, or of a request. To be asked whenever the connection has
    /// been polled.
    pub(crate) fn urgent(&self, limits: &ClientTimeouts) -> Option<Instant> {
        let preface = self.preface_since.get().map(|since| since + limits.header_read);
        let is_last = self.handle.is_draining() && self.requests.load(Relaxed) == 0;
        let last = self.idle_until(limits).filter(|_| is_last);
        let taken = self.write_since.get().map(|since| since + limits.write);
        let look = self.streams.look_by(limits.write);
        [preface, last, taken, look].into_iter().flatten().min()
    }

    /// Returns until when nothing may be under way: in a drain no longer than a client takes to
    /// confirm that it has heard of it.
    fn idle_until(&self, limits: &ClientTimeouts) -> Option<Instant> {
        // A response may have ended long before the client took the rest of it.
        let idle = self.idle_since.get()?;
        let idle = self.busy_at.get().map_or(idle, |busy| idle.max(busy));
        let kept = idle + limits.keep_alive;
        let draining = self.handle.draining_since();
        Some(draining.map_or(kept, |since| kept.min(idle.max(since) + GRACE)))
    }

    /// Returns what the connection's task is to do, by its notes as of `now`.
    pub(crate) fn next_action(&self, now: Instant, limits: &ClientTimeouts) -> NextAction {
        self.streams.seen();
        let mut next = Instant::FAR_FUTURE;
        let mut expired = |stamp: &AtomicInstant, limit: Duration| {
            let deadline = stamp.get().map_or(Instant::FAR_FUTURE, |since| since + limit);
            next = next.min(deadline);
            deadline <= now
        };
        if expired(&self.write_since, limits.write) {
            self.timeout.get_or_init(|| Timeout::Write);
            return NextAction::Abort;
        }
        if self.requests.load(Relaxed) > 0 {
            self.busy_at.set(now);
            // A write may begin to block without this being asked.
            next = next.min(now + limits.write);
            let congested = self.congested.swap(self.write_since.is_set(), Relaxed);
            next = next.min(self.streams.judge(now, limits.write, congested));
        } else {
            let awaits_preface = self.preface_since.is_set();
            if awaits_preface && expired(&self.preface_since, limits.header_read) {
                return NextAction::PrefaceLate;
            }
            // A preface has a limit of its own, but a drain does not wait for it.
            let is_limited = !awaits_preface || self.handle.is_draining();
            if let Some(deadline) = self.idle_until(limits).filter(|_| is_limited) {
                if deadline <= now {
                    return NextAction::Close;
                }
                next = next.min(deadline);
            }
        }
        NextAction::LookAgain(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Counters;

    const LIMITS: ClientTimeouts = ClientTimeouts {
        header_read: Duration::from_secs(10),
        keep_alive: Duration::from_secs(75),
        tls_handshake: Duration::from_secs(10),
        write: Duration::from_mins(1),
    };

    async fn after(activity: &Activity, seconds: u64) -> NextAction {
        let clock = &activity.clock;
        clock.sleep_until(clock.now() + Duration::from_secs(seconds)).await;
        activity.next_action(clock.now(), &LIMITS)
    }

    fn begun() -> Arc<Activity> {
        let counters = Arc::<Counters>::default();
        let clock = Clock::start();
        let handle = ConnectionHandle::new(&clock, counters.connection(1).expect("the first"));
        Activity::new(&clock, &handle, UploadBuffer::new(&counters, 0))
    }

    fn idle() -> Arc<Activity> {
        let activity = begun();
        activity.on_preface();
        activity
    }

    #[tokio::test(start_paused = true)]
    async fn a_preface_that_does_not_end_is_late() {
        let activity = begun();
        assert!(matches!(after(&activity, 9).await, NextAction::LookAgain(_)));
        assert_eq!(after(&activity, 1).await, NextAction::PrefaceLate);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed_after_keep_alive() {
        let activity = idle();
        assert!(matches!(after(&activity, 74).await, NextAction::LookAgain(_)));
        assert_eq!(after(&activity, 1).await, NextAction::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_that_does_not_end_in_a_drain_is_closed_soon() {
        let activity = idle();
        assert!(matches!(after(&activity, 60).await, NextAction::LookAgain(_)));
        activity.handle.drain();
        let now = activity.clock.now();
        assert_eq!(activity.urgent(&LIMITS), Some(now + GRACE));
        assert!(
            matches!(after(&activity, 0).await, NextAction::LookAgain(at) if at == now + GRACE)
        );
        assert_eq!(after(&activity, 1).await, NextAction::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_does_not_wait_for_a_preface() {
        let activity = begun();
        activity.handle.drain();
        let now = activity.clock.now();
        assert_eq!(activity.urgent(&LIMITS), Some(now + GRACE));
        assert_eq!(activity.next_action(now, &LIMITS), NextAction::LookAgain(now + GRACE));
        assert_eq!(after(&activity, 1).await, NextAction::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_take_longer_than_keep_alive() {
        let activity = idle();
        activity.on_request();
        for _ in 0..5 {
            assert!(matches!(after(&activity, 100).await, NextAction::LookAgain(_)));
        }
        activity.on_answered(None, activity.clock.now());
        assert!(matches!(after(&activity, 74).await, NextAction::LookAgain(_)));
        assert_eq!(after(&activity, 1).await, NextAction::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off() {
        let activity = idle();
        activity.on_request();
        activity.on_write(true);
        assert!(matches!(after(&activity, 59).await, NextAction::LookAgain(_)));
        assert_eq!(after(&activity, 1).await, NextAction::Abort);
    }
}
