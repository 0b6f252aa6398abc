//! A rule and pacing as written.

use super::{
    FieldSpec, OverrideSpec,
    overrides::{self, Base},
    plain, route,
};
use crate::{
    config::{
        calendar::Unit,
        decode::{At, Decoder, Fields, integer},
        node::{Content, Node, Place},
        problem::Problem,
        values::{self, Limit},
        vocabulary::tables,
    },
    flow::{Rate, WarmUp},
    route::OnDuplicate,
};
use http::{HeaderName, Method};
use ipnet::IpNet;
use std::{sync::Arc, time::Duration};

/// A rule.
#[derive(Debug)]
pub(in crate::config) struct RuleSpec {
    pub place: Place,
    pub name: Option<At<Arc<str>>>,
    /// `None` if it could not be read.
    pub kind: Option<RuleKind>,
    pub keys: KeySpecs,
    pub max_keys: Option<At<u64>>,
    pub cost: CostSpec,
    pub except: ExceptSpec,
    pub dry_run: bool,
    pub scope: ScopeSpec,
    pub priority: Option<PrioritySpec>,
    pub overrides: Vec<OverrideSpec>,
}

/// What a rule counts.
#[derive(Clone, Debug)]
pub(in crate::config) enum RuleKind {
    TokenBucket { rate: At<Rate>, burst: Option<At<u64>>, warm_up: Option<WarmUp> },
    LeakyBucket { rate: At<Rate>, burst: Option<At<u64>> },
    SlidingLog { rate: At<Rate> },
    SlidingWindow { rate: At<Rate>, buckets: At<u64>, strict: bool },
    SlidingCounter { rate: At<Rate> },
    FixedWindow { rate: At<Rate>, windows: Windows },
    Concurrency { limit: At<u64> },
    Pacing(PaceSpec),
}

/// When windows begin.
#[derive(Clone, Debug)]
pub(in crate::config) enum Windows {
    Clock,
    FirstRequest,
    /// The unit and the time zone.
    Calendar(Unit, String),
}

/// What is counted separately.
#[derive(Debug)]
pub(in crate::config) struct KeySpecs {
    /// Of the key, or of the rule if it has none.
    pub place: Place,
    pub parts: Vec<At<String>>,
    pub ipv6_prefix: Option<At<u64>>,
    pub on_missing: Option<At<OnMissing>>,
    pub on_duplicate: Option<At<OnDuplicate>>,
}

/// Who shares a count.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct ScopeSpec {
    /// Where `cluster` stands, if it does.
    pub cluster: Option<Place>,
    pub on_store_error: Option<At<OnStoreError>>,
    /// `None`: every decision is the store's.
    pub sync_interval: Option<At<Duration>>,
}

/// What holds of a shared rule while the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreError {
    /// A count of this process, with the limit divided by the gateways.
    Local,
    /// No limit.
    Allow,
    /// Everything is refused.
    Deny,
}

impl OnStoreError {
    /// Returns its word in the file.
    pub(in crate::config) const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl ScopeSpec {
    fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Self {
        let is_cluster = f.word(d, "scope", &[false, true]);
        let all = [OnStoreError::Local, OnStoreError::Allow, OnStoreError::Deny];
        Self {
            cluster: is_cluster.filter(|at| at.value).map(|at| at.place),
            on_store_error: f.word(d, "on_store_error", &all),
            sync_interval: None,
        }
    }
}

/// What becomes of a request that lacks a part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// All such requests share one count.
    Shared,
    /// The rule does not count it.
    Skip,
    /// The rule refuses it.
    Reject,
}

/// Who may borrow from the windows to come.
#[derive(Debug)]
pub(in crate::config) struct PrioritySpec {
    pub header: At<HeaderName>,
    pub value: At<FieldSpec>,
    pub max_wait: At<Duration>,
}

/// How much a request counts.
#[derive(Debug)]
pub(in crate::config) struct CostSpec {
    pub default: At<u64>,
    pub by_method: Vec<(Method, At<u64>)>,
}

