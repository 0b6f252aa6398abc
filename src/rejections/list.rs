//! The last rejections as the admin listener shows them.

use super::ring::{KEPT, RejectionRecord, Rejections};
use crate::{
    flow::{Key, ReasonKind},
    key_names::KeyNames,
    route::{fingerprint_hint, fingerprint_text},
    terminal_text::terminal_text,
};
use core::{
    cmp::Reverse,
    fmt::{self, Display, Formatter},
    time::Duration,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::UNIX_EPOCH};

/// The rejections to show.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those of this route.
    pub route: Option<String>,
    /// Those by this rule.
    pub rule: Option<String>,
    /// At most so many; 100 if there is no number, and never more than [`KEPT`].
    pub limit: Option<usize>,
}

/// The number of rejections that are shown without a limit.
const USUAL: usize = 100;

/// The last rejections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectionList {
    /// The number of rejections since the process started.
    pub total: u64,
    /// Those of them that came while the list was read, and are not in it.
    pub missed: u64,
    /// The last ones that the filter takes, by route, rule and reason; the most frequent first.
    pub rules: Vec<RuleCount>,
    /// The latest first.
    pub rejections: Vec<RejectedRequest>,
    /// True if keys are shown by name, where the name is known.
    #[serde(default)]
    pub shows_keys: bool,
}

/// The number of a rule's rejections among the last ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    /// The route.
    pub route: String,
    /// Its rule, `breaker` or `pacing`.
    pub rule: String,
    /// The word of the reason.
    pub reason: String,
    /// The number.
    pub count: u64,
}

/// One rejected request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectedRequest {
    /// The time when it came, as RFC 3339.
    pub ts: String,
    /// Its route.
    pub route: String,
    /// The rule that rejected it, `breaker` or `pacing`.
    pub rule: String,
    /// The word of the reason.
    pub reason: String,
    /// The fingerprint of its key; absent if the rule has none, or the store failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key itself, if it may be shown and is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The client's address, if it may be shown and there is an access log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The rule's limit; absent for a breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The usage of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// The cost of the request.
    pub cost: u64,
    /// The wait after which a retry could have succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<f64>,
}

impl Rejections {
    /// Returns the last rejections that `filter` takes, of the last [`KEPT`]. `names` are those of
    /// clients' keys; `None`: they may not be shown.
    pub fn list(&self, filter: &Filter, names: Option<&KeyNames>) -> RejectionList {
        let (mut all, total, missed) = self.read();
        all.sort_by_key(|record| Reverse(record.at));
        all.truncate(KEPT);
        all.retain(|record| filter.takes(record));
        let rules = counts(&all);
        all.truncate(filter.limit.unwrap_or(USUAL));
        let rejections = all.iter().map(|record| RejectedRequest::of(record, names)).collect();
        RejectionList { total, missed, rules, rejections, shows_keys: names.is_some() }
    }
}

impl Filter {
    fn takes(&self, record: &RejectionRecord) -> bool {
        let is = |wanted: &Option<String>, name: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == name)
        };
        is(&self.route, &record.route) && is(&self.rule, record.rule())
    }
}

impl RejectionRecord {
    fn rule(&self) -> &str {
        self.rule.as_deref().unwrap_or(self.part)
    }

    fn reason(&self) -> &'static str {
        self.decided.decision.reason().map(ReasonKind::word).unwrap_or_default()
    }
}

fn counts(all: &[RejectionRecord]) -> Vec<RuleCount> {
    let mut counts: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    for record in all {
        *counts.entry((&record.route, record.rule(), record.reason())).or_default() += 1;
    }
    let mut counts: Vec<RuleCount> = counts
        .into_iter()
        .map(|((route, rule, reason), count)| RuleCount {
            route: route.to_owned(),
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            count,
        })
        .collect();
    counts.sort_by_key(|count| Reverse(count.count));
    counts
}

impl RejectedRequest {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    fn of(record: &RejectionRecord, names: Option<&KeyNames>) -> Self {
        let time = UNIX_EPOCH + Duration::from_nanos(record.at.as_nanos());
        let quota = record.decided.quota;
        let counted = quota.filter(|quota| quota.limit > 0);

        Self {
            ts: humantime::format_rfc3339_millis(time).to_string(),
            route: record.route.to_string(),
            rule: record.rule().to_owned(),
            reason: record.reason().to_owned(),
            key: match record.key {
                Some(Key::Of(fingerprint)) => Some(fingerprint_text(fingerprint)),
                Some(Key::Missing) => Some("missing".to_owned()),
                Some(Key::Duplicate) => Some("duplicate".to_owned()),
                Some(Key::Shared) | None => None,
            },
            name: match record.key {
                Some(Key::Of(fingerprint)) => {
                    names.and_then(|names| names.find(fingerprint)).map(|name| name.to_string())
                }
                Some(Key::Missing | Key::Duplicate | Key::Shared) | None => None,
            },
            client: record.client.filter(|_| names.is_some()).map(|client| client.to_string()),
            limit: counted.map(|quota| quota.limit),
            used: counted.map(|quota| quota.used),
            cost: quota.map_or(0, |quota| quota.cost),
            retry_after_ms: record.decided.retry_after.map(|wait| wait.as_nanos() as f64 / 1e6),
        }
    }
}

