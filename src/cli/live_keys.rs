//! `flowgate keys`, `reset` and `grant`: they ask a running gateway through its admin listener.

use super::{Format, GrantOptions, KeysOptions, ResetOptions};
use crate::{
    admin::{BanView, GrantView, KeysView, RejectedKeysView, RuleKeys},
    admin_client::{AdminClient, AdminOptions, ClientError, run},
    counted::counted,
    route::{fingerprint_hint, key_words},
    terminal_text::{terminal_json, terminal_text},
};
use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
    path::Path,
};

/// Why a command ended without success.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The words of the command do not say which key.
    #[error("{0}")]
    Words(&'static str),
    /// The gateway is not reached, or does not do it, and says why.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The answer to a reset or a grant.
#[derive(Debug, Deserialize)]
struct Done {
    summary: String,
}

/// Writes the fullest and the most rejected keys of rules to `out`.
///
/// # Errors
///
/// See [`KeysError`].
pub fn keys(config: &Path, options: &KeysOptions, out: &mut impl Write) -> Result<(), KeysError> {
    let mut query = query(&[("top", &options.top.to_string())]);
    let KeysOptions { route, rule, budget, .. } = options;
    let fields = [("route", route), ("rule", rule), ("budget", budget)];
    for (name, value) in fields {
        if let Some(value) = value {
            _ = write!(query, "&{name}={}", encoded(value));
        }
    }

    let client = AdminClient::find(config, &options.admin)?;
    let text = run(client.text(Method::GET, &format!("/keys?{query}"), Bytes::new()))?;
    match options.output {
        Format::Json => {
            let text = String::from_utf8_lossy(&text);
            out.write_all(terminal_json(&text).as_bytes())?;
        }
        Format::Text => {
            let keys: KeysView = serde_json::from_slice(&text).map_err(io::Error::from)?;
            let failure = keys.store_failure.as_deref();
            keys.rules.iter().try_for_each(|rule| write_rule(rule, failure, out))?;
            if keys.rules.iter().any(has_fingerprint) {
                writeln!(out, "{}", fingerprint_hint(keys.shows_keys))?;
            }
        }
    }
    Ok(out.flush()?)
}

/// Gives a key its whole budget again, and writes what that did to `out`.
///
/// # Errors
///
/// See [`KeysError`].
pub fn reset(config: &Path, options: &ResetOptions, out: &mut impl Write) -> Result<(), KeysError> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    let ChangeWords { rule, rest } = ChangeWords::of(options.budget.as_deref(), &words)?;
    let query = match (rest, options.all) {
        ([], true) => rule + "&all",
        ([key], false) => rule + "&" + &query(&[("key", key)]),
        (_, true) => return Err(KeysError::Words("write no key beside `--all`")),
        (_, false) => return Err(KeysError::Words("write one key, or `--all` for every key")),
    };
    change(config, &options.admin, &format!("/keys/reset?{query}"), out)
}

/// Gives a key more than its limit for some time, and writes what that did to `out`.
///
/// # Errors
///
/// See [`KeysError`].
pub fn grant(config: &Path, options: &GrantOptions, out: &mut impl Write) -> Result<(), KeysError> {
    let GrantOptions { words, budget, time, admin } = options;
    let time = humantime::format_duration(*time).to_string();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ChangeWords { rule, rest } = ChangeWords::of(budget.as_deref(), &words)?;
    let [key, count] = rest else {
        return Err(KeysError::Words("write one key, and the count that it gets"));
    };
    let wanted = query(&[("key", key), ("count", count), ("for", &time)]);
    let query = rule + "&" + &wanted;
    change(config, admin, &format!("/keys/grant?{query}"), out)
}

fn change(
    config: &Path,
    admin: &AdminOptions,
    path: &str,
    out: &mut impl Write,
) -> Result<(), KeysError> {
    let client = AdminClient::find(config, admin)?;
    let done: Done = run(client.ask(Method::POST, path, Bytes::new()))?;
    writeln!(out, "{}", terminal_text(&done.summary))?;
    Ok(out.flush()?)
}

/// The words of a command that changes a key.
struct ChangeWords<'w> {
    /// The part of the query that names the rule.
    rule: String,
    /// The words after it.
    rest: &'w [&'w str],
}

