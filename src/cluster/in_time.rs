//! A time limit that a gateway short of CPU does not take for a slow store.

use crate::clock::{Clock, Elapsed};
use core::{
    future::{Future, poll_fn, ready},
    pin::pin,
    task::Poll,
    time::Duration,
};
use tokio::task::yield_now;

/// Runs `future` for at most `limit`, counted from when the tasks that are ready have run once, as
/// the connection's task must send the call first. After `limit` they run once more, as that task
/// may have an answer to read. So what the gateway is late itself does not count.
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
