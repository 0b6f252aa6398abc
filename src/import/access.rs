//! Who may use a location: `allow` and `deny`, and passwords.

use super::{
    converted_config::Fields,
    files::Files,
    guards::{Closing, guarding},
    networks::{listed, network},
    real_ip,
    report::ImportReport,
    scope::Scope,
    tree::Directive,
};
use ipnet::IpNet;
use serde_json::json;
use std::fs;

/// The keys `access` and `auth` of a route.
#[derive(Debug, Default)]
pub(super) struct Access<'a> {
    pub fields: Fields,
    /// No client may use the location.
    pub denies_all: bool,
    /// What else keeps clients out, and does not convert.
    pub closings: Vec<Closing<'a>>,
}

/// The realm for which flowgate asks passwords, on every route.
const REALM: &str = "restricted";

#[derive(Debug, PartialEq, Eq)]
enum Who {
    All,
    Net(IpNet),
}

/// Returns which clients may use a location.
pub(super) fn access<'a>(
    scope: &Scope<'a>,
    files: &Files,
    report: &mut ImportReport,
) -> Access<'a> {
    let mut access = addresses(scope, report);
    let closing = passwords(scope, files, &mut access.fields, report);
    access.closings.extend(closing);
    access.closings.extend(guarding(scope, report));
    if access.fields.0.contains_key("access")
        && !access.denies_all
        && let Some(why) = real_ip::lost(scope)
        && let Some(directive) = scope.all(&["allow", "deny"]).last()
    {
        access.closings.push(Closing { directive, why: why.to_owned() });
    }
    access
}

fn addresses<'a>(scope: &Scope<'a>, report: &mut ImportReport) -> Access<'a> {
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

/// Adds the users of a location, or returns why their passwords cannot be checked.
fn passwords<'a>(
    scope: &Scope<'a>,
    files: &Files,
    fields: &mut Fields,
    report: &mut ImportReport,
) -> Option<Closing<'a>> {
    let realm = scope.take("auth_basic", report).filter(|realm| realm.arg(0) != "off")?;
    let Some(file) = scope.find("auth_basic_user_file") else {
        let why = "it has no file of users".to_owned();
        return Some(Closing { directive: realm, why });
    };
    report.take(file);
    match users(file, files) {
        Ok(path) => {
            if realm.arg(0) != REALM {
                report.note(realm, format!("the realm is `{REALM}` here"));
            }
            fields.set("auth", json!({ "basic": path }));
            None
        }
        Err(why) => Some(Closing { directive: file, why }),
    }
}

/// Returns the path of a file whose passwords flowgate can check.
fn users(file: &Directive, files: &Files) -> Result<String, String> {
    if file.arg(0).contains('$') {
        return Err("its name has a variable".into());
    }
    let path = files.here(file.arg(0));
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
    Ok(files.named(file.arg(0)))
}
