//! `/keys`, `/keys/reset` and `/keys/grant`: the keys of rules, and their changes by operators.

use crate::{
    admin::{
        context::{Admin, State},
        endpoint::{Access, Answer, Ask, Endpoint, Pending},
        live_keys::{self, Names, rules_of},
        reply::{Reply, json, large, plain},
    },
    cluster::{SharedState, StateChange, SyncTerms},
    config::{GateRules, RouteRule, Shared, Snapshot},
    flow::{Grant, Key, MOST_GRANTS, NotReset},
    route::{Nat64, fingerprint_text},
    small_http::Client,
};
use core::time::Duration;
use http::StatusCode;
use serde::Serialize;
use std::{borrow::Cow, fmt, sync::Arc};

/// Keys of each kind that are shown if the query names no number, and at most.
const SHOWN: usize = 10;
const MOST: usize = 20;

pub(super) const ENDPOINTS: [Endpoint; 3] = [
    Endpoint {
        path: "/keys",
        methods: "GET, HEAD",
        about: "the fullest and the most rejected keys of each rule, as JSON",
        access: Access::Operators,
        most_body: 0,
        answer: Answer::Later(show),
    },
    changing("/keys/reset", "gives a key its whole budget again", reset_key),
    changing("/keys/grant", "gives a key more than its limit for some time", grant_to_key),
];

const fn changing(
    path: &'static str,
    about: &'static str,
    answer: fn(Arc<Admin>, Ask) -> Pending,
) -> Endpoint {
    let answer = Answer::Later(answer);
    Endpoint { path, methods: "POST", about, access: Access::Operators, most_body: 0, answer }
}

fn show(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let state = &admin.state;
        let snapshot = state.live.load_full();
        let field = |name| ask.query(name).next().map(Cow::into_owned);
        let route = field("route");
        let rule = field("rule");
        let budget = field("budget");
        let is_route = |known: &GateRules<'_>| match (&route, &budget) {
            (Some(name), _) => known.owner.route() == Some(name),
            (None, Some(name)) => known.owner.budget().as_ref() == Some(name),
            (None, None) => true,
        };
        let routes = snapshot.routes.iter().map(|route| route.gate_rules());
        let owners: Vec<GateRules<'_>> =
            routes.chain(snapshot.shared_rules()).filter(is_route).collect();
        if owners.is_empty() && (route.is_some() || budget.is_some()) {
            let what = if route.is_some() { "route" } else { "budget" };
            return plain(StatusCode::NOT_FOUND, format!("there is no such {what}\n"));
        }
        let top = field("top").map_or(Some(SHOWN), |top| top.parse().ok());
        let Some(most) = top.filter(|top| (1..=MOST).contains(top)) else {
            return plain(StatusCode::BAD_REQUEST, format!("`top` is from 1 to {MOST}\n"));
        };
        for own in &owners {
            admin.surveys.refresh(*own, &state.clock).await;
        }
        large(&admin, "application/json", || {
            let names = Names::of(&snapshot, &state.key_names);
            let surveys = &admin.surveys;
            let mut list =
                live_keys::list(&owners, rule.as_deref(), surveys, state.clock.now(), most, names);
            let failure = state.store.as_ref().and_then(|store| store.read().failure);
            list.store_failure = failure.map(|failure| failure.to_string());
            serde_json::to_vec_pretty(&list).ok()
        })
    })
}

fn reset_key(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let fields = Fields::of(&ask);
        let is_all = ask.query("all").next().is_some();
        if is_all == fields.key.is_some() {
            return plain(StatusCode::BAD_REQUEST, "write `key=KEY`, or `all` for every key\n");
        }
        match fields.wanted(&ask) {
            Some(wanted) => shown(reset(&admin.state, wanted).await),
            None => incomplete(),
        }
    })
}

