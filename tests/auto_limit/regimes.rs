//! The loads and services on which limits are tried.
//!
//! A name says the kind of the service, its places, and the load as a share of its capacity: `exp-8-1.2`.

use super::service::{SECOND, Times};

/// The mean service time, in nanoseconds.
pub(crate) const MEAN: u64 = 20 * MILLI;

pub(crate) const MILLI: u64 = 1_000_000;

/// A service and its load.
#[derive(Clone, Debug)]
pub(crate) struct Regime {
    pub(crate) name: String,
    /// The goodput of the best limit in hindsight, as a share of the capacity: see [`BEST`].
    pub(crate) best: f64,
    /// The requests that the service serves at once.
    pub(crate) places: u32,
    /// The mean service time, in nanoseconds.
    pub(crate) mean: u64,
    pub(crate) times: Times,
    /// From more requests than places on, they share the service and slow each other down.
    pub(crate) shares: bool,
    /// The places from these seconds on.
    pub(crate) steps: Vec<(f64, u32)>,
    /// Service times are longer by a factor, from one second to another.
    pub(crate) slow: Option<(f64, f64, f64)>,
    /// Every so many seconds, no request begins for so many.
    pub(crate) pause: Option<(f64, f64)>,
    /// The time to the service and back, in nanoseconds.
    pub(crate) round_trip: u64,
    /// The share of requests that fail after a millisecond.
    pub(crate) failing: f64,
    /// The share of requests that hang for 10 service times without using the service.
    pub(crate) stuck: f64,
    /// The service itself rejects what is more than this.
    pub(crate) rejects_above: Option<u32>,
    pub(crate) load: Load,
    /// Responses count that come within this time from the arrival, in nanoseconds.
    pub(crate) deadline: u64,
    /// The length in seconds, and the begin of the measurement.
    pub(crate) seconds: f64,
    pub(crate) warm_up: f64,
    pub(crate) gateways: usize,
}

/// The arrivals, as a share of the capacity before any step.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    Steady(f64),
    /// High and low for random times of these means, in seconds.
    Bursts {
        high: f64,
        low: f64,
        on: f64,
        off: f64,
    },
    /// From low to high and back in a period of seconds.
    Wave {
        low: f64,
        high: f64,
        period: f64,
    },
    /// So many clients, each of which sends its next request when it has the response, and 20 ms after a
    /// rejection. The capacity does not matter.
    Clients(u32),
}

impl Load {
    pub(crate) fn most(&self) -> f64 {
        match self {
            Self::Steady(load) => *load,
            Self::Bursts { high, low, .. } | Self::Wave { high, low, .. } => high.max(*low),
            Self::Clients(_) => 1.0,
        }
    }

    pub(crate) fn at(&self, second: f64, is_on: bool) -> f64 {
        match self {
            Self::Steady(load) => *load,
            Self::Bursts { high, .. } if is_on => *high,
            Self::Bursts { low, .. } => *low,
            Self::Wave { low, high, period } => {
                let turn = (std::f64::consts::TAU * second / period).cos();
                low + (high - low) * 0.5 * (1.0 - turn)
            }
            Self::Clients(_) => 1.0,
        }
    }
}

impl Regime {
    /// Returns a service with exponential times at a steady load.
    pub(crate) fn new(kind: &str, places: u32, load: f64) -> Self {
        let name = format!("{kind}-{load}");
        Self {
            best: best_of(&name),
            name,
            places,
            mean: MEAN,
            times: Times::Exponential,
            shares: false,
            steps: Vec::new(),
            slow: None,
            pause: None,
            round_trip: 0,
            failing: 0.0,
            stuck: 0.0,
            rejects_above: None,
            load: Load::Steady(load),
            deadline: 100 * MILLI,
            seconds: 80.0,
            warm_up: 20.0,
            gateways: 1,
        }
    }

    fn named(name: &str, places: u32) -> Self {
        Self { name: name.to_owned(), best: best_of(name), ..Self::new(name, places, 1.0) }
    }

    /// Returns how many requests the service serves in a second.
    pub(crate) fn capacity(&self) -> f64 {
        let good = (1.0 - self.failing) * self.mean as f64;
        f64::from(self.places) / (good + self.failing * MILLI as f64) * SECOND as f64
    }
}

/// Returns all regimes.
pub(crate) fn all() -> Vec<Regime> {
    let mut all = steady();
    all.extend(changing());
    all.extend(troubled());
    all.extend(distant());
    all.extend(varying());
    all
}

const LOADS: [f64; 5] = [0.5, 0.8, 1.2, 2.0, 5.0];

