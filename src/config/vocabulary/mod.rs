//! The words of `gateway.yaml`: every map with its keys, as the types of `spec` say.
//!
//! `schemars` makes a JSON Schema of the types, in a test: `gateway.schema.json` is committed, and the test
//! fails where it is not what the types say. The decoder takes titles, defaults and examples from it, and so
//! does `docs/configuration.md`.
//!
//! The types add words that are no JSON Schema's: `x-example`, how a value looks; `x-default`, what holds
//! where a key is not written; `x-instead`, keys of other maps, with what to write instead; `x-meant`, words of
//! other gateways, with the key that is meant; `x-help`, what to write where a value is of another kind.

mod reference;
#[cfg(test)]
mod schema;

pub(super) use reference::write as reference;
#[cfg(test)]
pub(super) use schema::{publish, with_variables};

use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// A type that reads a whole file.
pub(super) trait Document: for<'de> Deserialize<'de> {
    /// The committed schema of the file, as `publish` writes it.
    const SCHEMA: &'static str;
}

/// All maps of a file.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// The name of the type of the whole file.
    root: String,
    /// By the names of their types.
    sections: HashMap<String, Section>,
}

/// A map of the file: a set of keys under one name.
#[derive(Debug)]
pub(super) struct Section {
    /// The word for one such map in messages, as in "a route".
    pub title: String,
    pub doc: String,
    /// In the order of the fields.
    pub keys: Vec<Key>,
    /// Words that other maps take, with what to write instead; `*` for all words that are not known.
    pub instead: Vec<(String, String)>,
    /// Words of other gateways, with the key that is meant.
    pub synonyms: Vec<(String, String)>,
    /// An example of one, if it is not what it needs.
    pub example: Option<String>,
}

/// One key of a map.
#[derive(Debug)]
pub(super) struct Key {
    pub name: String,
    pub is_required: bool,
    pub default: Default,
    /// The type's documentation of it.
    pub schema: Value,
}

/// The value of a key that is not written.
#[derive(Debug)]
pub(super) enum Default {
    /// Nothing, or what `x-default` says.
    None,
    /// This value, as it would be written.
    Text(String),
    /// A map in which every key has its default.
    Map,
}

impl Vocabulary {
    /// Returns the keys of `T` and of all that it holds.
    pub(super) fn of<T: Document>() -> Self {
        Self::read(T::SCHEMA)
    }

    /// Returns the keys that a schema describes.
    pub(super) fn read(schema: &str) -> Self {
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        let definitions = schema["$defs"].as_object().into_iter().flatten();
        Self {
            root: type_name(&schema).unwrap_or_default().to_owned(),
            sections: definitions.map(|(name, map)| (name.clone(), Section::of(map))).collect(),
        }
    }

    /// Returns the map that the type `name` reads.
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.get(name)
    }

    /// Returns all maps.
    #[cfg(test)]
    pub(super) fn sections(&self) -> impl Iterator<Item = &Section> {
        self.sections.values()
    }

    pub(super) fn example(&self, schema: &Value) -> String {
        if let Some(section) = self.referenced(schema) {
            return self.example_of(section);
        }
        if let Some(forms) = schema["anyOf"].as_array() {
            return forms.first().map(|first| self.example(first)).unwrap_or_default();
        }
        if schema["items"].is_object() || schema["items"].is_boolean() {
            return format!("[{}]", self.example(&schema["items"]));
        }
        if schema["additionalProperties"].is_object() {
            let name = self.example(&schema["propertyNames"]);
            return format!("{{ {name}: {} }}", self.example(&schema["additionalProperties"]));
        }
        let words = words(schema).next().map(str::to_owned);
        words.or_else(|| schema["x-example"].as_str().map(str::to_owned)).unwrap_or_else(|| {
            if [&schema["type"], &schema["type"][0]].contains(&&Value::from("boolean")) {
                "true".to_owned()
            } else {
                String::new()
            }
        })
    }

    /// Returns what such a map looks like: as its type says, or with all that it needs, or
    /// else with its first key.
    pub(super) fn example_of(&self, section: &Section) -> String {
        if let Some(example) = &section.example {
            return example.clone();
        }
        // Most files and routes need those too.
        let is_usual = |key: &&Key| matches!(&*key.name, "upstreams" | "upstream");
        let is_shown = |key: &&Key| key.is_required || is_usual(key);
        let required: Vec<_> = section.keys.iter().filter(is_shown).collect();
        let shown =
            if required.is_empty() { section.keys.iter().take(1).collect() } else { required };
        let entry = |key: &Key| format!("{}: {}", key.name, self.example(&key.schema));
        format!("{{ {} }}", shown.into_iter().map(entry).collect::<Vec<_>>().join(", "))
    }

    pub(super) fn referenced(&self, schema: &Value) -> Option<&Section> {
        self.section(type_name(schema)?)
    }
}

