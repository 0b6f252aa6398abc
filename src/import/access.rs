//! The clients that may use a location: `allow` and `deny`, passwords, and the proxies that name clients.
//!
//! A directive that keeps clients out and has no counterpart closes the route.

use super::{
    converted_config::Fields,
    files::Files,
    report::ImportReport,
    tree::{Directive, Scope},
};
use crate::route::NO_ADDRESS;
use http::HeaderName;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, net::IpAddr};

/// The keys `access` and `auth` of a route.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub fields: Fields,
    /// No client may use the location.
    pub denies_all: bool,
    /// Other directives that keep clients out, and do not convert.
    pub closings: Vec<Closing>,
}

/// The realm for which flowgate asks passwords, on every route.
const REALM: &str = "restricted";

#[derive(Debug, PartialEq, Eq)]
enum Who {
    All,
    Net(IpNet),
}

/// Returns which clients may use a location.
pub(super) fn access(scope: &Scope<'_>, files: &Files, report: &mut ImportReport) -> Access {
    let mut access = addresses(scope, report);
    let closing = passwords(scope, files, &mut access.fields, report);
    access.closings.extend(closing);
    access.closings.extend(guarding(scope, report));

    if access.fields.0.contains_key("access")
        && !access.denies_all
        && let Some(why) = lost(scope)
        && let Some(directive) = scope.all(&["allow", "deny"]).last()
    {
        access.closings.push(Closing::new(directive, why));
    }
    access
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

/// Adds the users of a location, or returns why their passwords cannot be checked.
fn passwords(
    scope: &Scope<'_>,
    files: &Files,
    fields: &mut Fields,
    report: &mut ImportReport,
) -> Option<Closing> {
    let realm = scope.take("auth_basic", report).filter(|realm| realm.arg(0) != "off")?;
    let Some(file) = scope.find("auth_basic_user_file") else {
        return Some(Closing::new(realm, "it has no file of users"));
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
        Err(why) => Some(Closing::new(file, why)),
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

/// Directives that keep clients out in nginx and have no counterpart here. A route with one of these stays
/// closed, so that nothing is open that was not.
const GUARDS: [(&str, &str); 5] = [
    ("auth_jwt", "write `auth: { jwt: … }`"),
    ("auth_delay", "passwords are checked at once"),
    ("secure_link", "links are not verified"),
    (
        "ssl_verify_client",
        "write `client_ca: FILE` in `tls` of the listener, if that is right for all of its hosts, and \
         remove the `respond` of the route",
    ),
    ("limit_except", "write a route with `method` for each"),
];

/// A directive that keeps clients out and that no route expresses, and why.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    pub directive: Directive,
    pub why: String,
}

impl Closing {
    pub(super) fn new(directive: &Directive, why: impl Into<String>) -> Self {
        Self { directive: directive.clone(), why: why.into() }
    }
}

/// Returns the places of all directives that keep clients out of a location: those of two locations
/// are equal if both keep out the same.
pub(super) fn guards(scope: &Scope<'_>) -> BTreeSet<usize> {
    let own = scope.0.last().map(|block| block.inner()).unwrap_or_default();
    // nginx answers with a `return` before it asks for the rest.
    if let Some(answer) = own.iter().find(|directive| directive.name == "return") {
        return rejects(answer).then_some(answer.id).into_iter().collect();
    }

    let names = GUARDS.map(|(name, _)| name).into_iter();
    let single = names.chain(["auth_request", "auth_basic", "auth_basic_user_file", "internal"]);
    let single = single.filter_map(|name| scope.find(name)).filter(|guard| guard.arg(0) != "off");

    let listed = scope.all(&["allow", "deny"]);
    let all = listed.into_iter().chain(single).chain(rejecting_ifs(scope));
    all.map(|directive| directive.id).collect()
}

/// Returns what keeps clients out and does not convert, which closes the route.
pub(super) fn guarding(scope: &Scope<'_>, report: &mut ImportReport) -> Vec<Closing> {
    let mut all = Vec::new();
    for (name, why) in GUARDS {
        let Some(directive) = scope.find(name) else { continue };
        if directive.arg(0) == "off" || report.is_of_listener(directive) {
            report.take(directive);
        } else if name == "auth_delay" {
            report.note(directive, why);
        } else {
            report.take_all(directive);
            all.push(Closing::new(directive, why));
        }
    }
    all
}

/// Returns those of the server and of the location itself: a location within another does not
/// inherit them.
fn rejecting_ifs<'a>(scope: &Scope<'a>) -> Vec<&'a Directive> {
    let server = scope.0.iter().copied().find(|block| block.name == "server");
    let own = scope.0.last().copied().filter(|block| block.name != "server");
    let blocks = server.into_iter().chain(own);
    let ifs = blocks.flat_map(|block| block.inner().iter().filter(|inner| inner.name == "if"));
    ifs.filter(|block| block.inner().iter().any(rejects)).collect()
}

/// Reports whether a directive is a `return` of an error, or of what is not known.
pub(super) fn rejects(directive: &Directive) -> bool {
    let is_good = |status: u16| (200..400).contains(&status);
    let is_url = directive.args.len() == 1 && directive.arg(0).contains('/');
    directive.name == "return" && !is_url && !directive.arg(0).parse().is_ok_and(is_good)
}

