//! `auth_request`: the service that decides about the requests of a location.

use super::{
    condition::Question,
    converted_config::{ConvertedConfig, Fields},
    files::Files,
    headers::is_field,
    maps::compiled,
    numbers::{spelled, time},
    program::{State, substituted},
    proxied::{Address, Uri},
    report::ImportReport,
    template::{Piece, ServerVariables, pieces, template},
    tree::{Directive, Scope},
    upstreams::Upstreams,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Directives of a location that is asked which change nothing that the service decides by. Those that
/// end with `*` stand for all with this beginning.
const HARMLESS: [&str; 22] = [
    "access_log",
    "add_header",
    "auth_request",
    "auth_request_set",
    "client_body_buffer_size",
    "client_max_body_size",
    "internal",
    "log_subrequest",
    "proxy_buffer*",
    "proxy_busy_buffers_size",
    "proxy_cache*",
    "proxy_connect_timeout",
    "proxy_http_version",
    "proxy_next_upstream*",
    "proxy_no_cache",
    "proxy_pass",
    "proxy_pass_request_body",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_send_timeout",
    "proxy_set_header",
    "send_timeout",
];

fn is_harmless(name: &str) -> bool {
    HARMLESS.iter().any(|known| match known.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == *known,
    })
}

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
    /// The values of variables.
    pub state: &'s State,
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
        let found = self.location(directive)?;
        let location = &self.state.applied(found);
        let blocks: Vec<_> = self.scope.0.iter().take(2).copied().collect();
        let asked = Scope(blocks).within(location);
        let pass = asked.find("proxy_pass").filter(|_| has_own(location, "proxy_pass"));
        let pass = pass.ok_or("the location that is asked has no `proxy_pass`")?;

        let address = Address::read(pass, &self.state.values)?;
        let path = asked_path(&address, pass, found, directive.arg(0))?;
        let upstream = upstreams.name(address.target()?, &asked, self.files, report)?;

        let mut forward = Fields::default();
        forward.set("upstream", upstream);
        forward.set("path", path.as_str());
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

        found.inner().iter().for_each(|inner| report.take(inner));
        if asked.all(&["proxy_cache"]).iter().any(|cache| cache.arg(0) != "off") {
            report.note(directive, "nothing is cached: each request asks the service");
        }
        self.login(&mut forward, report);
        Ok(forward)
    }

    /// Returns the location that is asked.
    fn location(&self, directive: &Directive) -> Result<&'a Directive, String> {
        let location = location_at(self.scope, directive.arg(0))?;
        let other = location.inner().iter().find(|inner| !is_harmless(&inner.name));
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
            let uses = headers.concat().into_iter().filter(|header| header.arg(1) == set.arg(0));
            for other in uses.map(|header| header.arg(0).to_ascii_lowercase()) {
                let copied =
                    if other == name { json!(name) } else { json!({ "from": name, "to": other }) };
                if is_field(&name) && is_field(&other) && !names.contains(&copied) {
                    names.push(copied);
                }
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

    /// Adds where clients go in place of a 401 of the service.
    fn login(&self, forward: &mut Fields, report: &mut ImportReport) {
        let is_of_service = |page: &&&Directive| page.args.iter().any(|arg| arg == "401");
        let pages = self.scope.all(&["error_page"]);
        let Some(page) = pages.iter().find(is_of_service) else { return };
        report.take(page);

        // Authelia names its login page in a 401 at one path, and redirects to it at another.
        let path = forward.0.get("path").and_then(Value::as_str).unwrap_or_default();
        let redirecting = path
            .strip_suffix("/authz/auth-request")
            .map(|begin| format!("{begin}/authz/forward-auth"));
        let target = page.args.last().map_or("", String::as_str);
        match (self.login_page(target), redirecting) {
            (Ok(login), _) => {
                forward.set("login", login);
                if let Some(named) = self.named(target) {
                    report.take_all(named);
                }
            }
            (Err(_), Some(path)) if said(self.scope, target).as_deref() == Some("location") => {
                report.note(page, format!("the service is asked at {path}, where it redirects to its login page"));
                forward.set("path", path);
            }
            (Err(why), _) => report.block(
                page,
                format!("{why}: clients get the 401 of the auth service as it is. Write `login` beside `forward`'s `path`"),
                Some(self.route),
            ),
        }
    }

    /// Returns a named location.
    fn named(&self, name: &str) -> Option<&'a Directive> {
        let server = self.scope.0.iter().copied().find(|block| block.name == "server");
        server?.all("location").find(|location| location.arg(0) == name)
    }

    /// Returns the page to which a 401 leads.
    ///
    /// # Errors
    /// No redirect leads there; the text says why.
    fn login_page(&self, target: &str) -> Result<String, String> {
        if target.starts_with('@') {
            let answer = self.named(target).and_then(|location| location.all("return").next());
            let answer = answer.filter(|answer| answer.arg(0).starts_with("30"));
            let answer = answer.ok_or_else(|| format!("{target} redirects nowhere"))?;
            return self.url(answer.arg(1));
        }
        if target.starts_with('/')
            && location_at(self.scope, target).is_ok_and(|location| has_own(location, "proxy_pass"))
        {
            let separator = if target.contains('?') { '&' } else { '?' };
            return Ok(format!("{target}{separator}rd={{uri}}"));
        }
        if target.starts_with('/') {
            return Err("no location passes its login page on".into());
        }
        self.url(target)
    }

    /// Returns a URL with placeholders, without the parameters that only the service knows.
    fn url(&self, text: &str) -> Result<String, String> {
        let text = substituted(text, &self.state.values);
        let is_known = |part: &&str| {
            let names = pieces(part).unwrap_or_default();
            !names.iter().any(|piece| match piece {
                Piece::Variable(name) => self.is_of_service(name),
                Piece::Text(_) => false,
            })
        };
        let text: Vec<_> = text.split('&').filter(is_known).collect();
        let url = template(&text.join("&"), self.variables)?;
        if !url.starts_with('/') && !url.contains("://") {
            return Err("its login page is no URL".into());
        }

        let Some((page, query)) = url.split_once('?') else { return Ok(url) };
        let query = query.replace("{scheme}://{host}{path}{query}", "{url}");
        Ok(format!("{page}?{}", query.replace("{path}{query}", "{uri}")))
    }

    /// Reports whether a variable has what the service says.
    fn is_of_service(&self, name: &str) -> bool {
        let mut sets = self.scope.0.iter().flat_map(|block| block.all("auth_request_set"));
        sets.any(|set| set.arg(0).strip_prefix('$') == Some(name))
    }
}

