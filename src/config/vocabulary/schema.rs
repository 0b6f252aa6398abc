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