impl Section {
    fn of(schema: &Value) -> Self {
        let text = |name: &str| schema[name].as_str().unwrap_or_default().to_owned();
        let texts = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(|word| word.as_str().map(str::to_owned)).collect()
        };

        let required = texts(&schema["required"]);
        let properties = schema["properties"].as_object().into_iter().flatten();
        let keys = properties.map(|(name, schema)| Key {
            is_required: required.contains(name),
            name: name.clone(),
            default: Default::of(&schema["default"]),
            schema: schema.clone(),
        });

        let pairs = |list: &Value| -> Vec<(String, String)> {
            let list = list.as_array().into_iter().flatten().map(texts);
            let pair = |pair| <[String; 2]>::try_from(pair).ok().map(|[word, other]| (word, other));
            list.filter_map(pair).collect()
        };

        Self {
            title: text("title"),
            doc: text("description"),
            keys: keys.collect(),
            instead: pairs(&schema["x-instead"]),
            synonyms: pairs(&schema["x-meant"]),
            example: schema["x-example"].as_str().map(str::to_owned),
        }
    }

    /// Returns the key that `word`, which may be misspelled itself, was probably meant to be.
    pub(super) fn meant(&self, word: &str) -> Option<&str> {
        let keys = self.keys.iter().map(|key| key.name.as_str());
        let synonyms = self.synonyms.iter().map(|(known, _)| known.as_str());
        let exact = self.synonyms.iter().find(|(known, _)| known == word);
        let close = || {
            let known = nearest(word, keys.chain(synonyms))?;
            let synonym = self.synonyms.iter().find(|(synonym, _)| synonym == known);
            Some(synonym.map_or(known, |(_, key)| key))
        };
        exact.map(|(_, key)| key.as_str()).or_else(close)
    }

    /// Returns the form of a verb that follows the title.
    pub(super) fn verb<'w>(&self, singular: &'w str, plural: &'w str) -> &'w str {
        let plurals = ["the timeouts", "the limits", "header edits"];
        let is_plural = plurals.iter().any(|title| self.title.starts_with(title));
        if is_plural { plural } else { singular }
    }
}

impl Default {
    fn of(schema: &Value) -> Self {
        match schema {
            Value::Null | Value::Array(_) => Self::None,
            Value::Object(_) => Self::Map,
            Value::String(text) => Self::Text(text.clone()),
            plain @ (Value::Bool(_) | Value::Number(_)) => Self::Text(plain.to_string()),
        }
    }
}

/// Returns what a value is called, as in "a rate".
pub(super) fn noun(schema: &Value) -> String {
    let words: Vec<_> = words(schema).map(|word| format!("`{word}`")).collect();
    let inner = ["items", "additionalProperties"].into_iter().find(|key| schema[key].is_object());
    match (&schema["title"], &schema["anyOf"][0], inner) {
        (Value::String(title), ..) => title.clone(),
        (_, first @ Value::Object(_), _) => noun(first),
        (.., Some(inner)) => noun(&schema[inner]),
        _ if words.is_empty() => "`true` or `false`".to_owned(),
        _ => format!("one of {}", words.join(", ")),
    }
}

/// Returns the word of a schema that `word`, which other gateways use, stands for.
pub(super) fn synonym<'s>(schema: &'s Value, word: &str) -> Option<&'s str> {
    let pairs = schema["x-meant"].as_array()?;
    pairs.iter().find(|pair| pair[0] == word)?[1].as_str()
}

/// Returns the name of the type that a schema refers to.
fn type_name(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

fn words(schema: &Value) -> impl Iterator<Item = &str> {
    let plain = schema["enum"].as_array().into_iter().flatten();
    let explained = schema["oneOf"].as_array().into_iter().flatten().map(|word| &word["const"]);
    plain.chain(explained).filter_map(Value::as_str)
}

/// Returns the one of `words` that differs from `word` in a third of its letters at most.
pub(super) fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let simple = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let word = simple(word);
    // No word of the language is as long; a long word of the file would cost its square.
    if word.len() > 40 {
        return None;
    }
    words
        .map(|known| (strsim::damerau_levenshtein(&word, &simple(known)), known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}