fn grant_to_key(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let fields = Fields::of(&ask);
        let count = ask.query("count").next().and_then(|count| count.parse().ok());
        let time = ask.query("for").next();
        let time = time.and_then(|time| humantime::parse_duration(&time).ok());
        let (Some(count), Some(time)) = (count, time) else {
            let text = "write `count=N` and `for=DURATION`, as in `count=100&for=10m`\n";
            return plain(StatusCode::BAD_REQUEST, text);
        };
        match fields.wanted(&ask) {
            Some(wanted) => shown(grant(&admin.state, wanted, count, time).await),
            None => incomplete(),
        }
    })
}

/// The fields of a query that name a key.
struct Fields<'a> {
    route: Option<Cow<'a, str>>,
    rule: Option<Cow<'a, str>>,
    budget: Option<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
}

impl<'a> Fields<'a> {
    fn of(ask: &'a Ask) -> Self {
        let field = |name| ask.query(name).next();
        let budget = field("budget");
        Self { route: field("route"), rule: field("rule"), budget, key: field("key") }
    }

    fn wanted(&self, ask: &Ask) -> Option<Wanted<'_>> {
        let rule = match &self.budget {
            Some(name) => WantedRule::Shared(name),
            None => {
                WantedRule::OfRoute { route: self.route.as_deref()?, rule: self.rule.as_deref()? }
            }
        };
        Some(Wanted { rule, key: self.key.as_deref(), client: ask.head.extensions.get().copied() })
    }
}

fn incomplete() -> Reply {
    plain(StatusCode::BAD_REQUEST, "write `route=ROUTE` and `rule=RULE`, or `budget=NAME`\n")
}

fn shown(done: Result<Done, NotDone>) -> Reply {
    match done {
        Ok(done) => json(StatusCode::OK, &done),
        Err(NotDone { status, text }) => plain(status, text + "\n"),
    }
}

/// The longest time of a grant.
const LONGEST: Duration = Duration::from_hours(24);

/// The largest grant: no rule counts more.
const LARGEST: u64 = 1_000_000_000;

/// The name of the one key of a rule without keys.
const ALL: &str = "all";

/// A key of a rule, as the operator wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub rule: WantedRule<'a>,
    /// `None`: every key.
    pub key: Option<&'a str>,
    /// Where the operator asks from.
    pub client: Option<Client>,
}

/// A rule, as the operator wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WantedRule<'a> {
    /// A rule of a route.
    OfRoute { route: &'a str, rule: &'a str },
    /// A budget, or another rule that routes share.
    Shared(&'a str),
}

/// As in `login/per-address` or `budget site`.
impl fmt::Display for WantedRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfRoute { route, rule } => write!(f, "{route}/{rule}"),
            // Other shared rules are named with their place.
            Self::Shared(name) if name.contains(' ') => f.write_str(name),
            Self::Shared(name) => write!(f, "budget {name}"),
        }
    }
}

/// The change that was made.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Done {
    pub summary: String,
    /// The key's fingerprint, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// The reason that nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotDone {
    pub status: StatusCode,
    pub text: String,
}

/// A key of a rule, and of each of its overrides.
struct Found<'a> {
    own: GateRules<'a>,
    /// `None`: every key.
    rules: Vec<(&'a RouteRule, Option<Key>)>,
    /// As the log has it.
    key: String,
}

/// Gives a key its whole budget again.
pub(crate) async fn reset(state: &State, wanted: Wanted<'_>) -> Result<Done, NotDone> {
    let snapshot = state.live.load_full();
    let found = find(state, &snapshot, wanted)?;
    let rule = wanted.rule;
    let gate = found.own.gate;
    for (rule, _) in &found.rules {
        gate.may_reset(rule.slot).map_err(not_reset)?;
    }
    let states = found.shared_states(|_| true)?;
    let mut had_usage = false;
    if !states.is_empty() {
        had_usage |= in_store(state, &states, StateChange::Reset).await?;
    }
    let now = state.clock.now();

    for (rule, key) in &found.rules {
        had_usage |= match key {
            Some(key) => gate.reset_key(rule.slot, now, *key).map_err(not_reset)?,
            None => gate.reset_all(rule.slot).map(|()| true).map_err(not_reset)?,
        };
    }

    let key = &found.key;
    let summary = if had_usage {
        let by = by(wanted);
        log(rule, |route, rule| tracing::info!(%by, route, rule, %key, "key reset by an operator"));
        format!("{rule}: {key} has its whole budget again{}", found.reset_scope())
    } else {
        format!("{rule}: {key} has used nothing, so there is nothing to reset")
    };
    Ok(done(summary, &found))
}

