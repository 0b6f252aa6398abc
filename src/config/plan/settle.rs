//! Costs that are known only after the response.

use crate::{
    flow::FinalCost,
    route::{BodyMembers, MemberPath},
    usage::{Amount, Otherwise, Passed, Query, Reading, Weight, settled, weighted_sum},
};
use core::{ops::RangeInclusive, time::Duration};
use http::HeaderName;

/// The most that a response can cost.
const MAX_COST: u64 = 1_000_000_000_000;

/// The source of a request's cost after its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The source of the cost.
    pub source: SettleSource,
    /// The reserve, if it is computed for each request; else it is the rule's cost by method.
    pub reserve: Option<ComputedReserve>,
    /// True if what a response has cost so far is charged while it passes.
    pub while_streaming: bool,
}

/// The source of a cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleSource {
    /// The status of the response.
    Status(StatusCosts),
    /// Numbers in the body of the response.
    Json(JsonCost),
    /// A number in a header field of the response.
    Header(HeaderName),
    /// A number in a trailer field of the response.
    Trailer(HeaderName),
    /// The bytes of the bodies.
    Bytes(CountedBytes),
    /// The time from the start of the request to the end of the response, in these units.
    Time(Duration),
}

/// A cost that is in the body of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonCost {
    /// The source in the words of the file, for `check`.
    pub words: String,
    /// The numbers.
    pub query: Query,
    /// The cost of a response without them.
    pub otherwise: Otherwise,
}

/// The bodies whose bytes are the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedBytes {
    /// The request's.
    Request,
    /// The response's.
    Response,
    /// Both.
    Both,
}

/// A reserve that is computed for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputedReserve {
    /// The weight of each byte of the request's body.
    pub request_bytes: Weight,
    /// The numbers in the request's JSON body, if it has any part in the reserve.
    pub json: Option<ReservedNumbers>,
    /// The rest; `None`: what the rule has learned.
    pub plus: Option<u64>,
    /// The limit or burst, to which it is cut.
    pub most: u64,
    /// The same for the numbers of plans.
    pub most_of_plans: Vec<u64>,
}

/// Numbers in the JSON body of a request that have a part in its reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedNumbers {
    /// The members, each with its weight.
    pub terms: Vec<(MemberPath, Weight)>,
    /// The least part of a request that lacks any of them; `None`: what the rule has learned.
    pub otherwise: Option<u64>,
}

/// The facts of a request by which its reserve is computed.
#[derive(Clone, Copy, Debug)]
pub struct ReservedRequest<'a> {
    /// The length of its body in bytes.
    pub bytes: u64,
    /// The members of its JSON body that the rules look at, if it has one.
    pub body: Option<&'a BodyMembers>,
}

/// Costs by the status of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCosts {
    /// Those of listed statuses, the narrowest range first.
    listed: Vec<(RangeInclusive<u16>, u64)>,
    /// That of all others; `None`: their reserve stays.
    default: Option<u64>,
}

/// The end of a response, as far as it decides about costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseEnd {
    /// The status that the client got; `None` if there was no response.
    pub status: Option<u16>,
    /// True if the upstream failed before its response began, and flowgate responded.
    pub is_failure: bool,
    /// The parts of the request and of its response that have passed.
    pub passed: Passed,
    /// The time since the start of the request.
    pub time: Duration,
    /// The number in the field that the rule names, if there is one.
    pub field: Option<u64>,
}

impl Settle {
    /// Returns the cost of a request that was charged so much, its reserve and what was charged since,
    /// and whose response has ended; `None` if it is not known, so that this stays charged. A number in
    /// the response's body is in `reading`, if there was a body.
    pub fn cost(
        &self,
        end: &ResponseEnd,
        charged: u64,
        reading: Option<Reading>,
    ) -> Option<FinalCost> {
        let cost = self.known(end, charged, reading).or_else(|| end.is_failure.then_some(0))?;
        Some(self.known_cost(cost, end))
    }

    /// Returns a cost that is known, with the part that the request did not show.
    pub fn known_cost(&self, cost: u64, end: &ResponseEnd) -> FinalCost {
        let cost = cost.min(MAX_COST);
        let foreseen = self.reserve.as_ref().map_or(0, |of| of.foreseen(end.passed.request_bytes));
        FinalCost { cost, unforeseen: cost.saturating_sub(foreseen) }
    }

