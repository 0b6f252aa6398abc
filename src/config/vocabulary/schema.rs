//! `gateway.schema.json`: what editors complete and check by, and what [`Vocabulary`](super::Vocabulary) reads.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

/// Returns the JSON Schema (draft 2020-12) of `T`, as text with a line end.
pub(in crate::config) fn publish<T: JsonSchema>(title: &str) -> String {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let root = generator.subschema_for::<T>();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "$ref": root.get("$ref"),
        "$defs": generator.take_definitions(true),
    });
    join_lines(&mut schema);
    format!("{schema:#}\n")
}

/// A value with a variable.
const VARIABLE: &str = r"\$\{";

/// Returns the schema of a file whose values may have variables, as in `"${PORT:-8080}"`: what is a number,
/// `true` or a text of some form may be such a text, too.
pub(in crate::config) fn with_variables(schema: &str) -> String {
    let mut schema = serde_json::from_str(schema).unwrap_or_default();
    allow_variables(&mut schema);
    format!("{schema:#}\n")
}

fn allow_variables(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        object.values_mut().for_each(allow_variables);
        if let Some(Value::String(pattern)) = object.get_mut("pattern") {
            *pattern = format!("{pattern}|{VARIABLE}");
        }
        if let Some(Value::Array(words)) = object.get_mut("oneOf") {
            words.push(json!({ "type": "string", "pattern": VARIABLE }));
        }
        if let Some(kind @ ("integer" | "number" | "boolean")) =
            object.get("type").and_then(Value::as_str)
        {
            let kinds = json!([kind, "string"]);
            object.insert("type".into(), kinds);
            object.insert("pattern".into(), VARIABLE.into());
        }
    } else if let Some(list) = schema.as_array_mut() {
        list.iter_mut().for_each(allow_variables);
    }
}

/// Removes the line ends of the sources from what explains.
fn join_lines(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        if let Some(Value::String(text)) = object.get_mut("description") {
            *text = text.replace('\n', " ");
        }
        object.values_mut().for_each(join_lines);
    } else if let Some(list) = schema.as_array_mut() {
        list.iter_mut().for_each(join_lines);
    }
}
