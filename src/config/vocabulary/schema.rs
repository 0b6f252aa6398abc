//! `gateway.schema.json`, written from the tables: what editors complete and check by.

use super::{Default, Kind, Section, sections, tables};
use serde_json::{Map, Value, json};

/// Returns the JSON Schema (draft 2020-12) of the file, as text with a line end.
pub fn schema() -> String {
    let mut root = of_section(&tables::FILE);
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("gateway.yaml of flowgate");
    let definitions: Map<String, Value> = sections()
        .into_iter()
        .skip(1)
        .map(|(_, section)| (identifier(section), of_section(section)))
        .collect();
    root["$defs"] = Value::Object(definitions);
    format!("{root:#}\n")
}

/// Returns a section's name among the definitions.
fn identifier(section: &Section) -> String {
    section.title.replace([' ', '\''], "_")
}

fn of_section(section: &Section) -> Value {
    let mut properties = Map::new();
    for key in section.keys.iter().filter(|key| key.takes_a_value()) {
        let mut schema = of_kind(key.kind);
        schema["description"] = json!(key.doc);
        if let Default::Value(value) = key.default {
            schema["default"] =
                serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        }
        properties.insert(key.name.to_owned(), schema);
    }
    let required: Vec<_> = section
        .keys
        .iter()
        .filter(|key| key.default == Default::Required)
        .map(|key| key.name)
        .collect();
    json!({
        "type": "object",
        "description": section.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn of_kind(kind: Kind) -> Value {
    match kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Kind::Status => json!({ "type": "integer", "minimum": 400, "maximum": 599 }),
        // A port alone is a number to YAML.
        Kind::Size { .. } | Kind::Address => json!({ "type": ["string", "integer"] }),
        Kind::Rate => json!({ "type": "string", "pattern": "^ *[0-9_]+ */ *[0-9a-z ]+$" }),
        Kind::Ratio => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Kind::Word { today, .. } => json!({ "enum": today }),
        Kind::Url => json!({ "type": "string", "pattern": "^http://[^/]+/?$" }),
        Kind::RedisUrl => json!({ "type": "string", "pattern": "^rediss?://" }),
        Kind::Method => json!({ "type": "string", "pattern": "^[^a-z ]+$" }),
        Kind::KeyPart => json!({
            "type": "string",
            "pattern": "^(route|client_ip|host|path|method|(header|cookie|query):.+)$",
        }),
        Kind::Section(section) => {
            json!({ "$ref": format!("#/$defs/{}", identifier(section)) })
        }
        Kind::List(of) => json!({ "type": "array", "items": of_kind(*of) }),
        Kind::Several(of) => {
            json!({ "anyOf": [of_kind(*of), { "type": "array", "items": of_kind(*of) }] })
        }
        Kind::Map { to, .. } => {
            json!({ "type": "object", "additionalProperties": of_kind(*to) })
        }
        Kind::Either(plain, long) => json!({ "anyOf": [of_kind(*plain), of_kind(*long)] }),
        // A plain scalar is text wherever a text is wanted, whatever YAML would make of it.
        Kind::Name | Kind::Text | Kind::HeaderValue => {
            json!({ "type": ["string", "number", "boolean"] })
        }
        Kind::Duration { .. }
        | Kind::Network
        | Kind::File
        | Kind::Host
        | Kind::Path
        | Kind::Regex
        | Kind::HeaderName
        | Kind::Later
        | Kind::Foreign => json!({ "type": "string" }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn the_committed_schema_is_current() {
        check_committed("gateway.schema.json", &schema());
    }

    #[test]
    fn every_definition_has_a_name_of_its_own() {
        let mut names: Vec<_> = sections().iter().map(|(_, s)| identifier(s)).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    /// Compares a generated file with the committed one, or rewrites it if `UPDATE_REFERENCE` is set.
    #[track_caller]
    pub(in crate::config::vocabulary) fn check_committed(name: &str, generated: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == generated,
            "{name} is not what the tables say; run UPDATE_REFERENCE=1 cargo test --lib config::vocabulary"
        );
    }
}
