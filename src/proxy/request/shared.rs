//! Rules that gateways share: asked of the store after the rules of this process, which must
//! have let the request pass, and before any of them is charged.

use crate::proxy::{record::SharedReserve, worker::Worker};
use crate::{
    cluster::{Ask, DecisionPermit, Held, StoreClient, StoreConnection, Verdicts},
    config::{Claims, OnStoreError, Route, RuleSync, Shared},
    flow::{
        Admission, Claim, Decision, Instant, Judgement, Key, Quota, Reason, Rejection, Reservation,
        SlotId, Verdict,
    },
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use smallvec::SmallVec;

/// The response to a request that a failing store would have had to decide about: the client may
/// retry once the gateway has looked for the store again.
const UNDECIDED: Reason = Reason::Undecided { retry_after: Duration::from_secs(1) };

/// What a request asks of the store.
pub(crate) struct StoreQuery {
    connection: StoreConnection,
    /// The claims on shared rules, with their keys' fingerprints.
    claims: SmallVec<[(Claim, Option<u128>); 2]>,
}

/// A request that the rules of this process let pass, while the store is asked about it.
pub(crate) struct PendingDecision {
    query: StoreQuery,
    reservation: Reservation,
    /// All of them, for the case that the store fails.
    pub(crate) claims: Claims,
}

/// The first step of a decision.
#[expect(clippy::large_enum_variant, reason = "moved once; a box would be an allocation a request")]
pub(crate) enum LocalDecision {
    Decided(Result<Admission, Rejection>),
    /// The store must be asked.
    Ask(Box<PendingDecision>),
}

impl StoreQuery {
    /// Returns what a request with these claims asks of the store; `None` if that is down, or
    /// there is nothing to ask.
    pub(crate) fn of(worker: &Worker, route: &Route, claims: &Claims) -> Option<Self> {
        let connection = worker.store.as_ref()?.connection()?;
        let asked = |claim: &Claim| {
            route.shared(claim.slot).filter(|(shared, _)| shared.is_in_store())?;
            let key = match claim.key {
                // Rejected here, without a round trip.
                Key::Missing | Key::Duplicate => return None,
                Key::Shared => None,
                // Made with the secret that all gateways have.
                Key::Of(key) => Some(key),
            };
            Some((*claim, key))
        };
        let claims: SmallVec<_> = claims.iter().filter_map(asked).collect();
        (!claims.is_empty()).then_some(Self { connection, claims })
    }

    fn asks(&self, slot: SlotId) -> bool {
        self.claims.iter().any(|(claim, _)| claim.slot == slot)
    }

    /// Returns the rule that the store would reject the request by, as it has said before, why, and
    /// what is known of the rules.
    fn rejection(
        &self,
        route: &Route,
        now: Instant,
    ) -> Option<(DecidingRule, SmallVec<[Quota; 4]>)> {
        let mut quotas = SmallVec::new();
        let mut deciding = None;
        for ((claim, _), ask) in self.claims.iter().zip(asks(&self.claims, route)) {
            let Some(judgement) = self.connection.rejection(&ask, now) else { continue };
            blame(&mut deciding, claim, &ask, &judgement);
            quotas.push(quota(claim, &ask, &judgement));
        }
        deciding.map(|deciding| (deciding, quotas))
    }
}

/// Decides about a request of a route with shared rules, as far as can be without the store.
pub(crate) fn begin(
    worker: &Worker,
    route: &Route,
    now: Instant,
    claims: &Claims,
    query: Option<StoreQuery>,
) -> LocalDecision {
    let Some(query) = query else {
        return LocalDecision::Decided(decide_locally(worker, route, now, claims));
    };

    let here = claims.iter().filter(|claim| !query.asks(claim.slot)).copied();
    let here = LocalClaims::of(route, here, |shared| {
        shared.sync.as_deref().is_some_and(|shared| is_cut_off(worker, shared))
    });

    match here.reserve(route, now) {
        Err(rejection) => LocalDecision::Decided(Err(rejection)),
        Ok(reservation) => match query.rejection(route, now) {
            Some((deciding, quotas)) => {
                LocalDecision::Decided(Err(deciding.reject(reservation, now, &quotas)))
            }
            None => LocalDecision::Ask(Box::new(PendingDecision {
                query,
                reservation,
                claims: claims.clone(),
            })),
        },
    }
}

impl PendingDecision {
    /// Asks the store. Dropping the future leaves no trace here; what the store was asked in vain
    /// counts there as if the request had come.
    pub(crate) async fn ask(self, worker: &Worker, route: &Route) -> StoreDecision {
        let Self { query, reservation, claims } = self;
        let asks: SmallVec<[Ask<'_>; 4]> = asks(&query.claims, route).collect();
        let permit = query.connection.permit(&asks).await;
        if permit.as_ref().map_or(true, DecisionPermit::has_waited) {
            let now = worker.clock.now();
            if let Some((deciding, quotas)) = query.rejection(route, now) {
                return StoreDecision::of(Err(deciding.reject(reservation, now, &quotas)));
            }
        }

        let decided = match permit {
            Ok(permit) => query.connection.decide(&asks, permit).await,
            Err(error) => Err(error),
        };
        let Ok(decided) = decided else {
            drop(reservation);
            return StoreDecision::of(decide_locally(worker, route, worker.clock.now(), &claims));
        };

        let now = decided.came;
        let quotas = quotas(&query.claims, &asks, &decided.verdicts);
        if let Some(deciding) = rejection(&query.claims, &asks, &decided.verdicts) {
            return StoreDecision::of(Err(deciding.reject(reservation, now, &quotas)));
        }

        let held = Some(decided.held).filter(|held| !held.is_empty());
        let admission = reservation.confirm(now, &quotas);
        for ((claim, _), quota) in query.claims.iter().zip(&quotas) {
            if matches!(quota.verdict, Verdict::DryRunRejected(_)) {
                route.gate_of(claim.slot).note_rejected_key(claim.slot, claim.key, now);
            }
        }
        let reserves = decided.reserves.into_iter().filter_map(|reserved| {
            let (claim, _) = query.claims.get(reserved.at)?;
            route.gate_of(claim.slot).note_reserved(claim.slot, claim.cost);
            Some(SharedReserve { slot: claim.slot, reserve: reserved.reserve })
        });
        let reserves = reserves.collect();
        StoreDecision { decided: Ok(admission), held, reserves }
    }
}

/// The decision about a request that the store was asked about.
pub(crate) struct StoreDecision {
    pub(crate) decided: Result<Admission, Rejection>,
    pub(crate) held: Option<Held>,
    pub(crate) reserves: Vec<SharedReserve>,
}

impl StoreDecision {
    /// Returns a decision for which the store has charged nothing that is settled or given back.
    const fn of(decided: Result<Admission, Rejection>) -> Self {
        Self { decided, held: None, reserves: Vec::new() }
    }
}

/// The claims that this process decides about.
struct LocalClaims {
    claims: Claims,
    /// The rule that rejects everything while the store fails, if there is one.
    denied: Option<SlotId>,
}

impl LocalClaims {
    /// Sorts claims by what each rule says of the store's failure, if that `is_lost` for it.
    fn of(
        route: &Route,
        claims: impl Iterator<Item = Claim>,
        is_lost: impl Fn(&Shared) -> bool,
    ) -> Self {
        let mut it = Self { claims: Claims::new(), denied: None };
        for claim in claims {
            let lost = route.shared(claim.slot).filter(|(shared, _)| {
                !matches!(claim.key, Key::Missing | Key::Duplicate) && is_lost(shared)
            });
            match lost.map(|(shared, is_dry_run)| (shared.on_error, is_dry_run)) {
                None | Some((OnStoreError::Local, _)) => it.claims.push(claim),
                Some((OnStoreError::Allow, _) | (OnStoreError::Deny, true)) => {}
                Some((OnStoreError::Deny, false)) => it.denied = it.denied.or(Some(claim.slot)),
            }
        }
        it
    }

    #[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
    fn reserve(&self, route: &Route, now: Instant) -> Result<Reservation, Rejection> {
        let reservation = route.gates.reserve(now, &self.claims)?;
        match self.denied {
            None => Ok(reservation),
            Some(slot) => Err(reservation.reject(now, slot, None, UNDECIDED, &[])),
        }
    }
}

/// Decides without the store, as each shared rule says that has lost it.
#[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
fn decide_locally(
    worker: &Worker,
    route: &Route,
    now: Instant,
    claims: &Claims,
) -> Result<Admission, Rejection> {
    let is_lost =
        |shared: &Shared| shared.sync.as_deref().is_none_or(|shared| is_cut_off(worker, shared));
    let local = LocalClaims::of(route, claims.iter().copied(), is_lost);
    let Some(denied) = local.denied else { return route.gates.enter(now, &local.claims) };
    Err(route.gates.reserve(now, &local.claims)?.reject(now, denied, None, UNDECIDED, &[]))
}

/// Returns whether the states of a rule cannot be synced.
fn is_cut_off(worker: &Worker, rule: &RuleSync) -> bool {
    rule.is_rejected.load(Relaxed) || worker.store.as_ref().is_none_or(StoreClient::is_cut_off)
}

/// Returns what the store is asked about each claim.
fn asks<'a>(
    claims: &'a [(Claim, Option<u128>)],
    route: &'a Route,
) -> impl Iterator<Item = Ask<'a>> {
    claims.iter().filter_map(|(claim, key)| {
        let (shared, is_dry_run) = route.shared(claim.slot)?;
        let (name, rule) = shared.numbers_of(claim.plan);
        let cost = claim.cost;
        let settles = route.settles(claim.slot);
        Some(Ask { name, rule, key: *key, cost, is_dry_run, settles })
    })
}

