//! A request that the rules admit as soon as it has a place: it waits in a queue, and is then
//! [`Admitted`](super::Admitted), or rejected because it has waited for too long.

use super::{Decided, routed::Routed};
use crate::{
    clock::Clock,
    flow::{Instant, Permit, Rejection, Report},
};
use core::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Sleep;

/// A request that waits for places.
pub(crate) struct Queued {
    /// Its permit is in the completion, whose end also ends the wait.
    routed: Routed,
}

/// The timer of the longest wait, with the time for which it is set.
type Timer = Option<(Instant, Pin<Box<Sleep>>)>;

impl Queued {
    /// Keeps the permit of a request that waits.
    pub(super) fn new(mut routed: Routed, permit: Permit) -> Self {
        routed.completion.decision.permit = Some(permit);
        Self { routed }
    }

    /// Waits until the request may start, or has waited for too long. Dropping the future leaves the
    /// queue.
    pub(super) async fn wait(self) -> Decided {
        let Self { mut routed } = self;
        let clock = routed.completion.peer.worker.clock.clone();
        let mut timer = None;

        let ended = poll_fn(|context| match routed.completion.decision.permit.as_mut() {
            Some(permit) => poll_start(permit, &clock, &mut timer, context),
            None => Poll::Ready(Ok(Report::default())),
        });
        let ended = ended.await;

        let permit = routed.completion.decision.permit.take();
        match (ended, permit) {
            (Err(rejection), _) => Decided::Responded(routed.reject(&rejection)),
            (Ok(report), permit) => Decided::Admitted(routed.admit(permit, &report)),
        }
    }
}

/// Polls the start of a request, now and when its longest wait is over.
fn poll_start(
    permit: &mut Permit,
    clock: &Clock,
    timer: &mut Timer,
    context: &mut Context<'_>,
) -> Poll<Result<Report, Box<Rejection>>> {
    /// The precision of the timer.
    const TICK: Duration = Duration::from_millis(1);

    loop {
        let now = clock.now();
        if let Poll::Ready(ended) = permit.poll_start(now, context.waker()) {
            return Poll::Ready(ended.map_err(Box::new));
        }

        // The wait for another place may end at another time.
        let until = permit.waits_until().unwrap_or(now + TICK);
        let is_set = timer.as_ref().is_some_and(|(set, _)| *set == until && now < until);
        if !is_set {
            *timer = Some((until, Box::pin(clock.timer(until.max(now + TICK)))));
        }
        let Some((_, sleep)) = timer else { return Poll::Pending };
        ready!(sleep.as_mut().poll(context));
        *timer = None;
    }
}