/// Who is exempt.
#[derive(Debug, Default)]
pub(in crate::config) struct ExceptSpec {
    pub client_ip: Vec<IpNet>,
    pub methods: Vec<Method>,
    pub path_prefix: Vec<At<String>>,
    pub headers: Vec<(At<HeaderName>, At<FieldSpec>)>,
}

/// How starts are spaced.
#[derive(Clone, Debug)]
pub(in crate::config) struct PaceSpec {
    pub rate: Option<At<Rate>>,
    pub max_wait: Option<At<Duration>>,
    pub max_queue: Option<At<u64>>,
    pub warm_up: Option<WarmUp>,
}

/// Pacing of the route.
#[derive(Debug)]
pub(in crate::config) struct PacingSpec {
    pub pace: PaceSpec,
    pub scope: ScopeSpec,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    TokenBucket,
    LeakyBucket,
    SlidingLog,
    SlidingWindow,
    SlidingCounter,
    FixedWindow,
    Pacing,
}

impl Word {
    /// In the order of the vocabulary.
    const ALL: [Self; 7] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::SlidingCounter,
        Self::FixedWindow,
        Self::Pacing,
    ];
}

impl RuleSpec {
    pub(super) fn read<'s>(d: &mut Decoder<'s>, node: &Node<'s>) -> Option<Self> {
        let f = d.fields(node, &tables::RULE)?;
        let (kind, base) = kind(d, &f).unzip();
        Some(Self {
            place: f.place,
            name: f.leaf(d, "name", values::name),
            kind: kind.flatten(),
            keys: KeySpecs {
                place: f.key_place("key").unwrap_or(f.place),
                parts: f.several(d, "key", values::text),
                ipv6_prefix: f.integer(d, "ipv6_prefix"),
                on_missing: f.word(
                    d,
                    "on_missing_key",
                    &[OnMissing::Shared, OnMissing::Skip, OnMissing::Reject],
                ),
                on_duplicate: f.word(
                    d,
                    "on_duplicate_key",
                    &[OnDuplicate::First, OnDuplicate::Last, OnDuplicate::Reject],
                ),
            },
            max_keys: f.integer(d, "max_keys"),
            cost: CostSpec::read(d, &f),
            except: f.map(d, "except").map(|f| ExceptSpec::read(d, &f)).unwrap_or_default(),
            priority: f.map(d, "priority").and_then(|f| PrioritySpec::read(d, &f)),
            dry_run: f.flag(d, "dry_run").is_some_and(|at| at.value),
            scope: ScopeSpec {
                sync_interval: f.duration(d, "sync_interval"),
                ..ScopeSpec::read(d, &f)
            },
            overrides: overrides::read(d, &f, base.as_ref()),
        })
    }
}

/// Reads what a rule counts, and refuses the keys that another kind of rule takes.
fn kind<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<(Option<RuleKind>, Base)> {
    let limit = f.limit(d, "limit");
    let in_flight = f.integer(d, "concurrency");
    let manner = Manner::read(d, f);
    match (f.key_place("limit"), f.key_place("concurrency")) {
        (Some(limit), Some(concurrency)) => {
            let problem =
                Problem::error(concurrency, "a rule takes one of `limit` and `concurrency`")
                    .label("a second one")
                    .also(limit, "the first")
                    .help("write two rules; they decide together");
            d.problems.add(problem);
            None
        }
        (None, None) => {
            let problem = Problem::error(f.place, "a rule needs `limit` or `concurrency`")
                .help("write `limit: 100/1s`, or `concurrency: 64`");
            d.problems.add(problem);
            None
        }
        (None, Some(_)) => {
            foreign(d, f, "algorithm", "`concurrency` takes none");
            for (name, ..) in OWNERS {
                foreign(d, f, name, "`concurrency` takes none");
            }
            Some((in_flight.map(|limit| RuleKind::Concurrency { limit }), Base::Concurrency))
        }
        (Some(_), None) => {
            manner.refuse_foreign(d, f);
            let limit = limit?;
            Some((manner.count(d, limit), Base::Rate(Box::new(manner), limit)))
        }
    }
}

