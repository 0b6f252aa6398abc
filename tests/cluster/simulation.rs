//! What gateways let pass that share a limit, in virtual time: how much more than the limit, how
//! much less, and what it asks of the store. Synced states are the production's, in a
//! redis-server; of leases, which are not built, there is a small model.
//!
//! `UPDATE_PICTURES=1 cargo test --test cluster simulation` writes docs/cluster-size.md's numbers and its
//! picture again.

use crate::{
    TODAY,
    chart::chart,
    gateways::{CallOutcome, Gateways, Store},
    synced::most_within,
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Instant, Rate,
    limiter::fixed_window::{self, Align},
};
use std::{
    collections::{HashMap, VecDeque},
    env,
    fmt::Write as _,
    fs,
    path::Path,
};

/// The limit of a second.
pub(crate) const LIMIT: u64 = 1_000;

const SECOND: u64 = 1_000_000_000;

/// How long each run is, in seconds: an interval's phase, and so the excess, differs in each.
const SECONDS: u64 = 2;

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// As many to each gateway.
    Even,
    /// Half of all to one.
    Skewed,
    /// All to one, and to the next after a twentieth of a second.
    Moving,
}

impl Traffic {
    const fn word(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Skewed => "skewed",
            Self::Moving => "moving",
        }
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulationResult {
    /// What passed in the worst second beyond the limit.
    pub(crate) excess: u64,
    /// The most that could have been.
    pub(crate) bound: u64,
    /// What was rejected in the worst second of what one gateway would have let pass.
    lacking: u64,
    /// Requests that waited for the store, and calls of it, of a thousand requests.
    waited: u64,
    calls: u64,
}

/// One that repeats.
struct Random(u64);

impl Random {
    /// Returns a number below `bound` (splitmix64, Steele et al., 2014).
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// Returns when each request comes, from a second's beginning on, and to which gateway.
fn arrivals(gateways: usize, traffic: Traffic, a_second: u64) -> Vec<(u64, usize)> {
    let mut random = Random(7);
    let begin = TODAY - TODAY % SECOND;
    let arrival = |at: u64| {
        let now = begin + at * SECOND / a_second + random.below(SECOND / a_second);
        let to = match traffic {
            Traffic::Skewed if random.below(2) == 0 => 0,
            Traffic::Even | Traffic::Skewed => random.below(gateways as u64),
            Traffic::Moving => (now - begin) / (SECOND / 20) % gateways as u64,
        };
        (now, usize::try_from(to).expect("few gateways"))
    };
    (0..SECONDS * a_second).map(arrival).collect()
}

/// Sums up what passed of what came.
fn measured(
    arrivals: &[(u64, usize)],
    passed: &[(u64, usize)],
    unseen: Duration,
    [waited, calls]: [u64; 2],
) -> SimulationResult {
    let in_second = |all: &[(u64, usize)], second: u64| {
        all.iter().filter(|(at, _)| at / SECOND == second).count() as u64
    };
    let first = TODAY / SECOND;
    let seconds = (first..first + SECONDS).map(|second| {
        let came = in_second(arrivals, second);
        let passed = in_second(passed, second);
        (passed.saturating_sub(LIMIT), came.min(LIMIT).saturating_sub(passed))
    });
    let (excess, lacking): (Vec<u64>, Vec<u64>) = seconds.unzip();
    let gateways = arrivals.iter().map(|arrival| arrival.1).max().unwrap_or(0) + 1;
    let mut by_gateway = vec![Vec::new(); gateways];
    for &(at, to) in passed {
        by_gateway[to].push((Instant::from_nanos(at), 1));
    }
    let mut most: Vec<u64> =
        by_gateway.iter().map(|arrivals| most_within(arrivals, unseen)).collect();
    most.sort_unstable();
    let all = arrivals.len() as u64;
    SimulationResult {
        excess: excess.into_iter().max().unwrap_or(0),
        bound: most[1..].iter().map(|unseen| unseen.min(&LIMIT)).sum(),
        lacking: lacking.into_iter().max().unwrap_or(0),
        waited: waited * 1_000 / all,
        calls: calls * 1_000 / all,
    }
}

/// Gateways that sync states.
fn synced(
    store: &mut Store,
    (gateways, interval): (usize, u64),
    arrivals: &[(u64, usize)],
) -> SimulationResult {
    let rate = Rate::new(LIMIT, Duration::from_secs(1)).expect("a rate");
    let rule = Algorithm::FixedWindow(fixed_window::Config { rate, align: Align::Clock });
    store.calls += 1;
    let name = format!("run {} of {gateways}", store.calls);
    let mut them = Gateways::start(&name, &rule, gateways);
    let mut random = Random(interval);
    let begin = arrivals[0].0;
    let mut due: Vec<(u64, usize)> =
        (0..gateways).map(|at| (begin + random.below(interval), at)).collect();
    due.sort_unstable();
    // They keep their order, as each comes again after the same time.
    let mut due = VecDeque::from(due);
    let before = store.calls;
    let mut passed = Vec::new();
    for &(now, at) in arrivals {
        while let Some((next, at)) = due.pop_front_if(|(next, _)| *next <= now) {
            them.sync(store, at, Instant::from_nanos(next), CallOutcome::Answered);
            due.push_back((next + interval, at));
        }
        if them.passes(at, Instant::from_nanos(now), 0, 1) {
            passed.push((now, at));
        }
    }
    measured(arrivals, &passed, Duration::from_nanos(2 * interval), [0, store.calls - before])
}

/// Gateways of which the store decides about each request.
fn atomic(arrivals: &[(u64, usize)]) -> SimulationResult {
    let mut used = HashMap::new();
    let fits = |(at, _): &&(u64, usize)| {
        let used: &mut u64 = used.entry(at / SECOND).or_default();
        *used += 1;
        *used <= LIMIT
    };
    let passed: Vec<_> = arrivals.iter().filter(fits).copied().collect();
    let all = arrivals.len() as u64;
    measured(arrivals, &passed, Duration::ZERO, [all, all])
}

/// Gateways that lease permits of a second, as many as they have used in the latest tenth of
/// one, and spend them. A gateway that gets none asks no more in that second; what is
/// not spent at its end is lost.
fn leases(gateways: usize, arrivals: &[(u64, usize)]) -> SimulationResult {
    const RECENT: u64 = SECOND / 10;
    let mut second = 0;
    let mut left = 0;
    let mut held: Vec<Option<u64>> = vec![Some(0); gateways];
    let mut recent: Vec<VecDeque<u64>> = vec![VecDeque::default(); gateways];
    let mut passed = Vec::new();
    let mut calls = 0;
    for &(now, at) in arrivals {
        if now / SECOND != second {
            second = now / SECOND;
            left = LIMIT;
            held.fill(Some(0));
        }
        while recent[at].pop_front_if(|before| *before + RECENT <= now).is_some() {}
        if held[at] == Some(0) {
            calls += 1;
            let lease = (recent[at].len() as u64).max(1).min(left);
            left -= lease;
            held[at] = (lease > 0).then_some(lease);
        }
        if let Some(permits) = held[at].as_mut().filter(|permits| **permits > 0) {
            *permits -= 1;
            passed.push((now, at));
            recent[at].push_back(now);
        }
    }
    measured(arrivals, &passed, Duration::ZERO, [calls, calls])
}

const GATEWAYS: [usize; 5] = [1, 2, 8, 100, 1_000];

/// In milliseconds.
pub(crate) const INTERVALS: [u64; 3] = [100, 200, 500];

/// One row of docs/cluster-size.md.
fn row(table: &mut String, mode: &str, of: &SimulationResult, under: &SimulationResult) {
    let percent = |part: u64| format!("{}.{} %", part * 100 / LIMIT, part * 1_000 / LIMIT % 10);
    let excess = percent(of.excess);
    let lacking = percent(of.lacking);
    let early = percent(under.lacking);
    let SimulationResult { waited, calls, .. } = of;
    writeln!(table, "| {mode} | {excess} | {lacking} | {early} | {waited} | {calls} |")
        .expect("a string takes it");
}

/// Adds the rows of both numbers of gateways that docs/cluster-size.md compares.
fn compare(store: &mut Store, table: &mut String, traffic: Traffic) {
    for gateways in [8, 100] {
        let [twice, almost] =
            [2 * LIMIT, LIMIT * 9 / 10].map(|rate| arrivals(gateways, traffic, rate));
        let name = |mode: &str| format!("{gateways}, {}, {mode}", traffic.word());
        row(table, &name("atomic"), &atomic(&twice), &atomic(&almost));
        let [over, under] =
            [&twice, &almost].map(|arrivals| synced(store, (gateways, SECOND / 10), arrivals));
        row(table, &name("`sync_interval: 100ms`"), &over, &under);
        let [over, under] = [&twice, &almost].map(|arrivals| leases(gateways, arrivals));
        assert_eq!(over.excess, 0);
        row(table, &name("leases"), &over, &under);
    }
}

#[test]
fn the_documentation_has_the_numbers_of_the_simulation() {
    let mut store = Store::start();
    let mut runs = Vec::new();
    for traffic in [Traffic::Even, Traffic::Skewed] {
        for gateways in GATEWAYS {
            let arrivals = arrivals(gateways, traffic, 2 * LIMIT);
            for interval in INTERVALS {
                let result = synced(&mut store, (gateways, interval * 1_000_000), &arrivals);
                assert!(result.excess <= result.bound, "{gateways} {interval} {result:?}");
                assert_eq!(result.lacking, 0, "{gateways} {interval}");
                runs.push((traffic, gateways, result));
            }
        }
    }
    let mut table = String::new();
    for traffic in [Traffic::Even, Traffic::Skewed, Traffic::Moving] {
        compare(&mut store, &mut table, traffic);
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    keep(&docs.join("pictures/synced.svg"), &chart(&runs, &GATEWAYS));
    let page = fs::read_to_string(docs.join("cluster-size.md")).expect("the page");
    let (before, rest) = page.split_once(HEAD).expect("it has the table");
    let after = rest.split_once("\n\n").expect("something follows").1;
    keep(&docs.join("cluster-size.md"), &format!("{before}{HEAD}{table}\n{after}"));
}

/// What the rows of the table stand under.
const HEAD: &str = "|---|---|---|---|---|---|\n";

/// Compares a file with what it should be, or makes it that.
fn keep(path: &Path, text: &str) {
    if env::var_os("UPDATE_PICTURES").is_some() {
        fs::write(path, text).expect("written");
    }
    assert!(
        fs::read_to_string(path).unwrap_or_default() == text,
        "{} is not what is simulated: UPDATE_PICTURES=1 cargo test --test cluster simulation",
        path.display()
    );
}