impl<'w> ChangeWords<'w> {
    fn of(budget: Option<&str>, words: &'w [&'w str]) -> Result<Self, KeysError> {
        match (budget, words) {
            (Some(name), rest) => Ok(Self { rule: query(&[("budget", name)]), rest }),
            (None, [route, rule, rest @ ..]) => {
                Ok(Self { rule: query(&[("route", route), ("rule", rule)]), rest })
            }
            (None, _) => Err(KeysError::Words("write the route and the rule, or `--budget NAME`")),
        }
    }
}

fn query(fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// Returns a value as a query has it.
fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(byte.into());
            }
            // Writing to a String cannot fail.
            _ => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

/// Returns whether a key is shown by its fingerprint.
fn has_fingerprint(rule: &RuleKeys) -> bool {
    rule.fullest.iter().any(|key| key.name.is_none())
        || rule.rejected.keys.iter().any(|key| key.name.is_none())
        || rule.grants.iter().any(|grant| grant.name.is_none() && grant.fingerprint.is_some())
        || rule.bans.keys.iter().any(|ban| ban.name.is_none() && ban.fingerprint.is_some())
}

fn write_rule(
    rule: &RuleKeys,
    store_failure: Option<&str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let RuleKeys { rule: name, algorithm, limit, live, .. } = rule;
    let owner = match (&rule.route, &rule.budget) {
        (Some(route), _) => format!("{route}/{name}"),
        (None, Some(budget)) if budget.contains(' ') => budget.clone(),
        (None, Some(budget)) => format!("budget {budget}"),
        (None, None) => name.clone(),
    };
    let when =
        rule.when.as_ref().map_or_else(String::new, |when| format!(" ({})", terminal_text(when)));
    let dry_run = if rule.dry_run { " in dry run" } else { "" };
    write!(out, "{owner}{when}  {algorithm}{dry_run}, limit {limit}")?;
    if let Some(key) = &rule.key {
        write!(out, " for each {}", key_words(key))?;
    }
    match (rule.in_store, rule.used, live) {
        (true, _, _) => {
            write!(out, ", counted by the store")?;
            if let Some(failure) = store_failure {
                write!(out, ", which is {failure}; `on_store_error` decides")?;
            }
            writeln!(out)?;
        }
        (false, Some(used), _) => writeln!(out, ", {used} used{}", debt_words(rule.debt))?,
        (false, None, Some(live)) => writeln!(out, ", {}", counted(*live, "live key"))?,
        (false, None, None) => writeln!(out)?,
    }

    for key in &rule.fullest {
        let name = shown(key.name.as_deref(), Some(&key.fingerprint));
        let of = if key.limit > 0 { key.limit } else { *limit };
        let debt = debt_words(key.debt);
        writeln!(out, "  used {:>12} of {of}{debt}  {name}", key.used)?;
    }
    for key in &rule.rejected.keys {
        let name = shown(key.name.as_deref(), Some(&key.fingerprint));
        let RejectedKeysView { total, seconds, .. } = rule.rejected;
        let error = if key.error > 0 {
            format!(" (at most {} too many)", key.error)
        } else {
            String::new()
        };
        let rejected = key.rejected;
        let verb = if rule.dry_run { "would reject" } else { "rejected" };
        writeln!(out, "  {verb} {rejected:>8}{error} of {total} in {seconds} s  {name}")?;
    }
    for grant in &rule.grants {
        let name = shown(grant.name.as_deref(), grant.fingerprint.as_deref());
        let GrantView { left, count, seconds, .. } = grant;
        writeln!(out, "  granted {left:>9} left of {count} for {seconds} s  {name}")?;
    }
    for ban in &rule.bans.keys {
        let name = shown(ban.name.as_deref(), ban.fingerprint.as_deref());
        let BanView { seconds, .. } = ban;
        writeln!(out, "  banned  for {seconds} s, one of {}  {name}", rule.bans.total)?;
    }
    Ok(())
}

fn debt_words(debt: u64) -> String {
    if debt > 0 { format!(", debt {debt}") } else { String::new() }
}

fn shown<'a>(name: Option<&'a str>, fingerprint: Option<&'a str>) -> Cow<'a, str> {
    terminal_text(name.or(fingerprint).unwrap_or("all"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_for_a_query() {
        assert_eq!(
            query(&[("a", "x y"), ("b", "2001:db8::/64&ä")]),
            "a=x%20y&b=2001%3Adb8%3A%3A%2F64%26%C3%A4"
        );
    }
}
