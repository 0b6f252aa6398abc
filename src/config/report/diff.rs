//! The effect of one file in the place of another: `flowgate diff OLD NEW`.
//!
//! The change of a rule is not worked out here: a gate is given the old rules and then
//! the new ones, and says so itself, as it does at a reload.

use super::{
    changes::{
        self, ChangeKind, ComparedRoute, ComparedRules, MOVED, Named, RESET, at_start_only,
        bounded, changed,
    },
    describe,
};
use crate::{
    config::plan::{FlowPart, GroupOwner, Plan, RoutePlan, RuleGroupPlan, name_in_store},
    flow::{Change, Gate, Instant, Rules, Stored},
};
use serde::Serialize;
use std::{
    collections::HashMap,
    fmt::{self, Debug},
    sync::Arc,
};

/// The differences between two files, for people (`Display`) and for machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Routes with their rules, in the order of the new file, then what is gone.
    pub routes: Vec<RouteChange>,
    /// Rules that routes share, in the same order, with names as `budget site`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_rules: Vec<RouteChange>,
    /// Listeners that differ.
    pub listeners: Vec<Named>,
    /// Upstreams that differ.
    pub upstreams: Vec<Named>,
    /// The differences of the other keys of the file, as `timeouts.write 60s → 30s`.
    pub settings: Vec<String>,
    /// The keys that only a restart puts in force.
    pub restart: Vec<&'static str>,
}

/// The change of a route, or of a rule that routes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteChange {
    /// Its name.
    pub name: String,
    /// Its change.
    pub change: ChangeKind,
    /// The differences, if it is edited, as `per-client 10/1m → 20/1m`.
    pub differs: Vec<String>,
    /// The changes of its rules.
    pub rules: Vec<RuleChange>,
}

/// The change of a rule and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleChange {
    /// Its name.
    pub name: String,
    /// `kept`, `converted`, `reset`, `added` or `removed`.
    pub change: &'static str,
    /// Its promise and its algorithm now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Its promise and its algorithm after the edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The loss that it causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<&'static str>,
}

/// Compares two files. Of certificates the names are compared, not what the files hold.
pub fn diff(old: &Plan, new: &Plan) -> Difference {
    let before: HashMap<&str, &RoutePlan> = old.file_routes().map(|r| (&*r.name, r)).collect();
    let after: HashMap<&str, &RoutePlan> = new.file_routes().map(|r| (&*r.name, r)).collect();
    let gone = old.file_routes().filter(|route| !after.contains_key(&*route.name));
    let routes = new
        .file_routes()
        .map(|route| {
            let known = before.get(&*route.name).copied();
            route_change(known.map(|known| (known, old)), Some((route, new)), &route.name)
        })
        .chain(gone.map(|route| route_change(Some((route, old)), None, &route.name)));
    let upstreams =
        changed(&old.upstreams, &new.upstreams, |upstream| &upstream.name, changes::upstream);
    let listeners =
        changed(&old.listeners, &new.listeners, |of| &of.name, |a, b| changes::listener(a, b));
    Difference {
        routes: routes.collect(),
        shared_rules: shared_changes(old, new),
        listeners,
        upstreams,
        restart: at_start_only(&old.settings, &new.settings),
        settings: changes::settings(&old.settings, &new.settings),
    }
}

impl Difference {
    /// Returns whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.edited().next().is_none()
            && self.listeners.is_empty()
            && self.upstreams.is_empty()
            && self.settings.is_empty()
    }

    fn count(&self, change: &str) -> usize {
        let all = self.routes.iter().chain(&self.shared_rules);
        all.flat_map(|route| &route.rules).filter(|rule| rule.change == change).count()
    }

    /// Returns the routes and shared rules that differ, each with its kind.
    fn edited(&self) -> impl Iterator<Item = (&'static str, &RouteChange)> {
        let routes = self.routes.iter().map(|route| ("route ", route));
        let shared = self.shared_rules.iter().map(|rule| ("", rule));
        shared.chain(routes).filter(|(_, route)| route.change != ChangeKind::Kept)
    }
}

