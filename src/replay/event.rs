//! What the inputs are read into: arrivals of requests, and the ends of those that no
//! line knows the length of.

use crate::flow::{Instant, Key};
use core::{net::IpAddr, time::Duration};
use http::{HeaderMap, Method};
use std::sync::Arc;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request came.
    Arrival(Arrival),
    /// A request ended whose arrival did not say how long it takes.
    Complete(Complete),
    /// A request came of which nothing could be read but that it did. It has a number.
    Unreadable,
}

/// A request that came, as far as its line says.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// Its input, and its number among the arrivals of that input, from 0.
    pub id: Id,
    /// What it asked for.
    pub request: Request,
    /// The route that it belongs to, where the line names one.
    pub route: Option<Arc<str>>,
    /// The key that it has for every keyed rule.
    pub key: Option<Arc<str>>,
    /// What it costs, in place of what the rules say.
    pub cost: Option<u64>,
    /// Whether it goes before others.
    pub priority: bool,
    /// How long it takes once it has started, unless its client leaves; `None`: until its
    /// [`Complete`], or its route's time is up.
    pub takes: Option<Duration>,
    /// What was answered.
    pub ending: Ending,
    /// What only our own log has.
    pub recorded: Option<Box<Recorded>>,
}

/// What the gateway that recorded a request knew of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The route that it found.
    pub route: Option<Arc<str>>,
    /// The keys that it had.
    pub keys: Vec<RecordedKey>,
    /// When the head of its answer came; without it the answer is judged when it ends.
    pub answered: Option<Answered>,
}

/// The identity of an arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// The input's place on the command line.
    pub input: u32,
    /// From 0, over the input's arrivals only.
    pub number: u64,
}

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// With or without a port.
    pub host: Option<Arc<str>>,
    /// The path, and the query behind a `?`.
    pub path: Option<Arc<str>>,
    /// The header lines that are known.
    pub headers: Option<Arc<HeaderMap>>,
    /// The address that the connection came from, or the client's.
    pub client: Option<IpAddr>,
}

/// A key that the gateway logged, since the line has nothing else of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedKey {
    /// The rule's identity.
    pub rule: Box<str>,
    /// `None`: the rule was not asked.
    pub key: Option<Key>,
    /// Whether the request had priority for the rule.
    pub priority: bool,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// From the request's start.
    pub after: Duration,
    /// `None`: it says nothing about the service.
    pub status: Option<u16>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was sent in full; this was its status, if known.
    Answered(Option<u16>),
    /// The upstream failed or the answer broke off.
    Failed,
    /// The client left, so long after its arrival, whether it still waited or not.
    Cancelled(Duration),
}

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub struct Complete {
    /// When.
    pub at: Instant,
    /// Whose.
    pub of: Id,
    /// How, if the line says it.
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
