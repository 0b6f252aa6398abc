//! The requests of a log, by route and key.
//!
//! The most requests of a key within a window, wherever the window begins.

use super::reserves::SettledCosts;
use crate::{
    flow::Instant,
    replay::{Arrival, Engine, Event, Inputs, Unmatched},
    route::KeySpec,
};
use core::time::Duration;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The most keys that are counted apart, all routes together. A key takes about 100 bytes.
pub(super) const MOST_KEYS: usize = 1_000_000;

/// The most first segments of paths that are counted before the largest are chosen.
const MOST_SEGMENTS: usize = 10_000;

/// The most routes that are made of first segments.
const MOST_MADE: usize = 8;

/// A first segment is a route of its own if it has at least one request in this many.
const LEAST_SHARE: usize = 20;

/// The fewest requests of a route from which a limit can be suggested.
pub(super) const LEAST_REQUESTS: usize = 1000;

/// A request: 16 bytes, and as much again while peaks are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub at: Instant,
    /// The index of its route.
    pub group: u32,
    pub key: u32,
}

/// The routes that get limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Those of the configuration.
    ByRoute,
    /// The first segments of paths, if no configuration has routes.
    ByPath,
    /// All of them share one limit.
    Together,
}

/// A route, or what could become one, or all of them together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub name: String,
    /// The paths that it takes; `None` for a route of the configuration.
    pub path_prefix: Option<String>,
}

/// A log.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// In the order of time.
    pub requests: Vec<Request>,
    pub groups: Vec<Group>,
    /// By the numbers of requests.
    pub keys: Vec<Arc<str>>,
    /// Requests that no route takes.
    pub without_route: u64,
    /// By route: requests without the key.
    pub without_key: BTreeMap<u32, u64>,
    /// Requests of keys beyond [`MOST_KEYS`].
    pub beyond: u64,
    /// The costs that were settled after responses.
    pub costs: SettledCosts,
}

impl Traffic {
    /// Reads all of `inputs`, whose routes `engine` finds.
    pub(super) fn read(
        inputs: &mut Inputs,
        engine: &Engine,
        key: &KeySpec,
        grouping: Grouping,
        unmatched: &mut Unmatched,
    ) -> Self {
        let mut reader = Reader { traffic: Self::default(), keys: HashMap::new() };
        let mut segments = Segments::default();

        while let Some(event) = inputs.next_event() {
            let Event::Arrival(arrival) = event else { continue };
            let found = engine.identify(&arrival, key);
            let route = found.as_ref().map(|(route, _)| *route).map_err(|reason| *reason);
            unmatched.note(engine, &arrival, route);
            if let Ok(route) = route {
                reader.traffic.costs.add(&arrival, route, engine.snapshot());
            }
            reader.add(&arrival, found.ok(), key, |route| match grouping {
                Grouping::ByRoute => u32::try_from(route).unwrap_or(u32::MAX),
                Grouping::ByPath => segments.of(arrival.request.path.as_deref().unwrap_or("/")),
                Grouping::Together => 0,
            });
        }

        let mut traffic = reader.traffic;
        let named = |name: &str| Group { name: name.to_owned(), path_prefix: None };
        match grouping {
            Grouping::ByRoute => {
                let routes = &engine.snapshot().routes;
                traffic.groups = routes.iter().map(|route| named(&route.name)).collect();
            }
            Grouping::ByPath => traffic.keep_largest(&segments),
            Grouping::Together => traffic.groups = vec![named("all routes together")],
        }

        // A recorded clock may step back.
        traffic.requests.sort_by_key(|request| request.at);
        traffic
    }

    /// Makes routes of the largest segments; all others become one.
    fn keep_largest(&mut self, segments: &Segments) {
        let mut counts = vec![0_usize; segments.names.len() + 1];
        for request in &self.requests {
            counts[request.group as usize] += 1;
        }

        let least = (self.requests.len() / LEAST_SHARE).max(LEAST_REQUESTS);
        let is_large = |index: &usize| counts[*index] >= least;
        let mut large: Vec<usize> = (1..counts.len()).filter(is_large).collect();
        large.sort_by_key(|index| (core::cmp::Reverse(counts[*index]), *index));
        large.truncate(MOST_MADE);

        let made = large.iter().map(|index| {
            let name = &segments.names[index - 1];
            Group { name: name.clone(), path_prefix: Some(format!("/{name}")) }
        });
        self.groups = made.collect();

        let rest = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let taken = self.groups.iter().any(|group| group.name == "rest");
        let name = if taken { "all-others" } else { "rest" }.to_owned();
        self.groups.push(Group { name, path_prefix: Some("/".to_owned()) });

        let mut becomes = vec![rest; counts.len()];
        for (new, old) in (0..).zip(large) {
            becomes[old] = new;
        }
        for request in &mut self.requests {
            request.group = becomes[request.group as usize];
        }

        let mut without_key = BTreeMap::new();
        for (group, count) in &self.without_key {
            *without_key.entry(becomes[*group as usize]).or_default() += count;
        }
        self.without_key = without_key;
    }
}

struct Reader {
    traffic: Traffic,
    keys: HashMap<Arc<str>, u32>,
}

