//! Settling the costs of a request that are known only after its response.
//!
//! They are settled before the last byte of the response is handed to the client's connection: a
//! request that begins later finds them charged.

use super::{Completion, observers::Observers};
use crate::{
    access_log::LoggedCost,
    cluster::StoreReserve,
    config::{ResponseEnd, Route, RouteRule, SettleSource, decimal},
    flow::{FinalCost, Instant, Permit, Reserve, SlotId},
    http1::FieldList,
    proxy::worker::Worker,
    usage::{Encoding, Format, Passed, Reader},
};
use core::{mem::take, time::Duration};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::sync::Arc;

/// The numbers that fields of a response have for rules.
pub(super) type FieldNumbers = Vec<(SlotId, u64)>;

/// A charge in the store that the end of the request settles.
#[derive(Debug)]
pub(crate) struct SharedReserve {
    /// The slot of its rule, as claimed.
    pub(crate) slot: SlotId,
    pub(crate) reserve: StoreReserve,
}

/// The numbers that a response has.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'r> {
    pub(super) fields: &'r FieldNumbers,
    pub(super) usage: Option<&'r Reader>,
}

impl Completion {
    /// Settles what the response has cost, if any of the request's rules settles and has not yet.
    #[inline]
    pub(super) fn settle_costs(&mut self, at: Instant) {
        if self.has_reserves() {
            self.settle_all(at);
        }
    }

    /// Notes the numbers in the header of the upstream's response, for rules whose costs they are.
    #[inline]
    pub(crate) fn read_costs(&mut self, headers: &FieldList) {
        if self.has_reserves() {
            let number = |source: &SettleSource| match source {
                SettleSource::Header(name) => {
                    let mut values = headers.get_all(name);
                    values.next().filter(|_| values.next().is_none()).and_then(decimal)
                }
                SettleSource::Status(_)
                | SettleSource::Json(_)
                | SettleSource::Trailer(_)
                | SettleSource::Bytes(_)
                | SettleSource::Time(_) => None,
            };
            self.note_numbers(number);
        }
    }

    /// Notes the numbers in the trailers of the upstream's response.
    #[inline]
    pub(crate) fn read_trailing_costs(&mut self, trailers: &HeaderMap) {
        if self.has_reserves() {
            let number = |source: &SettleSource| match source {
                SettleSource::Trailer(name) => {
                    let mut values = trailers.get_all(name).iter();
                    let only = values.next().filter(|_| values.next().is_none())?;
                    decimal(only.as_bytes())
                }
                SettleSource::Status(_)
                | SettleSource::Json(_)
                | SettleSource::Header(_)
                | SettleSource::Bytes(_)
                | SettleSource::Time(_) => None,
            };
            self.note_numbers(number);
        }
    }

    #[inline]
    fn has_reserves(&self) -> bool {
        let decision = &self.decision;
        has_reserves(decision.permit.as_ref())
            || has_reserves(decision.early_permit.as_ref())
            || !decision.shared_reserves.is_empty()
    }

    #[inline(never)]
    fn note_numbers(&mut self, number: impl Fn(&SettleSource) -> Option<u64>) {
        let Some(route) = &self.route else { return };
        for rule in &route.rules {
            let settle = rule.cost.settle.as_ref();
            if let Some(number) = settle.and_then(|settle| number(&settle.source)) {
                self.response.numbers.push((rule.slot, number));
            }
        }
    }

    #[inline(never)]
    fn settle_all(&mut self, at: Instant) {
        let Some(route) = self.route.clone() else { return };
        let usage = self.response.usage.take().map(|mut usage| {
            usage.finish();
            usage
        });
        let end = ResponseEnd {
            passed: self.passed(usage.as_deref()),
            status: self.sent_status().map(|status| status.as_u16()),
            is_failure: self.has_failed_before_response(),
            time: Duration::ZERO,
            field: None,
        };

        let Self { decision, response, observers, peer, arrival, .. } = self;
        let numbers = Numbers { fields: &response.numbers, usage: usage.as_deref() };
        for permit in [&mut decision.permit, &mut decision.early_permit].into_iter().flatten() {
            let end = ResponseEnd { time: at.since(permit.start()), ..end };
            let times = Times { arrival: arrival.at, end: at };
            settle(permit, &route, &end, numbers, times, observers);
        }
        if !decision.shared_reserves.is_empty() {
            let start = decision.permit.as_ref().map_or(arrival.at, Permit::start);
            let end = ResponseEnd { time: at.since(start), ..end };
            let reserves = &mut decision.shared_reserves;
            settle_in_store(reserves, &peer.worker, &route, &end, numbers, observers);
        }
    }

    /// Returns what has passed of the request and its response.
    pub(super) fn passed(&self, usage: Option<&Reader>) -> Passed {
        Passed {
            request_bytes: self.upstream.upload.as_ref().map_or(0, |upload| upload.bytes()),
            response_bytes: self.response.bytes(),
            events: usage.map_or(0, Reader::events),
            is_whole: self.response.is_whole(),
        }
    }

