//! The cost that a response settles: its number, or what passed without one.

use super::{
    number::{Amount, Weight, weighted_sum},
    reader::Reading,
};

/// The cost of a response without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The weighted sum of what passed, at least the reserve.
    Weights {
        /// The weight of each byte of the request's body.
        request_bytes: Weight,
        /// The weight of each byte of the response's body.
        response_bytes: Weight,
        /// The weight of each event of `text/event-stream`, each line of NDJSON, and each object in
        /// an array.
        events: Weight,
    },
    /// Nothing, for a response that is not streamed; a streamed one is charged the reserve.
    Refund,
}

impl Default for Otherwise {
    /// The reserve.
    fn default() -> Self {
        let none = Weight::default();
        Self::Weights { request_bytes: none, response_bytes: none, events: none }
    }
}

/// The bytes and events that have passed of a request and its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body.
    pub response_bytes: u64,
    /// Events of `text/event-stream`, lines of NDJSON, or objects in an array.
    pub events: u64,
    /// True if the response came to its end.
    pub is_whole: bool,
}

impl Otherwise {
    /// Returns the weighted sum of what passed, rounded up once. It is 0 for a refund.
    pub fn cost(&self, passed: &Passed) -> u64 {
        match *self {
            Self::Weights { request_bytes, response_bytes, events } => {
                let terms = [
                    (Amount::whole(passed.request_bytes), request_bytes),
                    (Amount::whole(passed.response_bytes), response_bytes),
                    (Amount::whole(passed.events), events),
                ];
                weighted_sum(terms.into_iter())
            }
            Self::Refund => 0,
        }
    }
}

/// Returns the cost of a response whose first byte was sent: its number, if that is final. Else it is
/// at least what was `charged` so far, what `otherwise` says of what passed, and the number so far, so
/// that a client gains nothing by leaving before the number comes.
pub fn settled(reading: &Reading, passed: &Passed, charged: u64, otherwise: &Otherwise) -> u64 {
    if let Some(cost) = reading.sum
        && (passed.is_whole || reading.is_final)
    {
        return cost;
    }
    match otherwise {
        Otherwise::Refund if passed.is_whole && !reading.is_streamed => 0,
        Otherwise::Refund | Otherwise::Weights { .. } => {
            charged.max(otherwise.cost(passed)).max(reading.sum.unwrap_or(0))
        }
    }
}
