//! The rejections of the store, which the gateway repeats itself until they end.
//!
//! The store says how long it rejects a request, and only time ends that. A call for each further
//! request would cost as much as a decision, and many clients of one blocked key would keep the
//! store from deciding about others. A new connection, or a store that has lost its memory, ends a
//! cached rejection. Rejections of rules that settle costs are not cached: what another request gives
//! back ends them sooner.

use super::call::Ask;
use crate::flow::{Decision, Instant, Judgement, Stored};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that one key may be in.
const WAYS: usize = 4;

/// The most keys that each worker remembers: about 0.7 MB, taken with the first.
const ENTRIES: usize = 1024 * WAYS;

/// The cached rejections of one worker's requests.
#[derive(Debug, Default)]
pub(in crate::cluster) struct RejectionCache(Mutex<Vec<Option<CachedRejection>>>);

/// A rejection by the store.
#[derive(Debug)]
struct CachedRejection {
    /// The rule. An edit makes another one.
    rule: Arc<Stored>,
    key: Option<u128>,
    cost: u64,
    epoch: CacheEpoch,
    judgement: Judgement,
    /// The times of the call and of its answer, by our clock.
    asked: Instant,
    came: Instant,
    /// Until when the store rejects, counted from `asked`: not later than it does.
    until: Instant,
}

/// The validity of cached rejections: those of the same connection, since the last loss of states in
/// the store or edit of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct CacheEpoch {
    pub(in crate::cluster) connection: u64,
    pub(in crate::cluster) resets: u64,
}

