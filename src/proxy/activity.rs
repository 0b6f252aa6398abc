//! What a client's connection is doing, so that one timer can watch it.
//!
//! hyper has no limit on an idle connection, or for a client that does not read. Arming
//! a timer for each would cost every request several operations on the timer wheel.
//! Instead each part notes when it began to wait, and the connection's task looks now
//! and then.

use super::{
    connections::GRACE,
    streams::{Stream, Streams},
    timeout::Timeout,
    upload_buffer::UploadBuffer,
};
use crate::{clock::Clock, config::ClientTimeouts, flow::Instant, meter};
use core::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    task::Waker,
    time::Duration,
};
use std::sync::{Arc, OnceLock};
use tokio::{sync::Notify, task::AbortHandle, time::Sleep};

/// Notes of one connection, shared by its socket, its requests and their bodies.
#[derive(Debug)]
pub(super) struct Activity {
    /// Counts it as open for as long as anybody holds on to it, a tunnel too.
    _open: meter::Connection,
    clock: Clock,
    /// Requests whose answer has not ended.
    requests: AtomicU32,
    /// Requests that have come.
    seen: AtomicU32,
    /// The length of the last one's body.
    length: AtomicU64,
    /// Requests' bodies, and tunnels, that are being read.
    uploads: AtomicU32,
    /// Whether the last request's body was given up before its end.
    unread: AtomicBool,
    /// Since when no request is under way and no byte of one has come.
    idle_since: Stamp,
    /// Whether a request's head is incomplete.
    reading: AtomicBool,
    /// Since when it is. Most heads come whole and never have it set.
    head_since: Stamp,
    /// Since when the client does not take what is sent.
    write_since: Stamp,
    /// Whether it did not take all at once since the connection was last judged.
    congested: AtomicBool,
    /// Of HTTP/2; there from the first on.
    streams: OnceLock<Streams>,
    /// What an HTTP/2 connection holds of uploads.
    upload_buffer: OnceLock<Arc<UploadBuffer>>,
    /// When the request of an HTTP/1.1 connection must have ended.
    end_by: Stamp,
    /// When the upstream must have begun to answer; see [`Self::answer_by`].
    answer_by: Stamp,
    overdue: AtomicBool,
    /// Which limit the connection was cut off for.
    timeout: OnceLock<Timeout>,
    /// Whether a request has come.
    used: AtomicBool,
    /// Since when it is to end.
    draining: Stamp,
    /// Rung when `draining` is set.
    pub(super) bell: Notify,
    /// The connection's task.
    task: OnceLock<Waker>,
    /// Whether it did not look for its client's leave, as a body was being read.
    overlooks: AtomicBool,
}

/// What the connection's task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again at this instant at the latest.
    LookAgain(Instant),
    /// No request is served: close in good order.
    Close,
    /// The client has stopped in the middle of something: cut it off.
    Abort,
    /// The client has not sent the whole of a head in time: cut it off.
    HeadLate,
    /// The upstream has not begun to answer in time: poll the request.
    Overdue,
}

impl Activity {
    /// Notes a connection that has just been accepted.
    pub(super) fn new(clock: &Clock, open: meter::Connection) -> Arc<Self> {
        let idle_since = Stamp::default();
        idle_since.set(clock.now());
        Arc::new(Self {
            _open: open,
            clock: clock.clone(),
            requests: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            length: AtomicU64::new(0),
            uploads: AtomicU32::new(0),
            unread: AtomicBool::new(false),
            idle_since,
            reading: AtomicBool::new(false),
            head_since: Stamp::default(),
            write_since: Stamp::default(),
            congested: AtomicBool::new(false),
            streams: OnceLock::new(),
            upload_buffer: OnceLock::new(),
            end_by: Stamp::default(),
            answer_by: Stamp::default(),
            overdue: AtomicBool::new(false),
            timeout: OnceLock::new(),
            used: AtomicBool::new(false),
            draining: Stamp::default(),
            bell: Notify::new(),
            task: OnceLock::new(),
            overlooks: AtomicBool::new(false),
        })
    }

    /// Notes that bytes came: the beginning of a head if nothing else is expected.
    pub(super) fn on_read(&self) {
        let of_body = self.unread.load(Relaxed) || self.uploads.load(Relaxed) > 0;
        if self.requests.load(Relaxed) == 0 && !of_body {
            self.reading.store(true, Relaxed);
        }
    }

    /// Has a head, or HTTP/2's preface, be due as one of which bytes have come since `began`.
    pub(super) fn await_head(&self, began: Instant) {
        self.reading.store(true, Relaxed);
        self.head_since.set(began);
    }

