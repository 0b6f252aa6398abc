//! `auth_request`: the service that decides about the requests of a location.

use super::{
    converted_config::{ConvertedConfig, Fields},
    files::Files,
    headers::is_field,
    numbers::{spelled, time},
    proxied::{Address, Uri},
    report::ImportReport,
    template::{ServerVariables, template},
    tree::{Directive, Scope},
    upstreams::Upstreams,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Directives of a location that is asked which change nothing that the service decides by.
const HARMLESS: [&str; 12] = [
    "access_log",
    "auth_request",
    "client_max_body_size",
    "internal",
    "log_subrequest",
    "proxy_connect_timeout",
    "proxy_http_version",
    "proxy_pass",
    "proxy_pass_request_body",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "proxy_set_header",
];

/// Reports whether flowgate itself sends the service a field as this directive does, or leaves it out.
fn is_written(name: &str, value: &str) -> bool {
    match name {
        "connection" | "upgrade" => true,
        "content-length" | "content-type" => value.is_empty(),
        // The service's own host, which its server may choose the site by.
        "host" => matches!(value, "$proxy_host" | "$host" | "$http_host"),
        "x-forwarded-for" => {
            matches!(value, "$proxy_add_x_forwarded_for" | "$remote_addr" | "$http_x_forwarded_for")
        }
        "x-forwarded-host" => matches!(value, "$host" | "$http_host"),
        "x-forwarded-proto" => value == "$scheme",
        "x-forwarded-method" => value == "$request_method",
        "x-forwarded-uri" => value == "$request_uri",
        _ => false,
    }
}

/// Fields that `set` cannot write, or that say where a request comes from.
const OWN: [&str; 6] = [
    "content-length",
    "content-type",
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// A location with the parts of the configuration that its service needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a, 's> {
    pub scope: &'s Scope<'a>,
    pub variables: &'s ServerVariables<'a>,
    pub files: &'s Files,
    pub route: &'s str,
}

/// Returns the directive that names the service, if there is one.
pub(super) fn asked<'a>(scope: &Scope<'a>) -> Option<&'a Directive> {
    scope.find("auth_request").filter(|directive| directive.arg(0) != "off")
}

/// Returns the field of the service's response that is the value of a variable, in lower case.
pub(super) fn said(scope: &Scope<'_>, value: &str) -> Option<String> {
    let all = scope.0.iter().flat_map(|block| block.all("auth_request_set"));
    let set = all.filter(|directive| directive.arg(0) == value).last()?;
    let field = set.arg(1).strip_prefix("$upstream_http_")?;
    Some(field.to_ascii_lowercase().replace('_', "-"))
}

