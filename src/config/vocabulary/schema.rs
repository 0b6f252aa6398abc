//! `gateway.schema.json`: what editors complete and check by.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// Returns the JSON Schema (draft 2020-12) of `T`, as text with a line end.
pub(in crate::config) fn publish<T: JsonSchema>(title: &str) -> String {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    strip(&mut schema);
    schema["title"] = title.into();
    format!("{schema:#}\n")
}

/// Removes what only the decoder and the reference read, and the line ends of the sources.
fn strip(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        object.retain(|name, _| !name.starts_with("x-") && name != "examples");
        if let Some(Value::String(text)) = object.get_mut("description") {
            *text = text.replace('\n', " ");
        }
        object.values_mut().for_each(strip);
    } else if let Some(list) = schema.as_array_mut() {
        list.iter_mut().for_each(strip);
    }
}
