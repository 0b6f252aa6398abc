//! The decision about one request: by the store, or by a cached rejection.

use super::{
    decide::{
        call::{self, Ask, Verdicts, tag},
        in_flight::DecisionPermit,
        rejection_cache::CacheEpoch,
    },
    error::{CallFailure, StoreError},
    leases::Held,
    redis::{ClientState, StoreConnection},
    settle::{
        backlog::Carried,
        call::{ReservedAsk, StoreReserve},
    },
};
use crate::flow::{Decision, Instant, Judgement, RoundTrip};
use std::sync::Arc;

/// The store's decisions, and the leases that the request holds.
#[derive(Debug)]
pub struct Decided {
    /// The decisions. Waits are what is left of them at `came`.
    pub verdicts: Verdicts,
    /// The time at which they came, by this process's clock.
    pub came: Instant,
    /// Kept until the request ends.
    pub held: Held,
    /// The charges that the end of the request settles.
    pub reserves: Vec<ReservedAsk>,
}

impl StoreConnection {
    /// Returns the cached rejection of `ask` at `now`: the request is rejected without a call.
    pub fn rejection(&self, ask: &Ask<'_>, now: Instant) -> Option<Judgement> {
        let found = self.client.rejection_cache.find(ask, self.cache_epoch(), now);
        if found.is_some() {
            self.client.store.on_cached_rejection();
        }
        found
    }

    fn cache_epoch(&self) -> CacheEpoch {
        CacheEpoch { connection: self.number, resets: self.client.store.cache_resets() }
    }

    /// Waits until the store may be asked about a request, for at most half of `store.timeout`: the
    /// call has the rest.
    ///
    /// # Errors
    ///
    /// [`StoreError::Timeout`] if too many requests of the same hash tag are under way all the
    /// time.
    pub async fn permit(&self, asks: &[Ask<'_>]) -> Result<DecisionPermit, StoreError> {
        let ClientState { store, in_flight, clock, limit, .. } = &*self.client;
        let key =
            asks.first().map(|ask| call::key(&store.settings.prefix, ask)).unwrap_or_default();
        in_flight.acquire(tag(&key), *limit / 2, clock).await.map_err(|elapsed| {
            let failure =
                CallFailure::timeout(format!("{elapsed} before the call")).of_call("decision");
            self.fail(failure.late())
        })
    }

    /// Asks the store to decide about a request, in one round trip.
    ///
    /// # Errors
    ///
    /// The reason, as far as it is known. A call that failed on the way may have charged the
    /// request.
    pub async fn decide(
        mut self,
        asks: &[Ask<'_>],
        permit: DecisionPermit,
    ) -> Result<Decided, StoreError> {
        let client = Arc::clone(&self.client);
        let store = &client.store;
        let settings = &store.settings;
        let asked = client.clock.now();
        let epoch = self.cache_epoch();

        let keys: Vec<String> = asks.iter().map(|ask| call::key(&settings.prefix, ask)).collect();
        let node = keys.first().and_then(|key| self.node_of(key));
        if node.is_some_and(|node| self.is_failed(node)) {
            return Err(StoreError::Down);
        }

        let name = if asks.iter().any(|ask| ask.rule.holds()) {
            client.leases.name()
        } else {
            String::new()
        };
        let micros = u64::try_from(settings.lease.as_micros()).unwrap_or(u64::MAX);

        let lease = call::Lease { name: &name, micros };
        // Before the call, as it may be lost on the way back.
        let held = client.leases.ask(call::leases(&settings.prefix, asks, lease));

        let lines = asks.iter().zip(&keys).map(|(ask, key)| {
            let ended = if ask.rule.holds() { store.leases.carry(key) } else { Vec::new() };
            call::line(ask, lease, asked, &ended)
        });
        let mut arguments: Vec<String> = [String::new()].into_iter().chain(lines).collect();
        let Carried { keys: further, lines } = self.carry(asks, &keys, asked);
        let all_keys: Vec<String> = keys.iter().cloned().chain(further).collect();
        arguments.extend(lines);
        let limit = client.limit.saturating_sub(permit.waited()).max(client.limit / 2);
        let answer = self.run_within(limit, &store.scripts.decide, &all_keys, &arguments).await;

        let read = |answer| {
            call::read(asks, &answer).map_err(|_| CallFailure::invalid_reply("to a question"))
        };
        let mut verdicts = match answer.and_then(read) {
            Ok(verdicts) => verdicts,
            Err(failure) => {
                if failure.has_done_nothing() {
                    drop(held.decided([]));
                }
                // Less time than others have says nothing about the store.
                let is_cut_short = permit.has_waited() && failure.is_late();
                return Err(self.fail(if is_cut_short { failure.late() } else { failure }));
            }
        };

        let came = client.clock.now();
        store.on_decision(came.since(asked));

        let answers = asks.iter().zip(&verdicts.answers).zip(&verdicts.has_grant);
        // A grant may admit what costs less.
        for ((ask, judgement), _) in answers.filter(|(_, has_grant)| !**has_grant) {
            client.rejection_cache.note(ask, judgement, epoch, asked, came);
        }

        let trip = RoundTrip { asked, given: verdicts.now, came };
        store.offsets.record(trip, asks, &mut verdicts);
        if let Some(ask) = verdicts.stale.and_then(|at| asks.get(at)) {
            store.on_stale(ask.name, came);
        }

        let reserves = reserves(asks, &keys, &verdicts);
        let held = held.decided(call::granted(asks, &verdicts));
        Ok(Decided { verdicts, came, held, reserves })
    }

    /// Returns the settlements of the states in question that the store may not have applied yet.
    fn carry(&self, asks: &[Ask<'_>], keys: &[String], now: Instant) -> Carried {
        if asks.iter().all(|ask| !ask.settles) {
            return Carried::default();
        }
        let store = &self.client.store;
        store.backlog.carry(keys, &store.settings.prefix, &store.name, now)
    }
}

/// Returns the charges that the ends of their requests settle, each with its place among `asks`.
fn reserves(asks: &[Ask<'_>], keys: &[String], verdicts: &Verdicts) -> Vec<ReservedAsk> {
    if !verdicts.is_admitted || asks.iter().all(|ask| !ask.settles) {
        return Vec::new();
    }
    let answers = verdicts.answers.iter().zip(&verdicts.has_grant);
    let asked = asks.iter().zip(keys).zip(answers).enumerate();
    let charged = asked.filter(|(_, ((ask, _), (judgement, has_grant)))| {
        let passes = !matches!(judgement.decision, Decision::Reject(_)) && !**has_grant;
        ask.settles && ask.cost > 0 && passes
    });
    let reserved = charged.map(|(at, ((ask, key), _))| {
        let rule = Arc::clone(ask.rule);
        let reserve = StoreReserve::new(key.clone(), rule, ask.cost, verdicts.now);
        ReservedAsk { at, reserve }
    });
    reserved.collect()
}
