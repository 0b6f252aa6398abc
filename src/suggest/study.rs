//! From traffic to a limit for each route.

use super::{
    command::Options,
    proposal::{self, Basis, MARGIN, Percent, Proposal},
    suggested_config::{self, RouteResult},
    traffic::{LEAST_REQUESTS, Peaks, Request, Traffic, WINDOWS},
    trial::{self, Limits, Tried, words},
};
use crate::{
    config::Diagnostics,
    counted::{counted, inflected},
    flow::Instant,
};
use core::time::Duration;

/// The fewest windows that a log must be long.
const LEAST_WINDOWS: u32 = 10;

/// Fewer rejections say nothing of the next log.
const LEAST_REJECTED: u64 = 50;

/// Recorded traffic that is looked at.
pub(super) struct Study<'a> {
    pub options: &'a Options,
    pub traffic: &'a Traffic,
    /// The kind of the source: `log` or `recording`.
    pub source: &'static str,
    pub length: Duration,
    pub middle: Instant,
    /// Times are whole seconds: nothing is known of what happens within one.
    pub has_whole_seconds: bool,
}

impl Study<'_> {
    /// Returns what is known of each route, and its limit.
    pub(super) fn routes(&self) -> Result<Vec<RouteResult>, Diagnostics> {
        let by_group = self.by_group();
        let peaks: Vec<Vec<Peaks>> = by_group.iter().map(|requests| self.peaks(requests)).collect();
        let mut proposals: Vec<Result<Proposal, String>> = Vec::new();
        for (requests, peaks) in by_group.iter().zip(&peaks) {
            proposals.push(self.first(requests.len(), peaks));
        }
        if let Some(target) = self.options.target {
            self.lower_to(target, &mut proposals)?;
        }
        let tried = self.settle(&peaks, &mut proposals)?;
        let groups = self.traffic.groups.iter().zip(0..);
        let results = groups.zip(by_group.iter().zip(peaks)).zip(proposals.into_iter().zip(tried));
        let results =
            results.map(|(((group, index), (requests, peaks)), (proposal, tried))| RouteResult {
                group: group.clone(),
                requests: requests.len(),
                clients: requests.chunk_by(|a, b| a.key == b.key).count(),
                without_key: self.traffic.without_key.get(&index).copied().unwrap_or(0),
                peaks,
                proposal: proposal.map(|proposal| (proposal, tried)),
            });
        Ok(results.filter(|result| result.requests > 0 || result.without_key > 0).collect())
    }

    /// Returns the requests of each route, by key and then by time.
    fn by_group(&self) -> Vec<Vec<Request>> {
        let mut groups = vec![Vec::new(); self.traffic.groups.len()];
        for request in &self.traffic.requests {
            groups[request.group as usize].push(*request);
        }
        for requests in &mut groups {
            // The sort is stable, so that each key's requests stay in the order of time.
            requests.sort_by_key(|request| request.key);
        }
        groups
    }

    fn peaks(&self, requests: &[Request]) -> Vec<Peaks> {
        let usual = |window: &Duration| *window <= self.length;
        let windows: Vec<Duration> = match self.options.window {
            Some(window) => vec![window],
            None => WINDOWS.into_iter().filter(usual).collect(),
        };
        windows.into_iter().map(|window| Peaks::of(requests, window, self.middle)).collect()
    }

    /// True if the log says enough of this window.
    fn is_known(&self, window: Duration) -> bool {
        let is_seen = !self.has_whole_seconds || window >= Duration::from_secs(10);
        self.length >= window * LEAST_WINDOWS && (is_seen || self.options.window.is_some())
    }

    /// Returns a route's limit by its peaks alone, or why it has none.
    fn first(&self, requests: usize, peaks: &[Peaks]) -> Result<Proposal, String> {
        if requests < LEAST_REQUESTS {
            return Err(format!(
                "{} {} too few; {LEAST_REQUESTS} are needed",
                counted(requests, "request"),
                inflected(requests, "is", "are")
            ));
        }

        let known: Vec<_> =
            peaks.iter().filter(|peaks| self.is_known(peaks.window)).cloned().collect();
        let Some(usual) = usual(&known) else {
            let window =
                self.options.window.unwrap_or_else(|| WINDOWS[usize::from(self.has_whole_seconds)]);
            return Err(format!(
                "the {} is too short; for a window of {} it must be {} long",
                self.source,
                words(window),
                words(window * LEAST_WINDOWS)
            ));
        };

        if let Some(target) = self.options.target {
            let highest = proposal::above_all(usual, 0.2);
            return Ok(Proposal { basis: Basis::Target(target), ..highest });
        }

        let found = proposal::apart(&known, self.margin());
        Ok(found.unwrap_or_else(|| proposal::above_all(usual, self.margin())))
    }

    fn margin(&self) -> f64 {
        self.options.margin.map_or(MARGIN, Percent::share)
    }

    /// Tries the proposals. A limit whose rejections are few, or differ between the halves of the
    /// log, says nothing of the next log: it gives way to one above all clients.
    fn settle(
        &self,
        peaks: &[Vec<Peaks>],
        proposals: &mut [Result<Proposal, String>],
    ) -> Result<Vec<Tried>, Diagnostics> {
        let tried = self.run(proposals)?;
        let mut has_changed = false;
        for ((proposal, tried), peaks) in proposals.iter_mut().zip(&tried).zip(peaks) {
            let Ok(found) = proposal else { continue };
            let is_apart = matches!(found.basis, Basis::Apart { .. });
            let known: Vec<_> =
                peaks.iter().filter(|peaks| self.is_known(peaks.window)).cloned().collect();
            if let Some(usual) = usual(&known).filter(|_| is_apart && !is_steady(tried)) {
                *found = proposal::above_all(usual, self.margin());
                has_changed = true;
            }
        }
        if has_changed { self.run(proposals) } else { Ok(tried) }
    }

    /// Lowers the limits as far as they reject at most this share, by halving.
    fn lower_to(
        &self,
        target: Percent,
        proposals: &mut [Result<Proposal, String>],
    ) -> Result<(), Diagnostics> {
        let margin = self.options.margin.map_or(0.0, Percent::share);
        let mut bounds: Vec<[u64; 2]> = proposals
            .iter()
            .map(|proposal| [0, proposal.as_ref().map_or(0, |proposal| proposal.limit)])
            .collect();

        let is_open = |[low, high]: &[u64; 2]| high - low > (high / 100).max(1);
        while bounds.iter().any(is_open) {
            let middle = |[low, high]: [u64; 2]| (low + (high - low) / 2).max(1);
            for (proposal, bounds) in proposals.iter_mut().zip(&bounds) {
                if let Ok(proposal) = proposal {
                    proposal.limit = middle(*bounds);
                }
            }

            let tried = self.run(proposals)?;
            for (bounds, tried) in
                bounds.iter_mut().zip(tried).filter(|(bounds, _)| is_open(bounds))
            {
                let middle = middle(*bounds);
                let side = usize::from(share(&tried) <= target);
                bounds[side] = middle;
            }
        }

        for (proposal, [_, high]) in proposals.iter_mut().zip(bounds) {
            if let Ok(proposal) = proposal {
                proposal.limit =
                    if margin > 0.0 { proposal::raised(high, 1.0 + margin) } else { high };
            }
        }
        Ok(())
    }

    fn run(&self, proposals: &[Result<Proposal, String>]) -> Result<Vec<Tried>, Diagnostics> {
        let limit = |proposal: &Result<Proposal, String>| {
            proposal.as_ref().ok().map(|proposal| (proposal.window, proposal.limit))
        };
        let limits: Limits = proposals.iter().map(limit).collect();
        trial::run(self.traffic, &limits, self.middle)
    }
}

/// Returns the window of a limit above all clients: a minute, or the longest that is known.
fn usual(known: &[Peaks]) -> Option<&Peaks> {
    let minute = known.iter().find(|peaks| peaks.window == WINDOWS[1]);
    minute.or_else(|| known.last())
}

fn share(tried: &Tried) -> Percent {
    Percent::of(tried.rejected.iter().sum(), tried.offered.iter().sum())
}

fn is_steady(tried: &Tried) -> bool {
    let halves = [0, 1].map(|half| Percent::of(tried.rejected[half], tried.offered[half]));
    tried.rejected.iter().sum::<u64>() >= LEAST_REJECTED && !suggested_config::varies(halves)
}
