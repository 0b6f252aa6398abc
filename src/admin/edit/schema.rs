//! The schema of the file for completion in the browser: its keys and words, each with the beginning
//! of its description.

use crate::config;
use serde_json::{Map, Value};

/// What completion needs of the schema. Under `properties` and `$defs` the keys are names.
const KEPT: [&str; 12] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "description",
    "enum",
    "items",
    "oneOf",
    "properties",
    "type",
    "x-example",
];

/// The longest description, in characters.
const LONGEST: usize = 56;

/// Returns the schema, shortened, as JSON.
pub(crate) fn completion() -> String {
    let schema: Value = serde_json::from_str(config::schema()).unwrap_or_default();
    shortened(&schema).to_string()
}

fn shortened(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => Value::Object(fields.iter().filter_map(field).collect()),
        Value::Array(list) => list.iter().map(shortened).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn field((name, value): (&String, &Value)) -> Option<(String, Value)> {
    let value = match (name.as_str(), value) {
        ("properties" | "$defs", Value::Object(named)) => {
            let named = named.iter().map(|(name, value)| (name.clone(), shortened(value)));
            Value::Object(named.collect::<Map<_, _>>())
        }
        ("description", Value::String(text)) => Value::from(beginning(text)),
        // What says nothing that a suggestion could say.
        ("additionalProperties", Value::Bool(_)) => return None,
        ("type", kind) => {
            // One that may have a variable is a text, too.
            let first = kind.get(0).unwrap_or(kind);
            (first == "boolean").then(|| first.clone())?
        }
        (word, value) if KEPT.contains(&word) => shortened(value),
        _ => return None,
    };
    Some((name.clone(), value))
}

/// Returns the first sentence, or as much of it as has room.
fn beginning(text: &str) -> String {
    let sentence = text.split(". ").next().unwrap_or_default();
    if sentence.chars().count() <= LONGEST {
        return sentence.trim_end_matches('.').to_owned();
    }
    let cut: String = sentence.chars().take(LONGEST).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", cut[..end].trim_end_matches([',', ':', ';']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_words_and_descriptions_are_kept_and_all_else_is_left_out() {
        let text = completion();
        assert!(text.len() <= 36 * 1024, "{} bytes", text.len());
        let schema: Value = serde_json::from_str(&text).unwrap();
        let file = &schema["$defs"]["FileSpec"]["properties"];
        assert_eq!(file["routes"]["items"]["$ref"], "#/$defs/RouteSpec");
        let full: Value = serde_json::from_str(config::schema()).unwrap();
        let names = |schema: &Value, of: &str| -> Vec<String> {
            let keys = schema["$defs"][of]["properties"].as_object().unwrap();
            keys.keys().cloned().collect()
        };
        for of in full["$defs"].as_object().unwrap().keys() {
            assert_eq!(names(&schema, of), names(&full, of), "{of}");
        }
        let dry_run = &schema["$defs"]["RuleSpec"]["properties"]["dry_run"];
        assert_eq!(dry_run["type"], "boolean");
        assert!(dry_run["description"].as_str().is_some_and(|text| !text.is_empty()));
    }
}
