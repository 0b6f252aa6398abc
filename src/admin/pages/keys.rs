//! `/keys`, `/keys/reset` and `/keys/grant`.

use crate::{
    admin::{
        context::Admin,
        endpoint::{Access, Answer, Ask, Endpoint, Pending},
        keys::{self, Done, Names, NotDone, Wanted, WantedRule},
        reply::{Reply, json, large, plain},
    },
    config::GateRules,
};
use http::StatusCode;
use std::{borrow::Cow, sync::Arc};

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
    changing("/keys/reset", "gives a key its whole budget again", reset),
    changing("/keys/grant", "gives a key more than its limit for some time", grant),
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
            let at = (state.clock.now(), most);
            let surveys = &admin.surveys;
            let mut list = keys::list(&owners, rule.as_deref(), surveys, at, names);
            let failure = state.store.as_ref().and_then(|store| store.read().failure);
            list.store_failure = failure.map(|failure| failure.to_string());
            serde_json::to_vec_pretty(&list).ok()
        })
    })
}

fn reset(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let fields = Fields::of(&ask);
        let is_all = ask.query("all").next().is_some();
        if is_all == fields.key.is_some() {
            return plain(StatusCode::BAD_REQUEST, "write `key=KEY`, or `all` for every key\n");
        }
        match fields.wanted(&ask) {
            Some(wanted) => shown(keys::reset(&admin.state, wanted).await),
            None => incomplete(),
        }
    })
}

fn grant(admin: Arc<Admin>, ask: Ask) -> Pending {
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
            Some(wanted) => shown(keys::grant(&admin.state, wanted, count, time).await),
            None => incomplete(),
        }
    })
}

/// What a query says of a key.
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
