//! The words of `gateway.yaml`: every map with its keys, and the form of every value.
//!
//! The types of `spec` declare them as constants: `keys!`, `leaves!` and `words!` implement [`Described`].
//! Decoding, hints, the reference and the JSON Schema read these constants, so a key needs no other place.

mod reference;
mod schema;

pub(super) use reference::write as reference;
pub(super) use schema::publish;

use ahash::AHashMap;

/// A type that reads a value of the file.
pub(super) trait Described {
    /// The form of such a value.
    const FORM: &'static Form;

    /// True if reports show such a value in a few words: it is one value, and not secret.
    const IS_SHOWN: bool = false;

    /// Returns the value in the words of reports, if they show it.
    fn shown(&self) -> String {
        String::new()
    }
}

/// A type that reads a map with known keys.
pub(super) trait DescribedMap: Described {
    /// The map and its keys.
    const SECTION: &'static Section;

    /// Returns the keys whose values reports show, in the order of the declaration. `map` is the key
    /// of this map, or empty for that of the whole file or a whole upstream.
    fn shown_keys(&self, map: &'static str) -> Vec<ShownKey>;
}

/// A key and its value in words, as `check`, `diff` and the log line of a reload show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownKey {
    /// The key of the map that has it, if that is not the outermost one.
    pub map: &'static str,
    pub name: &'static str,
    /// `None` if it is not written and has no default.
    pub value: Option<String>,
    pub has_default: bool,
}

impl ShownKey {
    /// Returns the name with that of its map, as in `limits.body`.
    pub(super) fn path(&self) -> String {
        if self.map.is_empty() {
            return self.name.to_owned();
        }
        format!("{}.{}", self.map, self.name)
    }
}

/// The form of a value.
#[derive(Debug)]
pub(super) enum Form {
    /// A text or a number.
    Plain(Plain),
    /// `true` or `false`.
    Switch,
    /// One of a few words.
    Words(Words),
    /// A map with known keys.
    Map(&'static Section),
    /// A list.
    List(&'static Self),
    /// One value, or a list of them.
    OneOrMore(&'static Self),
    /// A map of the user's own names.
    Entries { names: &'static Self, values: &'static Self },
    /// A plain value, or a map that says more.
    Either { plain: &'static Self, map: &'static Self },
    /// A map that is read elsewhere.
    Unread,
}

/// A text or a number.
#[derive(Debug)]
pub(super) struct Plain {
    /// The noun for it, as in "a duration".
    pub title: &'static str,
    pub example: &'static str,
    pub values: Values,
}

/// The values that a plain value may have, for editors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    /// The types of YAML as which it may stand in the file, if not any.
    pub types: &'static [&'static str],
    /// The smallest and the largest number.
    pub bounds: Option<[u64; 2]>,
    pub texts: &'static [&'static str],
    pub numbers: &'static [u64],
    /// A regular expression that a text matches.
    pub pattern: Option<&'static str>,
}

impl Values {
    pub(super) const fn of(types: &'static [&'static str]) -> Self {
        Self { types, bounds: None, texts: &[], numbers: &[], pattern: None }
    }

    pub(super) const fn within(self, min: u64, max: u64) -> Self {
        Self { bounds: Some([min, max]), ..self }
    }

    pub(super) const fn one_of(self, texts: &'static [&'static str]) -> Self {
        Self { texts, ..self }
    }

    pub(super) const fn one_of_numbers(self, numbers: &'static [u64]) -> Self {
        Self { numbers, ..self }
    }

    pub(super) const fn matching(self, pattern: &'static str) -> Self {
        Self { pattern: Some(pattern), ..self }
    }
}

/// The words of which a value is one.
#[derive(Debug)]
pub(super) struct Words {
    pub all: &'static [Word],
    /// Words of other gateways, with the word that is meant.
    pub meant: &'static [[&'static str; 2]],
}

/// One of the words that a value may be.
#[derive(Debug)]
pub(super) struct Word {
    pub word: &'static str,
    pub doc: Doc,
}

/// A map of the file: a set of keys under one name.
#[derive(Debug)]
pub(super) struct Section {
    /// The name of the type that reads it.
    pub type_name: &'static str,
    /// The word for one such map in messages, as in "a route".
    pub title: &'static str,
    pub doc: Doc,
    /// In the order of the fields.
    pub keys: &'static [Key],
    /// Words that other maps take, with what to write instead; `*` for all words that are not known.
    pub instead: &'static [[&'static str; 2]],
    /// Words of other gateways, with the key that is meant.
    pub meant: &'static [[&'static str; 2]],
    /// An example of one, if it is not what it needs.
    pub example: Option<&'static str>,
}

/// One key of a map.
#[derive(Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub doc: Doc,
    pub form: &'static Form,
    pub default: Default,
    /// The text to write where a value of another kind stands.
    pub help: Option<&'static str>,
    /// An example, if that of the form does not fit.
    pub example: Option<&'static str>,
}

/// The value of a key that is not written.
#[derive(Debug)]
pub(super) enum Default {
    /// None: the key is required.
    Required,
    /// Something that is no value, in words.
    Words(&'static str),
    /// This value, as it would be written; in quotes or not.
    Text { text: &'static str, is_quoted: bool },
    /// A map in which every key has its default.
    Map,
}

/// A doc comment: its lines one after the other, as the compiler passes them to macros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doc(pub &'static str);

impl Doc {
    /// Returns the text.
    pub(super) fn text(self) -> &'static str {
        self.0.trim_start()
    }
}

/// The maps of a file, by the names of their types.
#[derive(Debug)]
pub(super) struct Vocabulary {
    sections: AHashMap<&'static str, &'static Section>,
}

impl Vocabulary {
    /// Returns the maps that `T` holds, and itself.
    pub(super) fn of<T: DescribedMap>() -> Self {
        let sections = T::SECTION.reachable().into_iter();
        Self { sections: sections.map(|section| (section.type_name, section)).collect() }
    }

