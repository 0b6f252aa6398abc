//! What differs between two configurations, in a few words: those of a reload's line in the log and
//! of `flowgate diff`. Nothing secret is in them: of headers, bodies and the store only the key is
//! named.

mod rest;
mod route;

use crate::config::{plan::Plan, snapshot::Snapshot, spec::word, vocabulary::ShownKey};
use ahash::AHashMap;
use rest::renewed;
pub(in crate::config) use rest::{at_start_only, listener, settings, upstream};
pub(in crate::config) use route::{ComparedRoute, ComparedRules};
use serde::Serialize;
use std::fmt::{self, Display};

/// The most changes that a line of the log names.
const MOST_NAMED: usize = 8;

/// The most words that describe one change.
const MOST_WORDS: usize = 4;

/// The meaning of a reset for users.
pub(in crate::config) const RESET: &str =
    "counting starts from zero, as the algorithm, the key or the use of `sync_interval` changed";

/// The meaning for users if a rule gets or loses `scope: cluster`, or if its states mean something
/// else, by which they are named in the store.
pub(in crate::config) const MOVED: &str = "the count that gateways share starts from zero, as `scope: cluster`, the window, the interval of a \
     bucket or the number of buckets changed";

/// The change of a named thing, between two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is as it was.
    Kept,
    /// It was edited.
    Edited,
    /// It is new.
    Added,
    /// It is gone.
    Removed,
}

/// The changes of a reload: bounded, for one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChanges {
    /// Up to eight, as `route checkout (per-client 10/1m → 20/1m)`.
    pub named: Vec<String>,
    /// The number of the others.
    pub more: usize,
}

/// The change of a named thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its change.
    pub change: ChangeKind,
    /// The differences, if it is edited.
    pub differs: Vec<String>,
}

impl ConfigChanges {
    /// Compares what is in force with what is to be.
    pub(in crate::config) fn between(old: &Snapshot, new: &Plan) -> Self {
        let mut rest = rest(old, new);
        // Half of the line is for routes, or what the others leave of it.
        let most = MOST_NAMED - rest.len().min(MOST_NAMED / 2);
        let (mut named, routes) = routes(old, new, most);
        let all = routes + rest.len();
        rest.truncate(MOST_NAMED - named.len());
        named.append(&mut rest);
        Self { more: all - named.len(), named }
    }
}

impl Display for ConfigChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.named.is_empty() {
            return f.write_str("nothing changed");
        }
        f.write_str(&self.named.join(", "))?;
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}

impl Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word(self))
    }
}

/// Compares everything but the routes.
fn rest(old: &Snapshot, new: &Plan) -> Vec<String> {
    let before: Vec<_> = old.upstreams.iter().map(|upstream| &upstream.plan).collect();
    let after: Vec<_> = new.upstreams.iter().collect();
    let upstreams = changed(&before, &after, |of| &of.name, |old, new| upstream(old, new));
    let mut rest: Vec<_> = shared_rules(old, new);
    rest.extend(upstreams.iter().map(|changed| changed.in_words("upstream")));
    let listeners =
        changed(&old.listeners, &new.listeners, |of| &of.name, |old, new| listener(old, new));
    rest.extend(listeners.iter().map(|changed| changed.in_words("listener")));
    rest.extend(renewed(old, new).map(|name| format!("certificate {name}")));
    let settings = settings(&old.settings, &new.settings);
    if !settings.is_empty() {
        rest.push(format!("settings ({})", bounded(&settings)));
    }
    rest
}

/// Compares the rules that several routes share. Their owner is in the name, as in `budget site`.
fn shared_rules(old: &Snapshot, new: &Plan) -> Vec<String> {
    let mut before: AHashMap<_, _> =
        old.groups.iter().map(|group| (group.owner.to_string(), group)).collect();
    let mut words = Vec::new();
    for group in &new.groups {
        let name = group.owner.to_string();
        let (change, differs) = match before.remove(&name) {
            None => (ChangeKind::Added, Vec::new()),
            Some(known) if known.print == group.print => continue,
            Some(known) => {
                let before = ComparedRules::new(&known.flow, &known.rules);
                let after = ComparedRules::new(&group.flow, &group.rules);
                let mut differs = before.words(&after);
                if known.parent != group.parent {
                    let parent = group.parent.as_deref().unwrap_or("none");
                    differs.push(format!("parent {parent}"));
                }
                (ChangeKind::Edited, differs)
            }
        };
        words.push(Named { name, change, differs }.words());
    }
    let mut gone: Vec<_> = before.into_keys().collect();
    gone.sort_unstable();
    words.extend(
        gone.into_iter().map(|name| Named::new(ChangeKind::Removed, &name, Vec::new()).words()),
    );
    words
}