/// A route with the plan that it is of.
type Of<'p> = (&'p RoutePlan, &'p Plan);

fn route_change(old: Option<Of<'_>>, new: Option<Of<'_>>, name: &Arc<str>) -> RouteChange {
    let differs = match (old, new) {
        (Some((before, old)), Some((after, new))) => {
            ComparedRoute::of_plan(before, old).words(&ComparedRoute::of_plan(after, new))
        }
        _ => Vec::new(),
    };

    let old = old.map(|(route, _)| route);
    let new = new.map(|(route, _)| route);

    let change = match (old, new) {
        (Some(old), Some(new)) if old.print == new.print && old.options == new.options => {
            ChangeKind::Kept
        }
        (Some(_), Some(_)) => ChangeKind::Edited,
        (None, _) => ChangeKind::Added,
        (_, None) => ChangeKind::Removed,
    };

    let side = |route: &RoutePlan, name: &str| Side {
        words: describe::in_words(route, name),
        stored: in_store(route, name),
    };
    let flows = [old, new].map(|route| route.map(|route| &route.flow));
    let rules = rule_changes(flows, |name| [old, new].map(|route| Some(side(route?, name))));
    RouteChange { name: name.to_string(), change, differs, rules }
}

/// Compares the rules that routes share.
fn shared_changes(old: &Plan, new: &Plan) -> Vec<RouteChange> {
    let [before, after] = [old, new].map(|plan| -> HashMap<&GroupOwner, &RuleGroupPlan> {
        plan.groups.iter().map(|group| (&group.owner, group)).collect()
    });
    let gone = old.groups.iter().map(|group| &group.owner);
    let gone = gone.filter(|owner| !after.contains_key(owner));
    let owners = new.groups.iter().map(|group| &group.owner).chain(gone);
    let change = |owner| {
        let [old, new] = [&before, &after].map(|groups| groups.get(owner).copied());
        shared_change(old, new, owner)
    };
    owners.map(change).collect()
}

fn shared_change(
    old: Option<&RuleGroupPlan>,
    new: Option<&RuleGroupPlan>,
    owner: &GroupOwner,
) -> RouteChange {
    let change = match (old, new) {
        (Some(old), Some(new)) if old.print == new.print => ChangeKind::Kept,
        (Some(_), Some(_)) => ChangeKind::Edited,
        (None, _) => ChangeKind::Added,
        (_, None) => ChangeKind::Removed,
    };
    let differs = old.zip(new).map(|(old, new)| {
        let [old, new] = [old, new].map(|group| ComparedRules::new(&group.flow, &group.rules));
        old.words(&new)
    });

    let side = |group: &RuleGroupPlan, name: &str| Side {
        words: describe::shared_in_words(group, name),
        stored: group.in_store(name),
    };
    let flows = [old, new].map(|group| group.map(|group| &group.flow));
    let rules = rule_changes(flows, |name| [old, new].map(|group| Some(side(group?, name))));
    RouteChange { name: owner.to_string(), change, differs: differs.unwrap_or_default(), rules }
}

/// A rule in one of the files.
struct Side {
    /// Its promise and its algorithm.
    words: Option<String>,
    /// Its name in the store.
    stored: Option<String>,
}

