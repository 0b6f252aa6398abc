//! One name of servers: its addresses, and when it is resolved again.

use super::resolver::Found;
use crate::flow::Instant;
use core::{net::IpAddr, time::Duration};
use std::{io, sync::Arc};

/// The bounds of a time to live: some records have 0, and some have days by mistake.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_mins(5);

/// The time to live of addresses from the system's resolver, which knows none.
const SYSTEM_TTL: Duration = Duration::from_secs(30);

/// What the upstreams with a name say about when it is resolved again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) is_by_ttl: bool,
    /// The shortest interval of those that have one.
    pub(super) every: Option<Duration>,
}

impl Schedule {
    /// Returns how long addresses with this time to live are used.
    pub(super) fn interval(self, ttl: Option<Duration>) -> Duration {
        let ttl = ttl.unwrap_or(SYSTEM_TTL).clamp(TTL_MIN, TTL_MAX);
        match self.every {
            Some(every) if self.is_by_ttl => every.min(ttl),
            Some(every) => every,
            None => ttl,
        }
    }

    /// Returns when both would resolve a name again.
    pub(super) fn and(self, other: Self) -> Self {
        let every = self.every.into_iter().chain(other.every).min();
        Self { is_by_ttl: self.is_by_ttl || other.is_by_ttl, every }
    }
}

/// After how long a name is resolved again that could not be, or that has a server without health.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

/// The shortest time between two lookups of a name whose servers cannot be connected to.
const PAUSE: Duration = Duration::from_secs(1);

/// What requests and checks say about the servers with a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// How many connections to them could not be opened.
    pub(super) connects: u64,
    /// Whether one of them gets no requests now.
    pub(super) is_one_out: bool,
}

/// What is known of a name.
pub(super) struct WatchedName {
    schedule: Schedule,
    /// When it is to be resolved; `None` while it is.
    next: Option<Instant>,
    /// Whether it is resolved again as soon as it was: files or servers have changed meanwhile.
    again: bool,
    /// When it was last begun to be resolved.
    begun: Instant,
    /// What was known of its servers then, and what is known now. `None`: they are others since.
    failures_then: Option<Failures>,
    failures: Failures,
    addresses: Option<Arc<[IpAddr]>>,
    /// Those that requests go to.
    in_force: Option<Arc<[IpAddr]>>,
    /// Whether the log is still to say that they are others.
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
            begun: now,
            failures_then: None,
            failures: Failures::default(),
            addresses: None,
            in_force: None,
            has_changed: false,
            is_failing: false,
        }
    }

    /// Resolves it by `schedule` from now on.
    pub(super) fn follow(&mut self, schedule: Schedule, now: Instant) {
        if core::mem::replace(&mut self.schedule, schedule) != schedule {
            self.next = self.next.map(|_| now);
        }
    }

    /// Has it resolved now, or again if it is being resolved.
    pub(super) fn ask_now(&mut self, now: Instant) {
        self.again = self.next.is_none();
        self.next = self.next.map(|_| now);
    }

    /// Notes what is known of its servers. If connections to them have failed since the last lookup,
    /// it is resolved soon.
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

    /// Returns when it is to be resolved; `None` while it is.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns whether it is to be resolved.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Returns whether the last lookup failed.
    pub(super) const fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Notes that a lookup begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.next = None;
        self.begun = now;
        self.failures_then = Some(self.failures);
    }

    /// Returns its addresses, if they are known.
    pub(super) const fn addresses(&self) -> Option<&Arc<[IpAddr]>> {
        self.addresses.as_ref()
    }

    /// Notes that requests go to its addresses, and logs that these have changed if that was not
    /// logged.
    pub(super) fn note_in_force(&mut self, host: &str) {
        if self.in_force != self.addresses {
            self.in_force.clone_from(&self.addresses);
            self.failures_then = None;
        }
        if core::mem::take(&mut self.has_changed) {
            let addresses = self.addresses.as_deref().unwrap_or_default();
            tracing::info!(name = host, ?addresses, "the addresses of a name have changed");
        }
    }

    /// Takes addresses. Those of a family that is missing stay.
    pub(super) fn take(&mut self, host: &str, Found { mut addresses, missing, .. }: Found) {
        if let Some(family) = missing {
            let known = self.addresses.iter().flat_map(|known| &**known);
            addresses.extend(known.filter(|address| family.has(address)));
            addresses.sort_unstable();
        }
        let addresses: Arc<[IpAddr]> = addresses.into();
        if core::mem::take(&mut self.is_failing) {
            tracing::info!(name = host, "name can be resolved again");
        }
        self.has_changed |= self.addresses.as_ref().is_some_and(|known| *known != addresses);
        self.addresses = Some(addresses);
    }

    /// Notes what the resolver found. If that is nothing, the last addresses stay.
    pub(super) fn note(&mut self, host: &str, found: io::Result<Found>, now: Instant) {
        match found {
            Ok(found) => {
                let interval = self.schedule.interval(found.ttl);
                let is_partial = found.missing.is_some();
                self.next = Some(now + if is_partial { interval.min(AGAIN) } else { interval });
                self.take(host, found);
            }
            Err(error) => {
                self.next = Some(now + self.schedule.interval(None).min(AGAIN));
                if !core::mem::replace(&mut self.is_failing, true) {
                    let kept = self.addresses.as_ref().map_or(0, |addresses| addresses.len());
                    tracing::warn!(name = host, %error, kept, "name cannot be resolved; its last addresses stay");
                }
            }
        }
        if core::mem::take(&mut self.again) {
            self.next = Some(now);
        }
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
