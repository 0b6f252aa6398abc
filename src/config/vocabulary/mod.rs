//! The words of `gateway.yaml`: every key with its type, its default and a line of explanation.
//!
//! The tables in [`tables`] are the one source for three readers: the decoder (unknown keys, wrong
//! types, words and bounds), `docs/configuration.md` and `gateway.schema.json`. A key that is not in
//! a table does not exist.

mod docs;
mod schema;
pub(super) mod tables;

pub use docs::reference;
pub use schema::schema;

use std::time::Duration;

/// A map of the file: a set of keys under one name.
#[derive(Debug)]
pub(super) struct Section {
    /// The word for one such map in messages, as in "a route".
    pub title: &'static str,
    pub doc: &'static str,
    pub keys: &'static [Key],
}

/// One key of a map.
#[derive(Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub default: Default,
    pub doc: &'static str,
}

/// What holds where a key is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Default {
    /// The key must be written.
    Required,
    /// This value, in the words of the file; also read by the decoder.
    Value(&'static str),
    /// Something that depends on other values, in words.
    Words(&'static str),
    /// Nothing.
    Absent,
}

/// What kind of value a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Name,
    Text,
    Flag,
    Integer {
        min: u64,
        max: u64,
    },
    Duration {
        min: Duration,
        max: Duration,
    },
    Size {
        max: u64,
    },
    Rate,
    /// A part of a whole, from 0 to 1.
    Ratio,
    /// One of the words `today`; those of `later` are known, and refused in this version.
    Word {
        today: &'static [&'static str],
        later: &'static [&'static str],
    },
    Address,
    Url,
    RedisUrl,
    Network,
    File,
    Host,
    Path,
    Regex,
    Method,
    HeaderName,
    HeaderValue,
    Status,
    KeyPart,
    Section(&'static Section),
    List(&'static Self),
    /// One value, or a list of them.
    Several(&'static Self),
    /// Names of the user's own, each with a value of one kind.
    Map {
        of: &'static str,
        to: &'static Self,
    },
    /// A plain value, or a map that says more.
    Either(&'static Self, &'static Self),
    /// A word of the language that this version does not know how to do.
    Later,
    /// A word that other maps take. Its `doc` says what to write instead.
    Foreign,
}

impl Key {
    /// Whether anything may be written under it.
    pub(super) const fn takes_a_value(&self) -> bool {
        !matches!(self.kind, Kind::Later | Kind::Foreign)
    }
}

impl Kind {
    /// Returns the words for such a value, as in "expected a duration".
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Name => "a name",
            Self::Text | Self::Later | Self::Foreign => "a text",
            Self::Flag => "`true` or `false`",
            Self::Integer { .. } => "a whole number",
            Self::Duration { .. } => "a duration",
            Self::Size { .. } => "a size",
            Self::Rate => "a rate",
            Self::Ratio => "a number from 0 to 1",
            Self::Word { .. } => "a word",
            Self::Address => "an address",
            Self::Url | Self::RedisUrl => "a URL",
            Self::Network => "a network",
            Self::File => "a file name",
            Self::Host => "a host",
            Self::Path => "a path",
            Self::Regex => "a regular expression",
            Self::Method => "a method",
            Self::HeaderName => "the name of a header",
            Self::HeaderValue => "the value of a header",
            Self::Status => "a status",
            Self::KeyPart => "a part of a key",
            Self::Section(_) | Self::Map { .. } => "a map",
            Self::List(_) => "a list",
            Self::Several(kind) | Self::Either(kind, _) => kind.words(),
        }
    }

    /// Returns the short one of two forms.
    pub(super) fn plain(self) -> Self {
        if let Self::Either(plain, _) = self { plain.plain() } else { self }
    }

    /// Returns such a value as it is written.
    pub(super) fn example(self) -> String {
        let fixed = match self {
            Self::Name => "checkout",
            Self::Text | Self::HeaderValue | Self::Later | Self::Foreign => "some text",
            Self::Flag => "true",
            Self::Integer { min, .. } => return min.max(10).to_string(),
            Self::Duration { .. } => "5s",
            Self::Size { .. } => "10MiB",
            Self::Rate => "100/1s",
            Self::Ratio => "0.5",
            Self::Word { today, .. } => today.first().copied().unwrap_or_default(),
            Self::Address => "127.0.0.1:8080",
            Self::Url => "http://10.0.1.5:8000",
            Self::RedisUrl => "redis://10.0.1.9:6379",
            Self::Network => "10.0.0.0/8",
            Self::File => "certs/site.pem",
            Self::Host => "shop.example.com",
            Self::Path => "/api",
            Self::Regex => "'/v[0-9]+/.*'",
            Self::Method => "GET",
            Self::HeaderName => "x-tenant",
            Self::Status => "429",
            Self::KeyPart => "client_ip",
            Self::Section(section) => {
                let wanted = |key: &&Key| key.default == Default::Required;
                let required = section.keys.iter().filter(wanted).count();
                let keys = section.keys.iter().filter(|key| required == 0 || wanted(key));
                let entry = |key: &Key| format!("{}: {}", key.name, key.kind.example());
                let entries: Vec<_> = keys.take(required.max(1)).map(entry).collect();
                return format!("{{ {} }}", entries.join(", "));
            }
            Self::List(kind) => return format!("[{}]", kind.example()),
            Self::Several(kind) | Self::Either(kind, _) => return kind.example(),
            Self::Map { of, to } => return format!("{{ {of}: {} }}", to.example()),
        };
        fixed.to_owned()
    }
}