/// How a limit is counted.
#[derive(Clone)]
pub(super) struct Manner {
    algorithm: Option<At<Word>>,
    pub(super) burst: Option<At<u64>>,
    warm_up: Option<WarmUp>,
    buckets: Option<At<u64>>,
    strict: Option<At<bool>>,
    to_clock: Option<At<bool>>,
    zone: Option<At<String>>,
    max_wait: Option<At<Duration>>,
    max_queue: Option<At<u64>>,
}

/// Keys that only some algorithms take, which ones, and in words.
const OWNERS: [(&str, &[Word], &str); 9] = [
    (
        "burst",
        &[Word::TokenBucket, Word::LeakyBucket],
        "only `token_bucket` and `leaky_bucket` take it",
    ),
    ("warm_up", &[Word::TokenBucket, Word::Pacing], "only `token_bucket` and `pacing` take it"),
    ("max_wait", &[Word::Pacing], "only `algorithm: pacing` has somebody wait"),
    ("max_queue", &[Word::Pacing], "only `algorithm: pacing` has somebody wait"),
    (
        "priority",
        &[Word::SlidingWindow, Word::FixedWindow],
        "only `sliding_window` and `fixed_window` have windows to borrow from",
    ),
    ("buckets", &[Word::SlidingWindow], "only `algorithm: sliding_window` takes it"),
    ("strict", &[Word::SlidingWindow], "only `algorithm: sliding_window` takes it"),
    ("align", &[Word::FixedWindow], "only `algorithm: fixed_window` takes it"),
    ("tz", &[Word::FixedWindow], "only `algorithm: fixed_window` takes it"),
];

impl Manner {
    fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Self {
        Self {
            algorithm: f.word(d, "algorithm", &Word::ALL),
            burst: f.integer(d, "burst"),
            warm_up: warm_up(d, f),
            buckets: f.integer(d, "buckets"),
            strict: f.flag(d, "strict"),
            to_clock: f.word(d, "align", &[true, false]),
            zone: f.leaf(d, "tz", values::zone),
            max_wait: f.duration(d, "max_wait"),
            max_queue: f.integer(d, "max_queue"),
        }
    }

    fn refuse_foreign<'s>(&self, d: &mut Decoder<'s>, f: &Fields<'_, 's>) {
        let Some(algorithm) = self.algorithm else { return };
        for (name, owners, takes) in OWNERS {
            if !owners.contains(&algorithm.value) {
                foreign(d, f, name, takes);
            }
        }
    }

    pub(super) fn takes_burst(&self) -> bool {
        let takes = |word: At<Word>| matches!(word.value, Word::TokenBucket | Word::LeakyBucket);
        self.algorithm.is_some_and(takes)
    }

    pub(super) fn with_burst(&self, burst: Option<At<u64>>) -> Self {
        Self { burst, ..self.clone() }
    }

    /// Returns the kind of rule that counts `limit` so.
    pub(super) fn count(&self, d: &mut Decoder<'_>, limit: At<Limit>) -> Option<RuleKind> {
        let (algorithm, burst) = (self.algorithm?.value, self.burst);
        let windows = if algorithm == Word::FixedWindow {
            Some(self.windows(d, limit.value.unit)?)
        } else {
            None
        };
        let rate = if matches!(windows, Some(Windows::Calendar(..))) {
            limit.map(|limit| limit.rate)
        } else {
            d.keep(limit.value.steady(), limit.place)?
        };
        Some(match algorithm {
            Word::TokenBucket => RuleKind::TokenBucket { rate, burst, warm_up: self.warm_up },
            Word::LeakyBucket => RuleKind::LeakyBucket { rate, burst },
            Word::SlidingLog => RuleKind::SlidingLog { rate },
            Word::SlidingWindow => {
                RuleKind::SlidingWindow { rate, buckets: self.buckets?, strict: self.strict?.value }
            }
            Word::SlidingCounter => RuleKind::SlidingCounter { rate },
            Word::FixedWindow => RuleKind::FixedWindow { rate, windows: windows? },
            Word::Pacing => {
                let Self { max_wait, max_queue, warm_up, .. } = *self;
                RuleKind::Pacing(PaceSpec { rate: Some(rate), max_wait, max_queue, warm_up })
            }
        })
    }

    /// Returns when the windows of `fixed_window` begin.
    fn windows(&self, d: &mut Decoder<'_>, unit: Option<Unit>) -> Option<Windows> {
        let to_clock = self.to_clock?.value;
        Some(match (unit.filter(|_| to_clock), &self.zone) {
            (Some(unit), zone) => Windows::Calendar(unit, zone.as_ref()?.value.clone()),
            (None, Some(zone)) if zone.written => {
                let problem = Problem::error(zone.place, "`tz` without windows of a calendar")
                    .help("write `limit: 100/day`, `/week` or `/month` with `align: clock`, or remove it");
                d.problems.add(problem);
                return None;
            }
            (None, _) if to_clock => Windows::Clock,
            (None, _) => Windows::FirstRequest,
        })
    }
}

