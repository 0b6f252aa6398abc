//! The report of a preview, for people and programs.

use super::{
    previews::EndCause,
    running::Preview,
    tally::{ChangeCounts, Client, ClientCount, Example as Request, Kind, KindCount, Side, Tally},
    treatment::{Treatment, TreatmentChange},
};
use crate::counted::{counted, inflected};
use crate::{
    config::{Route, RuleGroup},
    flow::{Gate, Instant, TopEntry, rule_of},
    route::fingerprint_text,
};
use core::{cmp::Reverse, mem::take};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, PoisonError},
    time::UNIX_EPOCH,
};

/// The number of kinds of change, routes and clients that are shown.
const MOST_CHANGES: usize = 40;
const MOST_ROUTES: usize = 200;
const MOST_CLIENTS: usize = 20;

/// The findings of a preview so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreviewReport {
    /// The state of the preview.
    pub state: State,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_because: Option<String>,
    /// The hash of the new file.
    pub config_hash: String,
    /// The hash of the file in force.
    pub base_hash: String,
    /// For how long it has run, in seconds.
    pub elapsed_s: f64,
    /// For how long it goes on, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_s: Option<f64>,
    /// The most memory that the new file's rules take.
    pub memory_bytes: u64,
    /// Requests by how they would fare.
    pub requests: RequestCounts,
    /// The requests that would be treated otherwise, by both treatments, the most frequent first.
    pub changes: Vec<ChangeReport>,
    /// The number of further kinds of change.
    pub more_changes: usize,
    /// By route of the new file, with its rules.
    pub routes: Vec<RouteReport>,
    /// The number of further routes with requests.
    pub more_routes: usize,
    /// The rules that routes of the new file share, which the counts of no route have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetReport>,
    /// The clients that would most often be treated otherwise.
    pub clients: Vec<ClientReport>,
    /// The parts of the traffic that the preview does not see.
    pub notes: Vec<String>,
}

/// The state of a preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    Running,
    /// It has ended.
    Ended,
}

/// Requests by how they would fare by the new file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// All.
    pub compared: u64,
    /// As now.
    pub same: u64,
    /// They pass, and would be rejected.
    pub would_be_rejected: u64,
    /// They are rejected, and would pass.
    pub would_pass: u64,
    /// They start at once, and would have to wait.
    pub would_be_delayed: u64,
    /// They have to wait, and would start at once.
    pub no_longer_delayed: u64,
    /// Another route would answer them, or their route would answer otherwise.
    pub other_answer: u64,
}

/// Requests with the same decisions by both files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// The field of [`RequestCounts`] that counts them.
    pub change: String,
    /// Their treatment, as `checkout: passed`.
    pub here: String,
    /// Their treatment by the new file, as `checkout: rejected by per-client (rate)`.
    pub there: String,
    /// Their number.
    pub count: u64,
    /// Their mean and longest wait by the new file, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<[f64; 2]>,
    /// Some of them.
    pub examples: Vec<Example>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// The time when it came; RFC 3339, in UTC.
    pub ts: String,
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// Its client's address, or the address's fingerprint.
    pub client: String,
}

/// A route of the new file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteReport {
    /// Its name.
    pub route: String,
    /// Its requests.
    pub requests: RequestCounts,
    /// The decisions of its rules about them.
    pub rules: Vec<RuleReport>,
}

/// A rule that routes of the new file share, with its overrides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReport {
    /// Its place in the file and its name, as in `budget site`.
    pub budget: String,
    /// The decisions about the requests of all routes.
    pub rules: Vec<RuleReport>,
}

/// A rule of the new file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its name, or `breaker` or `pacing`.
    pub rule: String,
    /// True if it rejects nothing.
    pub dry_run: bool,
    /// Requests that it let pass.
    pub passed: u64,
    /// Requests that it would have delayed.
    pub delayed: u64,
    /// Requests that it would have rejected, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Requests that it would count as rejected in dry run.
    pub dry_run_rejected: u64,
    /// The number of its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u32>,
}

/// A client that would be treated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// The key that the rule counts it by, or its address, in words or as a fingerprint.
    pub client: String,
    /// The route of the new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The rule of that route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The number of its requests that would be treated otherwise.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
    /// The same, by how they would fare; since the client was last seen among the most frequent.
    pub requests: RequestCounts,
}