/// Names up to `most` of the routes that changed, and counts them all. Words are made only for
/// those that are named: there may be ten thousand.
fn routes(old: &Snapshot, new: &Plan, most: usize) -> (Vec<String>, usize) {
    let mut before: AHashMap<&str, _> =
        old.file_routes().map(|route| (&*route.name, route)).collect();
    let mut named = Vec::new();
    let mut count = 0;
    let mut add = |change, name: &str, words: &dyn Fn() -> Vec<String>| {
        count += 1;
        if named.len() < most {
            named.push(Named::new(change, name, words()).in_words("route"));
        }
    };
    for route in new.file_routes() {
        match before.remove(&*route.name) {
            None => add(ChangeKind::Added, &route.name, &Vec::new),
            Some(known) if known.print == route.print => {}
            Some(known) => add(ChangeKind::Edited, &route.name, &|| {
                ComparedRoute::from(&**known).words(&ComparedRoute::of_plan(route, new))
            }),
        }
    }
    // In the order of the file.
    for route in old.file_routes().filter(|route| before.contains_key(&*route.name)) {
        add(ChangeKind::Removed, &route.name, &Vec::new);
    }
    (named, count)
}

/// Returns what differs of two lists of named things: of the new ones in their order, then what is
/// gone. `compare` returns `None` for two that are the same.
pub(in crate::config) fn changed<'l, T>(
    old: &'l [T],
    new: &'l [T],
    name: impl Fn(&'l T) -> &'l str,
    compare: impl Fn(&'l T, &'l T) -> Option<Vec<String>>,
) -> Vec<Named> {
    let mut before: AHashMap<&str, &T> = old.iter().map(|old| (name(old), old)).collect();
    let mut changes = Vec::new();
    for after in new {
        let name = name(after);
        match before.remove(name) {
            None => changes.push(Named::new(ChangeKind::Added, name, Vec::new())),
            Some(before) => {
                let edited = |differs| Named::new(ChangeKind::Edited, name, differs);
                changes.extend(compare(before, after).map(edited));
            }
        }
    }
    let gone = old.iter().map(name).filter(|name| before.contains_key(name));
    changes.extend(gone.map(|name| Named::new(ChangeKind::Removed, name, Vec::new())));
    changes
}

/// Returns the keys of one value that differ, as `limits.headers 100 → 50`. Both files have the same
/// keys in the same order.
pub(in crate::config) fn changed_keys(old: &[ShownKey], new: &[ShownKey]) -> Vec<String> {
    let mut words = Words::default();
    for (old, new) in old.iter().zip(new) {
        let show = |value: &&Option<String>| value.as_deref().unwrap_or("none").to_owned();
        words.value(&new.path(), &old.value, &new.value, show);
    }
    words.0
}

impl Named {
    fn new(change: ChangeKind, name: &str, differs: Vec<String>) -> Self {
        Self { name: name.to_owned(), change, differs }
    }

    /// Writes `route checkout (per-client 10/1m → 20/1m)`, or `route new added`.
    fn in_words(&self, what: &str) -> String {
        format!("{what} {}", self.words())
    }

    /// Writes `checkout (per-client 10/1m → 20/1m)`, or `new added`.
    fn words(&self) -> String {
        if self.change == ChangeKind::Edited && !self.differs.is_empty() {
            return format!("{} ({})", self.name, bounded(&self.differs));
        }
        format!("{} {}", self.name, self.change)
    }
}

/// Joins the first words, and counts the rest.
pub(in crate::config) fn bounded(words: &[String]) -> String {
    let text = words.iter().take(MOST_WORDS).cloned().collect::<Vec<_>>().join(", ");
    match words.len().saturating_sub(MOST_WORDS) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Collects what differs.
#[derive(Default)]
pub(super) struct Words(pub Vec<String>);

impl Words {
    pub(super) fn value<T: PartialEq>(
        &mut self,
        key: &str,
        old: T,
        new: T,
        show: impl Fn(&T) -> String,
    ) {
        if old != new {
            let [old, new] = [old, new].map(|value| clipped(&show(&value)));
            self.0.push(format!("{key} {old} → {new}"));
        }
    }

    /// Says that something changed whose value is long, or secret.
    pub(super) fn named(&mut self, key: &str, is_same: bool) {
        if !is_same {
            self.0.push(key.to_owned());
        }
    }

    pub(super) fn add(&mut self, words: String) {
        self.0.push(words);
    }
}

/// Shortens a value.
fn clipped(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}
