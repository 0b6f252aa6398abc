//! A name of servers: its addresses, and the time of its next lookup.

use super::resolver::{Family, Found};
use crate::flow::Instant;
use core::{mem, net::IpAddr, time::Duration};
use std::{io, sync::Arc};

/// The bounds of a time to live: some records have 0, and some have days by mistake.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_mins(5);

/// The time to live of addresses from the system's resolver, which reports none.
const SYSTEM_TTL: Duration = Duration::from_secs(30);

/// The time after which a name is resolved again if the lookup failed, also for one family, or if one
/// of its servers is not healthy.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

/// The shortest time between two lookups of a name whose servers cannot be connected to.
const PAUSE: Duration = Duration::from_secs(1);

/// The settings of the upstreams with a name that decide when it is resolved again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) is_by_ttl: bool,
    /// The shortest interval of those that have one.
    pub(super) every: Option<Duration>,
}

impl Schedule {
    /// Returns the time for which addresses with this time to live are used.
    pub(super) fn interval(self, ttl: Option<Duration>) -> Duration {
        let ttl = ttl.unwrap_or(SYSTEM_TTL).clamp(TTL_MIN, TTL_MAX);
        match self.every {
            Some(every) if self.is_by_ttl => every.min(ttl),
            Some(every) => every,
            None => ttl,
        }
    }

    /// Returns a schedule that resolves a name as soon as one of both does.
    pub(super) fn and(self, other: Self) -> Self {
        let every = self.every.into_iter().chain(other.every).min();
        Self { is_by_ttl: self.is_by_ttl || other.is_by_ttl, every }
    }
}

/// Observations of requests and checks about the servers with a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// The number of connections to them that could not be opened.
    pub(super) connects: u64,
    /// True if one of them gets no requests now.
    pub(super) is_one_out: bool,
}

/// A family of addresses for which DNS has not answered a lookup yet. The name is not resolved anew
/// for this family meanwhile.
#[derive(Clone, Copy)]
struct Awaited {
    /// The number of the lookup.
    lookup: u64,
    family: Family,
}

/// A name that is resolved again and again.
pub(super) struct WatchedName {
    schedule: Schedule,
    /// The time of the next lookup; `None` until the last one has found addresses, or has failed.
    next: Option<Instant>,
    /// True if another lookup follows at once: files or servers have changed meanwhile.
    again: bool,
    /// The number of the last lookup, and the time at which it began.
    lookup: u64,
    begun: Instant,
    awaited: Option<Awaited>,
    /// The failures of its servers when the last lookup began. `None`: it has other servers since.
    failures_then: Option<Failures>,
    failures: Failures,
    addresses: Option<Arc<[IpAddr]>>,
    /// The addresses that requests go to.
    in_force: Option<Arc<[IpAddr]>>,
    /// True if the log does not say yet that the addresses have changed.
    has_changed: bool,
    is_failing: bool,
}

impl WatchedName {
    /// Returns a name that is to be resolved now.
    pub(super) fn new(schedule: Schedule, now: Instant) -> Self {
        Self {
            schedule,
            next: Some(now),
            again: false,
            lookup: 0,
            begun: now,
            awaited: None,
            failures_then: None,
            failures: Failures::default(),
            addresses: None,
            in_force: None,
            has_changed: false,
            is_failing: false,
        }
    }

    /// Resolves the name by `schedule` from now on.
    pub(super) fn follow(&mut self, schedule: Schedule, now: Instant) {
        if mem::replace(&mut self.schedule, schedule) != schedule {
            self.next = self.next.map(|_| now);
        }
    }

    /// Makes the name due now, or as soon as the lookup in progress has ended.
    pub(super) fn ask_now(&mut self, now: Instant) {
        self.again = self.next.is_none();
        self.next = self.next.map(|_| now);
    }

    /// Notes the failures of its servers. If connections to them have failed since the last lookup, the
    /// name is resolved soon.
    pub(super) fn note_failures(&mut self, failures: Failures) {
        self.failures = failures;
        let then = *self.failures_then.get_or_insert(failures);
        let pause = if failures.connects != then.connects {
            PAUSE
        } else if failures.is_one_out {
            AGAIN
        } else {
            return;
        };

        let soon = self.begun + pause;
        self.next = self.next.map(|next| next.min(soon));
    }

    /// Returns the time of the next lookup; `None` while the last one has neither found addresses nor
    /// failed.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns true if the name is to be resolved.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Returns true if the last lookup failed.
    pub(super) const fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Returns the family that an earlier lookup still waits for.
    pub(super) fn awaited(&self) -> Option<Family> {
        self.awaited.map(|awaited| awaited.family)
    }

