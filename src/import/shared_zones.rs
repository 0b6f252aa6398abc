//! Zones that several routes use: one count in nginx, and one budget here.

use super::{
    converted_config::{ConvertedConfig, Fields, Item},
    limits::{ZONE, Zones},
    report::ImportReport,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The rules of one zone.
#[derive(Debug, Default)]
struct ZoneRules {
    routes: BTreeSet<usize>,
    /// The rules, without names, each once.
    rules: Vec<Map<String, Value>>,
    names: BTreeSet<String>,
}

/// Makes a budget of each zone whose rule is the same in several routes, and notes the others, which
/// count for each route here. Removes from all rules the name of their zone.
pub(super) fn share(
    zones: &Zones<'_>,
    servers: usize,
    config: &mut ConvertedConfig,
    report: &mut ImportReport,
) {
    let mut found: BTreeMap<String, ZoneRules> = BTreeMap::new();
    for (route, item) in config.routes.iter_mut().enumerate() {
        for rule in rules(item) {
            let Some(zone) = zone(rule) else { continue };
            let of_zone = found.entry(zone).or_default();
            of_zone.routes.insert(route);
            let mut unnamed = rule.clone();
            drop(unnamed.shift_remove(ZONE));
            let name = unnamed.shift_remove("name");
            of_zone.names.extend(name.as_ref().and_then(Value::as_str).map(str::to_owned));
            if !of_zone.rules.contains(&unnamed) {
                of_zone.rules.push(unnamed);
            }
        }
    }

    let mut budgets: BTreeMap<String, String> = BTreeMap::new();
    for (zone, of_zone) in &found {
        if of_zone.routes.len() < 2 {
            continue;
        }
        let (of_nginx, lacking) =
            zone.split_once('\n').map_or((&**zone, None), |(zone, parts)| (zone, Some(parts)));
        let is_free = |name: &&String| {
            let mut others = found.iter().filter(|(other, _)| *other != zone);
            others.all(|(_, other)| !other.names.contains(*name))
        };
        let routes = of_zone.routes.len();
        if servers > 1 && zones.is_by_server(of_nginx) {
            zones.note_apart(of_nginx, routes, "because its key has `$server_name`", report);
            continue;
        }
        match (&of_zone.rules[..], of_zone.names.iter().find(is_free)) {
            ([rule], Some(name)) => {
                let mut fields = Fields::default();
                fields.set("name", name.as_str());
                fields.append(Fields(rule.clone()));
                let requests = lacking
                    .map_or_else(String::new, |parts| format!(" for requests without {parts}"));
                let comment = format!("the zone {of_nginx}{requests}, which several locations use");
                config.budgets.push(Item { comments: vec![comment], fields });
                budgets.insert(zone.clone(), name.clone());
            }
            _ => zones.note_apart(of_nginx, routes, "because their numbers differ", report),
        }
    }

    for item in &mut config.routes {
        for rule in rules(item) {
            let Some(zone) = zone(rule) else { continue };
            drop(rule.shift_remove(ZONE));
            if let Some(budget) = budgets.get(&zone) {
                rule.clear();
                drop(rule.insert("budget".to_owned(), json!(budget)));
            }
        }
    }
}

/// Returns the rules of a route.
fn rules(item: &mut Item) -> impl Iterator<Item = &mut Map<String, Value>> {
    let flow = item.fields.0.get_mut("flow").and_then(Value::as_array_mut);
    flow.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Returns the zone of a rule.
fn zone(rule: &Map<String, Value>) -> Option<String> {
    rule.get(ZONE)?.as_str().map(str::to_owned)
}
