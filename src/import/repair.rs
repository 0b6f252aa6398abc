//! Values that flowgate cannot take: each is left out with a line, so that the rest is written.
//!
//! What restricts clients is never left out alone: its route is closed.

use super::{
    converted_config::{ConvertedConfig, Fields, Item, List, Place, inline},
    returns::{NOT_CONVERTED, respond},
};
use crate::config::{Severity, Text};
use serde_json::{Value, json};
use std::path::Path;

/// How often the result is read again. Each time, all values that are wrong are left out.
const MOST_ROUNDS: usize = 20;

/// What the repair says: what must be done, and what changed.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    pub blocks: Vec<String>,
    pub changes: Vec<String>,
}

/// Leaves out what flowgate cannot take.
pub(super) fn repair(config: &mut ConvertedConfig) -> Repairs {
    let mut repairs = Repairs::default();
    for _ in 0..MOST_ROUNDS {
        let (text, places) = config.written();
        let Err(problems) = Text::new(Path::new("gateway.yaml"), &text).rules() else { break };
        let mut wrong: Vec<(Place, String)> = Vec::new();
        for problem in problems.list().filter(|one| one.severity == Severity::Error) {
            let Some(Some(place)) = places.get(problem.line.saturating_sub(1)) else { continue };
            if !wrong.iter().any(|(known, _)| known == place) {
                wrong.push((place.clone(), problem.message));
            }
        }
        if wrong.is_empty() {
            break;
        }
        // From the end, so that the indexes before stay.
        wrong.sort_by(|(one, _), (other, _)| other.cmp(one));
        for (place, message) in wrong {
            leave_out(config, &place, &message, &mut repairs);
        }
    }
    repairs
}

fn leave_out(config: &mut ConvertedConfig, place: &Place, message: &str, repairs: &mut Repairs) {
    let Place { list, index, key, entry } = place;
    let items = match list {
        List::Settings => {
            drop(config.settings.0.remove(key));
            let line = format!("`{key}` is left out, because flowgate cannot take it: {message}");
            repairs.changes.push(line);
            return;
        }
        List::Listeners => &mut config.listeners,
        List::Upstreams => &mut config.upstreams,
        List::Routes => &mut config.routes,
    };
    let Some(item) = items.get_mut(*index) else { return };
    let origin = item.comments.first().cloned().unwrap_or_else(|| list.name().to_owned());
    let named = format!("{origin}: `{key}` of `{}`", item.text("name"));
    let is_whole = matches!(key.as_str(), "name" | "match" | "listen" | "servers");
    match (list, key.as_str()) {
        (List::Routes, "access" | "auth") => {
            close(item, key);
            let line = format!(
                "{named} does not convert: {message}. Its requests get 403 until you write it"
            );
            repairs.blocks.push(line);
        }
        (List::Routes, "upstream" | "redirect" | "respond" | "rewrite") => {
            for key in ["upstream", "redirect", "respond", "rewrite"] {
                drop(item.fields.0.remove(key));
            }
            item.fields.append(respond(json!({ "status": NOT_CONVERTED })));
            let line =
                format!("{named} does not convert: {message}. Its requests get {NOT_CONVERTED}");
            repairs.blocks.push(line);
        }
        _ if is_whole => {
            drop(items.remove(*index));
            repairs
                .blocks
                .push(format!("{named} does not convert, and all of it is left out: {message}"));
        }
        _ => {
            remove(&mut item.fields, key, *entry);
            let line = format!("{named} is left out, because flowgate cannot take it: {message}");
            repairs.changes.push(line);
        }
    }
}

/// Removes a key, or one entry of its list.
fn remove(fields: &mut Fields, key: &str, entry: Option<usize>) {
    if let (Some(at), Some(Value::Array(all))) = (entry, fields.0.get_mut(key))
        && all.len() > 1
        && at < all.len()
    {
        drop(all.remove(at));
    } else {
        drop(fields.0.remove(key));
    }
}

/// Rejects all requests of a route in place of a restriction that it cannot have.
fn close(item: &mut Item, key: &str) {
    let left: Vec<_> = ["upstream", "redirect", "respond", "rewrite", key]
        .into_iter()
        .filter_map(|key| Some((key, item.fields.0.remove(key)?)))
        .collect();
    item.comments.extend(left.iter().map(|(key, value)| format!("  {key}: {}", inline(value))));
    item.fields.append(respond(json!({ "status": 403 })));
}
