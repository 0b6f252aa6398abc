//! The keys of limits. Those that `map` and `geo` blocks make exempt a request by an empty key.
//!
//! Each part of a request that the blocks look at has classes of values, such as the networks of a
//! `geo` or the entries of a `map`. The key of every combination of classes is computed, and what
//! exempts a request is read from that.

use super::{
    access::{listed, networks_of},
    converted_config::Fields,
    maps::{Map, MapPattern},
    places::PlaceVariable,
    report::ImportReport,
    template::{Piece, pieces},
    tree::Directive,
};
use ipnet::IpNet;
use serde_json::{Value, json};

/// The key of a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Key<'a> {
    /// As a rule's `key` has them; none counts all requests together.
    pub parts: Vec<String>,
    /// Those of `parts` that a request may lack.
    optional: Vec<String>,
    /// The key also has a text that is the same for all requests, so no request lacks all of it.
    has_constant: bool,
    /// Requests that are not counted, as the `except` of a rule has them.
    pub except: Fields,
    /// The only requests that are counted, as the `when` of an override has them.
    pub only: Option<Fields>,
    /// The difference between the rule and the zone.
    pub difference: Option<String>,
    /// The blocks that say so.
    pub blocks: Vec<&'a Directive>,
}

/// Requests that lack some parts of a key, and that nginx counts by the others.
#[derive(Clone, Debug)]
pub(super) struct Lacking<'a> {
    /// The parts that they lack.
    pub without: Vec<String>,
    /// The key by which a rule counts these requests alone, if there is one.
    pub key: Option<Key<'a>>,
}

/// The most parts of a key that a request may lack, so that each set of missing ones has a rule.
const MOST_OPTIONAL: usize = 2;

/// The beginnings of the parts that clients may send several times.
const SENT: [&str; 3] = ["header:", "query:", "cookie:"];

impl<'a> Key<'a> {
    /// Reads what a zone counts by, without the variables of `map` and `geo` blocks. `blocks` has those of
    /// `geoip2`.
    ///
    /// # Errors
    /// No key counts the same; the text says why.
    pub(super) fn read(text: &str, blocks: &[&Directive]) -> Result<Self, String> {
        let mut key = Self::default();
        for piece in pieces(text)? {
            let Piece::Variable(name) = piece else {
                key.has_constant = true;
                continue;
            };
            if let Some(place) = PlaceVariable::of(name, blocks) {
                place.has_own_default()?;
                key.add(place.kind.word().into(), place.default.is_empty());
                continue;
            }
            let (part, is_optional) = part(name)?;
            if name == "ssl_client_s_dn" {
                key.difference =
                    Some("it counts by certificate: a renewed one has a count of its own".into());
            }
            match part {
                Some(part) => key.add(part, is_optional),
                None => key.has_constant = true,
            }
        }
        Ok(key)
    }

    fn add(&mut self, part: String, is_optional: bool) {
        if self.parts.contains(&part) {
            return;
        }
        if is_optional {
            self.optional.push(part.clone());
        }
        self.parts.push(part);
    }

