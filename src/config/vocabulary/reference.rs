//! `docs/configuration.md`, written from the vocabulary.

use super::{Default, Form, Key, Plain, Section};
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

/// Returns the reference of all keys of the map `root`, as Markdown.
pub(in crate::config) fn write(root: &'static Section) -> String {
    let mut text = HEAD.to_owned();
    for (path, section) in sections(root) {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        _ = write!(text, "\n## {title}\n\n{}\n\n", section.doc.text());
        text += "| key | value | default | |\n|---|---|---|---|\n";
        for key in section.keys {
            let value = value(key.form);
            let default = default(key);
            _ = writeln!(text, "| `{}` | {value} | {default} | {} |", key.name, key.doc.text());
        }
    }
    text
}

fn default(key: &Key) -> String {
    match key.default {
        Default::Required => "**required**".to_owned(),
        Default::Text { text, .. } => format!("`{text}`"),
        Default::Words(words) => words.to_owned(),
        Default::Map => "–".to_owned(),
    }
}

fn value(form: &Form) -> String {
    match form {
        Form::Map(section) => format!("map: {}", section.title),
        Form::OneOrMore(item) => format!("{}, or a list", value(item)),
        Form::Either { plain, map } => format!("{}, or {}", value(plain), value(map)),
        Form::List(item) => format!("list, each {}", value(item)),
        Form::Entries { values, .. } => format!("map, each {}", value(values)),
        Form::Switch | Form::Unread => "`true` or `false`".to_owned(),
        Form::Plain(Plain { title: "a whole number", values, .. }) => {
            values.bounds.map_or_else(String::new, |[min, max]| format!("{min} to {max}"))
        }
        Form::Plain(_) | Form::Words(_) => {
            let words: Vec<_> = form.words().iter().map(|word| format!("`{word}`")).collect();
            if words.is_empty() { form.noun() } else { words.join(", ") }
        }
    }
}

/// A map that several keys take, and the one of them that documents it.
const DOCUMENTED_AT: (&str, &str) = ("a rule", "routes[].flow[]");

/// Returns every map that can be reached from the root, each once, in the order of reading.
fn sections(root: &'static Section) -> Vec<(String, &'static Section)> {
    let mut found = Vec::new();
    add(root, "", &mut found);
    found
}

fn add(section: &'static Section, path: &str, found: &mut Vec<(String, &'static Section)>) {
    let (title, at) = DOCUMENTED_AT;
    let is_elsewhere = section.title == title && path != at;
    let is_known = |known: &Section| known.type_name == section.type_name;
    if is_elsewhere || found.iter().any(|(_, known)| is_known(known)) {
        return;
    }

    found.push((path.to_owned(), section));
    let dot = if path.is_empty() { "" } else { "." };
    for key in section.keys {
        visit(key.form, &format!("{path}{dot}{}", key.name), found);
    }
}

fn visit(form: &'static Form, path: &str, found: &mut Vec<(String, &'static Section)>) {
    match form {
        Form::Plain(_) | Form::Switch | Form::Words(_) | Form::Unread => {}
        Form::Map(section) => add(section, path, found),
        Form::List(item) => visit(item, &format!("{path}[]"), found),
        Form::OneOrMore(item) => {
            visit(item, path, found);
            visit(item, &format!("{path}[]"), found);
        }
        Form::Entries { values, .. } => visit(values, &format!("{path}.NAME"), found),
        Form::Either { plain, map } => {
            visit(plain, path, found);
            visit(map, path, found);
        }
    }
}