/// Services that do not change.
fn steady() -> Vec<Regime> {
    let mut all = Vec::new();
    for (kind, times) in [
        ("exp-8", Times::Exponential),
        ("lognormal-8", Times::LogNormal),
        ("two-8", Times::TwoPhases),
        ("equal-8", Times::Equal),
    ] {
        all.extend(LOADS.map(|load| Regime { times, ..Regime::new(kind, 8, load) }));
    }
    for places in [1, 2, 64, 400] {
        let (seconds, warm_up) = match places {
            1 | 2 => (160.0, 20.0),
            400 => (28.0, 8.0),
            _ => (80.0, 20.0),
        };
        let kind = format!("exp-{places}");
        all.extend(LOADS.map(|load| Regime {
            seconds,
            warm_up,
            ..Regime::new(&kind, places, load)
        }));
    }
    for places in [8, 64] {
        let kind = format!("sharing-{places}");
        let loads = [0.8, 1.2, 2.0, 5.0];
        all.extend(loads.map(|load| Regime { shares: true, ..Regime::new(&kind, places, load) }));
    }
    all
}

/// Services that get fewer or more places, or become slower.
fn changing() -> Vec<Regime> {
    let mut all = Vec::new();
    for (kind, places, fewer) in
        [("step-8-4", 8, 4), ("step-4-2", 4, 2), ("step-64-32", 64, 32), ("step-64-8", 64, 8)]
    {
        let steps = vec![(40.0, fewer), (60.0, places)];
        all.extend([0.8, 1.5].map(|load| Regime {
            steps: steps.clone(),
            seconds: 90.0,
            ..Regime::new(kind, places, load)
        }));
    }
    for (kind, factor, deadline) in [("slow-3", 3.0, 100), ("slow-10", 10.0, 500)] {
        all.extend([0.8, 1.2].map(|load| Regime {
            slow: Some((30.0, 60.0, factor)),
            seconds: 90.0,
            deadline: deadline * MILLI,
            ..Regime::new(kind, 8, load)
        }));
    }
    all
}

/// Services some of whose requests fail, hang, are rejected or have to wait.
fn troubled() -> Vec<Regime> {
    let loads = [0.8, 1.2, 2.0];
    let failing = |load| Regime { failing: 0.1, ..Regime::new("failing", 8, load) };
    let stuck = |load| Regime { stuck: 0.1, ..Regime::new("stuck", 8, load) };
    let rejecting = |load| Regime { rejects_above: Some(12), ..Regime::new("rejecting", 8, load) };
    let pausing = |load| Regime { pause: Some((5.0, 0.2)), ..Regime::new("pausing", 8, load) };

    let mut all: Vec<Regime> = loads.map(failing).into();
    all.extend(loads.map(stuck));
    all.extend([1.2, 2.0].map(rejecting));
    all.extend([0.8, 1.2].map(pausing));
    all
}

/// Services that are far away.
fn distant() -> Vec<Regime> {
    let far = |kind: &str, places, millis: u64, deadline: u64, load| Regime {
        round_trip: millis * MILLI,
        deadline: deadline * MILLI,
        ..Regime::new(kind, places, load)
    };
    let mut all = Vec::new();
    all.extend([0.8, 1.2, 2.0].map(|load| far("far-10", 8, 10, 150, load)));
    all.extend([0.8, 1.2, 2.0].map(|load| far("far-50", 8, 50, 350, load)));
    all.extend([0.8, 2.0].map(|load| far("far-50-strict", 8, 50, 100, load)));
    all.push(far("far-50-64", 64, 50, 350, 2.0));
    all
}

/// Loads and service times that change.
fn varying() -> Vec<Regime> {
    let wave = Load::Wave { low: 0.3, high: 1.8, period: 60.0 };
    let bursts = |high, on, off| Load::Bursts { high, low: 0.2, on, off };
    let mut all = vec![
        Regime { load: wave.clone(), seconds: 140.0, ..Regime::named("wave-8", 8) },
        Regime { load: wave, seconds: 140.0, ..Regime::named("wave-64", 64) },
        Regime { load: bursts(2.5, 1.0, 1.0), ..Regime::named("bursts-1s", 8) },
        Regime { load: bursts(5.0, 0.2, 0.8), ..Regime::named("bursts-0.2s", 8) },
        Regime { load: bursts(2.5, 10.0, 10.0), seconds: 140.0, ..Regime::named("bursts-10s", 8) },
    ];
    all.extend([0.8, 1.2, 2.0].map(|load| Regime {
        times: Times::Mixed,
        seconds: 90.0,
        ..Regime::new("mixed", 8, load)
    }));
    all
}

