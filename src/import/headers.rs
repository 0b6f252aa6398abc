//! Header fields that nginx sets, hides and adds.

use super::{
    auth_request::{asked, said},
    converted_config::Fields,
    maps::Map,
    report::ImportReport,
    template::{ServerVariables, template},
    tree::{Directive, Scope},
};
use serde_json::{Value, json};

/// Fields that flowgate writes itself.
const OWN: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const ANY_PROTOCOL: &str = "here and elsewhere, nginx passes upgrades to every protocol, the result only to WebSocket: write others, such as `tcp`, in `upgrades`";

/// Changes to header fields, as `request_headers` and `response_headers` have them.
#[derive(Debug, Default)]
struct Edits {
    set: Fields,
    remove: Vec<Value>,
}

impl Edits {
    fn write(self, key: &str, fields: &mut Fields) {
        let mut edits = Fields::default();
        if !self.set.is_empty() {
            edits.set("set", self.set);
        }
        if !self.remove.is_empty() {
            edits.set("remove", self.remove);
        }
        if !edits.is_empty() {
            fields.set(key, edits);
        }
    }

    fn set(
        &mut self,
        name: &str,
        value: &str,
        variables: &ServerVariables<'_>,
    ) -> Result<(), String> {
        if !is_field(name) {
            return Err("this is not a field that a route may change".into());
        }
        self.set.set(&name.to_ascii_lowercase(), value_of(value, variables)?);
        Ok(())
    }

    /// Adds the value of an `add_header`. `earlier` is another one of the same name, if there is one.
    fn add(
        &mut self,
        directive: &Directive,
        earlier: Option<&Directive>,
        variables: &ServerVariables<'_>,
        report: &mut ImportReport,
    ) -> Result<(), String> {
        let name = directive.arg(0).to_ascii_lowercase();
        let known = self.set.0.get(&name).and_then(Value::as_str).map(str::to_owned);
        let (Some(earlier), Some(known)) = (earlier, known) else {
            return self.set(&name, directive.arg(1), variables);
        };

        let value = value_of(directive.arg(1), variables)?;
        // Cookies are the one field whose lines are no list.
        if name == "set-cookie" {
            report.note(earlier, "a route sets one cookie: this one is lost, the last one is set");
            self.set.set(&name, value);
        } else if !value.is_empty() {
            let why = "one line of the field has all values, separated by commas";
            report.note(directive, why);
            self.set.set(&name, format!("{known}, {value}"));
        }
        Ok(())
    }
}

/// Returns the value of a field with placeholders.
fn value_of(text: &str, variables: &ServerVariables<'_>) -> Result<String, String> {
    let value = template(text, variables)?;
    if !value.chars().all(|sign| sign == ' ' || sign.is_ascii_graphic()) {
        return Err("the value has signs that no field has".into());
    }
    Ok(value)
}

/// The `Host` that an upstream receives, and whether upgrades pass to it.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// The `Host`; `None` is the client's.
    pub host: Option<String>,
    pub upgrades: bool,
}

/// The receiver of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver<'a, 's> {
    /// The `Host` without a change.
    pub usual: &'s str,
    /// The beginning of the directives' names: `proxy` or `grpc`.
    pub module: &'s str,
    /// The `map` and `geo` blocks.
    pub maps: &'s [&'a Directive],
}

impl Receiver<'_, '_> {
    /// Reports whether a value is a variable that a `map` makes of another one.
    fn is_mapped(&self, value: &str, source: &str) -> bool {
        let map = value.strip_prefix('$').and_then(|name| Map::of(name, self.maps));
        map.is_some_and(|map| map.name == "map" && map.arg(0) == source)
    }
}

