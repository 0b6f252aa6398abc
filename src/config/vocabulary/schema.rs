//! `gateway.schema.json`, by which editors complete and check the file.
//!
//! Some words are no JSON Schema's: `x-example`, how a value looks; `x-default`, what holds where a key is
//! not written; `x-instead`, keys of other maps, with what to write instead; `x-meant`, words of other
//! gateways, with the key that is meant; `x-help`, what to write where a value is of another kind.

use super::{Default, DescribedMap, Form, Key, Plain, Section, Values, Words};
use serde_json::{Map, Value, json};

/// A value with a variable.
const VARIABLE: &str = r"\$\{";

/// Returns the JSON Schema (draft 2020-12) of a file that `T` reads. Its values may have variables, as in
/// `"${PORT:-8080}"`.
pub(in crate::config) fn publish<T: DescribedMap>(title: &str) -> Value {
    let sections = T::SECTION.reachable().into_iter();
    let definitions: Map<_, _> =
        sections.map(|section| (section.type_name.to_owned(), of_section(section))).collect();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "$ref": reference(T::SECTION),
        "$defs": definitions,
    });
    allow_variables(&mut schema);
    schema
}

fn reference(section: &Section) -> String {
    format!("#/$defs/{}", section.type_name)
}

fn of_section(section: &Section) -> Value {
    let keys: Map<_, _> =
        section.keys.iter().map(|key| (key.name.to_owned(), of_key(key))).collect();
    let required: Vec<_> =
        section.keys.iter().filter(|key| key.is_required()).map(|key| key.name).collect();

    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("additionalProperties".to_owned(), false.into());
    schema.insert("properties".to_owned(), keys.into());
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema.insert("title".to_owned(), section.title.into());
    schema.insert("description".to_owned(), section.doc.text().into());

    if let Some(example) = section.example {
        schema.insert("x-example".to_owned(), example.into());
    }
    for (name, pairs) in [("x-instead", section.instead), ("x-meant", section.meant)] {
        if !pairs.is_empty() {
            schema.insert(name.to_owned(), json!(pairs));
        }
    }
    schema.into()
}

fn of_key(key: &Key) -> Value {
    let mut schema = of_form(key.form, false);
    schema.insert("description".to_owned(), key.doc.text().into());
    if let Form::Words(Words { meant, .. }) = key.form
        && !meant.is_empty()
    {
        schema.insert("x-meant".to_owned(), json!(meant));
    }
    if let Some(example) = key.example {
        schema.insert("x-example".to_owned(), example.into());
    }
    if let Some(help) = key.help {
        schema.insert("x-help".to_owned(), help.into());
    }

    let default = match key.default {
        Default::Required => None,
        Default::Words(words) => Some(("x-default", words.into())),
        Default::Map => Some(("default", json!({}))),
        Default::Text { text, is_quoted: true } => Some(("default", text.into())),
        // Without quotes it is a number or a truth value, as in JSON.
        Default::Text { text, is_quoted: false } => {
            Some(("default", text.parse().unwrap_or_else(|_| text.into())))
        }
    };
    schema.extend(default.map(|(name, value)| (name.to_owned(), value)));
    schema.into()
}

/// Returns the schema of a value. If it is inside of another one, its title comes first.
fn of_form(form: &Form, is_inside: bool) -> Map<String, Value> {
    let inside = |form| Value::from(of_form(form, true));
    let pairs: Vec<(&str, Value)> = match form {
        Form::Plain(plain) => of_plain(plain, is_inside),
        Form::Switch => vec![("type", "boolean".into())],
        Form::Words(words) => of_words(words),
        Form::Map(section) => vec![("$ref", reference(section).into())],
        Form::List(item) => vec![("type", "array".into()), ("items", inside(item))],
        Form::OneOrMore(item) => {
            let list = json!({ "type": "array", "items": inside(item) });
            vec![("anyOf", json!([inside(item), list]))]
        }
        Form::Entries { names, values } => vec![
            ("type", "object".into()),
            ("propertyNames", inside(names)),
            ("additionalProperties", inside(values)),
        ],
        Form::Either { plain, map } => vec![("anyOf", json!([inside(plain), inside(map)]))],
        Form::Unread => vec![("type", "object".into())],
    };
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn of_plain(plain: &Plain, is_inside: bool) -> Vec<(&'static str, Value)> {
    let Values { types, bounds, texts, numbers, pattern } = plain.values;
    let mut pairs: Vec<(&str, Value)> = Vec::new();
    match types {
        [] => {}
        [only] => pairs.push(("type", json!(only))),
        several => pairs.push(("type", json!(several))),
    }
    if !texts.is_empty() {
        pairs.push(("enum", json!(texts)));
    }
    if !numbers.is_empty() {
        pairs.push(("enum", json!(numbers)));
    }
    if let Some([min, max]) = bounds {
        pairs.extend([("minimum", min.into()), ("maximum", max.into())]);
    }
    pairs.extend(pattern.map(|pattern| ("pattern", pattern.into())));

    let title = ("title", plain.title.into());
    pairs.insert(if is_inside { 0 } else { pairs.len() }, title);
    pairs.push(("x-example", plain.example.into()));
    pairs
}

/// Returns the words alone, or each with its documentation.
fn of_words(words: &Words) -> Vec<(&'static str, Value)> {
    if words.all.iter().all(|word| word.doc.text().is_empty()) {
        let all: Vec<_> = words.all.iter().map(|word| word.word).collect();
        return vec![("type", "string".into()), ("enum", all.into())];
    }
    let each = words.all.iter().map(
        |word| json!({ "type": "string", "const": word.word, "description": word.doc.text() }),
    );
    vec![("oneOf", each.collect())]
}

/// Lets a text with a variable stand for each number, `true` or text of some form.
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
