//! How long the next part of a body is waited for.

use super::timeout::Timeout;
use crate::{clock::Clock, flow::Instant};
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Sleep;

/// How long to wait for the next part of a body. The timer is made at the first
/// wait: a body that comes with its head costs none.
#[derive(Debug)]
pub(crate) struct BodyTimeout {
    /// The setting that `idle` comes from.
    setting: Timeout,
    idle: Duration,
    /// When the whole request must have ended.
    pub(crate) deadline: Instant,
    waiting: Option<Pin<Box<Sleep>>>,
    /// When the wait under way is too long, if there is one.
    until: Option<Instant>,
    /// Whether the deadline has passed.
    late: bool,
}

impl BodyTimeout {
    pub(crate) fn new(setting: Timeout, idle: Duration, deadline: Instant) -> Self {
        Self { setting, idle, deadline, waiting: None, until: None, late: false }
    }

    /// Returns which limit the wait that has ended was too long for.
    pub(crate) fn over(&self) -> Timeout {
        if self.late { Timeout::Request } else { self.setting }
    }

    /// Begins to wait anew.
    pub(crate) fn renew(&mut self) {
        self.until = None;
    }

    /// Waits until it is over with a timer of its own, and returns whether for the deadline.
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

    /// Waits until it is over with `poll`, which waits for an instant, and returns whether for the
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