/// Reads how a cold service is warmed up.
fn warm_up<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<WarmUp> {
    let f = f.map(d, "warm_up")?;
    let (period, factor) = (f.duration(d, "period"), f.integer(d, "cold_factor"));
    let cold_factor = u32::try_from(factor?.value).unwrap_or(u32::MAX);
    Some(WarmUp { period: period?.value, cold_factor })
}

/// Refuses a key that means nothing in this kind of rule.
fn foreign<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>, name: &str, why: &str) {
    if let Some(place) = f.key_place(name) {
        let problem = Problem::error(place, format!("`{name}` means nothing in this rule"));
        d.problems.add(problem.help(format!("remove it: {why}")));
    }
}

impl CostSpec {
    fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Self {
        let one = At { value: 1, place: f.place, written: false };
        let Some((key, node)) = f.node("cost") else {
            return Self { default: one, by_method: Vec::new() };
        };
        let number = |text: &str| integer("cost", key.kind.plain(), text);
        if !matches!(node.content, Content::Map(_)) {
            let default = d.leaf(node, key, number).unwrap_or(one);
            return Self { default, by_method: Vec::new() };
        }
        let mut cost = Self { default: one, by_method: Vec::new() };
        for (name, node) in d.entries(node, key) {
            let value = d.leaf(node, key, number);
            if name.value == "default" {
                cost.default = value.unwrap_or(one);
                continue;
            }
            let method = d.keep(values::method(&name.value), name.place);
            cost.by_method.extend(method.map(|at| at.value).zip(value));
        }
        cost
    }
}

impl PrioritySpec {
    fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<Self> {
        let header = f.leaf(d, "header", values::header_name);
        let equals = f.leaf(d, "equals", values::text).map(|at| at.map(FieldSpec::Equals));
        let max_wait = f.duration(d, "max_wait");
        let header = header?;
        let present = At { value: FieldSpec::Present, place: header.place, written: false };
        Some(Self { header, value: equals.unwrap_or(present), max_wait: max_wait? })
    }
}

impl ExceptSpec {
    fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Self {
        if f.is_empty() {
            let problem = Problem::error(f.place, "an exception needs at least one condition")
                .help("write `except: { client_ip: [10.0.0.0/8] }`, or remove it");
            d.problems.add(problem);
        }
        Self {
            client_ip: plain(f.several(d, "client_ip", values::network)),
            methods: plain(f.several(d, "method", values::method)),
            path_prefix: f.several(d, "path_prefix", values::text),
            headers: route::fields(d, f, "header", values::header_name),
        }
    }
}

impl PacingSpec {
    pub(super) fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Self {
        let pace = PaceSpec {
            rate: f.rate(d, "rate"),
            max_wait: f.duration(d, "max_wait"),
            max_queue: f.integer(d, "max_queue"),
            warm_up: warm_up(d, f),
        };
        Self { pace, scope: ScopeSpec::read(d, f) }
    }
}
