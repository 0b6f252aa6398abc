//! `docs/configuration.md`, written from the tables.

use super::{Default, Kind, sections};
use std::fmt::Write;

const HEAD: &str = "\
# Configuration reference

<!-- Written from src/config/vocabulary/tables; a test holds it current. To rewrite it: \
UPDATE_REFERENCE=1 cargo test --lib config::vocabulary -->

The file is YAML, read again whenever it changes. Unknown keys, duplicate keys and wrong types are
errors with a line, a column and a hint; one error rejects the whole new file, and the one in force
stays. `flowgate check` prints what a file means: the routes in their order of matching, what each
rule promises, and the defaults in force.

Editors complete and check the keys with the first line

```yaml
# yaml-language-server: $schema=./gateway.schema.json
```

Durations are a number and a unit (`500ms`, `5s`, `1m 30s`, `2h`), sizes too (`64KiB` is 65,536
bytes, `64KB` 64,000), rates are a count per duration (`100/1m`, `10/s`). File names are relative to
the folder of the file. Anchors (`&name`), aliases (`*name`) and merge keys (`<<`) work. A file is at
most 16 MiB, and aliases may add 500,000 values to it.

**A file cut short** while it is copied can be valid YAML that lacks half its routes. Close yours with
the line `end: true`: once a file with it is in force, a file without it is rejected. (`end: false`
takes the mark away again.)
";

const PROMISES: &str = "\
## What each rule promises

`N` is the limit, `W` its window, `b` the buckets. `flowgate check` prints each rule's own line, and
how much memory its keys can take.

| rule | most that passes in any window W |
|---|---|
| `token_bucket`, `leaky_bucket` | `burst` at once, and N/W beyond it: `burst + N` |
| `sliding_log` | N, exactly; a log of up to N stamps, 16 bytes each, for each key |
| `sliding_window` | N in any `W·(1 − 1/b)`; up to 2 N in a whole W |
| `sliding_window`, `strict: true` | N, exactly |
| `sliding_counter` | N in each window of the clock; up to 2 N − 1 in some W; N − 1 under saturation |
| `fixed_window` | N in each window; up to 2 N across a boundary (2 N − 1 with `align: first_request`, but across the end of the clock's first window, where a replay may begin), days and months of a calendar too |
| `concurrency` | N in flight at every instant |
| `pacing`, of the route or as an algorithm | starts at least W/N apart: N + 1, or N + n where the last one costs n |
";

/// Returns the reference of all keys, as Markdown.
pub fn reference() -> String {
    let mut text = HEAD.to_owned();
    for (path, section) in sections() {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        _ = write!(text, "\n## {title}\n\n{}\n\n", section.doc);
        text += "| key | value | default | |\n|---|---|---|---|\n";
        for key in section.keys.iter().filter(|key| key.takes_a_value()) {
            let (value, default) = (value(key.kind), default(key.default));
            _ = writeln!(text, "| `{}` | {value} | {default} | {} |", key.name, key.doc);
        }
        let later = section.keys.iter().filter(|key| matches!(key.kind, Kind::Later));
        let names: Vec<_> = later.map(|key| format!("`{}`", key.name)).collect();
        if !names.is_empty() {
            _ = writeln!(
                text,
                "\nKept for later versions, and rejected in this one: {}.",
                names.join(", ")
            );
        }
    }
    text + "\n" + PROMISES
}

fn default(default: Default) -> String {
    match default {
        Default::Required => "**required**".to_owned(),
        Default::Value(value) => format!("`{value}`"),
        Default::Words(words) => words.to_owned(),
        Default::Absent => "–".to_owned(),
    }
}

fn value(kind: Kind) -> String {
    if let Kind::Integer { min, max } = kind {
        format!("{min} to {max}")
    } else if let Kind::Word { today, .. } = kind {
        today.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    } else if let Kind::Several(of) = kind {
        format!("{}, or a list", value(*of))
    } else if let Kind::List(of) = kind {
        format!("list, each {}", value(*of))
    } else if let Kind::Map { to, .. } = kind {
        format!("map, each {}", value(*to))
    } else if let Kind::Either(plain, long) = kind {
        format!("{}, or {}", value(*plain), value(*long))
    } else if let Kind::Section(section) = kind {
        format!("map: {}", section.title)
    } else {
        kind.words().to_owned()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_reference_is_current() {
        super::super::schema::tests::check_committed("docs/configuration.md", &super::reference());
    }
}