    /// Notes that the lookup of this number begins.
    pub(super) fn begin(&mut self, lookup: u64, now: Instant) {
        self.next = None;
        self.lookup = lookup;
        self.begun = now;
        self.failures_then = Some(self.failures);
    }

    /// Returns its addresses, if they are known.
    pub(super) const fn addresses(&self) -> Option<&Arc<[IpAddr]>> {
        self.addresses.as_ref()
    }

    /// Notes that requests go to its addresses, and logs once that these have changed.
    pub(super) fn note_in_force(&mut self, host: &str) {
        if self.in_force != self.addresses {
            self.in_force.clone_from(&self.addresses);
            self.failures_then = None;
        }
        if mem::take(&mut self.has_changed) {
            let addresses = self.addresses.as_deref().unwrap_or_default();
            tracing::info!(name = host, ?addresses, "the addresses of a name have changed");
        }
    }

    /// Notes the addresses of one family, which came while a lookup still waits for the other one. The
    /// name is resolved again when they expire, as if both families had come.
    pub(super) fn note_early(&mut self, host: &str, lookup: u64, found: Found, now: Instant) {
        if lookup != self.lookup {
            return;
        }
        self.awaited = found.missing.map(|family| Awaited { lookup, family });
        self.next_by(now + self.schedule.interval(found.ttl), now);
        self.take(host, found);
    }

    /// Notes the result of a lookup. If it failed, the last addresses stay.
    pub(super) fn note(
        &mut self,
        host: &str,
        lookup: u64,
        result: io::Result<Found>,
        now: Instant,
    ) {
        let awaited = self.awaited.take_if(|awaited| awaited.lookup == lookup);
        if lookup != self.lookup {
            // A later lookup has found the addresses of the other family anew.
            if let (Some(awaited), Ok(found)) = (awaited, result) {
                self.take_family(host, awaited.family, found);
            }
            return;
        }

        match result {
            Ok(found) => {
                let interval = self.schedule.interval(found.ttl);
                let is_partial = found.missing.is_some() && self.awaited.is_none();
                self.next_by(now + if is_partial { interval.min(AGAIN) } else { interval }, now);
                self.take(host, found);
            }
            Err(error) => {
                self.next_by(now + self.schedule.interval(None).min(AGAIN), now);
                if !mem::replace(&mut self.is_failing, true) {
                    let kept = self.addresses.as_ref().map_or(0, |addresses| addresses.len());
                    tracing::warn!(name = host, %error, kept, "name cannot be resolved; its last addresses stay");
                }
            }
        }
    }

    /// Resolves the name at `time` at the latest, or now if it is to be resolved again at once.
    fn next_by(&mut self, time: Instant, now: Instant) {
        let next = if mem::take(&mut self.again) { now } else { time };
        self.next = Some(self.next.map_or(next, |earlier| earlier.min(next)));
    }

    /// Takes addresses. Those of a missing family stay.
    fn take(&mut self, host: &str, Found { mut addresses, missing, .. }: Found) {
        if let Some(family) = missing {
            let known = self.addresses.iter().flat_map(|known| &**known);
            addresses.extend(known.filter(|address| family.has(address)));
            addresses.sort_unstable();
        }
        let addresses: Arc<[IpAddr]> = addresses.into();

        if mem::take(&mut self.is_failing) {
            tracing::info!(name = host, "name can be resolved again");
        }
        self.has_changed |= self.addresses.as_ref().is_some_and(|known| *known != addresses);
        self.addresses = Some(addresses);
    }

    /// Takes the addresses of one family, unless they are missing. Those of the other one stay.
    fn take_family(&mut self, host: &str, family: Family, mut found: Found) {
        if found.missing == Some(family) {
            return;
        }
        found.addresses.retain(|address| family.has(address));
        self.take(host, Found { missing: Some(family.other()), ..found });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstreams_with_a_name_agree_on_the_soonest() {
        let secs = Duration::from_secs;
        let by_ttl = Schedule { is_by_ttl: true, every: None };
        let [ten, twenty] = [10, 20].map(|n| Schedule { is_by_ttl: false, every: Some(secs(n)) });
        assert_eq!(ten.and(twenty).interval(Some(secs(2))), secs(10));
        for both in [by_ttl.and(ten), ten.and(by_ttl), by_ttl.and(twenty).and(ten)] {
            assert_eq!(both.interval(Some(secs(2))), secs(2));
            assert_eq!(both.interval(Some(secs(60))), secs(10));
        }
        assert_eq!(by_ttl.interval(None), SYSTEM_TTL);
    }
}