/// Returns what becomes of the rules of a gate. `sides` describes a rule before and after.
fn rule_changes(
    flows: [Option<&Rules>; 2],
    sides: impl Fn(&str) -> [Option<Side>; 2],
) -> Vec<RuleChange> {
    let gate = Gate::new(Instant::EPOCH);
    let none = Rules::default();
    let [old, new] = flows.map(|flow| flow.unwrap_or(&none));
    gate.install(old, Instant::EPOCH);
    let installed = gate.install(new, Instant::EPOCH);

    let rule = |(name, change): &(Arc<str>, Change)| {
        let [before, after] = sides(name);
        let stored = |side: &Option<Side>| side.as_ref().and_then(|side| side.stored.clone());
        let (change, warning) = match change {
            // The gate knows only of what is counted here.
            Change::Kept | Change::Converted if stored(&before) != stored(&after) => {
                (Change::Reset, Some(MOVED))
            }
            Change::Reset => (Change::Reset, Some(RESET)),
            Change::Added | Change::Kept | Change::Converted | Change::Removed => (*change, None),
        };
        RuleChange {
            name: name.to_string(),
            change: word(change),
            before: before.and_then(|side| side.words),
            after: after.and_then(|side| side.words),
            warning,
        }
    };
    installed.changes.iter().map(rule).collect()
}

/// Returns by which name a store finds the states of a rule again that gateways share; `None` if
/// they do not.
fn in_store(plan: &RoutePlan, name: &str) -> Option<String> {
    match plan.part(name)? {
        FlowPart::Rule(at) => {
            let identity = plan.flow.flow.get(at)?;
            let rule = plan.rules.get(at).filter(|rule| rule.shared.is_some())?;
            let stored = Stored::new(&identity.algorithm).ok()?;
            let is_synced = rule.sync_interval.is_some();
            Some(plan.hash_tag(!is_synced) + &name_in_store(identity, &stored, is_synced))
        }
        FlowPart::Breaker => None,
        FlowPart::Pacing => {
            let paced = plan.flow.pacing.as_ref().filter(|_| plan.paced.is_some())?;
            Some(Stored::paced(paced).ok()?.shape())
        }
    }
}

const fn word(change: Change) -> &'static str {
    match change {
        Change::Added => "added",
        Change::Kept => "kept",
        Change::Converted => "converted",
        Change::Reset => "reset",
        Change::Removed => "removed",
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, route) in self.edited() {
            writeln!(f, "{kind}{}  {}", route.name, in_words(route.change, &route.differs))?;
            for rule in &route.rules {
                write!(f, "  {}  {}", rule.name, rule.change)?;
                match (&rule.before, &rule.after) {
                    (Some(before), Some(after)) if before != after => {
                        writeln!(f, "\n    from {before}\n    to   {after}")?;
                    }
                    (Some(one), None) | (None, Some(one)) => writeln!(f, "\n    {one}")?,
                    (Some(_), Some(_)) | (None, None) => writeln!(f)?,
                }
                if let Some(warning) = rule.warning {
                    writeln!(f, "    warning: {warning}")?;
                }
            }
        }

        for (what, list) in [("listener", &self.listeners), ("upstream", &self.upstreams)] {
            for named in list {
                writeln!(f, "{what} {}  {}", named.name, in_words(named.change, &named.differs))?;
            }
        }

        if !self.settings.is_empty() {
            writeln!(f, "settings  {}", self.settings.join(", "))?;
        }
        if !self.restart.is_empty() {
            writeln!(f, "in force at the next start: {}", self.restart.join(", "))?;
        }
        if self.is_empty() {
            writeln!(f, "nothing differs")?;
        }

        let routes = |change| self.routes.iter().filter(|route| route.change == change).count();
        write!(
            f,
            "routes +{} ~{} -{}; rules kept {}, converted {}, reset {}, added {}, removed {}",
            routes(ChangeKind::Added),
            routes(ChangeKind::Edited),
            routes(ChangeKind::Removed),
            self.count("kept"),
            self.count("converted"),
            self.count("reset"),
            self.count("added"),
            self.count("removed")
        )
    }
}

/// Writes `edited (per-client 10/1m → 20/1m)`, or `added`.
fn in_words(change: ChangeKind, differs: &[String]) -> String {
    if differs.is_empty() { change.to_string() } else { format!("{change} ({})", bounded(differs)) }
}
