//! A service in virtual time.

use super::regimes::{MILLI, Regime};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

pub(crate) const SECOND: u64 = 1_000 * MILLI;

/// The distribution of service times. The mean is that of the regime.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Times {
    Exponential,
    LogNormal,
    /// A tenth take 10 times as long as the others.
    TwoPhases,
    Equal,
    /// A fourth of the mean or 4 times as long; the share of the long ones rises and falls in 20 s.
    Mixed,
}

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ stream.rotate_left(32));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number above 0, at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A request as the service sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// The service time in nanoseconds.
    pub(crate) time: f64,
    pub(crate) fails: bool,
    /// The time for which it hangs afterwards, in nanoseconds.
    pub(crate) hangs: u64,
}

impl Work {
    /// Returns the work of the request with this number: the same for every limit that is tried.
    pub(crate) fn of(regime: &Regime, seed: u64, number: u64, now: u64) -> Self {
        let mut random = Random::new(seed, number + 1_000);
        let mean = regime.mean as f64;
        let time = match regime.times {
            Times::Exponential => random.exponential(mean),
            Times::LogNormal => mean * (random.normal() - 0.5).exp(),
            Times::TwoPhases => {
                let factor = if random.unit() < 0.1 { 10.0 } else { 1.0 };
                random.exponential(mean / 1.9 * factor)
            }
            Times::Equal => mean,
            Times::Mixed => {
                let turn = std::f64::consts::TAU * now as f64 / (20 * SECOND) as f64;
                let is_long = random.unit() < 0.2 + 0.15 * turn.sin();
                random.exponential(if is_long { 4.0 * mean } else { mean / 4.0 })
            }
        };
        let fails = regime.failing > 0.0 && random.unit() < regime.failing;
        let is_stuck = regime.stuck > 0.0 && random.unit() < regime.stuck;
        Self {
            time: if fails { MILLI as f64 } else { time },
            fails,
            hangs: if is_stuck { 10 * regime.mean } else { 0 },
        }
    }
}

/// An event of the service: its time, its serial number, and what happens.
type Entry = Reverse<(u64, u64, Event)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request reaches the service.
    Reach(usize),
    /// A request has been served.
    Served(usize),
    /// The next of those that share the service has been, if the number is the latest.
    NextShared(u64),
    /// Requests may begin again after a pause.
    Resume,
    /// The number of places changes.
    Step(u32),
    /// The response to a request reaches the gateway.
    Response(usize, bool),
}

/// A response that has reached the gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub(crate) request: usize,
    pub(crate) fails: bool,
}

/// The service of a regime.
#[derive(Debug)]
pub(crate) struct Service<'r> {
    regime: &'r Regime,
    works: Vec<Work>,
    places: u32,
    busy: u32,
    /// The requests that it has.
    inside: u32,
    waiting: VecDeque<usize>,
    events: BinaryHeap<Entry>,
    serial: u64,
    /// Those that share it, by the amount of work that each has had when they are done.
    sharing: BinaryHeap<Reverse<(u64, usize)>>,
    /// The work that each of them has had, in nanoseconds, and until when that is counted.
    had: f64,
    counted: u64,
    latest: u64,
}

impl<'r> Service<'r> {
    pub(crate) fn new(regime: &'r Regime) -> Self {
        let mut service = Self {
            regime,
            works: Vec::new(),
            places: regime.places,
            busy: 0,
            inside: 0,
            waiting: VecDeque::new(),
            events: BinaryHeap::new(),
            serial: 0,
            sharing: BinaryHeap::new(),
            had: 0.0,
            counted: 0,
            latest: 0,
        };
        for &(second, places) in &regime.steps {
            service.at((second * SECOND as f64) as u64, Event::Step(places));
        }
        service
    }

