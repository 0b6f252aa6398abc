//! The routes whose requests fail, and the slowest ones.

use super::{board::Board, route::millis};
use crate::worst_paths::PathList;
use serde::Serialize;
use std::cmp::Reverse;

/// The routes that fail the most, and the slowest ones, of all routes.
const MOST: usize = 8;

/// From which share of its requests on a failing service is a matter for a banner.
const MANY: f64 = 0.1;

/// What fails, and what is slow.
#[derive(Debug, Serialize)]
pub(super) struct FailingView {
    /// Failed requests of all routes in the last ten seconds, as a share of the admitted ones.
    share: f64,
    /// Failed requests per second in this time.
    per_second: f64,
    /// Whether so many fail that an operator should look.
    many: bool,
    routes: Vec<FailingRoute>,
    slowest: Vec<SlowRoute>,
    /// The paths that fail the most, and those that are slow the most.
    paths: PathList,
}

#[derive(Debug, Serialize)]
struct FailingRoute {
    route: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    per_second: f64,
    share: f64,
}

#[derive(Debug, Serialize)]
struct SlowRoute {
    route: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    /// Milliseconds.
    p50: Option<f64>,
    p99: Option<f64>,
}

impl FailingView {
    pub(super) fn of(board: &Board, paths: PathList) -> Self {
        let Some((snapshot, tracks)) = board.routes() else { return Self::new(0, 0, Vec::new()) };
        let mut failing = Vec::new();
        let mut all_failed = 0;
        let mut all_admitted = 0;
        let mut slow = Vec::new();
        for (route, track) in snapshot.routes.iter().zip(tracks) {
            let failed = track.failed_lately.sum();
            let admitted = track.admitted_lately.sum();
            all_failed += failed;
            all_admitted += admitted;
            let upstream = || route.action.upstream().map(|upstream| upstream.name.to_string());
            if failed > 0 {
                failing.push(FailingRoute {
                    route: route.name.to_string(),
                    upstream: upstream(),
                    per_second: track.failed_lately.rate(),
                    share: share(failed, admitted),
                });
            }
            if track.latest.p99 > 0 {
                slow.push((track.latest, route));
            }
        }
        failing.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
        failing.truncate(MOST);
        slow.sort_by_key(|(latest, _)| Reverse(latest.p99));
        let slowest = slow.into_iter().take(MOST).map(|(latest, route)| SlowRoute {
            route: route.name.to_string(),
            upstream: route.action.upstream().map(|upstream| upstream.name.to_string()),
            p50: millis(latest.p50),
            p99: millis(latest.p99),
        });
        let slowest = slowest.collect();
        Self { slowest, paths, ..Self::new(all_failed, all_admitted, failing) }
    }

    fn new(failed: u64, admitted: u64, routes: Vec<FailingRoute>) -> Self {
        let share = share(failed, admitted);
        let many = failed > 0 && (share >= MANY || routes.iter().any(is_failing));
        let per_second = per_second(failed);
        let paths = PathList::default();
        Self { share, per_second, many, routes, slowest: Vec::new(), paths }
    }
}

/// Reports whether a route fails more often than not.
fn is_failing(route: &FailingRoute) -> bool {
    route.share >= 0.5
}

/// Returns the part of requests that failed. Requests that were admitted before may fail now.
#[expect(clippy::cast_precision_loss, reason = "a share is read, not counted with")]
fn share(failed: u64, admitted: u64) -> f64 {
    failed as f64 / admitted.max(failed).max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "a rate is read, not counted with")]
fn per_second(failed: u64) -> f64 {
    failed as f64 / 10.0
}