impl Preview {
    /// Returns the report at `now`.
    pub(super) fn report(&self, now: Instant, cause: Option<EndCause>) -> PreviewReport {
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in 0..self.tallies.len() {
            // A statement of its own: the worker waits no longer than this takes.
            let tally = take(&mut *self.tally(worker));
            total.merge(tally);
        }

        let (changes, more_changes) = self.changes(&total);
        let (routes, more_routes) = self.routes(&total, now);
        let seconds = |until: Instant| until.since(now).as_secs_f64();

        PreviewReport {
            state: if cause.is_none() { State::Running } else { State::Ended },
            ended_because: cause.map(|cause| cause.words().to_owned()),
            config_hash: self.snapshot.hash.clone(),
            base_hash: self.base.hash.clone(),
            elapsed_s: now.since(self.started).as_secs_f64(),
            remaining_s: self.until.filter(|_| cause.is_none()).map(seconds),
            memory_bytes: self.memory,
            requests: total.changes.into(),
            changes,
            more_changes,
            routes,
            more_routes,
            budgets: self.budgets(now),
            clients: total
                .clients
                .sorted()
                .into_iter()
                .take(MOST_CLIENTS)
                .map(|entry| self.client_report(entry))
                .collect(),
            notes: self.notes(&total),
        }
    }

    fn changes(&self, total: &Tally) -> (Vec<ChangeReport>, usize) {
        let kinds = total.kinds.iter().filter(|(kind, _)| kind.change != TreatmentChange::Same);
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_by_key(|(kind, count)| (Reverse(count.count), kind.change, kind.here.route));
        let more = kinds.len().saturating_sub(MOST_CHANGES);
        kinds.truncate(MOST_CHANGES);
        (kinds.into_iter().map(|(kind, count)| self.change(kind, count)).collect(), more)
    }

    fn change(&self, Kind { here, there, change }: &Kind, count: &KindCount) -> ChangeReport {
        let in_words = |side: &Side, routes: &[Arc<Route>]| {
            let route = side.route.and_then(|index| routes.get(index as usize));
            side.treatment.in_words(route.map(|route| &**route))
        };
        let is_delayed = matches!(there.treatment, Treatment::Delayed(_));
        let mean = count.wait_sum.as_secs_f64() * 1e3 / as_f64(count.count.max(1));
        ChangeReport {
            change: change.word().to_owned(),
            here: in_words(here, &self.base.routes),
            there: in_words(there, &self.snapshot.routes),
            count: count.count,
            wait_ms: is_delayed.then_some([mean, count.wait_max.as_secs_f64() * 1e3]),
            examples: count.examples.iter().map(|example| self.example(example)).collect(),
        }
    }

    fn example(&self, example: &Request) -> Example {
        Example {
            ts: humantime::format_rfc3339_millis(UNIX_EPOCH + example.at.since(Instant::EPOCH))
                .to_string(),
            method: example.method.to_string(),
            path: example.path.chars().flat_map(char::escape_debug).collect(),
            client: self.address(example.client),
        }
    }

    fn address(&self, address: IpAddr) -> String {
        if self.shows_keys {
            return address.to_string();
        }
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        fingerprint_text(self.seed.fingerprint(&bits.to_be_bytes()))
    }

