//! Which requests a server gets: its listeners and its names.

use super::{
    converted_config::Fields, guards::rejects, listeners::Listener, report::ImportReport,
    tree::Directive,
};
use serde_json::{Value, json};

/// A part of what a server gets: some listeners, and some hosts or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Names of listeners.
    pub listeners: Vec<String>,
    /// `None` is every host.
    pub hosts: Option<Vec<String>>,
}

/// Returns the hosts of a server.
pub(super) fn hosts(server: &Directive, report: &mut ImportReport) -> Vec<String> {
    let mut all = Vec::new();
    for directive in server.all("server_name") {
        report.take(directive);
        for name in &directive.args {
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                // No request has such a host.
                "_" | "" | "--" | "!@#" => {}
                _ if is_host(name.strip_prefix("*.").unwrap_or(&name)) => all.push(name),
                _ if name.starts_with('.') && is_host(&name[1..]) => {
                    all.extend([name[1..].to_owned(), format!("*{name}")]);
                }
                _ => report
                    .note(directive, format!("`{name}`: a host is a name, or `*.` and a name")),
            }
        }
    }
    all
}

fn is_host(name: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    !name.is_empty() && name.chars().all(is_sign) && !name.starts_with('.') && !name.contains("..")
}

/// Returns what the server at `index` gets. `hosts` are those of all servers.
pub(super) fn shares(
    index: usize,
    hosts: &[Vec<String>],
    listeners: &[Listener<'_>],
) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    let mut add = |listener: &Listener<'_>, hosts: Option<Vec<String>>| {
        let same = shares.iter_mut().find(|share| share.hosts == hosts);
        match same {
            Some(share) => share.listeners.push(listener.name.clone()),
            None => shares.push(Share { listeners: vec![listener.name.clone()], hosts }),
        }
    };
    for listener in listeners.iter().filter(|listener| listener.servers.contains(&index)) {
        let own = &hosts[index];
        let others = listener.servers.iter().filter(|other| **other != index);
        // A wildcard of another server would come before every host.
        let is_covered = others.flat_map(|other| &hosts[*other]).any(|host| host.starts_with('*'));
        let is_default = listener.default == index;
        if !own.is_empty() && (!is_default || is_covered) {
            add(listener, Some(own.clone()));
        }
        if is_default {
            add(listener, None);
        }
    }
    shares
}

/// Returns the host of `if ($host = NAME) { return … }`, which does not reject its requests.
pub(super) fn redirected_host(directive: &Directive) -> Option<&str> {
    let is_answer = |inner: &Directive| inner.name == "return" && !rejects(inner);
    let ([variable, sign, host, end @ ..], [inner]) = (&directive.args[..], directive.inner())
    else {
        return None;
    };
    // A quoted name is a word without its `)`.
    let host = if end == [")"] { Some(host.as_str()) } else { host.strip_suffix(')') }?;
    let is_condition = directive.name == "if" && variable == "($host" && sign == "=";
    let is_single = end.len() < 2 && is_answer(inner);
    let is_lower = !host.contains(|sign: char| sign.is_ascii_uppercase());
    (is_condition && is_single && is_lower && is_host(host)).then_some(host)
}

/// Reports whether a name of a server is this host, or a wildcard for it.
fn covers(name: &str, host: &str) -> bool {
    let is_below = |end: &str| host.len() > end.len() && host.ends_with(end);
    name == host || name.strip_prefix('*').is_some_and(is_below)
}

impl Share {
    /// Takes a host out of this share, and returns a share of its own for it. Returns `None` if
    /// requests for this host do not come here, or may go to another server, of which `others` are
    /// the names.
    pub(super) fn split(&mut self, host: &str, others: &[String]) -> Option<Self> {
        let covers = |name: &String| covers(name, host);
        let is_named = match &self.hosts {
            Some(hosts) if !hosts.iter().any(covers) => return None,
            Some(hosts) => hosts.iter().any(|name| name == host),
            None => false,
        };
        if !is_named && others.iter().any(covers) {
            return None;
        }
        if let Some(hosts) = &mut self.hosts {
            hosts.retain(|name| name != host);
        }
        Some(Self { listeners: self.listeners.clone(), hosts: Some(vec![host.to_owned()]) })
    }

    /// Reports whether no request is left.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns the match of a route for this share and a path. `count` is how many listeners there
    /// are.
    pub(super) fn matching(&self, path: (&str, Value), count: usize) -> Value {
        let mut fields = Fields::default();
        let one_or_all = |all: &[String]| match all {
            [one] => json!(one),
            all => json!(all),
        };
        if count > 1 {
            fields.set("listener", one_or_all(&self.listeners));
        }
        if let Some(hosts) = &self.hosts {
            fields.set("host", one_or_all(hosts));
        }
        fields.set(path.0, path.1);
        fields.into()
    }
}