    /// Begins to look for numbers in the body of a server's response, if a rule that has admitted the
    /// request settles by them.
    #[inline(never)]
    pub(crate) fn begin_usage(&mut self, headers: &FieldList) {
        let Some(route) = &self.route else { return };
        let Some(queries) = &route.usage else { return };
        let decision = &self.decision;
        let permits = [&decision.permit, &decision.early_permit];
        let own = permits.into_iter().flatten().flat_map(Permit::reserves).map(Reserve::slot);
        let shared = decision.shared_reserves.iter().map(|shared| shared.slot);
        let reads = |slot: SlotId| rule_of(route, slot).is_some_and(|rule| rule.query.is_some());
        if !own.chain(shared).any(reads) {
            return;
        }

        let value = |name: &HeaderName| headers.value(name);
        let content_type = value(&header::CONTENT_TYPE);
        let encoding = value(&header::CONTENT_ENCODING);
        let text = |value: &Option<HeaderValue>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let format = Format::of(text(&content_type).as_deref());
        let encoding = Encoding::of(text(&encoding).as_deref());
        self.response.usage = Some(Box::new(Reader::new(Arc::clone(queries), format, encoding)));
    }

    /// Looks for numbers in a part of a server's response.
    #[inline(never)]
    pub(super) fn read_usage(&mut self, part: &[u8]) {
        if let Some(usage) = &mut self.response.usage {
            usage.push(part);
        }
    }

    /// Notes for the log the reserves that stay charged.
    #[inline]
    pub(super) fn log_unsettled(&mut self) {
        if self.has_reserves() {
            self.log_reserves();
        }
    }

    #[inline(never)]
    fn log_reserves(&mut self) {
        let Some(route) = self.route.clone() else { return };
        let Self { decision, observers, arrival, .. } = self;
        let permits = [&decision.permit, &decision.early_permit].into_iter().flatten();
        let own = permits
            .flat_map(Permit::reserves)
            .map(|own| (own.slot(), own.cost(), since(arrival.at, own.later_charges())));
        let shared = decision.shared_reserves.iter();
        let shared = shared.map(|shared| (shared.slot, shared.reserve.cost(), Vec::new()));
        for (slot, reserved, charges) in own.chain(shared) {
            if let Some(rule) = rule_of(&route, slot) {
                let rule = Arc::clone(&rule.identity);
                observers.note_cost(LoggedCost { rule, reserved, charges, settled: None });
            }
        }
    }

    /// Returns the status that the client got; `None` if there was no response.
    pub(super) fn sent_status(&self) -> Option<StatusCode> {
        self.response.status.filter(|_| !self.response.is_closed())
    }
}

/// The times of a request whose costs are settled.
#[derive(Clone, Copy)]
struct Times {
    arrival: Instant,
    end: Instant,
}

/// Settles the costs of a request at its end.
fn settle(
    permit: &mut Permit,
    route: &Route,
    end: &ResponseEnd,
    numbers: Numbers<'_>,
    times: Times,
    observers: &mut Observers,
) {
    let settled = permit.settle(times.end, |reserve| {
        numbers.cost(rule_of(route, reserve.slot())?, end, reserve.total())
    });

    for cost in settled {
        if let Some(rule) = rule_of(route, cost.slot()) {
            let rule = Arc::clone(&rule.identity);
            let charges = since(times.arrival, cost.later_charges());
            let settled = Some(cost.cost());
            observers.note_cost(LoggedCost { rule, reserved: cost.reserved(), charges, settled });
        }
    }
}

/// Returns charges by the time since the arrival.
fn since(arrival: Instant, charges: impl Iterator<Item = (Instant, u64)>) -> Vec<(Duration, u64)> {
    charges.map(|(at, total)| (at.since(arrival), total)).collect()
}

/// Settles the costs of a request that the store has charged. Those that are not known keep their
/// reserve.
fn settle_in_store(
    shared_reserves: &mut Vec<SharedReserve>,
    worker: &Worker,
    route: &Route,
    end: &ResponseEnd,
    numbers: Numbers<'_>,
    observers: &mut Observers,
) {
    for shared in take(shared_reserves) {
        let reserved = shared.reserve.cost();
        let cost = rule_of(route, shared.slot)
            .and_then(|rule| Some((rule, numbers.cost(rule, end, reserved)?)));
        let Some((rule, cost)) = cost else {
            shared_reserves.push(shared);
            continue;
        };

        if let Some(store) = &worker.store {
            store.settle(shared.reserve, cost.cost);
        }
        route.gate_of(shared.slot).note_settled(shared.slot, cost);
        let rule = Arc::clone(&rule.identity);
        let settled = Some(cost.cost);
        observers.note_cost(LoggedCost { rule, reserved, charges: Vec::new(), settled });
    }
}

impl Numbers<'_> {
    /// Returns the cost by a rule of a request that was charged so much; `None` if it is not known.
    pub(super) fn cost(
        &self,
        rule: &RouteRule,
        end: &ResponseEnd,
        charged: u64,
    ) -> Option<FinalCost> {
        let field = self.fields.iter().find(|(slot, _)| *slot == rule.slot);
        let end = ResponseEnd { field: field.map(|(_, number)| *number), ..*end };
        let reading = self.usage.zip(rule.query).map(|(usage, query)| usage.reading(query));
        rule.cost.settle.as_ref()?.cost(&end, charged, reading)
    }
}

#[inline]
fn has_reserves(permit: Option<&Permit>) -> bool {
    permit.is_some_and(|permit| !permit.reserves().is_empty())
}

pub(super) fn rule_of(route: &Route, slot: SlotId) -> Option<&RouteRule> {
    route.rules.iter().find(|rule| rule.slot == slot)
}