/// Adds the changes to what the upstream receives.
pub(super) fn to_upstream(
    scope: &Scope<'_>,
    receiver: Receiver<'_, '_>,
    variables: &ServerVariables<'_>,
    fields: &mut Fields,
    report: &mut ImportReport,
) -> Passed {
    let mut passed = Passed { host: Some(receiver.usual.into()), upgrades: false };
    let mut edits = Edits::default();

    for directive in scope.all(&[&format!("{}_set_header", receiver.module)]) {
        let name = directive.arg(0).to_ascii_lowercase();
        let value = directive.arg(1);
        report.take(directive);
        match (name.as_str(), value) {
            ("host", _) => host(directive, variables, &mut passed, report),
            ("upgrade", "$http_upgrade") => {
                passed.upgrades = true;
                report.note_once(directive, ANY_PROTOCOL);
            }
            // What flowgate writes by itself.
            ("content-length", "")
            | ("connection", "" | "upgrade" | "Upgrade" | "$connection_upgrade" | "keep-alive")
            | ("x-forwarded-proto", "$scheme")
            | ("x-forwarded-host", "$http_host") => {}
            ("connection", value) if receiver.is_mapped(value, "$http_upgrade") => {}
            ("x-forwarded-proto", value)
                if receiver.is_mapped(value, "$http_x_forwarded_proto")
                    || value == "$http_x_forwarded_proto" =>
            {
                report.note(directive, "flowgate passes the field of `trusted_proxies` alone");
            }
            ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$http_x_forwarded_for") => report.note(
                directive,
                "flowgate appends the address of the peer if that is one of the `trusted_proxies`, and \
                 replaces the field of all other peers with it; nginx appends the client's address",
            ),
            // Clients send no early data here, so nginx would send none of these fields.
            (_, "" | "$ssl_early_data") if is_field(&name) => edits.remove.push(json!(name)),
            (_, value) if is_own(&name, value) => {}
            _ => match said(scope, value) {
                // A location that asks no service has nothing to put there, and nginx sends nothing.
                Some(field) if is_field(&name) && is_field(&field) => {
                    if asked(scope).is_none() {
                        edits.remove.push(json!(name));
                    }
                }
                // nginx leaves a field without a value out.
                Some(_) | None if is_field(&name) && template(value, variables).as_deref() == Ok("") => {
                    edits.remove.push(json!(name));
                }
                Some(_) | None => {
                    if let Err(why) = edits.set(&name, value, variables) {
                        report.note(directive, why);
                        // In nginx a client cannot choose it.
                        if is_field(&name) {
                            edits.remove.push(json!(name));
                        }
                    }
                }
            },
        }
    }

    edits.write("request_headers", fields);
    passed
}

/// Reports whether a value is that of the client's field of the same name, which passes anyway.
fn is_own(name: &str, value: &str) -> bool {
    value.strip_prefix("$http_").is_some_and(|field| field == name.replace('-', "_"))
}

fn host(
    directive: &Directive,
    variables: &ServerVariables<'_>,
    passed: &mut Passed,
    report: &mut ImportReport,
) {
    match directive.arg(1) {
        "$http_host" => passed.host = None,
        "$proxy_host" => {}
        "$host" => {
            passed.host = None;
            if !matches!(variables.port, Some(80 | 443)) {
                report.note(directive, "the upstream also receives the port that the client wrote");
            }
        }
        other => match template(other, variables) {
            Ok(host) if !host.contains('{') && !matches!(host.as_str(), "" | "_") => {
                passed.host = Some(host);
            }
            _ => {
                passed.host = None;
                report.note(directive, "`rewrite` cannot write this host");
            }
        },
    }
}

/// Adds the changes to what the client receives.
pub(super) fn to_client(
    scope: &Scope<'_>,
    variables: &ServerVariables<'_>,
    fields: &mut Fields,
    report: &mut ImportReport,
) {
    let mut edits = Edits::default();
    for directive in scope.all(&["proxy_hide_header"]) {
        report.take(directive);
        if is_field(directive.arg(0)) {
            edits.remove.push(json!(directive.arg(0).to_ascii_lowercase()));
        } else {
            report.note(directive, "flowgate writes this field itself");
        }
    }

    let mut written: Vec<&Directive> = Vec::new();
    for directive in scope.all(&["add_header"]) {
        report.take(directive);
        // flowgate passes the cookies of an auth service on.
        if said(scope, directive.arg(1)).is_some_and(|field| field == "set-cookie") {
            continue;
        }
        let is_same = |other: &&&Directive| other.arg(0).eq_ignore_ascii_case(directive.arg(0));
        let earlier = written.iter().rfind(is_same).copied();
        if let Err(why) = edits.add(directive, earlier, variables, report) {
            let is_origin = directive.arg(0).eq_ignore_ascii_case("access-control-allow-origin");
            let help = if is_origin { ": name the origins in `cors` of the route" } else { "" };
            report.note(directive, format!("{why}{help}"));
            continue;
        }
        if directive.arg(2) != "always" {
            report.note(directive, "errors get the field too, as with `always`");
        }
        written.push(directive);
    }

    edits.write("response_headers", fields);
}

pub(super) fn is_field(name: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "-_".contains(sign);
    let name = name.to_ascii_lowercase();
    !name.is_empty()
        && name.chars().all(is_sign)
        && !OWN.contains(&name.as_str())
        && name != "proxy-connection"
}