    /// Returns the numbers that it finds in the body of a response, if it reads that.
    pub const fn query(&self) -> Option<&Query> {
        match &self.source {
            SettleSource::Json(cost) => Some(&cost.query),
            SettleSource::Status(_)
            | SettleSource::Header(_)
            | SettleSource::Trailer(_)
            | SettleSource::Bytes(_)
            | SettleSource::Time(_) => None,
        }
    }

    fn known(&self, end: &ResponseEnd, charged: u64, reading: Option<Reading>) -> Option<u64> {
        let measured = match &self.source {
            SettleSource::Status(costs) => return costs.cost(end),
            SettleSource::Json(_) if end.is_failure => return Some(0),
            SettleSource::Json(cost) => {
                let reading = reading.unwrap_or_default();
                return Some(settled(&reading, &end.passed, charged, &cost.otherwise));
            }
            SettleSource::Header(_) | SettleSource::Trailer(_) => {
                return end.field.filter(|_| !end.is_failure);
            }
            SettleSource::Bytes(CountedBytes::Request) => end.passed.request_bytes,
            SettleSource::Bytes(CountedBytes::Response) => end.passed.response_bytes,
            SettleSource::Bytes(CountedBytes::Both) => {
                end.passed.request_bytes.saturating_add(end.passed.response_bytes)
            }
            SettleSource::Time(unit) => {
                let units = end.time.as_nanos().div_ceil(unit.as_nanos().max(1));
                u64::try_from(units).unwrap_or(u64::MAX)
            }
        };
        match end.status {
            _ if end.is_failure => None,
            Some(_) => Some(measured),
            // A client that leaves before its response pays the reserve at least.
            None => Some(measured.max(charged)),
        }
    }
}

impl ComputedReserve {
    /// Returns the reserve of a request of a client of this plan, where the rule has learned this much.
    /// The sum is rounded up once.
    ///
    /// A server may ignore the numbers that a request has, and obey one that it lacks. So such a
    /// request reserves no less than one without numbers.
    pub fn of(&self, request: ReservedRequest<'_>, learned: u64, plan: Option<usize>) -> u64 {
        let whole = |number| (Amount::whole(number), Weight::ONE);
        let bytes = (Amount::whole(request.bytes), self.request_bytes);
        let known = [bytes, whole(self.plus.unwrap_or(learned))];
        let numbers = self.json.iter().flat_map(|json| json.terms_of(request.body));
        let otherwise = self.json.as_ref().filter(|json| json.is_any_missing(request.body));
        let otherwise = otherwise.map(|json| whole(json.otherwise.unwrap_or(learned)));

        let least = weighted_sum(known.into_iter().chain(otherwise));
        let sum = weighted_sum(known.into_iter().chain(numbers)).max(least);
        let of_plan = plan.and_then(|plan| self.most_of_plans.get(plan)).copied();
        sum.clamp(1, of_plan.unwrap_or(self.most).max(1))
    }

    /// Returns the part of a cost that is known of every request with a body of this length, and that
    /// what is learned need not cover.
    fn foreseen(&self, bytes: u64) -> u64 {
        let bytes = (Amount::whole(bytes), self.request_bytes);
        let plus = (Amount::whole(self.plus.unwrap_or(0)), Weight::ONE);
        weighted_sum([bytes, plus].into_iter())
    }
}

impl ReservedNumbers {
    /// Returns the numbers in a body. Of a repeated member, the largest counts.
    fn terms_of<'a>(
        &'a self,
        body: Option<&'a BodyMembers>,
    ) -> impl Iterator<Item = (Amount, Weight)> + 'a {
        self.terms.iter().filter_map(move |(path, weight)| {
            let amounts = body?.numbers(path).filter_map(Amount::read);
            Some((amounts.max()?, *weight))
        })
    }

    /// True if a body lacks any of the numbers.
    fn is_any_missing(&self, body: Option<&BodyMembers>) -> bool {
        self.terms_of(body).count() < self.terms.len()
    }
}

