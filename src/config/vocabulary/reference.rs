//! `docs/configuration.md`, written from the vocabulary.

use super::{Default, Key, Section, Vocabulary, words};
use serde_json::Value;
use std::fmt::Write;

const HEAD: &str = "\
# Configuration reference

<!-- Written from src/config/spec; a test holds it current. To rewrite it: \
UPDATE_REFERENCE=1 cargo test --lib config::tests::reference -->

This page lists every key of `gateway.yaml` with its values and default. The file is YAML, and flowgate
reads it again whenever it changes. Unknown keys, duplicate keys and wrong types are errors with a line,
a column and a hint. One error rejects the whole new file, and the file in force stays.

`flowgate check` prints the routes in their order of matching, what each rule promises, the listeners
and upstreams, and the settings of the whole file with their defaults. [Exact bounds](bounds.md) has the
promises of all algorithms.

`flowgate schema > gateway.schema.json` writes the schema of the file. With this first line, editors complete and check the keys:

```yaml
# yaml-language-server: $schema=./gateway.schema.json
```

| value | form |
|---|---|
| duration | numbers with units: `500ms`, `5s`, `1m 30s`, `2h`, `1d`. Longer words work too: `5sec`, `1min`, `2hours` |
| size | a number of bytes, or one with a unit: `64KiB` (also `64Ki`) is 65,536 bytes, `64KB` (also `64k`, `64K`) is 64,000. `10m` is 10,000,000 bytes, unlike in nginx: write `10MiB` |
| rate | a count per duration: `100/1m`, `10/s` |
| file name | relative to the folder of the file |
| variable | `${NAME}` or `${NAME:-default}` in a value: see [variables](files.md) |

Anchors (`&name`), aliases (`*name`) and merge keys (`<<`) work. A file with its [included files](files.md)
has at most 16 MiB, and aliases may add 500,000 values.

**End the file with the line `end: true`.** If a file is cut short while it is copied, it can be valid YAML
without half of its routes. Once a file with `end: true` is in force, flowgate rejects a file without it.
(`end: false` turns this check off.)
";

/// Returns the reference of all keys, as Markdown.
pub(in crate::config) fn write(vocabulary: &Vocabulary) -> String {
    let mut text = HEAD.to_owned();
    for (path, section) in sections(vocabulary) {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        _ = write!(text, "\n## {title}\n\n{}\n\n", section.doc);
        text += "| key | value | default | |\n|---|---|---|---|\n";
        for key in &section.keys {
            let value = value(vocabulary, &key.schema);
            let default = default(key);
            let doc = key.schema["description"].as_str().unwrap_or_default();
            _ = writeln!(text, "| `{}` | {value} | {default} | {doc} |", key.name);
        }
    }
    text
}

fn default(key: &Key) -> String {
    match &key.default {
        _ if key.is_required => "**required**".to_owned(),
        Default::Text(text) => format!("`{text}`"),
        Default::Map | Default::None => key.schema["x-default"].as_str().unwrap_or("–").to_owned(),
    }
}

fn value(vocabulary: &Vocabulary, schema: &Value) -> String {
    let value = |schema: &Value| value(vocabulary, schema);
    if let Some(section) = vocabulary.referenced(schema) {
        return format!("map: {}", section.title);
    }

    if let Some([one, other]) = schema["anyOf"].as_array().map(Vec::as_slice) {
        let is_list = other["type"] == "array";
        return format!(
            "{}, or {}",
            value(one),
            if is_list { "a list".to_owned() } else { value(other) }
        );
    }

    if schema["items"].is_object() {
        return format!("list, each {}", value(&schema["items"]));
    }
    if schema["additionalProperties"].is_object() {
        return format!("map, each {}", value(&schema["additionalProperties"]));
    }

    let list: Vec<_> = words(schema).map(|word| format!("`{word}`")).collect();
    if !list.is_empty() {
        return list.join(", ");
    }

    match (schema["title"].as_str(), &schema["minimum"], &schema["maximum"]) {
        (Some("a whole number"), min, max) => format!("{min} to {max}"),
        (Some(title), ..) => title.to_owned(),
        (None, ..) => "`true` or `false`".to_owned(),
    }
}

/// A map that several keys take, and the one of them that documents it.
const DOCUMENTED_AT: (&str, &str) = ("a rule", "routes[].flow[]");

/// Returns every map that can be reached from the root, each once, in the order of reading.
fn sections(vocabulary: &Vocabulary) -> Vec<(String, &Section)> {
    fn visit<'v>(
        vocabulary: &'v Vocabulary,
        path: &str,
        schema: &Value,
        found: &mut Vec<(String, &'v Section)>,
    ) {
        if let Some(section) = vocabulary.referenced(schema) {
            add(vocabulary, path, section, found);
        }
        for form in schema["anyOf"].as_array().into_iter().flatten() {
            visit(vocabulary, path, form, found);
        }
        visit_inside(vocabulary, &format!("{path}[]"), &schema["items"], found);
        visit_inside(vocabulary, &format!("{path}.NAME"), &schema["additionalProperties"], found);
    }

    fn visit_inside<'v>(
        vocabulary: &'v Vocabulary,
        path: &str,
        schema: &Value,
        found: &mut Vec<(String, &'v Section)>,
    ) {
        if schema.is_object() {
            visit(vocabulary, path, schema, found);
        }
    }

    fn add<'v>(
        vocabulary: &'v Vocabulary,
        path: &str,
        section: &'v Section,
        found: &mut Vec<(String, &'v Section)>,
    ) {
        let (title, at) = DOCUMENTED_AT;
        let is_elsewhere = section.title == title && path != at;
        if is_elsewhere || found.iter().any(|(_, known)| std::ptr::eq(*known, section)) {
            return;
        }
        found.push((path.to_owned(), section));
        let dot = if path.is_empty() { "" } else { "." };
        for key in &section.keys {
            visit(vocabulary, &format!("{path}{dot}{}", key.name), &key.schema, found);
        }
    }

    let mut found = Vec::new();
    if let Some(root) = vocabulary.section(&vocabulary.root) {
        add(vocabulary, "", root, &mut found);
    }
    found
}
