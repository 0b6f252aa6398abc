//! Costs that are known only after the response.

use crate::usage::{Otherwise, Passed, Query, Reading, settled};
use core::ops::RangeInclusive;

/// How the cost of a request is found after its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The source of the cost.
    pub source: SettleSource,
}

/// The source of a cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleSource {
    /// The status of the response.
    Status(StatusCosts),
    /// Numbers in the body of the response.
    Json(JsonCost),
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
    /// The parts of the request and of its response that have passed.
    pub passed: Passed,
    /// The status that the client got; `None` if there was no response.
    pub status: Option<u16>,
    /// True if the upstream failed before its response began, and flowgate responded.
    pub is_failure: bool,
}

impl Settle {
    /// Returns the cost of a request whose response has ended; `None` if it is not known, so that the
    /// `reserve` stays charged. A number in the response's body is in `reading`, if there was a body.
    pub fn cost(&self, end: ResponseEnd, reserve: u64, reading: Option<Reading>) -> Option<u64> {
        let known = match &self.source {
            SettleSource::Status(costs) => costs.cost(end),
            SettleSource::Json(_) if end.is_failure => Some(0),
            SettleSource::Json(cost) => {
                let reading = reading.unwrap_or_default();
                Some(settled(&reading, &end.passed, reserve, &cost.otherwise))
            }
        };
        if end.is_failure { known.or(Some(0)) } else { known }
    }

    /// Returns the numbers that it finds in the body of a response, if it reads that.
    pub const fn query(&self) -> Option<&Query> {
        match &self.source {
            SettleSource::Status(_) => None,
            SettleSource::Json(cost) => Some(&cost.query),
        }
    }
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
    fn cost(&self, end: ResponseEnd) -> Option<u64> {
        let status = end.status?;
        let listed = self.listed.iter().find(|(statuses, _)| statuses.contains(&status));
        let default = self.default.filter(|_| !end.is_failure);
        listed.map(|(_, cost)| *cost).or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(status: u16, is_failure: bool) -> Option<u64> {
        let listed = vec![(500..=599, 2), (401..=401, 1), (502..=503, 7)];
        let source = SettleSource::Status(StatusCosts::new(listed, Some(0)));
        let end = ResponseEnd { status: Some(status), is_failure, ..ResponseEnd::default() };
        Settle { source }.cost(end, 1, None)
    }

    #[test]
    fn the_narrowest_range_decides_and_then_the_default() {
        let costs = [401, 500, 502, 599, 200].map(|status| cost(status, false));
        assert_eq!(costs, [Some(1), Some(2), Some(7), Some(2), Some(0)]);
    }

    #[test]
    fn without_a_default_an_unknown_status_keeps_the_reserve() {
        let source = SettleSource::Status(StatusCosts::new(vec![(401..=401, 1)], None));
        let settle = Settle { source };
        let of = |status, is_failure| {
            settle.cost(ResponseEnd { status, is_failure, ..ResponseEnd::default() }, 1, None)
        };
        assert_eq!(of(Some(200), false), None);
        assert_eq!(of(None, false), None, "the client has left before the response");
        assert_eq!(of(Some(504), true), Some(0), "the upstream did not respond");
    }

    #[test]
    fn a_failure_of_the_upstream_counts_only_where_its_status_is_listed() {
        assert_eq!(cost(502, true), Some(7));
        let source = SettleSource::Status(StatusCosts::new(Vec::new(), Some(5)));
        let end = ResponseEnd { status: Some(502), is_failure: true, ..ResponseEnd::default() };
        assert_eq!(Settle { source }.cost(end, 1, None), Some(0));
    }
}