/// Reads a network, or an address as a network of one.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().map(|network| network.trunc()).ok();
    network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Returns networks as `gateway.yaml` has them.
pub(super) fn listed(networks: &[IpNet]) -> Value {
    let text = |network: &IpNet| {
        if *network == IpNet::from(NO_ADDRESS) {
            return "unix".to_owned();
        }
        let is_one = network.prefix_len() == network.max_prefix_len();
        if is_one { network.addr().to_string() } else { network.to_string() }
    };
    json!(networks.iter().map(text).collect::<Vec<_>>())
}

/// Returns the networks of a `geo` block with their values; the default has no network.
pub(super) fn networks_of(geo: &Directive) -> Option<Vec<(Option<IpNet>, &str)>> {
    let read = |entry: &Directive| match entry.name.as_str() {
        "default" => Some(None),
        name => network(name).map(Some),
    };
    geo.inner().iter().map(|entry| Some((read(entry)?, entry.arg(0)))).collect()
}

/// The proxies that a block trusts.
#[derive(Clone, Debug, Default)]
pub(super) struct RealIp {
    /// Those that name the client.
    pub trusted: Vec<IpNet>,
    /// The field in which they do; `None`: `X-Forwarded-For`.
    pub header: Option<String>,
    /// They do so by the PROXY protocol.
    pub is_by_protocol: bool,
}

impl RealIp {
    /// Reads what holds in a block. What flowgate cannot read is left to [`lost`].
    pub(super) fn read(scope: &Scope<'_>, report: &mut ImportReport) -> Self {
        let from = scope.all(&["set_real_ip_from"]);
        if from.is_empty() || lost(scope).is_some() {
            return Self::default();
        }

        let is_by_protocol = real_ip_header(scope) == PROXY_PROTOCOL;
        if is_by_protocol && has_protocol(scope) == Some(false) {
            return Self::default();
        }
        let written = scope.take("real_ip_header", report);
        let is_recursive = scope.is_on("real_ip_recursive", report);
        let name = real_ip_header(scope);
        let header = (name != USUAL_HEADER && !is_by_protocol).then_some(name);
        let is_list = header.is_none() && !is_by_protocol;
        if let Some(header) = written.filter(|_| !is_recursive && is_list) {
            report.note(header, "flowgate uses the last address that is not a trusted proxy, as with `real_ip_recursive on`");
        }

        let mut trusted = Vec::new();
        for directive in from {
            let is_unix = directive.arg(0) == "unix:";
            let found = if is_unix { Some(NO_ADDRESS.into()) } else { network(directive.arg(0)) };
            match found {
                Some(network) => {
                    report.take(directive);
                    trusted.push(network);
                }
                None => report.note(directive, "it is neither an address nor a network"),
            }
        }
        Self { trusted, header, is_by_protocol }
    }
}

/// The field that flowgate reads unless another one is written.
pub(super) const USUAL_HEADER: &str = "x-forwarded-for";

/// The word for the PROXY protocol in place of a field.
const PROXY_PROTOCOL: &str = "proxy_protocol";

/// Returns whether connections to the server of a scope begin with a PROXY protocol header; `None` if only
/// some do.
fn has_protocol(scope: &Scope<'_>) -> Option<bool> {
    let server = scope.0.iter().copied().find(|block| block.name == "server");
    let listens = server.into_iter().flat_map(|server| server.all("listen"));
    let has_it = |listen: &Directive| listen.args.iter().any(|arg| arg == PROXY_PROTOCOL);
    let mut all: Vec<bool> = listens.map(has_it).collect();
    all.dedup();
    match all[..] {
        [] => Some(false),
        [all] => Some(all),
        _ => None,
    }
}

/// Returns the field in which proxies name the client, in lower case.
fn real_ip_header(scope: &Scope<'_>) -> String {
    let written = scope.find("real_ip_header");
    written.map_or("X-Real-IP", |directive| directive.arg(0)).to_ascii_lowercase()
}

/// Returns why the client's address is another one here than in nginx, if it is.
pub(super) fn lost(scope: &Scope<'_>) -> Option<&'static str> {
    if scope.all(&["set_real_ip_from"]).is_empty() {
        return None;
    }
    if real_ip_header(scope) == PROXY_PROTOCOL {
        // Without a header, the client is the peer in nginx too.
        let why = "the client's address is lost: some connections to the server begin with a PROXY protocol header (real_ip_header)";
        return has_protocol(scope).is_none().then_some(why);
    }
    let header = real_ip_header(scope);
    if header == "forwarded" || header.parse::<HeaderName>().is_err() {
        return Some("the client's address is lost: flowgate reads no such field (real_ip_header)");
    }

    let is_within = |block: &&Directive| block.name == "location";
    let own = scope.0.iter().copied().filter(is_within);
    let has_own = own.flat_map(Directive::inner).any(|inner| inner.name == "set_real_ip_from");
    has_own.then_some(
        "the client's address is lost: a location has no trusted proxies of its own here",
    )
}