    /// Returns the requests that lack some parts of the key and that nginx counts by the others: a
    /// rule with this key counts none of them.
    pub(super) fn lacking(&self) -> Vec<Lacking<'a>> {
        let count = self.optional.len();
        let sets = if count <= MOST_OPTIONAL {
            (1..1_usize << count).collect()
        } else {
            (0..count).map(|at| 1 << at).collect::<Vec<_>>()
        };
        let all = sets.into_iter().filter_map(|set| {
            let is_in = |part: &String| {
                let at = self.optional.iter().position(|one| one == part);
                at.is_some_and(|at| set >> at & 1 == 1)
            };
            let (without, parts): (Vec<_>, Vec<_>) = self.parts.iter().cloned().partition(is_in);
            // nginx does not count a request with an empty key.
            let is_counted = self.has_constant || !parts.is_empty();
            is_counted.then(|| {
                let key = (count <= MOST_OPTIONAL).then(|| self.without(&without, parts));
                Lacking { without, key: key.flatten() }
            })
        });
        all.collect()
    }

    /// Returns the key of the requests that lack some parts, and have these. `None` if no exception
    /// of a rule tells them apart.
    fn without(&self, lacking: &[String], parts: Vec<String>) -> Option<Self> {
        let mut header = match self.except.0.get("header") {
            Some(Value::Object(known)) => Fields(known.clone()),
            _ => Fields::default(),
        };
        for part in lacking {
            let name = part.strip_prefix("header:")?;
            if header.0.contains_key(name) {
                return None;
            }
            // One without a value is as good as none, in nginx and in a key.
            header.set(name, json!({ "regex": ".+" }));
        }

        let mut key = Self { parts, ..self.clone() };
        key.optional.retain(|part| key.parts.contains(part));
        key.except.set("header", header);
        Some(key)
    }

    /// Writes the key's part of a rule, which counts at most `max_keys` keys.
    pub(super) fn write(&self, rule: &mut Fields, max_keys: u64) {
        match &self.parts[..] {
            [] => {}
            [one] => rule.set("key", json!(one)),
            all => rule.set("key", json!(all)),
        }

        if self.is_by_client() {
            rule.set("ipv6_prefix", json!(128));
        }
        if !self.optional.is_empty() {
            rule.set("on_missing_key", json!("skip"));
        }
        let is_sent = |part: &String| SENT.iter().any(|kind| part.starts_with(kind));
        if self.parts.iter().any(is_sent) {
            rule.set("on_duplicate_key", json!("first"));
        }

        if !self.except.is_empty() {
            rule.set("except", self.except.clone());
        }
        if let Some(only) = &self.only {
            limit_only(rule, only);
        }
        if !self.parts.is_empty() {
            rule.set("max_keys", json!(max_keys));
        }
    }

    /// Reports whether it counts by the client's address.
    pub(super) fn is_by_client(&self) -> bool {
        self.parts.iter().any(|part| part == "client_ip")
    }

    /// Reports whether it counts by the client's certificate.
    pub(super) fn is_by_certificate(&self) -> bool {
        self.parts.iter().any(|part| part == CERTIFICATE)
    }

    /// Takes the blocks that it is read from.
    pub(super) fn take(&self, report: &mut ImportReport) {
        for block in &self.blocks {
            report.take_all(block);
        }
    }
}

/// Limits no requests but some: the rule itself has numbers that no request reaches, and an override
/// has the limit.
fn limit_only(rule: &mut Fields, only: &Fields) {
    const UNREACHED: u64 = 1_000_000_000_000;
    const MOST_IN_FLIGHT: u64 = 1_000_000_000;
    let mut limited = Fields::default();
    limited.set("when", only.clone());
    for (key, unreached) in [
        ("limit", json!(format!("{UNREACHED}/1s"))),
        ("burst", json!(UNREACHED)),
        ("concurrency", json!(MOST_IN_FLIGHT)),
    ] {
        if let Some(own) = rule.0.get(key).cloned() {
            limited.set(key, own);
            rule.set(key, unreached);
        }
    }
    rule.set("overrides", json!([Value::from(limited)]));
}

/// The part of a key that is the client's certificate.
const CERTIFICATE: &str = "client_cert";

/// Returns the part of a key that a variable is, and whether a request may lack it.
fn part(name: &str) -> Result<(Option<String>, bool), String> {
    let named = |kind: &str, name: &str| Ok((Some(format!("{kind}:{name}")), true));
    if let Some(name) = name.strip_prefix("http_").filter(|name| *name != "host") {
        return named("header", &name.replace('_', "-"));
    }
    if let Some(name) = name.strip_prefix("arg_") {
        return named("query", name);
    }
    if let Some(name) = name.strip_prefix("cookie_") {
        return named("cookie", name);
    }

    if matches!(name, "ssl_client_s_dn" | "ssl_client_fingerprint") {
        return Ok((Some(CERTIFICATE.into()), true));
    }

    let part = match name {
        "binary_remote_addr" | "remote_addr" => "client_ip",
        "uri" | "document_uri" => "path",
        "host" => "host",
        "request_method" => "method",
        // The same for all requests of a route.
        "server_name" => return Ok((None, false)),
        other => return Err(format!("no key counts by ${other}")),
    };
    Ok((Some(part.into()), false))
}

