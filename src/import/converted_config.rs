//! The result: `gateway.yaml` with comments that say where each part is from.
//!
//! Values that flowgate cannot take are left out, each with a line, so that the rest is written.
//! A restriction of clients is never left out alone: its route is closed.

use super::{
    redirects::{NOT_CONVERTED, respond},
    report::clean,
};
use crate::config::{Severity, Text};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Keys with their values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(pub Map<String, Value>);

impl Fields {
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        drop(self.0.insert(key.to_owned(), value.into()));
    }

    /// Returns these fields behind a name.
    pub(super) fn named(self, name: &str) -> Self {
        let mut fields = Self::default();
        fields.set("name", name);
        fields.append(self);
        fields
    }

    /// Adds other fields behind these.
    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Object(fields.0)
    }
}

/// A listener, an upstream or a route.
#[derive(Clone, Debug, Default)]
pub(super) struct Item {
    pub comments: Vec<String>,
    pub fields: Fields,
}

/// The whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct ConvertedConfig {
    pub comments: Vec<String>,
    pub listeners: Vec<Item>,
    pub upstreams: Vec<Item>,
    pub budgets: Vec<Item>,
    pub routes: Vec<Item>,
    pub settings: Fields,
}

impl Item {
    /// Returns the text under a key, or an empty one.
    pub(super) fn text(&self, key: &str) -> &str {
        self.fields.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A list of the file, or its other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Listeners,
    Upstreams,
    Budgets,
    Routes,
    Settings,
}

impl List {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Listeners => "listeners",
            Self::Upstreams => "upstreams",
            Self::Budgets => "budgets",
            Self::Routes => "routes",
            Self::Settings => "settings",
        }
    }
}

/// A value of the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub list: List,
    /// The index of its item in the list.
    pub index: usize,
    pub key: String,
    /// The index of the value in the list that the key has.
    pub entry: Option<usize>,
}

/// The text of a file, with the value that each line has.
#[derive(Debug, Default)]
struct Writer {
    text: String,
    places: Vec<Option<Place>>,
}

impl Writer {
    fn line(&mut self, line: &str, place: Option<Place>) {
        self.text.push_str(line);
        self.text.push('\n');
        self.places.push(place);
    }

    fn comment(&mut self, indent: &str, lines: &[String]) {
        for line in lines {
            self.line(&format!("{indent}# {}", clean(line)), None);
        }
    }

    fn list(&mut self, list: List, items: &[Item]) {
        if items.is_empty() {
            return;
        }
        self.line(&format!("{}:", list.name()), None);

        for (index, item) in items.iter().enumerate() {
            self.comment("  ", &item.comments);
            let mut indent = "  - ";
            for (key, value) in &item.fields.0 {
                let place = |entry| Some(Place { list, index, key: key.clone(), entry });
                match value.as_array().filter(|all| all.iter().any(Value::is_object)) {
                    Some(all) => {
                        self.line(&format!("{indent}{key}:"), place(None));
                        for (at, one) in all.iter().enumerate() {
                            self.line(&format!("      - {}", flow(one)), place(Some(at)));
                        }
                    }
                    None => self.line(&format!("{indent}{key}: {}", flow(value)), place(None)),
                }
                indent = "    ";
            }
        }
    }
}

impl ConvertedConfig {
    pub(super) fn write(&self) -> String {
        self.written().0
    }

    /// Returns the text of the file, with the value that each line has.
    pub(super) fn written(&self) -> (String, Vec<Option<Place>>) {
        let mut writer = Writer::default();
        writer.comment("", &self.comments);
        writer.list(List::Listeners, &self.listeners);
        writer.list(List::Upstreams, &self.upstreams);
        writer.list(List::Budgets, &self.budgets);
        writer.list(List::Routes, &self.routes);

        for (key, value) in &self.settings.0 {
            let key = key.clone();
            let line = format!("{key}: {}", flow(value));
            writer.line(&line, Some(Place { list: List::Settings, index: 0, key, entry: None }));
        }
        writer.line("end: true", None);
        (writer.text, writer.places)
    }
}

/// Returns a value in one line, as a comment has it.
pub(super) fn inline(value: &Value) -> String {
    flow(value)
}

/// Returns a value in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => scalar(text),
        Value::Array(all) => format!("[{}]", joined(all.iter().map(flow))),
        Value::Object(fields) if fields.is_empty() => "{}".into(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(key, value)| format!("{}: {}", scalar(key), flow(value)));
            format!("{{ {} }}", joined(fields))
        }
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns a text as YAML reads it back: as it is, or in quotes, which are those of JSON.
fn scalar(text: &str) -> String {
    // A variable of gateway.yaml is none of nginx.
    let text = text.replace("${", "$${");
    if is_plain(&text) { text } else { Value::String(text).to_string() }
}

/// Reports whether YAML reads a text as this text without quotes.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];

    let is_safe = |sign: char| sign.is_ascii_alphanumeric() || "/_.:-".contains(sign);
    let begins = text.starts_with(|sign: char| sign.is_ascii_alphanumeric() || sign == '/');
    let is_number = text.chars().all(|sign| sign.is_ascii_digit() || "._:eE-".contains(sign))
        && text.split('.').count() != 4;
    let is_word = WORDS.contains(&text.to_ascii_lowercase().as_str());

    begins && text.chars().all(is_safe) && !text.ends_with(':') && !is_number && !is_word
}

/// The most times that the result is read again. Each time, all values that are wrong are left out.
const MOST_ROUNDS: usize = 20;

/// The lines of the repair: what must be done, and what changed.
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
        List::Budgets => &mut config.budgets,
        List::Routes => &mut config.routes,
    };

    let Some(item) = items.get_mut(*index) else { return };

    let origin = item.comments.first().cloned().unwrap_or_else(|| list.name().to_owned());
    let named = format!("{origin}: `{key}` of `{}`", item.text("name"));
    // A budget without one of its keys would count other requests.
    let is_whole =
        matches!(key.as_str(), "name" | "match" | "listen" | "servers") || *list == List::Budgets;

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_read_back_as_they_were() {
        for text in [
            "on",
            "~",
            "",
            "a: b",
            "#c",
            "1",
            "1e5",
            "10/1s",
            "5s",
            "127.0.0.1:80",
            "10.0.0.0/8",
            "[::1]:80",
            "é\n\"\\",
            "{x}",
            "a b",
            "- a",
            "null",
            "0x1f",
            "1_0",
            "a:",
            "12:30",
            "1.5",
            ".inf",
            "0o7",
            "NO",
        ] {
            let read: String = serde_yaml::from_str(&scalar(text)).expect(text);
            assert_eq!(read, text, "{}", scalar(text));
            let read: Vec<String> = serde_yaml::from_str(&flow(&json!([text, "x"]))).expect(text);
            assert_eq!(read[0], text, "{}", scalar(text));
        }
        assert_eq!(scalar("${HOME}"), "\"$${HOME}\"");
    }
}
