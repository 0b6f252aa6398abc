//! Bounds how many decisions of a worker are under way in the store at once, for each hash tag.
//!
//! Otherwise all requests of a key that arrive together would ask the store before it has rejected
//! the first, and the last would be late. The others wait, and look at the known rejections before
//! they ask.

use crate::{
    clock::{Clock, Elapsed},
    cluster::scripts::in_time,
};
use core::time::Duration;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Decisions under way for one hash tag: enough to use a store 1 ms away fully, and few enough that
/// it answers the last in time.
const LIMIT: usize = 64;

/// The decisions of one worker that are under way. An entry lives as long as a decision of its hash
/// tag.
#[derive(Debug, Default)]
pub(in crate::cluster) struct InFlight(Mutex<HashMap<String, Arc<Semaphore>>>);

/// The right to ask the store about one request.
#[derive(Debug)]
pub struct DecisionPermit {
    // Dropped before the tag, which counts the holders of the semaphore.
    _permit: OwnedSemaphorePermit,
    _tag: Tag,
    waited: Duration,
}

/// A hash tag that a request waits for or uses.
#[derive(Debug)]
struct Tag {
    in_flight: Arc<InFlight>,
    name: String,
    semaphore: Arc<Semaphore>,
}

impl DecisionPermit {
    /// Returns whether the request waited for others, which may have been rejected meanwhile.
    pub const fn has_waited(&self) -> bool {
        !self.waited.is_zero()
    }

    /// Returns how long the request waited.
    pub(in crate::cluster) const fn waited(&self) -> Duration {
        self.waited
    }
}

impl InFlight {
    /// Waits until a decision of this hash tag may begin, for at most `limit`.
    pub(in crate::cluster) async fn acquire(
        self: &Arc<Self>,
        tag: &str,
        limit: Duration,
        clock: &Clock,
    ) -> Result<DecisionPermit, Elapsed> {
        let tag = self.tag(tag);
        let semaphore = Arc::clone(&tag.semaphore);
        if let Ok(permit) = Arc::clone(&semaphore).try_acquire_owned() {
            return Ok(DecisionPermit { _permit: permit, _tag: tag, waited: Duration::ZERO });
        }
        let began = clock.now();
        // Nothing closes the semaphore.
        let permit =
            in_time(clock, limit, semaphore.acquire_owned()).await?.map_err(|_| Elapsed)?;
        // A wait of zero would mean that there was none.
        let waited = clock.now().since(began).max(Duration::from_nanos(1));
        Ok(DecisionPermit { _permit: permit, _tag: tag, waited })
    }

    fn tag(self: &Arc<Self>, name: &str) -> Tag {
        let mut tags = self.lock();
        let known = tags.get(name).map(Arc::clone);
        let semaphore = known.unwrap_or_else(|| {
            let semaphore = Arc::new(Semaphore::new(LIMIT));
            tags.insert(name.to_owned(), Arc::clone(&semaphore));
            semaphore
        });
        Tag { in_flight: Arc::clone(self), name: name.to_owned(), semaphore }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        let mut tags = self.in_flight.lock();
        // The map holds one, this tag the other.
        if Arc::strong_count(&self.semaphore) == 2 {
            tags.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn one_tag_that_is_full_keeps_no_other_waiting() {
        let clock = Clock::start();
        let in_flight = Arc::new(InFlight::default());
        let mut permits = Vec::new();
        for _ in 0..LIMIT {
            let permit = in_flight.acquire("a", MOMENT, &clock).await.expect("a free place");
            assert!(!permit.has_waited());
            permits.push(permit);
        }
        let began = clock.now();
        assert!(in_flight.acquire("a", MOMENT, &clock).await.is_err());
        assert_eq!(clock.now().since(began), MOMENT);
        assert!(
            in_flight.acquire("b", MOMENT, &clock).await.is_ok_and(|permit| !permit.has_waited())
        );
        permits.pop();
        assert!(in_flight.acquire("a", MOMENT, &clock).await.is_ok());
        drop(permits);
        assert!(in_flight.lock().is_empty(), "an unused tag takes no memory");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waited_says_so_and_one_that_leaves_takes_no_place() {
        let clock = Clock::start();
        let in_flight = Arc::new(InFlight::default());
        let mut permits = Vec::new();
        for _ in 0..LIMIT {
            permits.push(in_flight.acquire("a", MOMENT, &clock).await.expect("a free place"));
        }
        let mut leaves = Box::pin(in_flight.acquire("a", 2 * MOMENT, &clock));
        assert!(clock.timeout(MOMENT, &mut leaves).await.is_err());
        let stays = in_flight.acquire("a", MOMENT, &clock);
        let (permit, ()) = tokio::join!(stays, async {
            drop(leaves);
            permits.pop();
        });
        assert!(permit.expect("the place that became free").has_waited());
        drop(permits);
        assert!(in_flight.lock().is_empty());
    }
}