    /// Returns the map that the type `name` reads.
    pub(super) fn section(&self, name: &str) -> Option<&'static Section> {
        self.sections.get(name).copied()
    }
}

impl Form {
    /// Adds the maps that it holds.
    fn collect(&'static self, found: &mut Vec<&'static Section>) {
        match self {
            Self::Plain(_) | Self::Switch | Self::Words(_) | Self::Unread => {}
            Self::Map(section) => section.collect(found),
            Self::List(item) | Self::OneOrMore(item) => item.collect(found),
            Self::Entries { names: one, values: other }
            | Self::Either { plain: one, map: other } => {
                one.collect(found);
                other.collect(found);
            }
        }
    }

    /// Returns the words of which it is one, if it is.
    pub(super) fn words(&self) -> Vec<&'static str> {
        match self {
            Self::Plain(plain) => plain.values.texts.to_vec(),
            Self::Words(words) => words.all.iter().map(|word| word.word).collect(),
            Self::Switch
            | Self::Map(_)
            | Self::List(_)
            | Self::OneOrMore(_)
            | Self::Entries { .. }
            | Self::Either { .. }
            | Self::Unread => Vec::new(),
        }
    }

    /// Returns an example of a value.
    pub(super) fn example(&self) -> String {
        match self {
            Self::Plain(Plain { example, values, .. }) => {
                values.texts.first().unwrap_or(example).to_string()
            }
            Self::Switch => "true".to_owned(),
            Self::Words(_) => self.words().first().map(ToString::to_string).unwrap_or_default(),
            Self::Map(section) => section.example(),
            Self::List(item) => format!("[{}]", item.example()),
            Self::OneOrMore(item) => item.example(),
            Self::Entries { names, values } => {
                format!("{{ {}: {} }}", names.example(), values.example())
            }
            Self::Either { plain, .. } => plain.example(),
            Self::Unread => String::new(),
        }
    }

    /// Returns the noun for a value, as in "a rate".
    pub(super) fn noun(&self) -> String {
        match self {
            Self::Plain(plain) => plain.title.to_owned(),
            Self::Switch | Self::Unread => "`true` or `false`".to_owned(),
            Self::Words(_) => {
                let words: Vec<_> = self.words().iter().map(|word| format!("`{word}`")).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Map(section) => section.title.to_owned(),
            Self::List(item) | Self::OneOrMore(item) => item.noun(),
            Self::Entries { values, .. } => values.noun(),
            Self::Either { plain, .. } => plain.noun(),
        }
    }

    /// Returns the word that `word`, which other gateways use, stands for.
    pub(super) fn synonym(&self, word: &str) -> Option<&'static str> {
        let Self::Words(words) = self else { return None };
        words.meant.iter().find(|[known, _]| *known == word).map(|[_, meant]| *meant)
    }
}

impl Section {
    /// Returns this map and all that it holds, each once, in the order of reading.
    pub(super) fn reachable(&'static self) -> Vec<&'static Self> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect(&'static self, found: &mut Vec<&'static Self>) {
        if found.iter().any(|known| known.type_name == self.type_name) {
            return;
        }
        found.push(self);
        self.keys.iter().for_each(|key| key.form.collect(found));
    }

    /// Returns an example of such a map: as its type says, or with all that it needs, or
    /// else with its first key.
    pub(super) fn example(&self) -> String {
        if let Some(example) = self.example {
            return example.to_owned();
        }

        // Most files and routes need those too.
        let is_usual = |key: &&Key| matches!(key.name, "upstreams" | "upstream");
        let is_shown = |key: &&Key| key.is_required() || is_usual(key);
        let required: Vec<_> = self.keys.iter().filter(is_shown).collect();
        let shown = if required.is_empty() { self.keys.iter().take(1).collect() } else { required };
        let entry = |key: &Key| format!("{}: {}", key.name, key.example());
        format!("{{ {} }}", shown.into_iter().map(entry).collect::<Vec<_>>().join(", "))
    }

    /// Returns the key that `word`, which may be misspelled itself, was probably meant to be.
    pub(super) fn meant(&self, word: &str) -> Option<&'static str> {
        let keys = self.keys.iter().map(|key| key.name);
        let synonyms = self.meant.iter().map(|[known, _]| *known);
        let synonym =
            |word: &str| self.meant.iter().find(|[known, _]| *known == word).map(|[_, key]| *key);
        let close = || {
            let known = nearest(word, keys.chain(synonyms))?;
            Some(synonym(known).unwrap_or(known))
        };
        synonym(word).or_else(close)
    }

    /// Returns the form of a verb that follows the title.
    pub(super) fn verb<'w>(&self, singular: &'w str, plural: &'w str) -> &'w str {
        let plurals = ["the timeouts", "the limits", "header edits"];
        let is_plural = plurals.iter().any(|title| self.title.starts_with(title));
        if is_plural { plural } else { singular }
    }
}

impl Key {
    pub(super) const fn is_required(&self) -> bool {
        matches!(self.default, Default::Required)
    }

    /// Returns an example of its value.
    pub(super) fn example(&self) -> String {
        self.example.map_or_else(|| self.form.example(), str::to_owned)
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