/// Gives a key `count` more for `time`.
pub(crate) async fn grant(
    state: &State,
    wanted: Wanted<'_>,
    count: u64,
    time: Duration,
) -> Result<Done, NotDone> {
    if count == 0 || count > LARGEST {
        return Err(bad(format!("a grant is from 1 to {LARGEST}")));
    }
    if time.is_zero() || time > LONGEST {
        return Err(bad("a grant lasts a day at most, as in `for=10m`".to_owned()));
    }
    if wanted.key.is_none() {
        return Err(bad("a grant is for one key".to_owned()));
    }
    let snapshot = state.live.load_full();
    let found = find(state, &snapshot, wanted)?;
    let rule = wanted.rule;
    let states = found.shared_states(Shared::is_in_store)?;
    if !states.is_empty() {
        _ = in_store(state, &states, StateChange::Grant(count, time)).await?;
    }
    let now = state.clock.now();

    for (rule, key) in found.rules.iter().filter(|(rule, _)| rule.in_store().is_none()) {
        let Some(key) = *key else { continue };
        let grant = Grant { key, count, left: count, until: now + time };
        if !found.own.gate.grant(rule.slot, now, grant) {
            return Err(conflict(&format!("the rule has {MOST_GRANTS} grants in force already")));
        }
    }

    let key = &found.key;
    let lasts = humantime::format_duration(time);
    let by = by(wanted);
    log(rule, |route, rule| {
        tracing::info!(%by, route, rule, %key, count, %lasts, "grant by an operator");
    });
    let summary = format!("{rule}: {key} has {count} more for {lasts}{}", found.grant_scope());
    Ok(done(summary, &found))
}

impl Found<'_> {
    /// Returns the states of the key that gateways share, of the rules that are `wanted`.
    fn shared_states(&self, wanted: impl Fn(&Shared) -> bool) -> Result<Vec<SharedState>, NotDone> {
        let mut states = Vec::new();
        for (rule, key) in &self.rules {
            let Some(shared) = rule.shared.as_ref().filter(|shared| wanted(shared)) else {
                continue;
            };
            let key = match key {
                Some(Key::Of(key)) => Some(*key),
                Some(Key::Shared | Key::Missing | Key::Duplicate) => None,
                None => return Err(conflict("gateways share the keys of this rule: name one")),
            };
            let sync = shared.sync.as_ref();
            let sync = sync
                .map(|sync| SyncTerms { rule: Arc::clone(&shared.rule), interval: sync.interval });
            states.push(SharedState { rule: Arc::clone(&shared.name), key, sync });
        }
        Ok(states)
    }

    /// Returns where a reset holds, for people.
    fn reset_scope(&self) -> &'static str {
        if self.rules.iter().any(|(rule, _)| rule.sync().is_some()) {
            return ", on every gateway within two intervals of its sync";
        }
        self.grant_scope()
    }

    /// Returns where a grant holds, for people.
    fn grant_scope(&self) -> &'static str {
        if self.rules.iter().any(|(rule, _)| rule.in_store().is_some()) {
            return ", on every gateway within five seconds";
        }
        let is_synced = self.rules.iter().any(|(rule, _)| rule.sync().is_some());
        if is_synced { ", on this gateway only" } else { "" }
    }
}

