//! The routes whose requests fail, and the slowest ones.

use super::{board::Board, route::millis};
use crate::{
    admin::sample::{Failing, FailingRoute, SlowRoute},
    worst_paths::PathList,
};
use std::cmp::Reverse;

/// The routes that fail the most, and the slowest ones, of all routes.
const MOST: usize = 8;

/// The share of failed requests from which on a banner says so.
const MANY: f64 = 0.1;

impl Failing {
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

/// True if a route fails more often than not.
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
