//! A sleeper finer than tokio's timer wheel, whose tick is one millisecond.
//!
//! One `timerfd` serves all sleepers of a runtime: it is armed for the earliest deadline, and wakes
//! the runtime's poll. Pacing at 1000/s needs it: with ticks of 1 ms, starts come in pairs.

use super::Clock;
use crate::flow::Instant;
use core::{
    fmt,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::io::unix::AsyncFd;

/// The sleepers of one runtime.
pub struct Alarm {
    clock: Clock,
    timer: AsyncFd<OwnedFd>,
    sleepers: Mutex<Sleepers>,
}

/// Sleepers by deadline and arrival.
#[derive(Default)]
struct Sleepers {
    waiting: BTreeMap<(Instant, u64), Waker>,
    arrivals: u64,
    /// The expiry of the timer, if it is armed.
    armed: Option<Instant>,
}

impl Alarm {
    /// Starts an alarm on the current runtime; it ends when it is dropped.
    pub(super) fn start(clock: Clock) -> io::Result<Arc<Self>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types whose descriptor may change; this one's cannot"
        )]
        let timer = AsyncFd::new(timer)?;
        let alarm = Arc::new(Self { clock, timer, sleepers: Mutex::default() });
        tokio::spawn(run(Arc::downgrade(&alarm)));
        Ok(alarm)
    }

    pub(super) fn sleep_until(self: &Arc<Self>, deadline: Instant) -> Sleep {
        Sleep { alarm: Arc::clone(self), deadline, arrival: None }
    }

    /// Wakes due sleepers, and arms the timer for the next.
    fn wake_due(&self) {
        let mut sleepers = self.lock();
        let now = self.clock.now();
        sleepers.armed = None;
        while let Some(next) = sleepers.waiting.first_entry() {
            if next.key().0 > now {
                break;
            }
            next.remove().wake();
        }
        self.arm(&mut sleepers, now);
    }

    /// Arms the timer for the earliest deadline if it is not armed early enough.
    fn arm(&self, sleepers: &mut Sleepers, now: Instant) {
        let Some(&(deadline, _)) = sleepers.waiting.keys().next() else { return };
        if sleepers.armed.is_some_and(|armed| armed <= deadline) {
            return;
        }
        // Zero would disarm it.
        let wait = deadline.since(now).max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let new = Itimerspec { it_interval: interval, it_value: value };
        if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &new).is_ok() {
            sleepers.armed = Some(deadline);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes sleepers while the alarm exists.
async fn run(alarm: Weak<Alarm>) {
    loop {
        // The task must not keep the alarm alive, so this future holds it only during a poll.
        let expired = core::future::poll_fn(|context| {
            let Some(alarm) = alarm.upgrade() else { return Poll::Ready(false) };
            let mut ticks = [0; 8];
            match alarm.timer.poll_read_ready(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(_)) => Poll::Ready(false),
                Poll::Ready(Ok(mut ready)) => {
                    if rustix::io::read(&alarm.timer, &mut ticks).is_err() {
                        ready.clear_ready();
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    ready.clear_ready();
                    Poll::Ready(true)
                }
            }
        });

        if !expired.await {
            return;
        }
        let Some(alarm) = alarm.upgrade() else { return };
        alarm.wake_due();
    }
}

/// One sleeper, removed when dropped.
pub(super) struct Sleep {
    alarm: Arc<Alarm>,
    deadline: Instant,
    arrival: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let alarm = Arc::clone(&self.alarm);
        let now = alarm.clock.now();
        if now >= self.deadline {
            return Poll::Ready(());
        }
        let mut sleepers = alarm.lock();
        let arrival = self.arrival.unwrap_or_else(|| {
            sleepers.arrivals += 1;
            sleepers.arrivals
        });
        self.arrival = Some(arrival);
        sleepers.waiting.insert((self.deadline, arrival), context.waker().clone());
        alarm.arm(&mut sleepers, now);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(arrival) = self.arrival {
            self.alarm.lock().waiting.remove(&(self.deadline, arrival));
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm")
            .field("sleepers", &self.lock().waiting.len())
            .finish_non_exhaustive()
    }
}
