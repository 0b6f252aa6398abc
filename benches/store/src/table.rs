//! The cells of the table.

use crate::load::Call;
use std::time::{Duration, Instant};

/// Says how many calls for some keys failed, of those that began within a time.
///
/// In brackets is the longest call if none failed. If the last failure began in the first half of
/// the time, it is the time until then; otherwise it is the median duration of the failed calls.
pub(crate) fn cell(calls: &[Call], keys: &[usize], from: Instant, until: Instant) -> String {
    let counted: Vec<Call> = calls
        .iter()
        .copied()
        .filter(|call| keys.contains(&call.key) && (from..until).contains(&call.began))
        .collect();
    let failed: Vec<Call> = counted.iter().copied().filter(|call| call.failed).collect();
    let of = format!("{} of {}", thousands(failed.len()), thousands(counted.len()));
    let Some(last) = failed.iter().map(|call| call.began - from).max() else {
        let longest = counted.iter().map(|call| call.lasted).max().unwrap_or_default();
        return format!("{of} (at most {})", milliseconds(longest));
    };
    if last < (until - from) / 2 {
        return format!("{of} (last at {})", milliseconds(last));
    }
    let mut waits: Vec<Duration> = failed.iter().map(|call| call.lasted).collect();
    waits.sort_unstable();
    format!("{of} (median {})", milliseconds(waits[waits.len() / 2]))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn thousands(count: usize) -> String {
    if count < 1_000 {
        count.to_string()
    } else {
        format!("{},{:03}", count / 1_000, count % 1_000)
    }
}