impl RejectionCache {
    /// Notes the decision of the store about `ask`, if it is a rejection that only time ends.
    pub(in crate::cluster) fn note(
        &self,
        ask: &Ask<'_>,
        judgement: &Judgement,
        epoch: CacheEpoch,
        asked: Instant,
        came: Instant,
    ) {
        let Decision::Reject(reason) = judgement.decision else { return };
        let Some(wait) = reason.retry_after().filter(|_| !ask.is_dry_run && !ask.settles) else {
            return;
        };
        let until = asked + wait;
        if until <= came {
            return;
        }

        let mut entries = self.lock();
        if entries.is_empty() {
            entries.resize_with(ENTRIES, || None);
        }
        let Some(set) = entries.chunks_exact_mut(WAYS).nth(set_of(ask)) else { return };

        let same =
            set.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.is_about(ask)));
        let free = || set.iter().position(Option::is_none);
        let soonest = || (0..WAYS).min_by_key(|way| set[*way].as_ref().map(|entry| entry.until));
        let Some(way) = same.or_else(free).or_else(soonest) else { return };

        set[way] = Some(CachedRejection {
            rule: Arc::clone(ask.rule),
            key: ask.key,
            cost: ask.cost,
            epoch,
            judgement: *judgement,
            asked,
            came,
            until,
        });
    }

    /// Returns the store's rejection of `ask`, if it would be the same at `now`.
    pub(in crate::cluster) fn find(
        &self,
        ask: &Ask<'_>,
        epoch: CacheEpoch,
        now: Instant,
    ) -> Option<Judgement> {
        if ask.is_dry_run || ask.settles {
            return None;
        }
        let entries = self.lock();
        let set = entries.chunks_exact(WAYS).nth(set_of(ask))?;
        let entry = set.iter().flatten().find(|entry| entry.is_about(ask))?;
        (entry.epoch == epoch && now < entry.until).then(|| entry.at(now))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<CachedRejection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedRejection {
    fn is_about(&self, ask: &Ask<'_>) -> bool {
        Arc::ptr_eq(&self.rule, ask.rule) && (self.key, self.cost) == (ask.key, ask.cost)
    }

    /// Returns the rejection with the waits that are left at `now`.
    fn at(&self, now: Instant) -> Judgement {
        let mut judgement = self.judgement;
        if let Decision::Reject(reason) = &mut judgement.decision {
            // As long as the store's own answer said: to the client, a little too late is right.
            let end = self.until + self.came.since(self.asked);
            *reason = reason.with_retry_after(end.since(now));
        }
        judgement.reset = judgement.reset.saturating_sub(now.since(self.came));
        judgement
    }
}

/// Returns which entries `ask` may be in. No client can choose keys that meet: they are
/// fingerprints, made with a secret.
fn set_of(ask: &Ask<'_>) -> usize {
    let key = ask.key.unwrap_or_default();
    let rule = Arc::as_ptr(ask.rule).addr() as u128;
    let mixed = (key ^ (key >> 64) ^ (rule << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from((mixed >> 40) % (ENTRIES / WAYS) as u128).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Algorithm, Rate, Reason, limiter::token_bucket};
    use core::time::Duration;

    const EPOCH: CacheEpoch = CacheEpoch { connection: 1, resets: 0 };

    fn rule() -> Arc<Stored> {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        let bucket = Algorithm::TokenBucket(token_bucket::Config { rate, burst: 10 });
        Arc::new(Stored::new(&bucket).expect("a bucket"))
    }

    fn ask(rule: &Arc<Stored>, key: u128) -> Ask<'_> {
        Ask { name: "{a}:r", rule, key: Some(key), cost: 1, is_dry_run: false, settles: false }
    }

    fn millis(count: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(count)
    }

    fn rejected(wait: u64) -> Judgement {
        let retry_after = Duration::from_millis(wait);
        let decision = Decision::Reject(Reason::Rate { retry_after });
        Judgement { decision, limit: 10, used: 10, reset: Duration::from_secs(1), growth: None }
    }

    /// Asked at 1,000 ms, answered at 1,004 ms, rejected for 100 ms.
    fn noted(cache: &RejectionCache, ask: &Ask<'_>) {
        cache.note(ask, &rejected(100), EPOCH, millis(1_000), millis(1_004));
    }

    #[test]
    fn a_rejection_holds_until_its_time_and_never_longer_than_in_the_store() {
        let cache = RejectionCache::default();
        let rule = rule();
        let ask = ask(&rule, 7);
        assert_eq!(cache.find(&ask, EPOCH, millis(1_004)), None);
        noted(&cache, &ask);
        let found = cache.find(&ask, EPOCH, millis(1_054)).expect("a rejection");
        let retry_after = Duration::from_millis(50);
        assert_eq!(found.decision, Decision::Reject(Reason::Rate { retry_after }));
        assert_eq!(found.reset, Duration::from_millis(950));
        assert!(cache.find(&ask, EPOCH, millis(1_099)).is_some());
        // The store may have decided at once when it was asked.
        assert_eq!(cache.find(&ask, EPOCH, millis(1_100)), None);
    }

    #[test]
    fn a_rejection_is_of_one_rule_key_and_cost_and_of_what_the_store_remembers() {
        let cache = RejectionCache::default();
        let edited = rule();
        let rule = rule();
        noted(&cache, &ask(&rule, 7));
        let found = |ask: &Ask<'_>, epoch| cache.find(ask, epoch, millis(1_010)).is_some();
        assert!(found(&ask(&rule, 7), EPOCH));
        assert!(!found(&ask(&edited, 7), EPOCH), "an edit");
        assert!(!found(&ask(&rule, 8), EPOCH));
        assert!(!found(&Ask { key: None, ..ask(&rule, 7) }, EPOCH));
        assert!(!found(&Ask { cost: 2, ..ask(&rule, 7) }, EPOCH));
        assert!(!found(&Ask { is_dry_run: true, ..ask(&rule, 7) }, EPOCH));
        assert!(!found(&ask(&rule, 7), CacheEpoch { connection: 2, ..EPOCH }));
        assert!(!found(&ask(&rule, 7), CacheEpoch { resets: 1, ..EPOCH }));
    }

    #[test]
    fn what_time_does_not_end_is_asked_again() {
        let cache = RejectionCache::default();
        let rule = rule();
        let ask = ask(&rule, 7);
        for decision in [
            Decision::Pass,
            Decision::Delay(Duration::from_secs(9)),
            Decision::Reject(Reason::Concurrency { limit: 1 }),
        ] {
            let judgement = Judgement { decision, ..rejected(100) };
            cache.note(&ask, &judgement, EPOCH, millis(1_000), millis(1_004));
            assert_eq!(cache.find(&ask, EPOCH, millis(1_004)), None, "{decision:?}");
        }
        let dry = Ask { is_dry_run: true, ..ask };
        noted(&cache, &dry);
        assert_eq!(cache.find(&ask, EPOCH, millis(1_004)), None, "of a dry run");
        let settling = Ask { settles: true, ..ask };
        noted(&cache, &settling);
        assert_eq!(cache.find(&ask, EPOCH, millis(1_004)), None, "a part may be given back");
    }

    #[test]
    fn however_many_keys_are_rejected_no_more_are_kept_and_most_of_them_are_found() {
        let cache = RejectionCache::default();
        let rule = rule();
        let fingerprint = |at: u128| at.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let found = |count: u128| {
            let keys = (0..count).map(fingerprint);
            let is_found = |key: &u128| cache.find(&ask(&rule, *key), EPOCH, millis(1_010));
            keys.filter(|key| is_found(key).is_some()).count()
        };
        (0..1_000).for_each(|at| noted(&cache, &ask(&rule, fingerprint(at))));
        assert!(found(1_000) > 950, "{}", found(1_000));
        (0..100_000).for_each(|at| noted(&cache, &ask(&rule, fingerprint(at))));
        assert_eq!(cache.lock().len(), ENTRIES);
        assert!((ENTRIES * 9 / 10..=ENTRIES).contains(&found(100_000)), "{}", found(100_000));
    }
}
