//! Events of the inputs: arrivals, and ends of requests without a duration.

use crate::{
    flow::{Instant, Key, Sharer},
    geo::Place,
    route::Identity,
};
use core::{net::IpAddr, time::Duration};
use http::{HeaderMap, Method};
use std::sync::Arc;

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request arrived.
    Arrival(Arrival),
    /// A request without a duration ended.
    Complete(Complete),
    /// An unreadable arrival, which still has a number.
    Unreadable,
}

/// An arrival, as far as its line says.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The time of arrival.
    pub at: Instant,
    /// Its input and number.
    pub id: Id,
    /// Its head.
    pub request: Request,
    /// The listener that it came by, if that is known.
    pub listener: Option<Arc<str>>,
    /// What its client has proved to be, if that is known.
    pub identity: Option<Arc<Identity>>,
    /// Its route, if the line names one.
    pub route: Option<Arc<str>>,
    /// Its key for every keyed rule.
    pub key: Option<Arc<str>>,
    /// Its cost, instead of the rules' costs.
    pub cost: Option<u64>,
    /// True if it has priority.
    pub priority: bool,
    /// The duration from its start, unless its client leaves; `None`: until its [`Complete`], or
    /// its route's timeout.
    pub takes: Option<Duration>,
    /// Its end.
    pub ending: Ending,
    /// Fields that few lines have but those of flowgate's log.
    pub recorded: Option<Box<Recorded>>,
}

/// The facts by which the costs of a request are settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settling {
    /// Its cost in the end, for every rule that settles.
    pub settled: Option<u64>,
    /// The bytes of its body.
    pub request_bytes: Option<u64>,
    /// The bytes of its response's body.
    pub response_bytes: Option<u64>,
}

impl Recorded {
    /// Returns what an event has with these facts, this JSON body and this place, if anything is known.
    pub fn of_event(
        settling: Settling,
        body: Option<Arc<str>>,
        place: Option<Place>,
    ) -> Option<Box<Self>> {
        let is_known = settling != Settling::default() || body.is_some() || place.is_some();
        let recorded = || Self { settling, body, place, is_event: true, ..Self::default() };
        is_known.then(|| Box::new(recorded()))
    }
}

impl Arrival {
    /// Returns its JSON body, if that is known.
    pub(super) fn body(&self) -> Option<&str> {
        self.recorded.as_ref()?.body.as_deref()
    }

    /// Returns where its client was, if the line says it.
    pub(super) fn place(&self) -> Option<Place> {
        self.recorded.as_ref()?.place
    }
}

/// A request as the recording gateway knew it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its route.
    pub route: Option<Arc<str>>,
    /// Its keys.
    pub keys: Vec<RecordedKey>,
    /// The head of its response; without it the response counts at its end.
    pub head: Option<ResponseHead>,
    /// True if its client left while it waited for its start.
    pub left: bool,
    /// Its parts in the order of queues.
    pub sharers: Vec<RecordedSharer>,
    /// The limits that found themselves, by the identities of their rules.
    pub limits: Vec<(Box<str>, u32)>,
    /// The costs of rules that settle them.
    pub costs: Vec<RecordedCost>,
    /// The facts by which costs are settled.
    pub settling: Settling,
    /// Its JSON body.
    pub body: Option<Arc<str>>,
    /// The place of its client; `None`: nothing was known of that.
    pub place: Option<Place>,
    /// True if it is no line of flowgate's log.
    pub is_event: bool,
}

/// A logged part of a request in the order of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSharer {
    /// The rule's identity.
    pub rule: Box<str>,
    /// The part.
    pub sharer: Sharer,
}

/// A logged cost of a rule that settles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCost {
    /// The rule's identity.
    pub rule: Box<str>,
    /// The cost that was charged at admission.
    pub reserved: u64,
    /// The charges while the response passed: the time of each since the start, and everything that was
    /// charged by then.
    pub charges: Vec<(Duration, u64)>,
    /// The cost in the end; `None`: what was charged stayed charged.
    pub settled: Option<u64>,
}

/// Identifies an arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// The input's index on the command line.
    pub input: u32,
    /// From 0 among the input's arrivals.
    pub number: u64,
}

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// With or without a port.
    pub host: Option<Arc<str>>,
    /// The path with its query.
    pub path: Option<Arc<str>>,
    /// Known headers.
    pub headers: Option<Arc<HeaderMap>>,
    /// The peer's address, or the client's.
    pub client: Option<IpAddr>,
}

/// A logged key, which no other field of the line shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedKey {
    /// The rule's identity.
    pub rule: Box<str>,
    /// `None`: the rule was not checked.
    pub key: Option<Key>,
    /// True if the request had priority for the rule.
    pub priority: bool,
    /// The plan of the request, as the log names it.
    pub plan: Option<Box<str>>,
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// From the request's start.
    pub after: Duration,
    /// `None` if it says nothing about the upstream.
    pub status: Option<u16>,
    /// The duration of the request's body by then.
    pub uploading: Duration,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was sent completely, with this status if known.
    Responded(Option<u16>),
    /// The upstream failed or the response broke off.
    Failed,
    /// The client left this long after the arrival.
    Cancelled(Duration),
}

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub struct Complete {
    /// The time of the end.
    pub at: Instant,
    /// The request.
    pub of: Id,
    /// Its status, if the line has it.
    pub status: Option<u16>,
}

impl Event {
    /// Returns when it happened, if that is known.
    pub const fn at(&self) -> Option<Instant> {
        match self {
            Self::Arrival(arrival) => Some(arrival.at),
            Self::Complete(complete) => Some(complete.at),
            Self::Unreadable => None,
        }
    }
}
