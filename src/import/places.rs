//! The variables of `geoip2` blocks that say in which country or autonomous system a client is.

use super::{converted_config::Fields, files::Files, report::ImportReport, tree::Directive};
use crate::geo::{Asn, Country};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The most countries of a list: more of them are rather all others.
const LONGEST_LIST: usize = 250;

/// The kind of value that a variable has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceKind {
    Country,
    Asn,
}

impl PlaceKind {
    /// Returns the word for it in `gateway.yaml`.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Country => "country",
            Self::Asn => "asn",
        }
    }
}

/// A variable of a `geoip2` block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlaceVariable<'a> {
    /// Its name, without its `$`.
    pub name: &'a str,
    pub kind: PlaceKind,
    /// Its value for an address that the file does not know.
    pub default: &'a str,
}

impl<'a> PlaceVariable<'a> {
    /// Reads an entry of a `geoip2` block, such as `$country default=XX country iso_code`.
    ///
    /// # Errors
    /// Its value is none that flowgate reads.
    fn read(entry: &'a Directive) -> Result<Self, &'static str> {
        const OTHER: &str = "flowgate reads countries (`country iso_code`) and AS numbers";
        let name = entry.name.strip_prefix('$').ok_or(OTHER)?;
        let mut default = "";
        let mut path = Vec::new();
        for word in &entry.args {
            match word.split_once('=') {
                Some(("default", value)) => default = value,
                Some(("source", "$remote_addr")) => {}
                Some(("source", _)) => {
                    return Err(
                        "flowgate looks up the client's address only: name the proxies in \
                                `trusted_proxies`",
                    );
                }
                Some(_) => return Err(OTHER),
                None => path.push(word.as_str()),
            }
        }
        let kind = match path[..] {
            ["country", "iso_code"] => PlaceKind::Country,
            ["autonomous_system_number"] => PlaceKind::Asn,
            _ => return Err(OTHER),
        };
        Ok(Self { name, kind, default })
    }

    /// Returns the variable called `name` of these blocks, if it is one that flowgate reads.
    pub(super) fn of(name: &str, blocks: &[&'a Directive]) -> Option<Self> {
        Self::all(blocks).into_iter().find(|found| found.name == name)
    }

    /// Returns all variables of these blocks that flowgate reads: those of the first file of each kind.
    pub(super) fn all(blocks: &[&'a Directive]) -> Vec<Self> {
        let mut files: BTreeMap<&str, &str> = BTreeMap::new();
        let mut all = Vec::new();
        for block in blocks.iter().filter(|block| block.name == "geoip2") {
            let file = block.arg(0);
            for found in block.inner().iter().filter_map(|entry| Self::read(entry).ok()) {
                if *files.entry(found.kind.word()).or_insert(file) == file {
                    all.push(found);
                }
            }
        }
        all
    }

    /// Checks that its value for unknown addresses is none that known ones have.
    ///
    /// # Errors
    /// It may be one of theirs; the text says so.
    pub(super) fn has_own_default(self) -> Result<(), String> {
        /// Codes that the standard leaves to users, and which files do not have.
        const UNUSED: [&str; 2] = ["XX", "ZZ"];
        let is_value = match self.kind {
            PlaceKind::Country => {
                Country::read(self.default).is_some() && !UNUSED.contains(&self.default)
            }
            PlaceKind::Asn => self.default.parse::<u32>().is_ok_and(|number| number != 0),
        };
        if is_value {
            return Err(format!(
                "unknown addresses count as ${}={} in nginx",
                self.name, self.default
            ));
        }
        Ok(())
    }

    /// Returns the clients for which the variable has a value that `fits`, as entries of a list, and whether
    /// all others are meant. The others have the addresses that the file does not know.
    ///
    /// # Errors
    /// No list has these clients.
    pub(super) fn clients(
        self,
        fits: &dyn Fn(&str) -> bool,
        named: &[&str],
    ) -> Result<(Vec<Value>, bool), String> {
        let is_usual = fits(self.default);
        match self.kind {
            PlaceKind::Country => {
                let letters = || b'A'..=b'Z';
                let codes = letters().flat_map(|one| letters().map(move |other| [one, other]));
                let codes = codes.filter_map(|code| Country::read(str::from_utf8(&code).ok()?));
                let listed: Vec<_> = codes.filter(|code| fits(code.as_str()) != is_usual).collect();
                if listed.len() > LONGEST_LIST {
                    return Err("no list has all countries but not the unknown addresses".into());
                }
                let listed: Vec<_> = listed.iter().map(Country::as_str).collect();
                Ok((entry("country", &json!(listed), listed.len()), is_usual))
            }
            PlaceKind::Asn => {
                /// A number that no system has.
                const OTHER: &str = "4294967295";
                if fits(OTHER) != is_usual {
                    return Err("no list has all systems but not the unknown addresses".into());
                }
                let numbers = named.iter().filter_map(|text| text.parse().ok());
                let mut listed: Vec<u32> = numbers.map(|Asn(number)| number).collect();
                listed.retain(|number| fits(&number.to_string()) != is_usual);
                listed.sort_unstable();
                listed.dedup();
                Ok((entry("asn", &json!(listed), listed.len()), is_usual))
            }
        }
    }
}

/// Returns the entry of a list of clients, or none for no value.
fn entry(key: &str, values: &Value, count: usize) -> Vec<Value> {
    match count {
        0 => Vec::new(),
        1 => vec![json!({ key: values[0] })],
        _ => vec![json!({ key: values })],
    }
}

/// Returns the `geo` of the file: the files of the `geoip2` blocks whose variables flowgate reads.
pub(super) fn files(http: &Directive, files: &Files, report: &mut ImportReport) -> Fields {
    let mut found = Fields::default();
    for block in http.all("geoip2") {
        let mut is_used = false;
        for entry in block.inner() {
            match PlaceVariable::read(entry) {
                // flowgate watches the file.
                _ if entry.name == "auto_reload" => report.take(entry),
                Ok(PlaceVariable { kind, .. }) => {
                    let file = files.named(block.arg(0));
                    let known = found.0.get(kind.word()).and_then(Value::as_str);
                    if known.is_some_and(|known| known != file) {
                        report.note(entry, "flowgate reads one file of them: the first");
                    } else {
                        found.set(kind.word(), file);
                        report.take(entry);
                        is_used = true;
                    }
                }
                Err(why) => report.note(entry, why),
            }
        }
        if is_used {
            report.take(block);
        }
    }
    found
}