/// Reads a decimal number as a cost, rounded up; `None` if it is none.
pub fn decimal(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let (whole, part) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b"0"[..]),
    };
    let are_digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !are_digits(whole) || !are_digits(part) {
        return None;
    }
    let add = |sum: u64, digit: &u8| {
        sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')).min(MAX_COST)
    };
    let has_part = part.iter().any(|digit| *digit != b'0');
    Some((whole.iter().fold(0, add) + u64::from(has_part)).min(MAX_COST))
}

impl StatusCosts {
    /// Returns the costs of these statuses, of which a narrower range goes before a wider one.
    pub fn new(mut listed: Vec<(RangeInclusive<u16>, u64)>, default: Option<u64>) -> Self {
        listed.sort_by_key(|(statuses, _)| statuses.len());
        Self { listed, default }
    }

    /// Returns the costs of listed statuses, and that of all others.
    pub fn parts(&self) -> (&[(RangeInclusive<u16>, u64)], Option<u64>) {
        (&self.listed, self.default)
    }

    /// Returns the cost of a response. A failure of the upstream costs something only where its status
    /// is listed.
    fn cost(&self, end: &ResponseEnd) -> Option<u64> {
        let status = end.status?;
        let listed = self.listed.iter().find(|(statuses, _)| statuses.contains(&status));
        let default = self.default.filter(|_| !end.is_failure);
        listed.map(|(_, cost)| *cost).or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::MemberPaths;
    use std::sync::Arc;

    const RESERVE: u64 = 50;

    fn end(status: Option<u16>) -> ResponseEnd {
        let time = Duration::from_micros(1_500);
        ResponseEnd {
            status,
            passed: Passed { request_bytes: 4, response_bytes: 100, ..Passed::default() },
            time,
            ..ResponseEnd::default()
        }
    }

    fn cost(source: SettleSource, end: &ResponseEnd) -> Option<u64> {
        let settle = Settle { source, reserve: None, while_streaming: false };
        settle.cost(end, RESERVE, None).map(|cost| cost.cost)
    }

    fn by_status(default: Option<u64>) -> SettleSource {
        let listed = vec![(500..=599, 2), (401..=401, 1), (502..=503, 7)];
        SettleSource::Status(StatusCosts::new(listed, default))
    }

    #[test]
    fn the_narrowest_range_decides_and_then_the_default() {
        let of = |status| cost(by_status(Some(0)), &end(Some(status)));
        assert_eq!(
            [401, 500, 502, 599, 200].map(of),
            [Some(1), Some(2), Some(7), Some(2), Some(0)]
        );
    }

    #[test]
    fn without_a_number_the_reserve_stays_unless_the_upstream_failed() {
        let failed = ResponseEnd { is_failure: true, ..end(Some(504)) };
        assert_eq!(cost(by_status(None), &end(Some(200))), None);
        assert_eq!(cost(by_status(Some(9)), &end(None)), None, "the client has left");
        assert_eq!(cost(by_status(Some(9)), &failed), Some(2), "its status is listed");
        let header = || SettleSource::Header(HeaderName::from_static("x-cost"));
        assert_eq!(cost(header(), &end(Some(200))), None);
        assert_eq!(cost(header(), &ResponseEnd { field: Some(3), ..end(Some(200)) }), Some(3));
        for source in [header(), SettleSource::Bytes(CountedBytes::Both)] {
            assert_eq!(cost(source, &failed), Some(0));
        }
    }

    #[test]
    fn bytes_and_time_are_measured_and_a_client_that_leaves_pays_the_reserve_at_least() {
        for (source, whole, left) in [
            (SettleSource::Bytes(CountedBytes::Request), 4, 50),
            (SettleSource::Bytes(CountedBytes::Response), 100, 100),
            (SettleSource::Bytes(CountedBytes::Both), 104, 104),
            (SettleSource::Time(Duration::from_millis(1)), 2, 50),
            (SettleSource::Time(Duration::from_micros(10)), 150, 150),
        ] {
            assert_eq!(cost(source.clone(), &end(Some(200))), Some(whole), "{source:?}");
            assert_eq!(cost(source.clone(), &end(None)), Some(left), "{source:?}");
        }
    }

    #[test]
    fn a_computed_reserve_is_rounded_up_once_and_cut_to_the_limit() {
        let computed = |thousandths, plus| ComputedReserve {
            request_bytes: Weight::thousandths(thousandths),
            json: None,
            plus,
            most: 100,
            most_of_plans: vec![10, 500],
        };
        let bytes = |bytes| ReservedRequest { bytes, body: None };
        assert_eq!(computed(250, Some(3)).of(bytes(5), 9, None), 5, "1.25 and 3");
        assert_eq!(computed(250, None).of(bytes(5), 9, None), 11, "1.25 and what was learned");
        assert_eq!(computed(0, None).of(bytes(5), 900, None), 100);
        assert_eq!(computed(0, None).of(bytes(5), 900, Some(0)), 10);
        assert_eq!(computed(0, None).of(bytes(5), 900, Some(1)), 500);
        assert_eq!(computed(250, Some(0)).of(bytes(0), 9, None), 1);
        let settle = Settle {
            source: SettleSource::Bytes(CountedBytes::Response),
            reserve: Some(computed(250, None)),
            while_streaming: false,
        };
        let cost = settle.cost(&end(Some(200)), 1, None);
        assert_eq!(
            cost,
            Some(FinalCost { cost: 100, unforeseen: 99 }),
            "the request's part is known"
        );
    }

    #[test]
    fn a_reserve_has_the_numbers_of_the_body_or_what_stands_for_them() {
        let path = |text| MemberPath::parse(text).unwrap();
        let terms = vec![(path("max"), Weight::ONE), (path("o.n"), Weight::thousandths(500))];
        let paths = MemberPaths::new(terms.iter().map(|(path, _)| path)).unwrap().map(Arc::new);
        let reserve = |otherwise| ComputedReserve {
            request_bytes: Weight::thousandths(250),
            json: Some(ReservedNumbers { terms: terms.clone(), otherwise }),
            plus: Some(2),
            most: 1_000,
            most_of_plans: vec![],
        };
        let of = |body: &str, otherwise| {
            let members = BodyMembers::of(paths.as_ref().unwrap(), body.as_bytes());
            let request = ReservedRequest { bytes: 10, body: members.as_ref() };
            reserve(otherwise).of(request, 70, None)
        };
        for (body, expected) in [
            (r#"{"max":16,"o":{"n":1}}"#, 21),
            (r#"{"max":16,"o":{"n":3.2}}"#, 23),
            (r#"{"max":1.6e1,"o":{"n":0}}"#, 21),
            (r#"{"max":0,"o":{"n":0}}"#, 5),
            (r#"{"max":1,"max":16,"o":{"n":0}}"#, 21),
            (r#"{"max":16,"max":1,"o":{"n":0}}"#, 21),
            (r#"{"max":1e99}"#, 1_000),
            (r#"{"max":50}"#, 55),
            (r#"{"max":16}"#, 45),
            (r#"{"o":{"n":1}}"#, 45),
            (r#"{"max":-1}"#, 45),
            (r#"{"max":"16"}"#, 45),
            ("{}", 45),
            ("[", 45),
        ] {
            assert_eq!(of(body, Some(40)), expected, "{body}");
        }
        assert_eq!(of("{}", None), 75, "what was learned");
        let settle = Settle {
            source: SettleSource::Bytes(CountedBytes::Response),
            reserve: Some(reserve(None)),
            while_streaming: false,
        };
        let cost = settle.cost(&end(Some(200)), 1, None).map(|cost| cost.unforeseen);
        assert_eq!(cost, Some(97), "what is learned stands for the number alone");
    }

    #[test]
    fn only_decimal_numbers_are_costs() {
        for (text, number) in [
            ("0", Some(0)),
            (" 12 ", Some(12)),
            ("12.0", Some(12)),
            ("12.001", Some(13)),
            ("007", Some(7)),
            ("99999999999999999999999", Some(MAX_COST)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("0x10", None),
            ("1,000", None),
            ("1.", None),
            (".5", None),
            ("1.2.3", None),
            ("NaN", None),
        ] {
            assert_eq!(decimal(text.as_bytes()), number, "{text}");
        }
    }
}
