//! Who may use a location: `allow` and `deny`, and passwords.

use super::{
    converted_config::Fields,
    guards::is_guarded,
    networks::{listed, network},
    report::ImportReport,
    scope::Scope,
    tree::Directive,
};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::{fs, path::Path};

/// The keys `access` and `auth` of a route.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub fields: Fields,
    /// No client may use the location.
    pub denies_all: bool,
}

/// The realm for which flowgate asks passwords, on every route.
const REALM: &str = "restricted";

#[derive(Debug, PartialEq, Eq)]
enum Who {
    All,
    Net(IpNet),
}

/// Returns which clients may use a location. Relative names are meant from `folder`.
pub(super) fn access(scope: &Scope<'_>, folder: &Path, report: &mut ImportReport) -> Access {
    let mut access = addresses(scope, report);
    let is_closed = passwords(scope, folder, &mut access.fields, report).is_none();
    if is_closed || is_guarded(scope, report) {
        access.fields.set("access", no_client());
        drop(access.fields.0.remove("auth"));
    }
    access
}

/// Returns the key `access` of a route that no client may use.
pub(super) fn no_client() -> Value {
    json!({ "deny": ["0.0.0.0/0", "::/0"] })
}

fn addresses(scope: &Scope<'_>, report: &mut ImportReport) -> Access {
    let mut allow: Vec<IpNet> = Vec::new();
    let mut deny: Vec<IpNet> = Vec::new();
    let mut rest = None;
    for directive in scope.all(&["allow", "deny"]) {
        let is_allowed = directive.name == "allow";
        if rest.is_some() {
            // Nothing comes to it.
            report.take(directive);
            continue;
        }
        match who(directive.arg(0)) {
            Some(Who::All) => rest = Some(is_allowed),
            Some(Who::Net(network)) if is_allowed => allow.push(network),
            Some(Who::Net(network)) => {
                let meets = |other: &IpNet| other.contains(&network) || network.contains(other);
                if allow.iter().any(meets) {
                    report.note(directive, "`deny` wins here, and in nginx the `allow` before it");
                }
                deny.push(network);
            }
            None => {
                report.note(directive, "it is neither an address nor a network");
                continue;
            }
        }
        report.take(directive);
    }
    let mut fields = Fields::default();
    let denies_all = rest == Some(false) && allow.is_empty();
    if denies_all {
        fields.set("deny", json!(["0.0.0.0/0", "::/0"]));
    } else {
        if rest == Some(false) {
            fields.set("allow", listed(&allow));
        }
        if !deny.is_empty() {
            fields.set("deny", listed(&deny));
        }
    }
    let mut access = Access { denies_all, ..Access::default() };
    if !fields.is_empty() {
        access.fields.set("access", fields);
    }
    access
}

fn who(text: &str) -> Option<Who> {
    if text == "all" { Some(Who::All) } else { network(text).map(Who::Net) }
}

/// Adds the users of a location, or returns `None` if passwords are needed that cannot be checked.
fn passwords(
    scope: &Scope<'_>,
    folder: &Path,
    fields: &mut Fields,
    report: &mut ImportReport,
) -> Option<()> {
    let realm = scope.take("auth_basic", report).filter(|realm| realm.arg(0) != "off");
    let Some(realm) = realm else { return Some(()) };
    let Some(file) = scope.find("auth_basic_user_file") else {
        report.note(realm, "it has no file of users. The route is closed");
        return None;
    };
    match users(file, folder) {
        Ok(path) => {
            report.take(file);
            if realm.arg(0) != REALM {
                report.note(realm, format!("the realm is `{REALM}` here"));
            }
            fields.set("auth", json!({ "basic": path }));
            Some(())
        }
        Err(why) => {
            report.note(file, format!("{why}. The route is closed"));
            None
        }
    }
}

/// Returns the path of a file whose passwords flowgate can check.
fn users(file: &Directive, folder: &Path) -> Result<String, String> {
    let path = folder.join(file.arg(0));
    let text = fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let is_bcrypt = |line: &str| {
        let hash = line.split(':').nth(1).unwrap_or_default();
        ["$2y$", "$2a$", "$2b$"].iter().any(|kind| hash.starts_with(kind))
    };
    if !lines.all(is_bcrypt) {
        return Err("only hashes of bcrypt are checked, as `htpasswd -B` makes them".into());
    }
    Ok(path.display().to_string())
}
