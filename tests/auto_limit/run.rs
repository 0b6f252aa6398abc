//! A run of a regime: clients, gateways with the project's own gates, and the service.

use super::{
    regimes::{Load, MILLI, Regime},
    service::{Random, Response, SECOND, Service, Work},
};
use flowgate::flow::{
    Algorithm, AutoStats, Claim, Gate, Instant, Key, Outcome, Permit, QueueConfig, Report, Rule,
    Rules, SlotId,
};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    task::{Poll, Wake, Waker},
    time::Duration,
};

/// The parts of a second that are counted alone.
pub(crate) const PARTS: u64 = 4;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    /// Requests that came while the run was measured, those that were rejected, and those that got a
    /// good response in time.
    pub(crate) arrived: u64,
    pub(crate) rejected: u64,
    pub(crate) good: u64,
    /// The last of these as a share of the capacity.
    pub(crate) goodput: f64,
    /// The mean number of requests inside the service while the run was measured.
    pub(crate) inside: f64,
    /// Good responses in each quarter of a second of the whole run.
    pub(crate) parts: Vec<u32>,
    /// The lowest and the highest limit of the first gateway while the run was measured.
    pub(crate) limits: (u64, u64),
    /// The limit that the first gateway has found at the end.
    pub(crate) stats: Option<AutoStats>,
}

/// Runs a regime with a rule of this algorithm and queue.
pub(crate) fn run(
    regime: &Regime,
    algorithm: &Algorithm,
    queue: Option<QueueConfig>,
    seed: u64,
) -> Outcomes {
    Run::new(regime, algorithm, queue, seed).outcomes()
}

/// Returns a queue in which requests wait for at most 60 % of the time within which responses count.
pub(crate) fn newest_when_late(regime: &Regime) -> QueueConfig {
    let wait = Duration::from_nanos(regime.deadline * 6 / 10);
    QueueConfig { newest_when_late: true, ..QueueConfig::new(wait, 1_000_000) }
}

struct Request {
    arrival: u64,
    work: Work,
    permit: Option<Permit>,
    has_started: bool,
}

struct Gateway {
    gate: Arc<Gate>,
    slot: SlotId,
}

/// Sends the number of its request when that is woken.
struct Alarm(usize, Sender<usize>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0).expect("the run goes on");
    }
}

struct Run<'r> {
    regime: &'r Regime,
    seed: u64,
    gateways: Vec<Gateway>,
    service: Service<'r>,
    requests: Vec<Request>,
    free: Vec<usize>,
    deadlines: BinaryHeap<Reverse<(u64, usize, u64)>>,
    woken: Receiver<usize>,
    wakes: Sender<usize>,
    arrivals: Arrivals,
    outcomes: Outcomes,
}

impl<'r> Run<'r> {
    fn new(
        regime: &'r Regime,
        algorithm: &Algorithm,
        queue: Option<QueueConfig>,
        seed: u64,
    ) -> Self {
        let rule = Rule {
            name: "service".into(),
            algorithm: algorithm.clone(),
            keyed: None,
            dry_run: false,
            settles: false,
            reject_for: None,
            queue: queue.map(Box::new),
        };
        let rules = Rules { flow: vec![rule], ..Rules::default() };
        let gateway = |_| {
            let gate = Arc::new(Gate::new(Instant::EPOCH));
            let slot = gate.install(&rules, Instant::EPOCH).flow[0];
            Gateway { gate, slot }
        };
        let (wakes, woken) = channel();
        let parts = (regime.seconds * PARTS as f64) as usize + 1;
        Self {
            regime,
            seed,
            gateways: (0..regime.gateways).map(gateway).collect(),
            service: Service::new(regime),
            requests: Vec::new(),
            free: Vec::new(),
            deadlines: BinaryHeap::new(),
            woken,
            wakes,
            arrivals: Arrivals::new(regime, seed),
            outcomes: Outcomes {
                parts: vec![0; parts],
                limits: (u64::MAX, 0),
                ..Outcomes::default()
            },
        }
    }

    fn outcomes(mut self) -> Outcomes {
        let end = (self.regime.seconds * SECOND as f64) as u64;
        let mut passed = 0;
        loop {
            let deadline = self.deadlines.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let now = self.arrivals.next.min(self.service.next()).min(deadline);
            if now >= end {
                break;
            }
            if self.is_measured(passed) {
                self.outcomes.inside += (now - passed) as f64 * f64::from(self.service.inside());
            }
            passed = now;
            if now == self.arrivals.next {
                if self.arrivals.arrives(self.regime, now) {
                    self.arrive(now);
                }
            } else if now == deadline {
                if let Some(Reverse((_, number, arrival))) = self.deadlines.pop()
                    && self.requests[number].arrival == arrival
                {
                    self.poll(number, now);
                }
            } else if let Some(response) = self.service.advance() {
                self.respond(now, response);
            }
            while let Ok(number) = self.woken.try_recv() {
                self.poll(number, now);
            }
        }

        let measured = self.regime.seconds - self.regime.warm_up;
        self.outcomes.inside /= measured * SECOND as f64;
        self.outcomes.goodput = self.outcomes.good as f64 / measured / self.regime.capacity();
        let seen = self.gateways[0].gate.observe(Instant::from_nanos(end));
        self.outcomes.stats = seen.rules[0].auto;
        self.outcomes
    }