/// Changes states in the store. Returns whether there was something to change.
async fn in_store(
    state: &State,
    states: &[SharedState],
    change: StateChange,
) -> Result<bool, NotDone> {
    let Some(store) = &state.store else {
        return Err(conflict("the gateway has no store until its next start"));
    };
    let changed = store.change(&state.clock, states, change).await;
    changed.map_err(|error| {
        let text = format!("the store may not have done it: {error}");
        NotDone { status: StatusCode::SERVICE_UNAVAILABLE, text }
    })
}

fn find<'a>(
    state: &State,
    snapshot: &'a Snapshot,
    wanted: Wanted<'a>,
) -> Result<Found<'a>, NotDone> {
    let text = wanted.key;
    let (own, rule) = match wanted.rule {
        WantedRule::OfRoute { route: name, rule } => {
            let route = snapshot.routes.iter().find(|route| *route.name == *name);
            let route = route.ok_or_else(|| missing(format!("there is no route `{name}`")))?;
            (route.gate_rules(), rule)
        }
        WantedRule::Shared(name) => {
            let own = snapshot.shared_rule(name);
            let own = own.ok_or_else(|| missing(format!("there is no budget `{name}`")))?;
            let rule = own.rules.first().map_or(name, |rule| &rule.name);
            (own, rule)
        }
    };
    let mut rules = Vec::new();
    let mut shown = "every key".to_owned();
    for known in rules_of(own, rule) {
        let key =
            text.map(|text| read(state, &snapshot.settings.nat64, known, text)).transpose()?;
        if let (Some(key), Some(text)) = (key, text) {
            shown = in_log(key, Names::of(snapshot, &state.key_names), text);
        }
        rules.push((known, key));
    }
    if rules.is_empty() {
        return Err(missing(format!("the route `{}` has no rule `{rule}`", own.owner)));
    }
    Ok(Found { own, rules, key: shown })
}

/// Has a line of the log written with the names of the route, if there is one, and the rule.
fn log(wanted: WantedRule<'_>, write: impl FnOnce(&str, &str)) {
    match wanted {
        WantedRule::OfRoute { route, rule } => write(route, rule),
        WantedRule::Shared(name) => write("-", name),
    }
}

/// Reads a key as the rule counts it.
fn read(state: &State, nat64: &Nat64, rule: &RouteRule, text: &str) -> Result<Key, NotDone> {
    if rule.key.is_shared() {
        return if text == ALL {
            Ok(Key::Shared)
        } else {
            Err(bad(format!("the rule has no keys: write `{ALL}`")))
        };
    }
    let shared = state.store.as_ref().filter(|_| rule.shared.is_some());
    let seed = shared.map_or(state.seed, |store| store.seed());
    let read = rule.key.read(&seed, nat64, text);
    read.map(Key::Of).map_err(|wrong| bad(format!("{}; {}", wrong.message, wrong.help)))
}

fn in_log(key: Key, names: Names<'_>, text: &str) -> String {
    match key {
        Key::Of(key) => names.in_log(key, text),
        Key::Shared | Key::Missing | Key::Duplicate => ALL.to_owned(),
    }
}

fn by(wanted: Wanted<'_>) -> String {
    wanted.client.map_or_else(|| "-".to_owned(), |client| client.address.to_string())
}

fn done(summary: String, found: &Found<'_>) -> Done {
    let key = found.rules.first().and_then(|(_, key)| *key);
    let fingerprint = match key {
        Some(Key::Of(key)) => Some(fingerprint_text(key)),
        Some(Key::Shared | Key::Missing | Key::Duplicate) | None => None,
    };
    Done { summary, fingerprint }
}

fn not_reset(why: NotReset) -> NotDone {
    conflict(&why.to_string())
}

fn bad(text: String) -> NotDone {
    NotDone { status: StatusCode::BAD_REQUEST, text }
}

fn missing(text: String) -> NotDone {
    NotDone { status: StatusCode::NOT_FOUND, text }
}

fn conflict(text: &str) -> NotDone {
    NotDone { status: StatusCode::CONFLICT, text: text.to_owned() }
}