    /// Notes that HTTP/2's preface is complete.
    pub(super) fn on_preface(&self) {
        self.reading.store(false, Relaxed);
    }

    /// Notes that a head is complete.
    pub(super) fn on_request(&self) {
        self.requests.fetch_add(1, Relaxed);
        self.seen.fetch_add(1, Relaxed);
        self.used.store(true, Relaxed);
        self.unread.store(false, Relaxed);
        self.reading.store(false, Relaxed);
        self.head_since.clear();
    }

    /// Notes the length of the last request's body, if that is known before it has come.
    pub(super) fn on_length(&self, length: Option<u64>) {
        self.length.store(length.unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns that length, or the most that there is.
    pub(super) fn length(&self) -> u64 {
        self.length.load(Relaxed)
    }

    /// Returns how many requests have come; it begins anew after 2³².
    pub(super) fn seen(&self) -> u32 {
        self.seen.load(Relaxed)
    }

    /// Whether some request's answer has not ended.
    pub(super) fn is_serving(&self) -> bool {
        self.requests.load(Relaxed) > 0
    }

    /// Whether nothing of a request is under way on an HTTP/1.1 connection, so that what comes
    /// next is of a head.
    pub(super) fn awaits_head(&self) -> bool {
        !self.is_serving() && self.uploads.load(Relaxed) == 0 && !self.unread.load(Relaxed)
    }

    /// Notes that an answer has ended at `now`.
    pub(super) fn on_answered(&self, now: Instant) {
        if let Some(streams) = self.streams.get() {
            streams.leave();
        }
        if self.requests.fetch_sub(1, Relaxed) == 1 {
            self.answer_by.clear();
            self.end_by.clear();
            self.idle_since.set(now);
        }
    }

    /// Notes a request's body that is to be read, or a tunnel, until the value is dropped.
    pub(super) fn upload(self: &Arc<Self>) -> Uploading {
        self.uploads.fetch_add(1, Relaxed);
        Uploading(Arc::clone(self))
    }

    /// Notes the task that is to look for its client's leave.
    pub(super) fn attend(&self, task: &Waker) {
        self.task.get_or_init(|| task.clone());
    }

    /// Whether the connection's task is to look if its client has left: while it is answered, but
    /// not while a body is read, which shows it as well as long as its reader takes it. The task is
    /// woken when that ends.
    pub(super) fn is_to_look(&self) -> bool {
        if self.requests.load(Relaxed) == 0 {
            return false;
        }
        let is_read = self.uploads.load(Relaxed) > 0;
        if is_read {
            self.overlooks.store(true, Relaxed);
        }
        !is_read
    }

    /// Notes that the rest of a request's body is not read.
    pub(super) fn on_unread(&self) {
        self.unread.store(true, Relaxed);
    }

    /// Notes that nothing is left of the last request: what comes is the next one's.
    pub(super) fn on_rest(&self) {
        self.unread.store(false, Relaxed);
    }

    /// Whether the client of an HTTP/1.1 connection may be in the middle of a request that
    /// nobody reads.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.load(Relaxed) || self.reading.load(Relaxed)
    }

    /// Notes that what comes is read for nothing, until the value is dropped.
    pub(super) fn linger(self: &Arc<Self>) -> Uploading {
        self.reading.store(false, Relaxed);
        self.head_since.clear();
        self.upload()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns which limit the connection was cut off for, if it was.
    pub(super) fn timeout(&self) -> Option<Timeout> {
        self.timeout.get().copied()
    }

    /// Returns a timer that ends after `time`.
    pub(super) fn timer(&self, time: Duration) -> Sleep {
        self.clock.timer(self.clock.now() + time)
    }

    /// Notes whether the client refuses to take more.
    pub(super) fn on_write(&self, blocked: bool) {
        if blocked {
            self.congested.store(true, Relaxed);
        }
        self.write_since.note(blocked, &self.clock);
    }

    /// Whether the client refuses to take more.
    pub(super) fn is_blocked(&self) -> bool {
        self.write_since.is_set()
    }

    /// Has an HTTP/2 connection count in `buffer` what it holds of uploads.
    pub(super) fn count_uploads(&self, buffer: Arc<UploadBuffer>) {
        self.upload_buffer.get_or_init(|| buffer);
    }

    /// Returns what an HTTP/2 connection holds of uploads; `None` with HTTP/1.1.
    pub(super) fn upload_buffer(&self) -> Option<&Arc<UploadBuffer>> {
        self.upload_buffer.get()
    }

    /// Notes a stream of an HTTP/2 connection by its task.
    pub(super) fn on_stream(&self, task: AbortHandle) {
        self.streams().enter(task, &self.clock);
    }

    /// Returns the streams of an HTTP/2 connection.
    fn streams(&self) -> &Streams {
        self.streams.get_or_init(Streams::default)
    }

    /// Returns the stream whose task is running, in HTTP/2.
    pub(super) fn stream(&self) -> Option<Arc<Stream>> {
        self.streams.get()?.current()
    }

    /// Has an HTTP/1.1 connection end with its request at `deadline`, however
    /// slowly the client takes the answer.
    pub(super) fn end_by(&self, deadline: Instant) {
        self.end_by.set(deadline);
    }

    /// Has the connection's timer watch over the one request of an HTTP/1.1
    /// connection: when `deadline` comes, it is polled and finds itself overdue.
    /// That spares each request a timer of its own, which costs several hundred
    /// instructions to arm and disarm.
    pub(super) fn answer_by(&self, deadline: Instant) {
        self.overdue.store(false, Relaxed);
        self.answer_by.set(deadline);
    }

    /// Notes that nothing is waited for any more.
    pub(super) fn on_answer(&self) {
        self.answer_by.clear();
    }

    /// Whether the deadline of [`Self::answer_by`] has come.
    pub(super) fn is_overdue(&self) -> bool {
        self.overdue.load(Relaxed)
    }

    /// Whether it has asked for anything yet.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Asks the connection to end when what is under way has ended.
    pub(super) fn drain(&self) {
        if !self.is_draining() {
            self.draining.set(self.clock.now());
        }
        self.bell.notify_one();
    }

    /// Waits until [`Self::drain`] is called.
    pub(super) async fn drained(&self) {
        while !self.is_draining() {
            self.bell.notified().await;
        }
    }

    /// Whether [`Self::drain`] was called.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_set()
    }

    /// Returns the deadline that may come before the one already watched for: of a
    /// head that is incomplete, of an answer, of the end in a drain, or of a client that
    /// takes nothing. To be asked whenever the connection has been polled.
    pub(super) fn urgent(&self, limits: &ClientTimeouts) -> Option<Instant> {
        self.head_since.note(self.reading.load(Relaxed), &self.clock);
        let head = self.head_since.get().map(|since| since + limits.header_read);
        let other =
            head.or_else(|| self.answer_by.get()).or_else(|| self.end_by.get()).or_else(|| {
                let is_last = self.is_draining() && self.requests.load(Relaxed) == 0;
                self.idle_until(limits).filter(|_| is_last)
            });
        // Both are rare.
        if !self.is_blocked() && self.streams.get().is_none() {
            return other;
        }
        let taken = self.write_since.get().map(|since| since + limits.write);
        let look = self.streams.get().and_then(|streams| streams.look_by(limits.write));
        [other, taken, look].into_iter().flatten().min()
    }

    /// Returns since when nothing is under way on an HTTP/1.1 connection: nothing is
    /// read, nothing is left to write.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let idle = self.requests.load(Relaxed) == 0
            && !self.reading.load(Relaxed)
            && !self.write_since.is_set()
            && self.uploads.load(Relaxed) == 0;
        self.idle_since.get().filter(|_| idle)
    }