    fn is_measured(&self, now: u64) -> bool {
        now as f64 >= self.regime.warm_up * SECOND as f64
    }

    fn arrive(&mut self, now: u64) {
        let number = self.arrivals.count;
        let gateway = number as usize % self.gateways.len();
        let work = Work::of(self.regime, self.seed, number, now);
        let Gateway { gate, slot } = &self.gateways[gateway];
        let claim =
            Claim { slot: *slot, key: Key::Shared, cost: 1, patience: Duration::ZERO, plan: None };
        let mut report = Report::default();
        let decided = gate.decide(Instant::from_nanos(now), &[claim], &mut report);

        if self.is_measured(now) {
            self.outcomes.arrived += 1;
            let limit = report.quotas[0].limit;
            let (least, most) = self.outcomes.limits;
            self.outcomes.limits = (least.min(limit), most.max(limit));
        }
        match decided {
            Ok(permit) => {
                let request =
                    Request { arrival: now, work, permit: Some(permit), has_started: false };
                let number = self.keep(request);
                self.poll(number, now);
            }
            Err(_) => self.reject(now, now),
        }
    }

    fn keep(&mut self, request: Request) -> usize {
        if let Some(number) = self.free.pop() {
            self.requests[number] = request;
            number
        } else {
            self.requests.push(request);
            self.requests.len() - 1
        }
    }

    fn reject(&mut self, now: u64, arrival: u64) {
        self.arrivals.send_again(now + 20 * MILLI);
        if self.is_measured(arrival) {
            self.outcomes.rejected += 1;
        }
    }

    /// Starts a request if it has its place.
    fn poll(&mut self, number: usize, now: u64) {
        let request = &mut self.requests[number];
        let Some(permit) = request.permit.as_mut().filter(|_| !request.has_started) else { return };
        if permit.is_waiting() {
            let waker = Waker::from(Arc::new(Alarm(number, self.wakes.clone())));
            match permit.poll_start(Instant::from_nanos(now), &waker) {
                Poll::Pending => {
                    if let Some(until) = permit.waits_until() {
                        let deadline = (until.as_nanos(), number, request.arrival);
                        self.deadlines.push(Reverse(deadline));
                    }
                    return;
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => {
                    let arrival = request.arrival;
                    request.permit = None;
                    self.free.push(number);
                    return self.reject(now, arrival);
                }
            }
        }
        request.has_started = true;
        self.service.send(now, number, request.work);
    }

    fn respond(&mut self, now: u64, response: Response) {
        let Response { request: number, fails } = response;
        let request = &mut self.requests[number];
        let Some(permit) = request.permit.take() else { return };
        let at = Instant::from_nanos(now);
        permit.finish(if fails { Outcome::Failure { at } } else { Outcome::Success { at } });

        self.arrivals.send_again(now);
        let arrival = request.arrival;
        self.free.push(number);
        if !fails && now - arrival <= self.regime.deadline {
            self.outcomes.parts[(now * PARTS / SECOND) as usize] += 1;
            if self.is_measured(now) {
                self.outcomes.good += 1;
            }
        }
    }
}

/// The arrivals of requests: a Poisson process whose rate may change, or clients that send again.
struct Arrivals {
    /// The times at which clients send.
    clients: Option<BinaryHeap<Reverse<u64>>>,
    random: Random,
    switches: Random,
    next: u64,
    count: u64,
    is_on: bool,
    /// The next switch between high and low load.
    switch: u64,
    /// The time between two arrivals at the highest rate, in nanoseconds.
    apart: f64,
}

impl Arrivals {
    fn new(regime: &Regime, seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let apart = SECOND as f64 / (regime.capacity() * regime.load.most());
        let next = random.exponential(apart) as u64;
        let switches = Random::new(seed, 2);
        if let Load::Clients(count) = regime.load {
            let clients = Some((0..u64::from(count)).map(|n| Reverse(n * 1_000)).collect());
            return Self {
                clients,
                random,
                switches,
                next: 0,
                count: 0,
                is_on: true,
                switch: 0,
                apart,
            };
        }
        Self { clients: None, random, switches, next, count: 0, is_on: false, switch: 0, apart }
    }

    /// Returns whether a request arrives now, of those at the highest rate.
    fn arrives(&mut self, regime: &Regime, now: u64) -> bool {
        if let Some(clients) = &mut self.clients {
            clients.pop();
            self.next = clients.peek().map_or(u64::MAX, |Reverse(at)| *at);
            self.count += 1;
            return true;
        }
        if let Load::Bursts { on, off, .. } = regime.load {
            while now >= self.switch {
                self.is_on = !self.is_on;
                let mean = if self.is_on { on } else { off };
                self.switch += self.switches.exponential(mean * SECOND as f64) as u64 + 1;
            }
        }
        self.next = now + self.random.exponential(self.apart) as u64 + 1;
        let load = regime.load.at(now as f64 / SECOND as f64, self.is_on);
        let arrives = self.random.unit() * regime.load.most() <= load;
        self.count += u64::from(arrives);
        arrives
    }

    /// Lets a client send its next request.
    fn send_again(&mut self, at: u64) {
        if let Some(clients) = &mut self.clients {
            clients.push(Reverse(at));
            self.next = self.next.min(at);
        }
    }
}