/// Lines for a terminal.
impl Display for RejectionList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "rejections since the start: {}", self.total)?;
        if self.missed > 0 {
            write!(
                f,
                ", {} of them not listed, as they came while the list was read",
                self.missed
            )?;
        }
        writeln!(f)?;
        for RuleCount { route, rule, reason, count } in &self.rules {
            writeln!(f, "  {count:>6}  {route}: {rule} ({reason})")?;
        }
        self.rejections.iter().try_for_each(|rejected| write!(f, "{rejected}"))?;
        let has_fingerprint = |rejected: &RejectedRequest| {
            let is_word = matches!(rejected.key.as_deref(), None | Some("missing" | "duplicate"));
            !is_word && rejected.name.is_none()
        };
        if self.rejections.iter().any(has_fingerprint) {
            writeln!(f, "{}", fingerprint_hint(self.shows_keys))?;
        }
        Ok(())
    }
}

impl Display for RejectedRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { ts, route, rule, reason, cost, .. } = self;
        write!(f, "{ts}  {route}: {rule} ({reason})")?;
        if let (Some(used), Some(limit)) = (self.used, self.limit) {
            write!(f, "  {used} of {limit} used, cost {cost}")?;
        }
        if let Some(wait) = self.retry_after_ms {
            write!(f, ", retry after {wait:.0} ms")?;
        }
        if let Some(client) = &self.client {
            write!(f, "  client {}", terminal_text(client))?;
        }
        match self.name.as_ref().or(self.key.as_ref()) {
            Some(key) => writeln!(f, "  key {}", terminal_text(key)),
            None => writeln!(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        access_log::{DecisionKind, DecisionRecord},
        flow::Instant,
    };

    /// Rejections of two workers, one a nanosecond.
    fn recorded(count: u64) -> Rejections {
        let rejections = Rejections::default();
        let recorders = [rejections.recorder(), rejections.recorder()];
        for at in 0..count {
            let record = RejectionRecord {
                at: Instant::from_nanos(at),
                route: if at % 3 == 0 { "a" } else { "b" }.into(),
                rule: (at % 2 == 0).then(|| "r".into()),
                part: "pacing",
                key: Some(Key::Of(u128::from(at))),
                client: None,
                decided: DecisionRecord {
                    decision: DecisionKind::Rejected(ReasonKind::Rate),
                    quota: None,
                    dry_run: None,
                    wait: Duration::ZERO,
                    retry_after: None,
                },
            };
            recorders[usize::from(at % 7 == 0)].push(record);
        }
        rejections
    }

    #[test]
    fn the_last_thousand_of_all_workers_are_listed_with_the_latest_first() {
        let rejections = recorded(5_000);
        let filter = Filter { limit: Some(5_000), ..Filter::default() };
        let list = rejections.list(&filter, None);
        assert_eq!((list.total, list.missed), (5_000, 0));
        let keys: Vec<String> =
            list.rejections.into_iter().filter_map(|rejection| rejection.key).collect();
        let expected = (4_000..5_000_u64).rev().map(|at| format!("fp:{at:032x}"));
        assert_eq!(keys, expected.collect::<Vec<_>>());
        assert_eq!(list.rules.iter().map(|rule| rule.count).sum::<u64>(), 1_000);
        assert_eq!(rejections.list(&Filter::default(), None).rejections.len(), USUAL);
    }

    #[test]
    fn keys_and_clients_are_named_only_if_they_may_be_shown() {
        let rejections = recorded(1);
        let mut records = rejections.read().0;
        records[0].client = Some([192, 0, 2, 7].into());
        rejections.recorder().push(records[0].clone());
        let names = KeyNames::default();
        names.keep(0, "alice");
        let list = |names| rejections.list(&Filter::default(), names).to_string();
        let fingerprint = format!("  key fp:{:032x}", 0);
        assert!(list(None).contains(&fingerprint) && !list(None).contains("192.0.2.7"));
        let with_names = list(Some(&names));
        assert!(with_names.contains("  client 192.0.2.7  key alice\n"), "{with_names}");
    }

    #[test]
    fn a_filter_takes_those_of_a_route_and_a_rule() {
        let rejections = recorded(60);
        let list = |route: &str, rule: &str| {
            let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
            rejections.list(&Filter { route: some(route), rule: some(rule), limit: None }, None)
        };
        assert_eq!(list("a", "").rejections.len(), 20);
        assert_eq!(list("a", "r").rejections.len(), 10);
        assert_eq!(list("", "pacing").rejections.len(), 30);
        assert_eq!(list("none", "").rejections.len(), 0);
        let counted = list("a", "r").rules;
        assert_eq!(counted.len(), 1);
        assert_eq!((counted[0].count, counted[0].reason.as_str()), (10, "rate"));
    }
}