/// The most blocks that may be asked in turn.
const LONGEST_CHAIN: usize = 8;

/// The most combinations of classes.
const MOST_COMBINATIONS: usize = 65_536;

/// Values of a part of a request that the blocks do not tell apart.
#[derive(Clone, Debug)]
struct Class<'a> {
    /// A value of this class.
    sample: String,
    /// The requests of this class; `None` for all that are in no other.
    is: Option<Requests<'a>>,
}

/// Requests by one of their parts.
#[derive(Clone, Debug)]
enum Requests<'a> {
    Network(IpNet),
    Method(String),
    Field(MapPattern<'a>),
}

/// A part of a request with its classes.
#[derive(Clone, Debug)]
struct Source<'a> {
    name: &'a str,
    classes: Vec<Class<'a>>,
}

/// The blocks behind a key.
#[derive(Debug, Default)]
struct Blocks<'a> {
    used: Vec<&'a Directive>,
    sources: Vec<Source<'a>>,
}

/// Reads what a zone counts by. `maps` are the `map` and `geo` blocks.
///
/// # Errors
/// No key counts the same; the text says why.
pub(super) fn read_key<'a>(text: &str, maps: &[&'a Directive]) -> Result<Key<'a>, String> {
    match pieces(text)?[..] {
        [Piece::Variable(name)] => match Map::of(name, maps) {
            Some(block) => mapped(block, maps),
            None => Key::read(text, maps),
        },
        _ => Key::read(text, maps),
    }
}