    /// Returns the time of its next event.
    pub(crate) fn next(&self) -> u64 {
        self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at)
    }

    /// Returns how many requests it has.
    pub(crate) const fn inside(&self) -> u32 {
        self.inside
    }

    /// Sends a request to it.
    pub(crate) fn send(&mut self, now: u64, request: usize, work: Work) {
        if self.works.len() <= request {
            self.works.resize(request + 1, Work::default());
        }
        self.works[request] = work;
        if self.regime.round_trip == 0 {
            self.reach(now, request);
        } else {
            self.at(now + self.regime.round_trip / 2, Event::Reach(request));
        }
    }

    /// Lets its next event happen. Returns a response that has reached the gateway.
    pub(crate) fn advance(&mut self) -> Option<Response> {
        let Reverse((now, _, event)) = self.events.pop()?;
        match event {
            Event::Reach(request) => self.reach(now, request),
            Event::Served(request) => {
                self.busy -= 1;
                self.leave(now, request);
                self.begin(now);
            }
            Event::NextShared(number) if number == self.latest => {
                self.share_until(now);
                if let Some(Reverse((_, request))) = self.sharing.pop() {
                    self.leave(now, request);
                }
                self.await_shared();
            }
            Event::NextShared(_) => {}
            Event::Resume => self.begin(now),
            Event::Step(places) => {
                self.share_until(now);
                self.places = places;
                self.await_shared();
                self.begin(now);
            }
            Event::Response(request, fails) => return Some(Response { request, fails }),
        }
        None
    }

    fn at(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, event)));
    }

    fn reach(&mut self, now: u64, request: usize) {
        if self.regime.rejects_above.is_some_and(|most| self.inside >= most) {
            self.at(now + MILLI + self.regime.round_trip / 2, Event::Response(request, true));
            return;
        }
        self.inside += 1;
        if self.regime.shares {
            self.share_until(now);
            let done = self.had + self.works[request].time;
            self.sharing.push(Reverse((done.to_bits(), request)));
            self.await_shared();
        } else {
            self.waiting.push_back(request);
            self.begin(now);
        }
    }

    fn leave(&mut self, now: u64, request: usize) {
        self.inside -= 1;
        let Work { fails, hangs, .. } = self.works[request];
        self.at(now + self.regime.round_trip / 2 + hangs, Event::Response(request, fails));
    }

    /// Begins requests as long as there are places.
    fn begin(&mut self, now: u64) {
        if let Some((every, length)) = self.regime.pause {
            let into = (now as f64 / SECOND as f64) % every;
            if into < length {
                if !self.waiting.is_empty() {
                    let left = ((length - into) * SECOND as f64) as u64;
                    self.at(now + left + 1, Event::Resume);
                }
                return;
            }
        }
        while self.busy < self.places {
            let Some(request) = self.waiting.pop_front() else { return };
            self.busy += 1;
            let time = self.works[request].time * self.slowness(now);
            self.at(now + time as u64 + 1, Event::Served(request));
        }
    }

    fn slowness(&self, now: u64) -> f64 {
        let second = now as f64 / SECOND as f64;
        match self.regime.slow {
            Some((from, to, factor)) if (from..to).contains(&second) => factor,
            Some(_) | None => 1.0,
        }
    }

    /// Returns the work that each request has in a nanosecond, of those that share the service. Above its
    /// places, they share it and cost each other up to four fifths of it.
    fn speed(&self) -> f64 {
        let requests = self.sharing.len() as f64;
        let places = f64::from(self.places);
        let speed = if requests <= places {
            1.0
        } else {
            (1.0 - 0.1 * (requests / places - 1.0)).max(0.2) * places / requests
        };
        speed / self.slowness(self.counted)
    }

    fn share_until(&mut self, now: u64) {
        if !self.sharing.is_empty() {
            self.had += (now - self.counted) as f64 * self.speed();
        }
        self.counted = now;
    }

    fn await_shared(&mut self) {
        self.latest += 1;
        if let Some(Reverse((done, _))) = self.sharing.peek() {
            let left = (f64::from_bits(*done) - self.had).max(0.0) / self.speed();
            self.at(self.counted + left as u64 + 1, Event::NextShared(self.latest));
        }
    }
}