impl Reader {
    fn add(
        &mut self,
        arrival: &Arrival,
        found: Option<(usize, Option<String>)>,
        key: &KeySpec,
        group: impl FnOnce(usize) -> u32,
    ) {
        let Some((route, shown)) = found else {
            self.traffic.without_route += 1;
            return;
        };
        let group = group(route);
        // Without an address the engine takes one that stands for all.
        let is_nameless = arrival.request.client.is_none() && arrival.key.is_none();
        let shown = shown.filter(|_| !(is_nameless && is_by_address(key)));
        let Some(shown) = shown else {
            *self.traffic.without_key.entry(group).or_default() += 1;
            return;
        };
        match self.number(&shown) {
            Some(key) => self.traffic.requests.push(Request { at: arrival.at, group, key }),
            None => self.traffic.beyond += 1,
        }
    }

    fn number(&mut self, key: &str) -> Option<u32> {
        if let Some(known) = self.keys.get(key) {
            return Some(*known);
        }
        if self.keys.len() >= MOST_KEYS {
            return None;
        }
        let number = u32::try_from(self.keys.len()).ok()?;
        let key: Arc<str> = key.into();
        self.traffic.keys.push(Arc::clone(&key));
        self.keys.insert(key, number);
        Some(number)
    }
}

fn is_by_address(key: &KeySpec) -> bool {
    key.parts().iter().any(|part| matches!(part, crate::route::KeyPart::ClientIp { .. }))
}

/// The first segments of paths, from 1; 0 is every other path.
#[derive(Debug, Default)]
struct Segments {
    names: Vec<String>,
    known: HashMap<String, u32>,
}

impl Segments {
    fn of(&mut self, path: &str) -> u32 {
        let path = path.split('?').next().unwrap_or_default();
        let segment = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        // A name of a route is as short, and needs no quotes.
        if segment.is_empty() || segment.len() > 40 || !segment.chars().all(is_plain) {
            return 0;
        }
        if let Some(known) = self.known.get(segment) {
            return *known;
        }
        if self.names.len() >= MOST_SEGMENTS {
            return 0;
        }
        self.names.push(segment.to_owned());
        let number = u32::try_from(self.names.len()).unwrap_or(0);
        self.known.insert(segment.to_owned(), number);
        number
    }
}

/// The windows that are looked at.
pub(super) const WINDOWS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_mins(1), Duration::from_hours(1)];

/// The requests of a key in one window's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peak {
    pub key: u32,
    pub most: u64,
    /// The most in the log's first half, and in its second.
    pub halves: [u64; 2],
}

/// The peaks of all keys of a route, the lowest first.
#[derive(Clone, Debug)]
pub(super) struct Peaks {
    pub window: Duration,
    pub all: Vec<Peak>,
}

impl Peaks {
    /// Counts the requests of one route, in the order of keys and then of time. `middle` separates
    /// the halves of the log.
    pub(super) fn of(requests: &[Request], window: Duration, middle: Instant) -> Self {
        let keys = requests.chunk_by(|one, other| one.key == other.key);
        let mut all: Vec<Peak> = keys
            .map(|requests| {
                let after = requests.partition_point(|request| request.at < middle);
                Peak {
                    key: requests[0].key,
                    most: most(requests, window),
                    halves: [most(&requests[..after], window), most(&requests[after..], window)],
                }
            })
            .collect();
        all.sort_by_key(|peak| (peak.most, peak.key));
        Self { window, all }
    }

    /// Returns the peak that this share of the keys does not exceed.
    pub(super) fn quantile(&self, percent: usize) -> u64 {
        let index = (self.all.len() * percent / 100).min(self.all.len().saturating_sub(1));
        self.all.get(index).map_or(0, |peak| peak.most)
    }
}

/// Returns the most requests in any window.
fn most(requests: &[Request], window: Duration) -> u64 {
    let mut first = 0;
    let mut most = 0;
    for (last, request) in requests.iter().enumerate() {
        while request.at.since(requests[first].at) >= window {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_segments_are_plain_words() {
        let mut segments = Segments::default();
        for (path, number) in [
            ("/", 0),
            ("/api/v1", 1),
            ("/img/a.png", 2),
            ("/api?x=/y", 1),
            ("/a.png", 0),
            ("/%2e/x", 0),
            ("*", 0),
            ("//img", 2),
        ] {
            assert_eq!(segments.of(path), number, "{path}");
        }
    }

    #[test]
    fn a_window_may_begin_anywhere_and_holds_no_request_at_its_end() {
        let at = |seconds: u64, key: u32| Request {
            at: Instant::EPOCH + Duration::from_secs(seconds),
            group: 0,
            key,
        };
        let requests: Vec<_> = [0, 30, 59, 60, 61, 200].map(|s| at(s, 7)).into();
        let minute = Duration::from_mins(1);
        assert_eq!(most(&requests, minute), 4);
        assert_eq!(most(&requests, Duration::from_secs(1)), 1);
        assert_eq!(most(&[], minute), 0);
        let middle = Instant::EPOCH + Duration::from_mins(1);
        let both = [requests, vec![at(5, 9)]].concat();
        let peaks = Peaks::of(&both, minute, middle);
        let expected =
            [Peak { key: 9, most: 1, halves: [1, 0] }, Peak { key: 7, most: 4, halves: [3, 2] }];
        assert_eq!(peaks.all, expected);
        assert_eq!((peaks.quantile(50), peaks.quantile(100)), (4, 4));
    }
}
