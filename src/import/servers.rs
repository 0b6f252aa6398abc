//! The requests that a server gets: its listeners and its names.

use super::{
    converted_config::Fields, listeners::Listener, redirects::answers, report::ImportReport,
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
                _ if name.strip_suffix(".*").is_some_and(is_host) => all.push(name),
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
        let is_covered = others.flat_map(|other| &hosts[*other]).any(|host| host.contains('*'));
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

/// The hosts for which an `if` of a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostCondition {
    hosts: Vec<String>,
    /// All hosts but these are meant.
    is_negated: bool,
}

/// Returns the hosts of `if ($host = NAME) { return … }`, of which there are some without an
/// expression.
pub(super) fn host_condition(directive: &Directive) -> Option<HostCondition> {
    if directive.name != "if" || !directive.inner().iter().any(answers) {
        return None;
    }
    let (variable, sign, text) = match &directive.args[..] {
        // A quoted name is a word without its `)`.
        [variable, sign, text, end] if end == ")" => (variable, sign, text.as_str()),
        [variable, sign, text] => (variable, sign, text.strip_suffix(')')?),
        _ => return None,
    };

    if !matches!(variable.as_str(), "($host" | "($http_host") {
        return None;
    }

    let hosts = match sign.as_str() {
        "=" | "!=" => vec![text.to_owned()],
        "~" | "~*" | "!~" | "!~*" => named_hosts(text)?,
        _ => return None,
    };

    // nginx compares with the host in lower case.
    let is_name = |host: &String| is_host(host) && *host == host.to_ascii_lowercase();
    let is_negated = sign.starts_with('!');
    hosts.iter().all(is_name).then_some(HostCondition { hosts, is_negated })
}

/// Returns the hosts that an expression such as `^(a|b)\.test$` names, if it is a list of names.
fn named_hosts(text: &str) -> Option<Vec<String>> {
    let inner = text.strip_prefix('^')?.strip_suffix('$')?;
    let inner = inner.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(inner);
    let names: Vec<_> = inner.split('|').map(|name| name.replace("\\.", "\0")).collect();
    // A dot stands for every sign: a name with one is no list of names, unless it is escaped.
    let is_plain = |name: &String| !name.contains('.') && !name.is_empty();
    names.iter().all(is_plain).then(|| names.iter().map(|name| name.replace('\0', ".")).collect())
}

/// Reports whether an `if` within a block asks whether the connection has TLS.
fn asks_scheme(block: &Directive) -> bool {
    let is_asked = |arg: &String| {
        let name = arg.trim_start_matches(['(', '$', '{']);
        ["scheme", "https", "server_port"].iter().any(|known| {
            name.strip_prefix(known).is_some_and(|rest| rest.trim_matches(['}', ')']).is_empty())
        })
    };

    block.inner().iter().any(|inner| {
        (inner.name == "if" && inner.args.first().is_some_and(|arg| arg == "(" || is_asked(arg)))
            || asks_scheme(inner)
    })
}

/// Reports whether a name of a server is this host, or a wildcard for it.
fn covers(name: &str, host: &str) -> bool {
    let is_below = |end: &str| host.len() > end.len() && host.ends_with(end);
    let goes_on = |begin: &str| host.len() > begin.len() && host.starts_with(begin);
    name == host
        || name.strip_prefix('*').is_some_and(is_below)
        || name.strip_suffix('*').is_some_and(goes_on)
}

impl Share {
    /// Takes the hosts of a condition out of this share, and returns a share of its own for each, with
    /// a name.
    pub(super) fn split_off(
        &mut self,
        condition: &HostCondition,
        others: &[String],
    ) -> Vec<(String, Self)> {
        let own: Vec<_> =
            condition.hosts.iter().filter(|host| self.has(host, others)).cloned().collect();

        let listeners = self.listeners.clone();
        let named = |hosts| Self { listeners: listeners.clone(), hosts: Some(hosts) };

        if condition.is_negated {
            let is_other = |host: &String| !own.contains(host);
            let hosts = self.hosts.take();
            let left = hosts.map(|hosts| hosts.into_iter().filter(is_other).collect::<Vec<_>>());
            self.hosts = Some(own);
            let other = Self { listeners, hosts: left };
            return if other.is_empty() { Vec::new() } else { vec![("other-hosts".into(), other)] };
        }

        if let Some(hosts) = &mut self.hosts {
            hosts.retain(|name| !own.contains(name));
        }
        own.into_iter().map(|host| (host.clone(), named(vec![host]))).collect()
    }

    /// Reports whether requests for a host come here. Those that other servers name, of which
    /// `others` are the names, go there.
    fn has(&self, host: &str, others: &[String]) -> bool {
        let covers = |name: &String| covers(name, host);
        match &self.hosts {
            Some(hosts) if hosts.iter().any(|name| name == host) => true,
            Some(hosts) if !hosts.iter().any(covers) => false,
            _ => !others.iter().any(covers),
        }
    }

    /// Returns the parts with TLS and without, if an `if` of the server asks for that.
    pub(super) fn by_scheme(&self, server: &Directive, listeners: &[Listener<'_>]) -> Vec<Self> {
        let is_secure =
            |name: &String| listeners.iter().any(|one| one.name == *name && one.has_tls);
        let (secure, plain): (Vec<_>, Vec<_>) = self.listeners.iter().cloned().partition(is_secure);
        if secure.is_empty() || plain.is_empty() || !asks_scheme(server) {
            return vec![self.clone()];
        }

        let share = |listeners| Self { listeners, hosts: self.hosts.clone() };
        vec![share(plain), share(secure)]
    }

    /// Reports whether no request is left.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns the match of a route for this share and a path. `count` is how many listeners there
    /// are.
    pub(super) fn matching(&self, path: (&str, Value), count: usize) -> Fields {
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
        fields
    }
}