    fn routes(&self, total: &Tally, now: Instant) -> (Vec<RouteReport>, usize) {
        let mut counts: BTreeMap<u32, ChangeCounts> = BTreeMap::new();
        for (kind, count) in &total.kinds {
            if let Some(route) = kind.there.route {
                counts.entry(route).or_default().add(kind.change, count.count);
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        let differing =
            |changes: &ChangeCounts| changes.total() - changes.of(TreatmentChange::Same);
        counts.sort_by_key(|(route, changes)| (Reverse(differing(changes)), *route));
        let more = counts.len().saturating_sub(MOST_ROUTES);
        counts.truncate(MOST_ROUTES);
        let report = |(index, changes): (u32, ChangeCounts)| {
            let route = self.snapshot.routes.get(index as usize)?;
            Some(RouteReport {
                route: route.name.to_string(),
                requests: changes.into(),
                rules: rules(&route.gate, now),
            })
        };
        (counts.into_iter().filter_map(report).collect(), more)
    }

    /// Returns the rules that routes share.
    fn budgets(&self, now: Instant) -> Vec<BudgetReport> {
        let groups = self.snapshot.groups.iter().take(MOST_ROUTES);
        let report = |group: &Arc<RuleGroup>| BudgetReport {
            budget: group.owner.to_string(),
            rules: rules(&group.gate, now),
        };
        groups.map(report).collect()
    }

    fn client_report(&self, entry: &TopEntry<Client, ClientCount>) -> ClientReport {
        let Client { route, rule, key } = entry.key;
        let ClientCount { changes, address, name } = &entry.value;
        let route = route.and_then(|index| self.snapshot.routes.get(index as usize));
        let by = route.zip(rule);
        let is_keyed = by.is_some_and(|(route, slot)| {
            route.rules.iter().any(|rule| rule.slot == slot && !rule.key.is_shared())
        });
        let client = match (name, address) {
            (Some(name), _) => name.to_string(),
            (None, Some(address)) if self.shows_keys || !is_keyed => self.address(*address),
            _ => fingerprint_text(key),
        };
        ClientReport {
            client,
            route: route.map(|route| route.name.to_string()),
            rule: by.map(|(route, slot)| route.rule_name(slot).to_owned()),
            count: entry.count,
            error: entry.error,
            requests: (*changes).into(),
        }
    }

    /// Says what the preview does not see.
    fn notes(&self, total: &Tally) -> Vec<String> {
        let shared = self.snapshot.routes.iter().filter(|route| route.is_shared);
        let shared: BTreeSet<&str> = shared.map(|route| &*route.name).collect();
        let mut notes = Vec::new();

        if let Some(first) = shared.first() {
            let more = match shared.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            notes.push(format!(
                "rules that gateways share are counted by this gateway alone, by its part of the \
                 limit, and the store is not asked: route {first}{more}"
            ));
        }
        if total.unchecked > 0 {
            notes.push(format!(
                "{} {} not compared: the new file changes who may authenticate, and a \
                 preview checks no passwords",
                counted(total.unchecked, "request"),
                inflected(total.unchecked, "is", "are")
            ));
        }
        if total.other_kinds > 0 {
            notes.push(format!(
                "{} {} counted in the sums only: there are too many kinds of change",
                counted(total.other_kinds, "request"),
                inflected(total.other_kinds, "is", "are")
            ));
        }
        notes
    }
}

/// Returns the decisions of a gate's rules.
fn rules(gate: &Gate, now: Instant) -> Vec<RuleReport> {
    let seen = gate.observe(now);
    let rule = |rule: crate::flow::RuleObservation| {
        let rejected = rule.counts.rejected.each();
        RuleReport {
            rule: rule_of(&rule.name).to_owned(),
            dry_run: rule.dry_run,
            passed: rule.counts.passed,
            delayed: rule.counts.delayed,
            rejected: rejected.map(|(kind, count)| (kind.word().to_owned(), count)).collect(),
            dry_run_rejected: rule.counts.dry_run_rejected.total(),
            keys: rule.keys.map(|keys| keys.live),
        }
    };
    seen.rules.into_iter().map(rule).collect()
}

impl RequestCounts {
    /// Returns the count of a change.
    pub const fn of(&self, change: TreatmentChange) -> u64 {
        match change {
            TreatmentChange::WouldBeRejected => self.would_be_rejected,
            TreatmentChange::WouldPass => self.would_pass,
            TreatmentChange::WouldBeDelayed => self.would_be_delayed,
            TreatmentChange::NoLongerDelayed => self.no_longer_delayed,
            TreatmentChange::OtherAnswer => self.other_answer,
            TreatmentChange::Same => self.same,
        }
    }

    /// Says it in words: `12 requests: 10 the same, 2 would be rejected`.
    pub fn in_words(&self) -> String {
        let all = counted(self.compared, "request");
        let counts = [TreatmentChange::Same]
            .into_iter()
            .chain(TreatmentChange::ALL)
            .filter(|change| self.of(*change) > 0);
        let counts: Vec<_> =
            counts.map(|change| format!("{} {}", self.of(change), change.words())).collect();
        if counts.is_empty() { all } else { format!("{all}: {}", counts.join(", ")) }
    }
}

impl From<ChangeCounts> for RequestCounts {
    fn from(changes: ChangeCounts) -> Self {
        Self {
            compared: changes.total(),
            same: changes.of(TreatmentChange::Same),
            would_be_rejected: changes.of(TreatmentChange::WouldBeRejected),
            would_pass: changes.of(TreatmentChange::WouldPass),
            would_be_delayed: changes.of(TreatmentChange::WouldBeDelayed),
            no_longer_delayed: changes.of(TreatmentChange::NoLongerDelayed),
            other_answer: changes.of(TreatmentChange::OtherAnswer),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean is read, not counted with")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}