    /// Returns until when nothing may be under way: in a drain no longer than a client of
    /// HTTP/2 takes to confirm that it has heard of it.
    fn idle_until(&self, limits: &ClientTimeouts) -> Option<Instant> {
        let idle = self.idle_since.get()?;
        let kept = idle + limits.keep_alive;
        Some(self.draining.get().map_or(kept, |since| kept.min(idle.max(since) + GRACE)))
    }

    /// Judges the connection by its notes as of `now`.
    ///
    /// A head is only stale on a connection that serves nothing else: on HTTP/2
    /// the frames of streams are not distinguished here.
    pub(super) fn judge(&self, now: Instant, limits: &ClientTimeouts) -> Verdict {
        let busy = self.requests.load(Relaxed) > 0;
        if let Some(streams) = self.streams.get() {
            streams.seen();
        }
        self.head_since.note(self.reading.load(Relaxed), &self.clock);
        let mut next = Instant::FAR_FUTURE;
        let mut expired = |stamp: &Stamp, limit: Duration| {
            let deadline = stamp.get().map_or(Instant::FAR_FUTURE, |since| since + limit);
            next = next.min(deadline);
            deadline <= now
        };
        if expired(&self.write_since, limits.write) {
            self.timeout.get_or_init(|| Timeout::Write);
            return Verdict::Abort;
        }
        if busy {
            if expired(&self.end_by, Duration::ZERO) {
                self.timeout.get_or_init(|| Timeout::Request);
                return Verdict::Abort;
            }
            if expired(&self.answer_by, Duration::ZERO) {
                self.answer_by.clear();
                self.overdue.store(true, Relaxed);
                return Verdict::Overdue;
            }
            // A write may begin to block without this being asked.
            next = next.min(now + limits.write);
            if let Some(streams) = self.streams.get() {
                let congested = self.congested.swap(self.write_since.is_set(), Relaxed);
                next = next.min(streams.judge(now, limits.write, congested));
            }
        } else if self.head_since.is_set() {
            if expired(&self.head_since, limits.header_read) {
                return Verdict::HeadLate;
            }
        } else if let Some(deadline) = self.idle_until(limits) {
            if deadline <= now {
                return Verdict::Close;
            }
            next = next.min(deadline);
        }
        Verdict::LookAgain(next)
    }
}