impl<'a> Asking<'a, '_> {
    /// Returns the service as `auth: { forward }` has it.
    ///
    /// # Errors
    /// It would decide by something else than in nginx; the text says why.
    pub(super) fn forward(
        &self,
        directive: &Directive,
        upstreams: &mut Upstreams<'_>,
        report: &mut ImportReport,
    ) -> Result<Fields, String> {
        report.take(directive);
        if self.scope.find("satisfy").is_some_and(|satisfy| satisfy.arg(0) == "any") {
            return Err("with `satisfy any`, one of several proofs is enough".into());
        }
        let location = self.location(directive)?;
        let blocks: Vec<_> = self.scope.0.iter().take(2).copied().collect();
        let asked = Scope(blocks).within(location);
        let pass = asked.find("proxy_pass").filter(|_| has_own(location, "proxy_pass"));
        let pass = pass.ok_or("the location that is asked has no `proxy_pass`")?;

        if pass.arg(0).contains('$') {
            return Err("the address that is asked has a variable".into());
        }
        let address = Address::read(pass, &BTreeMap::new())?;
        let path = match &address.uri {
            Uri::Same => directive.arg(0),
            Uri::Path(path) => path,
            Uri::Whole { .. } | Uri::Groups { .. } => return Err("its path is not clear".into()),
        };
        let upstream = upstreams.name(address.target()?, &asked, self.files, report)?;

        let mut forward = Fields::default();
        forward.set("upstream", upstream);
        forward.set("path", path);
        let copy = self.copied(report);
        if !copy.is_empty() {
            forward.set("copy", copy);
        }
        let set = self.set(&asked)?;
        if !set.is_empty() {
            forward.set("set", set);
        }
        let timeout = asked.find("proxy_read_timeout").and_then(|limit| time(limit.arg(0)));
        if let Some(limit) = timeout {
            forward.set("timeout", json!(spelled(limit)));
        }

        for inner in location.inner() {
            report.take(inner);
        }
        self.note_pages(report);
        Ok(forward)
    }

    /// Returns the location that is asked.
    fn location(&self, directive: &Directive) -> Result<&'a Directive, String> {
        let location = location_at(self.scope, directive.arg(0))?;
        let other = location.inner().iter().find(|inner| !HARMLESS.contains(&inner.name.as_str()));
        match other {
            None => Ok(location),
            Some(other) => Err(format!("`{}` of the location that is asked", other.name)),
        }
    }

    /// Returns the fields of the service that the upstream receives.
    fn copied(&self, report: &mut ImportReport) -> Vec<Value> {
        let blocks = self.scope.0.iter();
        let mut names = Vec::new();
        for set in blocks.flat_map(|block| block.all("auth_request_set")) {
            report.take(set);
            let Some(name) = said(self.scope, set.arg(0)) else { continue };
            let headers =
                ["proxy_set_header", "grpc_set_header"].map(|name| self.scope.all(&[name]));
            let is_used = headers.concat().iter().any(|header| header.arg(1) == set.arg(0));
            if is_used && is_field(&name) && !names.contains(&json!(name)) {
                names.push(json!(name));
            }
        }
        names
    }

    /// Returns the fields that the service receives besides what flowgate sends.
    fn set(&self, asked: &Scope<'_>) -> Result<Fields, String> {
        let mut set = Fields::default();
        for header in asked.all(&["proxy_set_header"]) {
            let name = header.arg(0).to_ascii_lowercase();
            let is_clients = header.arg(1) == format!("$http_{}", name.replace('-', "_"));
            if is_written(&name, header.arg(1)) || (is_clients && !name.starts_with("x-")) {
                continue;
            }
            if OWN.contains(&name.as_str()) {
                return Err(format!("the service gets another `{name}` than from flowgate"));
            }
            if header.arg(1).is_empty() {
                return Err(format!("the service does not get the client's `{name}`"));
            }
            let value = template(header.arg(1), self.variables)
                .map_err(|why| format!("the service gets `{name}`, and {why}"))?;
            set.set(&name, value);
        }
        Ok(set)
    }

    /// Notes pages in place of a rejection of the service: flowgate passes its response on.
    fn note_pages(&self, report: &mut ImportReport) {
        let is_of_service = |page: &&&Directive| page.args.iter().any(|arg| arg == "401");
        if let Some(page) = self.scope.all(&["error_page"]).iter().find(is_of_service) {
            report.block(
                page,
                "clients get the 401 of the auth service as it is: ask the service at a path where it \
                 redirects to its login page by itself, as oauth2-proxy does at `/`",
                Some(self.route),
            );
        }
    }
}

/// Has the rules of routes with a service decide before it is asked, as limits of nginx do. Rules
/// that hold requests back, and those of budgets, cannot.
pub(super) fn limit_first(config: &mut ConvertedConfig) {
    let asking = config
        .routes
        .iter_mut()
        .map(|item| &mut item.fields.0)
        .filter(|fields| fields.get("auth").is_some_and(|auth| auth.get("forward").is_some()));
    let rules = asking.filter_map(|fields| fields.get_mut("flow")?.as_array_mut()).flatten();
    for rule in rules.filter_map(Value::as_object_mut) {
        if !rule.contains_key("budget") && !rule.contains_key("max_wait") {
            drop(rule.insert("before_auth".to_owned(), json!(true)));
        }
    }
}

/// Returns the location of the server in `scope` that nginx finds for a path of the configuration.
///
/// # Errors
/// None has exactly that path.
pub(super) fn location_at<'a>(scope: &Scope<'a>, uri: &str) -> Result<&'a Directive, String> {
    let server = scope.0.iter().copied().find(|block| block.name == "server");
    let locations: Vec<_> = server.into_iter().flat_map(|server| server.all("location")).collect();
    let of_modifier = |modifier: &str| {
        let is_it = |location: &&&Directive| match location.args.as_slice() {
            [path] => modifier.is_empty() && path == uri,
            [kind, path] => kind == modifier && path == uri,
            _ => false,
        };
        locations.iter().find(is_it).copied()
    };

    // A regular expression comes before a prefix, and an exact path before both.
    let has_regex = locations.iter().any(|location| location.arg(0).starts_with('~'));
    let plain = of_modifier("").filter(|_| !has_regex);
    let found = of_modifier("=").or_else(|| of_modifier("^~")).or(plain);
    found.ok_or_else(|| "no location has exactly the path that is asked for".to_owned())
}

fn has_own(location: &Directive, name: &str) -> bool {
    location.all(name).next().is_some()
}