/// Returns the path that the service is asked for.
///
/// # Errors
/// It depends on the request.
fn asked_path(
    address: &Address,
    pass: &Directive,
    location: &Directive,
    uri: &str,
) -> Result<String, String> {
    match &address.uri {
        Uri::Same => Ok(uri.to_owned()),
        // With a variable, nginx takes the path as it is.
        Uri::Path(path) if pass.arg(0).contains('$') => Ok(path.clone()),
        Uri::Path(path) => {
            let prefix = location.args.last().map_or("", String::as_str);
            Ok(format!("{path}{}", uri.strip_prefix(prefix).unwrap_or_default()))
        }
        Uri::Whole { target, has_query: false } if !target.contains(['$', '{']) => {
            Ok(target.clone())
        }
        Uri::Whole { .. } | Uri::Groups { .. } => Err("its path is not clear".into()),
    }
}

/// Reports whether an `if` only hands the cookies of the service on, which flowgate does by itself.
pub(super) fn hands_cookies_on(scope: &Scope<'_>, directive: &Directive) -> bool {
    let Ok(question) = Question::read(&directive.args) else { return false };
    let mut sets = scope.0.iter().flat_map(|block| block.all("auth_request_set"));
    let is_of_service = sets.any(|set| set.arg(0).strip_prefix('$') == Some(question.name));
    let is_cookie = |inner: &Directive| match inner.name.as_str() {
        "set" => true,
        "add_header" => inner.arg(0).eq_ignore_ascii_case("set-cookie"),
        _ => false,
    };
    // nginx asks before the service has said anything.
    is_of_service && !question.holds("") && directive.inner().iter().all(is_cookie)
}

/// Has the rules of routes with a service, and the budgets that these use, decide before it is asked, as
/// limits of nginx do. Those that hold requests back cannot.
pub(super) fn limit_first(config: &mut ConvertedConfig) {
    let asking = config
        .routes
        .iter_mut()
        .map(|item| &mut item.fields.0)
        .filter(|fields| fields.get("auth").is_some_and(|auth| auth.get("forward").is_some()));
    let rules = asking.filter_map(|fields| fields.get_mut("flow")?.as_array_mut()).flatten();

    let mut budgets = BTreeSet::new();
    for rule in rules.filter_map(Value::as_object_mut) {
        match rule.get("budget").and_then(Value::as_str) {
            Some(budget) => drop(budgets.insert(budget.to_owned())),
            None => decide_first(rule),
        }
    }

    for budget in config.budgets.iter_mut().filter(|item| budgets.contains(item.text("name"))) {
        decide_first(&mut budget.fields.0);
    }
}

/// Has a rule decide before the service is asked, unless it holds requests back.
fn decide_first(rule: &mut Map<String, Value>) {
    if !rule.contains_key("max_wait") {
        drop(rule.insert("before_auth".to_owned(), json!(true)));
    }
}

/// Returns the location of the server in `scope` that nginx finds for a path of the configuration.
///
/// # Errors
/// None takes that path, or a regular expression may.
pub(super) fn location_at<'a>(scope: &Scope<'a>, uri: &str) -> Result<&'a Directive, String> {
    // Of the file: a server with values in place of variables has no locations.
    let server = scope.0.iter().copied().find(|block| block.name == "server");
    let http = scope.0.iter().copied().find(|block| block.name == "http");
    let mut all = http.into_iter().flat_map(|http| http.all("server"));
    let server = all.find(|known| server.is_some_and(|server| server.id == known.id)).or(server);
    let locations: Vec<_> = server.into_iter().flat_map(|server| server.all("location")).collect();

    let exact = locations.iter().find(|location| location.args == ["=", uri]);
    if let Some(exact) = exact {
        return Ok(exact);
    }

    let prefix = |location: &&&'a Directive| match &location.args[..] {
        [prefix] if !prefix.starts_with(['@', '~']) && uri.starts_with(prefix.as_str()) => {
            prefix.len()
        }
        [sign, prefix] if sign == "^~" && uri.starts_with(prefix.as_str()) => prefix.len(),
        _ => 0,
    };
    let longest = locations.iter().filter(|location| prefix(location) > 0).max_by_key(prefix);
    let takes = |location: &&&Directive| match &location.args[..] {
        [sign, text] if sign == "~" || sign == "~*" => {
            compiled(text, sign == "~*").is_ok_and(|regex| !regex.is_match(uri.as_bytes()))
        }
        _ => true,
    };
    if longest.is_none_or(|longest| longest.arg(0) != "^~")
        && !locations.iter().all(|location| takes(&location))
    {
        return Err("a location with a regular expression takes the path that is asked for".into());
    }
    longest.copied().ok_or_else(|| "no location takes the path that is asked for".to_owned())
}

fn has_own(location: &Directive, name: &str) -> bool {
    location.all(name).next().is_some()
}