/// A request's body that is being read.
#[derive(Debug)]
pub(super) struct Uploading(Arc<Activity>);

impl Drop for Uploading {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Relaxed);
        if self.0.overlooks.swap(false, Relaxed)
            && let Some(task) = self.0.task.get()
        {
            task.wake_by_ref();
        }
    }
}

/// An instant that may be absent.
#[derive(Debug, Default)]
pub(super) struct Stamp(AtomicU64);

impl Stamp {
    pub(super) fn get(&self) -> Option<Instant> {
        match self.0.load(Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub(super) fn set(&self, now: Instant) {
        self.0.store(now.as_nanos().max(1), Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Sets it at the beginning of a wait, and clears it at the end.
    pub(super) fn note(&self, waiting: bool, clock: &Clock) {
        if waiting != self.is_set() {
            if waiting { self.set(clock.now()) } else { self.clear() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ClientTimeouts = ClientTimeouts {
        header_read: Duration::from_secs(10),
        keep_alive: Duration::from_secs(75),
        tls_handshake: Duration::from_secs(10),
        write: Duration::from_mins(1),
    };
    async fn after(activity: &Activity, seconds: u64) -> Verdict {
        let clock = &activity.clock;
        clock.sleep_until(clock.now() + Duration::from_secs(seconds)).await;
        activity.judge(clock.now(), &LIMITS)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed_after_keep_alive() {
        let activity = idle();
        assert!(matches!(after(&activity, 74).await, Verdict::LookAgain(_)));
        assert_eq!(after(&activity, 1).await, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_that_does_not_end_in_a_drain_is_closed_soon() {
        let activity = idle();
        assert!(matches!(after(&activity, 60).await, Verdict::LookAgain(_)));
        activity.drain();
        let now = activity.clock.now();
        assert_eq!(activity.urgent(&LIMITS), Some(now + GRACE));
        assert!(matches!(after(&activity, 0).await, Verdict::LookAgain(at) if at == now + GRACE));
        assert_eq!(after(&activity, 1).await, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_head_is_cut_off_although_bytes_keep_coming() {
        let activity = idle();
        for _ in 0..3 {
            activity.on_read();
            assert!(activity.urgent(&LIMITS).is_some());
            assert!(matches!(after(&activity, 3).await, Verdict::LookAgain(_)));
        }
        activity.on_read();
        assert_eq!(after(&activity, 1).await, Verdict::HeadLate);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_take_longer_than_keep_alive() {
        let activity = idle();
        activity.on_read();
        activity.on_request();
        assert!(matches!(after(&activity, 500).await, Verdict::LookAgain(_)));
        activity.on_answered(activity.clock.now());
        assert!(matches!(after(&activity, 74).await, Verdict::LookAgain(_)));
        assert_eq!(after(&activity, 1).await, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off() {
        let activity = idle();
        activity.on_request();
        activity.on_write(true);
        assert!(matches!(after(&activity, 59).await, Verdict::LookAgain(_)));
        assert_eq!(after(&activity, 1).await, Verdict::Abort);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_upstream_is_not_the_clients_fault() {
        let activity = idle();
        activity.on_request();
        for _ in 0..5 {
            assert!(matches!(after(&activity, 100).await, Verdict::LookAgain(_)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_body_that_was_given_up_is_no_head_but_what_follows_it_is() {
        let activity = idle();
        activity.on_request();
        activity.on_unread();
        activity.on_answered(activity.clock.now());
        activity.on_read();
        assert!(matches!(after(&activity, 20).await, Verdict::LookAgain(_)));
        activity.on_rest();
        activity.on_read();
        assert!(matches!(after(&activity, 0).await, Verdict::LookAgain(_)));
        assert_eq!(after(&activity, 10).await, Verdict::HeadLate);
    }

    fn idle() -> Arc<Activity> {
        let counters = Arc::<meter::Counters>::default();
        Activity::new(&Clock::start(), counters.connection(1).expect("the first"))
    }
}