/// Returns services for clients each of which sends again when it has a response. All responses count.
pub(crate) fn of_clients() -> Vec<Regime> {
    let regime = |name, clients, places, millis, times| Regime {
        mean: millis * MILLI,
        times,
        load: Load::Clients(clients),
        deadline: 3_600 * SECOND,
        seconds: 30.0,
        warm_up: 14.0,
        ..Regime::named(name, places)
    };
    vec![
        regime("24 on 4, 5 ms", 24, 4, 5, Times::LogNormal),
        regime("200 on 8, 20 ms", 200, 8, 20, Times::Exponential),
        regime("96 on 32, 200 ms", 96, 32, 200, Times::Equal),
    ]
}

/// Returns the best goodput of a regime; 1 for one that is not listed.
fn best_of(name: &str) -> f64 {
    BEST.iter().find(|(of, _)| *of == name).map_or(1.0, |(_, best)| *best)
}

/// The goodput of the best limit in hindsight: the most of a search over limits and over orders of the
/// queue, which knew the deadline, in 5 runs.
const BEST: [(&str, f64); 87] = [
    ("exp-8-0.5", 0.4936),
    ("exp-8-0.8", 0.7880),
    ("exp-8-1.2", 0.9765),
    ("exp-8-2", 0.9956),
    ("exp-8-5", 0.9981),
    ("lognormal-8-0.5", 0.4885),
    ("lognormal-8-0.8", 0.7781),
    ("lognormal-8-1.2", 0.9578),
    ("lognormal-8-2", 0.9850),
    ("lognormal-8-5", 0.9812),
    ("two-8-0.5", 0.4778),
    ("two-8-0.8", 0.7532),
    ("two-8-1.2", 0.9361),
    ("two-8-2", 0.9706),
    ("two-8-5", 0.9711),
    ("equal-8-0.5", 0.4968),
    ("equal-8-0.8", 0.7966),
    ("equal-8-1.2", 0.9999),
    ("equal-8-2", 1.0000),
    ("equal-8-5", 1.0000),
    ("exp-1-0.5", 0.4665),
    ("exp-1-0.8", 0.6666),
    ("exp-1-1.2", 0.8369),
    ("exp-1-2", 0.9560),
    ("exp-1-5", 0.9830),
    ("exp-2-0.5", 0.4873),
    ("exp-2-0.8", 0.7364),
    ("exp-2-1.2", 0.9086),
    ("exp-2-2", 0.9851),
    ("exp-2-5", 0.9896),
    ("exp-64-0.5", 0.4970),
    ("exp-64-0.8", 0.7945),
    ("exp-64-1.2", 0.9921),
    ("exp-64-2", 0.9930),
    ("exp-64-5", 0.9946),
    ("exp-400-0.5", 0.4971),
    ("exp-400-0.8", 0.7949),
    ("exp-400-1.2", 0.9924),
    ("exp-400-2", 0.9922),
    ("exp-400-5", 0.9936),
    ("step-8-4-0.8", 0.6976),
    ("step-8-4-1.5", 0.8464),
    ("step-4-2-0.8", 0.6794),
    ("step-4-2-1.5", 0.8379),
    ("step-64-32-0.8", 0.7082),
    ("step-64-32-1.5", 0.8493),
    ("step-64-8-0.8", 0.5686),
    ("step-64-8-1.5", 0.7096),
    ("slow-3-0.8", 0.5630),
    ("slow-3-1.2", 0.6687),
    ("slow-10-0.8", 0.4942),
    ("slow-10-1.2", 0.6101),
    ("sharing-8-0.8", 0.7880),
    ("sharing-8-1.2", 0.9764),
    ("sharing-8-2", 0.9956),
    ("sharing-8-5", 0.9981),
    ("sharing-64-0.8", 0.7945),
    ("sharing-64-1.2", 0.9794),
    ("sharing-64-2", 0.9805),
    ("sharing-64-5", 0.9794),
    ("failing-0.8", 0.7094),
    ("failing-1.2", 0.8784),
    ("failing-2", 0.8961),
    ("stuck-0.8", 0.7087),
    ("stuck-1.2", 0.8720),
    ("stuck-2", 0.8847),
    ("far-10-0.8", 0.7954),
    ("far-10-1.2", 0.9957),
    ("far-10-2", 1.0000),
    ("far-50-0.8", 0.7966),
    ("far-50-1.2", 1.0054),
    ("far-50-2", 1.0050),
    ("far-50-strict-0.8", 0.7003),
    ("far-50-strict-2", 0.7978),
    ("far-50-64-2", 1.0010),
    ("wave-8", 0.7742),
    ("wave-64", 0.7797),
    ("bursts-1s", 0.5957),
    ("bursts-0.2s", 0.4236),
    ("bursts-10s", 0.6420),
    ("mixed-0.8", 0.6819),
    ("mixed-1.2", 0.8626),
    ("mixed-2", 1.0458),
    ("rejecting-1.2", 0.9765),
    ("rejecting-2", 0.9956),
    ("pausing-0.8", 0.7603),
    ("pausing-1.2", 0.9375),
];
