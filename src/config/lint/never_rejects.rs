//! Rules that can never reject, because a stricter one rejects first.

use crate::{
    config::plan::RulePlan,
    flow::{self, Algorithm, Rate, limiter::fixed_window},
    route::{KeyPart, KeySpec},
};

/// True if all that `busy` lets pass fits into `idle`: the same algorithm with numbers no
/// larger, or a window beside a bucket.
pub(super) fn is_stricter(busy: &Algorithm, idle: &Algorithm) -> bool {
    use Algorithm::{
        Concurrency, FixedWindow, LeakyBucket, SlidingCounter, SlidingLog, SlidingWindow,
        TokenBucket, WarmUp,
    };

    let lower = |a: Rate, b: Rate| a.window() == b.window() && a.count() <= b.count();

    match (busy, idle) {
        (WarmUp(a), WarmUp(b)) => {
            lower(a.rate, b.rate) && a.burst <= b.burst && a.warm_up == b.warm_up
        }
        (TokenBucket(a), TokenBucket(b)) => lower(a.rate, b.rate) && a.burst <= b.burst,
        (LeakyBucket(a), LeakyBucket(b)) => lower(a.rate, b.rate) && a.capacity <= b.capacity,
        (SlidingWindow(a), SlidingWindow(b)) => {
            lower(a.rate, b.rate) && (a.buckets, a.strict) == (b.buckets, b.strict)
        }
        (SlidingLog(a), SlidingLog(b)) => lower(a.rate, b.rate),
        (SlidingCounter(a), SlidingCounter(b)) => lower(a.rate, b.rate),
        (FixedWindow(a), FixedWindow(b)) => {
            lower(a.rate, b.rate)
                && a.align == b.align
                && a.align != fixed_window::Align::FirstRequest
        }
        (Concurrency(a), Concurrency(b)) => a.limit <= b.limit,
        (SlidingLog(a), TokenBucket(b)) => fits(a.rate, b.rate, b.burst),
        (SlidingLog(a), LeakyBucket(b)) => fits(a.rate, b.rate, b.capacity),
        (TokenBucket(a), SlidingLog(b)) => holds(a.rate, a.burst, b.rate),
        (LeakyBucket(a), SlidingLog(b)) => holds(a.rate, a.capacity, b.rate),
        (TokenBucket(a), FixedWindow(b)) if b.align.calendar().is_none() => {
            holds(a.rate, a.burst, b.rate)
        }
        (LeakyBucket(a), FixedWindow(b)) if b.align.calendar().is_none() => {
            holds(a.rate, a.capacity, b.rate)
        }
        _ => false,
    }
}

/// True if a bucket never runs empty of what passes a window, whenever that begins: it
/// holds the window's count, and gains as much while the window lasts.
fn fits(window: Rate, bucket: Rate, burst: u64) -> bool {
    let gained = u128::from(bucket.count()) * u128::from(window.window_nanos());
    let spent = u128::from(window.count()) * u128::from(bucket.window_nanos());
    window.count() <= burst && spent <= gained
}

/// True if a window never holds more than its count of what passes a bucket: the burst, and
/// what the bucket gains while the window lasts.
fn holds(bucket: Rate, burst: u64, window: Rate) -> bool {
    let unit = u128::from(bucket.window_nanos());
    let gained = u128::from(bucket.count()) * u128::from(window.window_nanos());
    u128::from(burst) * unit + gained <= u128::from(window.count()) * unit
}

/// True if every request has the key, so that none is rejected for want of it. What all
/// clients together may use is then more than enough for one.
fn is_always_there(key: &KeySpec) -> bool {
    key.parts().iter().all(|part| match part {
        KeyPart::Route
        | KeyPart::ClientIp { .. }
        | KeyPart::Listener
        | KeyPart::Host
        | KeyPart::Path
        | KeyPart::Method => true,
        KeyPart::Segment(_)
        | KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_)
        | KeyPart::User
        | KeyPart::Jwt(_)
        | KeyPart::Auth(_)
        | KeyPart::Json(_)
        | KeyPart::ClientCert
        | KeyPart::Country
        | KeyPart::Asn => false,
    })
}

/// Returns pairs of a rule that can never reject and the stricter one that always rejects before it:
/// of the same cost and exceptions, and the same key or none.
pub(super) fn idle_rules(rules: &[flow::Rule], plans: &[RulePlan]) -> Vec<(usize, usize)> {
    // A rule that has overrides is not asked by all.
    let is_split =
        |plan: &RulePlan| plans.iter().any(|other| other.when.is_some() && other.name == plan.name);

    let is_same_key = |busy: usize, idle: usize| {
        let a = &plans[busy];
        let b = &plans[idle];
        rules[busy].keyed == rules[idle].keyed
            && a.key.on_duplicate() == b.key.on_duplicate()
            && a.on_missing == b.on_missing
    };

    let is_busier = |busy: usize, idle: usize| {
        let a = &plans[busy];
        let b = &plans[idle];
        let stricter = is_stricter(&rules[busy].algorithm, &rules[idle].algorithm);
        stricter
            && !a.dry_run
            && a.cost == b.cost
            && (a.except.is_none() && b.except.is_none())
            && (!is_split(a) && !is_split(b))
            && (is_same_key(busy, idle) || (a.key.is_shared() && is_always_there(&b.key)))
            // What one gateway rejects, the others may let pass.
            && a.shared.is_some() == b.shared.is_some()
    };

    let of = |idle: usize| {
        let busy = |busy: &usize| {
            // Of two equal rules, the second is the idle one.
            *busy != idle && is_busier(*busy, idle) && (*busy < idle || !is_busier(idle, *busy))
        };
        (0..rules.len()).find(busy).map(|busy| (idle, busy))
    };

    (0..rules.len()).filter_map(of).collect()
}