/// Returns what the store said of each rule, in the words of the gate.
fn quotas(
    claims: &[(Claim, Option<u128>)],
    asks: &[Ask<'_>],
    verdicts: &Verdicts,
) -> SmallVec<[Quota; 4]> {
    let each = claims.iter().zip(asks).zip(&verdicts.answers);
    each.map(|(((claim, _), ask), judgement)| quota(claim, ask, judgement)).collect()
}

fn quota(claim: &Claim, ask: &Ask<'_>, judgement: &Judgement) -> Quota {
    let (verdict, wait) = match judgement.decision {
        Decision::Pass => (Verdict::Passed, Duration::ZERO),
        Decision::Delay(wait) => (Verdict::Delayed, wait),
        Decision::Reject(reason) if ask.is_dry_run => {
            (Verdict::DryRunRejected(reason.kind()), Duration::ZERO)
        }
        Decision::Reject(reason) => (Verdict::Rejected(reason.kind()), Duration::ZERO),
    };
    let Judgement { limit, used, reset, growth, .. } = *judgement;
    let &Claim { slot, cost, plan, .. } = claim;
    Quota { slot, verdict, limit, used, cost, plan, wait, reset, growth }
}

/// The claim whose rule rejected the request, and why.
#[derive(Clone, Copy)]
struct DecidingRule {
    claim: Claim,
    reason: Reason,
}

impl DecidingRule {
    fn reject(self, reservation: Reservation, now: Instant, quotas: &[Quota]) -> Rejection {
        let Claim { slot, key, .. } = self.claim;
        reservation.reject(now, slot, Some(key), self.reason, quotas)
    }
}

/// Returns the rule that decided, and why, if any rejected the request.
fn rejection(
    claims: &[(Claim, Option<u128>)],
    asks: &[Ask<'_>],
    verdicts: &Verdicts,
) -> Option<DecidingRule> {
    let mut deciding = None;
    for (((claim, _), ask), judgement) in claims.iter().zip(asks).zip(&verdicts.answers) {
        blame(&mut deciding, claim, ask, judgement);
    }
    deciding
}

/// Notes a rule that rejected the request, if it decides among those before.
fn blame(deciding: &mut Option<DecidingRule>, claim: &Claim, ask: &Ask<'_>, judgement: &Judgement) {
    let Decision::Reject(reason) = judgement.decision else { return };
    if !ask.is_dry_run && deciding.is_none_or(|first| reason.outranks(first.reason)) {
        *deciding = Some(DecidingRule { claim: *claim, reason });
    }
}
