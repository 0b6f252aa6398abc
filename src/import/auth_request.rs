//! `auth_request`: the service that decides about the requests of a location.

use super::{
    converted_config::Fields,
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

/// Fields that flowgate does not send to the service, or whose values it writes itself.
const WRITTEN: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-uri",
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
        let server = self.scope.0.iter().copied().find(|block| block.name == "server");
        let uri = directive.arg(0);
        let is_asked = |location: &&Directive| {
            let is_plain = location.args.len() == 1 || matches!(location.arg(0), "=" | "^~");
            is_plain && location.args.last().is_some_and(|path| path == uri)
        };
        let found = server.into_iter().flat_map(|server| server.all("location")).find(is_asked);
        let location = found.ok_or("no location has exactly the path that is asked for")?;
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
            let is_used = self
                .scope
                .all(&["proxy_set_header"])
                .iter()
                .any(|header| header.arg(1) == set.arg(0));
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
            let is_written = WRITTEN.contains(&name.as_str());
            let is_clients = header.arg(1) == format!("$http_{}", name.replace('-', "_"));
            if is_written || is_clients {
                continue;
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

fn has_own(location: &Directive, name: &str) -> bool {
    location.all(name).next().is_some()
}
