//! Bounds on the wait for a body: for its next part, and by its least rate.

use super::timeout::Timeout;
use crate::{clock::Clock, flow::Instant};
use core::{
    num::NonZeroU64,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Sleep;

/// A bound on the wait for the next part of a body. The timer is made at the first wait: a body that
/// comes with its head costs none.
#[derive(Debug)]
pub(crate) struct BodyTimeout {
    /// The setting that `idle` comes from.
    setting: Timeout,
    idle: Duration,
    /// The time by which the whole request must have ended.
    pub(crate) deadline: Instant,
    waiting: Option<Pin<Box<Sleep>>>,
    /// The end of the present wait, if there is one.
    until: Option<Instant>,
    /// True if the deadline has passed.
    late: bool,
}

impl BodyTimeout {
    pub(crate) fn new(setting: Timeout, idle: Duration, deadline: Instant) -> Self {
        Self { setting, idle, deadline, waiting: None, until: None, late: false }
    }

    /// Returns the limit that the last wait exceeded.
    pub(crate) fn over(&self) -> Timeout {
        if self.late { Timeout::Request } else { self.setting }
    }

    /// Begins to wait anew.
    pub(crate) fn renew(&mut self) {
        self.until = None;
    }

    /// Waits with a timer of its own until the wait is too long, and returns true if that is the deadline.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, clock: &Clock) -> Poll<bool> {
        let is_new = self.until.is_none();
        let mut waiting = self.waiting.take();
        let polled = self.poll_with(clock, |until| {
            let own = waiting.get_or_insert_with(|| Box::pin(clock.timer(until)));
            if is_new {
                own.as_mut().reset(clock.to_tokio(until));
            }
            own.as_mut().poll(context)
        });
        self.waiting = waiting;
        polled
    }

    /// Waits with `poll`, which waits for an instant, until the wait is too long. Returns true if that is the
    /// deadline.
    pub(crate) fn poll_with(
        &mut self,
        clock: &Clock,
        poll: impl FnOnce(Instant) -> Poll<()>,
    ) -> Poll<bool> {
        let limit = || self.deadline.min(clock.now() + self.idle);
        let until = *self.until.get_or_insert_with(limit);
        ready!(poll(until));
        self.late = clock.now() >= self.deadline;
        Poll::Ready(self.late)
    }
}

/// The time for which flowgate waits for a client beside the time that its bytes pay for.
const GRACE: Duration = Duration::from_secs(5);

/// The longest wait that bytes can pay for.
const LONGEST: Duration = Duration::from_hours(24);

/// The time for which flowgate still waits for a client: each byte pays for a part of a second. Only the
/// time in which nothing can be read counts, so that a slow server costs the client nothing.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes for each second.
    rate: NonZeroU64,
    left: Duration,
    /// The time since which it waits.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    pub(crate) fn new(rate: NonZeroU64) -> Self {
        Self { rate, left: GRACE, since: None, timer: None }
    }

    /// Notes that `bytes` have come.
    pub(crate) fn receive(&mut self, bytes: u64, now: Instant) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(now.since(since));
        }
        let part = u128::from(bytes % self.rate) * 1_000_000_000 / u128::from(self.rate.get());
        let paid = Duration::from_secs(bytes / self.rate)
            + Duration::from_nanos(u64::try_from(part).unwrap_or_default());
        self.left = self.left.saturating_add(paid).min(LONGEST);
    }

    /// Waits for the client, and is ready once it is too slow.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, clock: &Clock) -> Poll<()> {
        let timer = match (&mut self.timer, self.since) {
            (Some(timer), Some(_)) => timer,
            (timer, _) => {
                let now = clock.now();
                self.since = Some(now);
                let until = now + self.left;
                let timer = timer.get_or_insert_with(|| Box::pin(clock.timer(until)));
                timer.as_mut().reset(clock.to_tokio(until));
                timer
            }
        };
        timer.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pay_for_the_wait_that_they_end() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut pace = Pace::new(NonZeroU64::new(1000).unwrap());
        pace.receive(2500, at(0));
        assert_eq!(pace.left, Duration::from_millis(7500));
        pace.since = Some(at(1000));
        pace.receive(1, at(4000));
        assert_eq!(pace.left, Duration::from_millis(4501));
        pace.receive(0, at(90_000));
        assert_eq!(pace.left, Duration::from_millis(4501), "nothing was waited for");
        pace.receive(u64::MAX, at(90_000));
        assert_eq!(pace.left, LONGEST);
    }
}
