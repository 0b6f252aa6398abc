//! How long the next part of a body is waited for.

use super::{timeout::Timeout, timer::RequestTimer};
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
pub(crate) struct Patience {
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

impl Patience {
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

    /// Waits until it is over, and returns whether for the deadline. Waits with the timer of the request's connection, or without one by its own.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        clock: &Clock,
        timer: Option<&RequestTimer>,
    ) -> Poll<bool> {
        let is_new = self.until.is_none();
        let limit = || self.deadline.min(clock.now() + self.idle);
        let until = *self.until.get_or_insert_with(limit);
        if let Some(timer) = timer {
            ready!(timer.poll(until));
        } else {
            let own = self.waiting.get_or_insert_with(|| Box::pin(clock.timer(until)));
            if is_new {
                own.as_mut().reset(clock.to_tokio(until));
            }
            ready!(own.as_mut().poll(context));
        }
        self.late = clock.now() >= self.deadline;
        Poll::Ready(self.late)
    }
}
