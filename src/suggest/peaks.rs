//! The most requests of a key within a window, wherever the window begins.

use super::traffic::Request;
use crate::flow::Instant;
use core::time::Duration;

/// The windows that are looked at.
pub(super) const WINDOWS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_mins(1), Duration::from_hours(1)];

/// What a key asked for in one window's length.
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