/// Reads a key by way of `map` and `geo`.
///
/// # Errors
/// No rule counts the same requests; the text says why.
fn mapped<'a>(block: &'a Directive, maps: &[&'a Directive]) -> Result<Key<'a>, String> {
    let unclear = || format!("the key is that of `{}`, which no rule expresses", block.words());
    let name = block.args.last().and_then(|name| name.strip_prefix('$')).ok_or_else(unclear)?;
    let mut blocks = Blocks::default();
    blocks.gather(name, maps, LONGEST_CHAIN).map_err(|_| unclear())?;

    let count: usize = blocks.sources.iter().map(|source| source.classes.len()).product();
    if blocks.sources.is_empty() || count > MOST_COMBINATIONS {
        return Err(unclear());
    }

    let keys: Vec<_> = combinations(&blocks.sources)
        .map(|classes| (blocks.value(name, maps, &classes), classes))
        .collect();
    let mut counted = keys.iter().map(|(key, _)| key).filter(|key| !key.is_empty());
    let text = counted.next().ok_or_else(unclear)?;
    if counted.any(|key| key != text) {
        return Err(unclear());
    }

    // The text may be one that the blocks hold only for the time of this call.
    let mut key = Key::read(text, maps)?;
    key.blocks.clone_from(&blocks.used);

    if let Some(except) = blocks.exempting(&keys) {
        key.except = except;
    } else if let Some(only) = blocks.limiting(&keys) {
        key.only = Some(only);
    } else {
        let why = "it also counts requests that nginx exempts: no rule expresses which";
        key.difference = Some(why.into());
    }
    Ok(key)
}

/// Returns every combination of classes, one index for each source.
fn combinations<'s>(sources: &'s [Source<'_>]) -> impl Iterator<Item = Vec<usize>> + 's {
    let count: usize = sources.iter().map(|source| source.classes.len()).product();
    (0..count).map(move |number| {
        let mut rest = number;
        sources
            .iter()
            .map(|source| {
                let index = rest % source.classes.len();
                rest /= source.classes.len();
                index
            })
            .collect()
    })
}

impl<'a> Blocks<'a> {
    /// Gathers the parts of requests that a variable depends on.
    fn gather(&mut self, name: &str, maps: &[&'a Directive], depth: usize) -> Result<(), String> {
        let Some(block) = Map::of(name, maps) else { return Ok(()) };
        if depth == 0 {
            return Err("each `map` asks another one too often".into());
        }
        if self.used.iter().any(|known| known.id == block.id) {
            return Ok(());
        }

        self.used.push(block);
        if block.name == "geo" {
            self.sources.push(networks(block)?);
            return Ok(());
        }

        let map = Map::read(block)?;
        let variables = pieces(map.source)?.into_iter().filter_map(|piece| match piece {
            Piece::Variable(name) => Some(name),
            Piece::Text(_) => None,
        });

        for name in variables {
            if Map::of(name, maps).is_some() {
                self.gather(name, maps, depth - 1)?;
            } else {
                self.add(name, &map)?;
            }
        }
        Ok(())
    }

    /// Adds the classes of a part of a request that a `map` looks at.
    fn add(&mut self, name: &'a str, map: &Map<'a>) -> Result<(), String> {
        if map.source.trim_start_matches('$') != name {
            return Err("the map joins a field with another variable".into());
        }
        let is_field =
            (name.starts_with("http_") && name != "http_host") || name.starts_with("arg_");
        if !is_field && name != "request_method" {
            return Err(format!("no exception is by ${name}"));
        }

        let mut classes = vec![Class { sample: "\u{1}".into(), is: None }];
        for (pattern, _) in &map.entries {
            let sample = match pattern {
                MapPattern::Text(text) => (*text).to_owned(),
                // What an expression matches is known to the entry alone.
                MapPattern::Regex(text, _) => format!("\u{1}{text}"),
            };
            let is = match pattern {
                MapPattern::Text(text) if name == "request_method" => {
                    Requests::Method((*text).to_owned())
                }
                MapPattern::Regex(..) if name == "request_method" => {
                    return Err("an expression over methods".into());
                }
                MapPattern::Text(_) | MapPattern::Regex(..) => Requests::Field(*pattern),
            };
            classes.push(Class { sample, is: Some(is) });
        }

        self.sources.push(Source { name, classes });
        Ok(())
    }

    /// Returns the value of a variable for a combination of classes.
    fn value(&self, name: &str, maps: &[&'a Directive], classes: &[usize]) -> String {
        if let Some(at) = self.sources.iter().position(|source| source.name == name) {
            let class = classes.get(at).and_then(|class| self.sources[at].classes.get(*class));
            return class.map(|class| class.sample.clone()).unwrap_or_default();
        }

        let Some(block) = Map::of(name, maps) else { return format!("${name}") };
        let Ok(map) = Map::read(block) else { return String::new() };
        let parts = pieces(map.source).unwrap_or_default().into_iter().map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Variable(name) => self.value(name, maps, classes),
        });
        let source = parts.collect::<String>();

        let entry = source.strip_prefix('\u{1}').map(|regex| {
            let is_meant = |(pattern, _): &&(MapPattern<'_>, &str)| matches!(pattern, MapPattern::Regex(text, _) if *text == regex);
            map.entries.iter().find(is_meant).map_or(map.default, |(_, value)| *value)
        });

        let result = entry.unwrap_or_else(|| map.find(&source));
        match result.strip_prefix('$').filter(|name| Map::of(name, maps).is_some()) {
            Some(name) => self.value(name, maps, classes),
            None => result.to_owned(),
        }
    }

    /// Returns the exceptions of a rule, if each exempt request is exempt by one part of it.
    fn exempting(&self, keys: &[(String, Vec<usize>)]) -> Option<Fields> {
        let is_exempt = |at: usize, class: usize| {
            keys.iter().filter(|(_, classes)| classes[at] == class).all(|(key, _)| key.is_empty())
        };
        let is_known = keys.iter().filter(|(key, _)| key.is_empty()).all(|(_, classes)| {
            classes.iter().enumerate().any(|(at, class)| is_exempt(at, *class))
        });
        if !is_known {
            return None;
        }

        let mut fields = Fields::default();
        for (at, source) in self.sources.iter().enumerate() {
            let (exempt, counted): (Vec<_>, Vec<_>) =
                (0..source.classes.len()).partition(|class| is_exempt(at, *class));
            source.except(&exempt, &counted, &mut fields)?;
        }
        Some(fields)
    }

    /// Returns the condition of the only requests that are counted, if one part of them tells.
    fn limiting(&self, keys: &[(String, Vec<usize>)]) -> Option<Fields> {
        let [source] = &self.sources[..] else { return None };
        let is_counted = |class: &usize| {
            keys.iter().any(|(key, classes)| classes[0] == *class && !key.is_empty())
        };
        let (counted, exempt): (Vec<_>, Vec<_>) =
            (0..source.classes.len()).partition(|class| is_counted(class));

        let mut fields = Fields::default();
        let mut found = Fields::default();
        source.except(&counted, &exempt, &mut found)?;
        for (key, value) in found.0 {
            match (key.as_str(), value) {
                ("header", Value::Object(all)) => {
                    for (name, pattern) in all {
                        fields.set(&format!("header:{name}"), pattern);
                    }
                }
                (_, value) => fields.set(&key, value),
            }
        }
        (!fields.is_empty()).then_some(fields)
    }
}

impl<'a> Source<'a> {
    /// Adds the requests of some classes, but not of others. Returns `None` if it cannot tell.
    fn except(&self, meant: &[usize], others: &[usize], fields: &mut Fields) -> Option<()> {
        if meant.is_empty() {
            return Some(());
        }
        let requests = |classes: &[usize]| -> Option<Vec<Requests<'a>>> {
            classes.iter().map(|class| self.classes.get(*class)?.is.clone()).collect()
        };
        // The class of all other requests has no condition.
        let meant = requests(meant)?;
        let others: Vec<_> =
            others.iter().filter_map(|class| self.classes.get(*class)?.is.clone()).collect();
        let mut networks = Vec::new();
        let mut methods = Vec::new();
        let mut patterns = Vec::new();
        for one in &meant {
            match one {
                Requests::Network(network) => networks.push(*network),
                Requests::Method(method) => methods.push(method.clone()),
                Requests::Field(pattern) => patterns.push(*pattern),
            }
        }
        // A counted network within an exempt one cannot be written, and neither can an entry that
        // comes before another one.
        let is_hidden = others.iter().any(|other| match other {
            Requests::Network(inner) => networks.iter().any(|outer: &IpNet| outer.contains(inner)),
            Requests::Method(_) => false,
            Requests::Field(MapPattern::Text(text)) => patterns.iter().any(|one| one.fits(text)),
            Requests::Field(MapPattern::Regex(..)) => {
                patterns.iter().any(|one| matches!(one, MapPattern::Regex(..)))
            }
        });
        if is_hidden || patterns.iter().any(|pattern| pattern.fits("")) {
            return None;
        }

        if !networks.is_empty() {
            fields.set("client_ip", listed(&networks));
        }

        if !methods.is_empty() {
            fields.set("method", json!(methods));
        }

        if !patterns.is_empty() {
            let name = self.name.strip_prefix("http_")?.replace('_', "-").to_ascii_lowercase();
            let all: Vec<_> = patterns.iter().map(|pattern| pattern.whole()).collect();
            let mut header = match fields.0.get("header") {
                Some(Value::Object(known)) => Fields(known.clone()),
                _ => Fields::default(),
            };
            header.set(&name, json!({ "regex": all.join("|") }));
            fields.set("header", header);
        }
        Some(())
    }
}

/// Returns the networks of a `geo` as classes.
fn networks(geo: &Directive) -> Result<Source<'_>, String> {
    let is_by_address =
        geo.args.len() == 1 || matches!(geo.arg(0), "$remote_addr" | "$realip_remote_addr");
    let all = networks_of(geo).filter(|_| is_by_address).ok_or("the geo has more than networks")?;
    let name = geo.args.last().and_then(|name| name.strip_prefix('$')).unwrap_or_default();

    let usual = all.iter().find(|(network, _)| network.is_none()).map_or("", |(_, value)| value);

    let mut classes = vec![Class { sample: usual.to_owned(), is: None }];
    classes.extend(all.iter().filter_map(|(network, value)| {
        Some(Class { sample: (*value).to_owned(), is: Some(Requests::Network((*network)?)) })
    }));
    Ok(Source { name, classes })
}