impl Section {
    /// Reports whether it has a key of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name == name)
    }

    /// Returns the key that `word` was probably meant to be.
    pub(super) fn meant(&self, word: &str) -> Option<&'static str> {
        let keys = self.keys.iter().filter(|key| !matches!(key.kind, Kind::Foreign));
        nearest(word, keys.map(|key| key.name))
    }
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

/// Returns every section that can be reached from the root, each once, in the order of reading.
fn sections() -> Vec<(String, &'static Section)> {
    fn visit(path: &str, kind: Kind, found: &mut Vec<(String, &'static Section)>) {
        if let Kind::List(of) = kind {
            visit(&format!("{path}[]"), *of, found);
        } else if let Kind::Several(of) = kind {
            visit(path, *of, found);
        } else if let Kind::Map { of, to } = kind {
            visit(&format!("{path}.{of}"), *to, found);
        } else if let Kind::Either(plain, long) = kind {
            visit(path, *plain, found);
            visit(path, *long, found);
        } else if let Kind::Section(section) = kind
            && !found.iter().any(|(_, known)| std::ptr::eq(*known, section))
        {
            found.push((path.to_owned(), section));
            let dot = if path.is_empty() { "" } else { "." };
            for key in section.keys {
                visit(&format!("{path}{dot}{}", key.name), key.kind, found);
            }
        }
    }
    let mut found = Vec::new();
    visit("", Kind::Section(&tables::FILE), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        assert_eq!(tables::RULE.meant("brust"), Some("burst"));
        assert_eq!(tables::RULE.meant("dry-run"), Some("dry_run"));
        assert_eq!(tables::RULE.meant("Limit"), Some("limit"));
        assert_eq!(tables::RULE.meant("colour"), None);
        assert_eq!(tables::RULE.meant(&"x".repeat(1000)), None);
    }

    #[test]
    fn every_key_is_explained_in_a_sentence() {
        for (path, section) in sections() {
            for key in section.keys.iter().filter(|key| !matches!(key.kind, Kind::Foreign)) {
                let doc = key.doc;
                assert!(doc.ends_with('.') && doc.len() > 8, "{path}: {}: {doc}", key.name);
            }
        }
    }
}
