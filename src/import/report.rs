//! The directives that were converted, and a line for each reason that others were not.

use super::tree::{Directive, Tree};
use crate::terminal_text::is_unsafe;
use std::collections::{BTreeMap, BTreeSet};

/// The directives that were converted so far, and notes on others.
#[derive(Debug, Default)]
pub(super) struct ImportReport {
    /// Those that something has converted or looked into.
    taken: BTreeSet<usize>,
    /// Directives that keep clients out, which a listener does.
    of_listeners: BTreeSet<usize>,
    /// Reasons by directive, in the order of the files.
    notes: BTreeMap<usize, Note>,
    /// The configuration includes nginx's `mime.types`, which is not here.
    lacks_types: bool,
}

#[derive(Debug)]
struct Note {
    file: usize,
    line: usize,
    name: String,
    reasons: Vec<Reason>,
}

#[derive(Debug)]
struct Reason {
    text: String,
    effect: Effect,
    /// The routes that it is about.
    routes: Vec<String>,
}

/// The effect of a directive that is not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// Requests get an error until somebody writes what is missing.
    Blocks,
    /// Clients, servers or logs may get something else.
    Changes,
    /// Nothing: here it would have no effect.
    None,
}

/// A line for each reason, in the order of the files.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub blocks: Vec<String>,
    pub changes: Vec<String>,
    /// Lines of directives that change nothing, which are printed as one count.
    pub without_effect: Vec<String>,
    /// The number of these directives.
    pub idle: usize,
    /// Lines about what no directive says. The result is whole beside them.
    pub general: Vec<String>,
}

impl Lines {
    pub(super) const fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.changes.is_empty() && self.without_effect.is_empty()
    }

    /// Returns each group under its title: first what must be done before the site works.
    pub(super) fn titled(&self) -> Vec<String> {
        let blocks = match self.blocks.len() {
            1 => "Your site will not work until you do this one thing:".to_owned(),
            count => format!("Your site will not work until you do these {count} things:"),
        };
        let changes =
            format!("Changes what clients, servers or logs get ({}):", self.changes.len());

        let groups = [(blocks, &self.blocks), (changes, &self.changes)];
        let groups = groups.into_iter().filter(|(_, lines)| !lines.is_empty());
        let mut written: Vec<_> = groups
            .flat_map(|(title, lines)| {
                [title].into_iter().chain(lines.iter().map(|line| format!("  {line}")))
            })
            .collect();

        match self.idle {
            0 => {}
            1 => written.push("1 more directive has no effect here.".into()),
            count => written.push(format!("{count} more directives have no effect here.")),
        }
        written.extend(self.general.iter().cloned());
        written
    }
}

impl ImportReport {
    pub(super) fn new(missing: Vec<(Directive, String)>) -> Self {
        let is_types = |directive: &Directive| directive.arg(0).ends_with("mime.types");
        let lacks_types = missing.iter().any(|(directive, _)| is_types(directive));
        let mut report = Self { lacks_types, ..Self::default() };
        for (directive, why) in missing {
            report.note(&directive, why);
        }
        report
    }

    /// Returns whether the configuration includes nginx's `mime.types`, which is not here.
    pub(super) const fn lacks_types(&self) -> bool {
        self.lacks_types
    }

    /// Notes that a directive is converted exactly.
    pub(super) fn take(&mut self, directive: &Directive) {
        self.taken.insert(directive.id);
    }

    /// Notes that a listener does what a directive asks of every route.
    pub(super) fn take_for_listener(&mut self, directive: &Directive) {
        self.take(directive);
        self.of_listeners.insert(directive.id);
    }

    /// Returns whether a listener does what the directive asks.
    pub(super) fn is_of_listener(&self, directive: &Directive) -> bool {
        self.of_listeners.contains(&directive.id)
    }

    /// Notes why a directive is not converted, or how what it became differs.
    pub(super) fn note(&mut self, directive: &Directive, why: impl Into<String>) {
        self.add(directive, why.into(), Effect::Changes, None);
    }

    /// Notes why requests get an error, and the route that rejects them, if it is one.
    pub(super) fn block(
        &mut self,
        directive: &Directive,
        why: impl Into<String>,
        route: Option<&str>,
    ) {
        self.add(directive, why.into(), Effect::Blocks, route);
    }

    fn add(&mut self, directive: &Directive, text: String, effect: Effect, route: Option<&str>) {
        self.take(directive);
        let note = self.notes.entry(directive.id).or_insert_with(|| Note {
            file: directive.file,
            line: directive.line,
            name: directive.name.clone(),
            reasons: Vec::new(),
        });

        let at = note.reasons.iter().position(|known| known.text == text);
        let at = at.unwrap_or_else(|| {
            note.reasons.push(Reason { text, effect, routes: Vec::new() });
            note.reasons.len() - 1
        });

        let reason = &mut note.reasons[at];

        let new = route.filter(|route| !reason.routes.iter().any(|known| known == route));
        reason.routes.extend(new.map(str::to_owned));
    }

    /// Notes the same, unless another directive has this reason already.
    pub(super) fn note_once(&mut self, directive: &Directive, why: &str) {
        let is_known = |note: &Note| note.reasons.iter().any(|known| known.text == why);
        if !self.notes.values().any(is_known) {
            self.note(directive, why);
        }
    }

    /// Notes every directive that nothing has taken. `why` gives the reason by its name.
    pub(super) fn note_the_rest(
        &mut self,
        all: &[Directive],
        why: impl Fn(&Directive) -> (&'static str, Effect),
    ) {
        let mut open: Vec<_> = all.iter().collect();
        while let Some(directive) = open.pop() {
            if self.taken.contains(&directive.id) {
                open.extend(directive.inner());
            } else {
                let (why, effect) = why(directive);
                self.add(directive, why.into(), effect, None);
            }
        }
    }

    /// Returns whether a directive is converted, and nothing is to be said of it.
    pub(super) fn is_converted(&self, directive: &Directive) -> bool {
        self.taken.contains(&directive.id) && !self.notes.contains_key(&directive.id)
    }

    /// Notes that all of a block is taken, such as the entries of a `map`.
    pub(super) fn take_all(&mut self, directive: &Directive) {
        self.take(directive);
        for inner in directive.inner() {
            self.take_all(inner);
        }
    }

    /// Returns one line for each reason, with the lines of its directives.
    pub(super) fn lines(&self, tree: &Tree) -> Lines {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut known = BTreeMap::new();
        for note in self.notes.values() {
            for reason in &note.reasons {
                let at =
                    *known.entry((&note.name, &reason.text, reason.effect)).or_insert_with(|| {
                        groups.push(Group { note, reason, places: Vec::new(), routes: Vec::new() });
                        groups.len() - 1
                    });
                groups[at].places.push((note.file, note.line));
                groups[at].routes.extend(reason.routes.iter().map(String::as_str));
            }
        }

        let mut lines = Lines::default();
        for group in groups {
            let line = group.line(tree);
            match group.reason.effect {
                Effect::Blocks => lines.blocks.push(line),
                Effect::Changes => lines.changes.push(line),
                Effect::None => {
                    lines.idle += group.places.len();
                    lines.without_effect.push(line);
                }
            }
        }
        lines
    }
}

/// The directives of one name that are not converted for one reason.
#[derive(Debug)]
struct Group<'a> {
    note: &'a Note,
    reason: &'a Reason,
    /// The file and the line of each.
    places: Vec<(usize, usize)>,
    routes: Vec<&'a str>,
}

impl Group<'_> {
    /// Returns the line, as in `nginx.conf:3, 8; site.conf:4: gzip: …`.
    fn line(&self, tree: &Tree) -> String {
        let mut places = String::new();
        let mut last = None;
        let mut seen = BTreeSet::new();
        for place in self.places.iter().filter(|place| seen.insert(**place)) {
            let (file, line) = place;
            if last == Some(file) {
                places.extend([", ", &line.to_string()]);
            } else {
                let name = tree.files.get(*file).map_or("", String::as_str);
                let begin = if places.is_empty() { "" } else { "; " };
                places.extend([begin, name, ":", &line.to_string()]);
            }
            last = Some(file);
        }

        let mut named = BTreeSet::new();
        let routes = self.routes.iter().filter(|route| named.insert(**route));
        let routes: Vec<_> = routes.map(|route| format!("`{route}`")).collect();
        let routes = match &routes[..] {
            [] => String::new(),
            [one] => format!(" (route {one})"),
            all => format!(" (routes {})", all.join(", ")),
        };

        clean(&format!("{places}: {}: {}{routes}", self.note.name, self.reason.text))
    }
}

/// The line of a file that does not say which names of request fields nginx drops.
pub(super) const DROPPED_NAMES: &str = "Without `underscores_in_headers on`, nginx drops request fields whose names have `_` or `.`: flowgate passes them to servers.";

/// Returns a text in one line without control characters, which a configuration may have.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|sign| if is_unsafe(sign) { ' ' } else { sign }).collect()
}

/// Reasons by name; those that end with `*` are for all names that begin so. These directives change
/// what clients, servers or logs get.
const REASONS: &[(&str, &str)] = &[
    ("access_log", "write `access_log: FILE`"),
    ("brotli*", "write `compress: true` at the routes"),
    ("charset*", "bodies pass as they are"),
    ("client_body_timeout", "see `timeouts.idle` of a route"),
    ("client_header_buffer_size", "see `limits.header_bytes`"),
    ("client_header_timeout", "it holds for the whole file: write it in `http`"),
    ("error_log", "the log goes to the standard error"),
    ("error_page", "write `errors` at a route, with `from: both` for those of servers too"),
    ("expires", "write `response_headers`"),
    ("fastcgi*", "flowgate speaks HTTP to its servers"),
    (
        "geoip_*",
        "flowgate reads files in MaxMind's newer format (`.mmdb`), and no `.dat`: write `geo: { country: GeoLite2-Country.mmdb }`",
    ),
    (
        "geoip2",
        "flowgate reads countries (`country iso_code`) and AS numbers (`autonomous_system_number`) of the client's address",
    ),
    ("grpc_*", "write an upstream with `protocol: h2`"),
    ("gzip", "only responses of servers are compressed"),
    ("gzip_*", "flowgate has no such setting, or it has no effect without `gzip on`"),
    ("if", "write a route with a `match` for each case"),
    ("keepalive_timeout", "it holds for the whole file: write it in `http`"),
    ("large_client_header_buffers", "see `limits.header_bytes` and `limits.headers`"),
    ("limit_rate*", "nothing limits bytes a second"),
    ("listen", "see the other lines of this server"),
    ("location", "a named location does not become a route"),
    ("log_format", "lines of the access log are JSON, or combined by `access_log_format`"),
    ("lua_*", "nothing is programmed"),
    ("mail", "flowgate passes on HTTP only"),
    ("mirror*", "only requests to servers are copied"),
    ("perl*", "nothing is programmed"),
    ("proxy_bind", "the system chooses the address"),
    ("proxy_cache*", "flowgate does not cache"),
    ("proxy_cookie*", "cookies pass as they are"),
    ("proxy_http_version", "see `protocol` of an upstream: it is 1.1 or 2"),
    ("proxy_next_upstream*", "write `retry`, which repeats otherwise"),
    ("proxy_redirect", "`Location` does not change"),
    ("proxy_ssl*", "see `tls` of an upstream"),
    ("proxy_store*", "flowgate stores nothing"),
    ("geoip2_proxy*", "name the proxies by `set_real_ip_from` before the import"),
    ("real_ip*", "write `trusted_proxies` and `client_ip_header`"),
    ("resolver*", "names are resolved by the system: see `resolve` of an upstream"),
    ("rewrite", "see `rewrite` and `redirect` of a route"),
    ("satisfy", "`access` and `auth` must both hold"),
    ("scgi*", "flowgate speaks HTTP to its servers"),
    ("send_timeout", "it holds for the whole file: write it in `http`"),
    ("set", "nginx uses this variable itself"),
    ("set_real_ip_from", "write `trusted_proxies` and `client_ip_header`"),
    ("split_clients", "there are no variables of requests"),
    ("ssl_*", "TLS is 1.2 and 1.3 with the ciphers of rustls"),
    ("stream", "flowgate passes on HTTP only"),
    ("stub_status", "see the admin listener: `/metrics`"),
    ("sub_filter*", "bodies pass as they are"),
    ("try_files", "flowgate serves no files"),
    ("underscores_in_headers", "request fields whose names have `_` or `.` pass here"),
    ("uwsgi*", "flowgate speaks HTTP to its servers"),
    ("worker_connections", "see `limits.connections`"),
    ("worker_processes", "`workers` is a number"),
];

/// Reasons of directives that change nothing here.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("add_header", "no converted location has it"),
    ("alias", "flowgate serves no files"),
    ("allow", "no converted location has it"),
    ("auth_basic*", "no converted location has it"),
    (
        "auth_request",
        "no converted location has it: nginx does not ask the service before a `return`",
    ),
    ("auth_request_set", "no service is asked there"),
    ("autoindex*", "flowgate serves no files"),
    ("client_body*", "bodies pass without being stored"),
    ("client_max_body_size", "no converted location has it"),
    ("default_type", "it matters for a `return` with a text only"),
    ("deny", "no converted location has it"),
    ("etag", "flowgate serves no files"),
    ("geo", "no converted directive uses its variable"),
    ("if_modified_since", "flowgate serves no files"),
    ("index", "flowgate serves no files"),
    ("limit_conn", "no converted location has it"),
    ("limit_conn_dry_run", "no converted location has it"),
    ("limit_conn_status", "no converted location has it"),
    ("limit_req", "no converted location has it: nginx does not ask it before a `return`"),
    ("limit_conn_zone", "no converted limit uses it"),
    ("limit_req_zone", "no converted limit uses it"),
    ("limit_req_dry_run", "no converted location has it"),
    ("limit_req_status", "no converted location has it"),
    ("map", "no converted directive uses its variable"),
    ("open_file_cache*", "flowgate serves no files"),
    ("pid", "write `flowgate run --pid-file`"),
    ("proxy_buffer*", "bodies pass as they come, and are not stored"),
    ("proxy_busy_buffers_size", "bodies pass as they come, and are not stored"),
    ("proxy_connect_timeout", "no converted location has it"),
    ("proxy_hide_header", "no converted location has it"),
    ("proxy_max_temp_file_size", "bodies pass as they come, and are not stored"),
    ("proxy_pass", "no converted location has it"),
    ("proxy_read_timeout", "no converted location has it"),
    ("proxy_request_buffering", "bodies pass as they come, and are not stored"),
    ("proxy_send_timeout", "no converted location has it"),
    ("proxy_set_header", "no converted location has it"),
    ("proxy_temp*", "bodies pass as they come, and are not stored"),
    ("return", "nothing comes to it"),
    ("rewrite_log", "see the access log"),
    ("root", "flowgate serves no files"),
    ("sendfile*", "flowgate serves no files"),
    ("ssl_certificate*", "no converted listener has it"),
    ("tcp_*", "flowgate sets its sockets itself"),
    ("types*", "they matter for a `return` with a text and for pages of errors only"),
    ("upstream", "no converted location uses it"),
    ("user", "the service says as which user flowgate runs"),
    ("worker_*", "it is of the processes of nginx"),
];

/// Reports whether a directive does nothing but give variables a value.
fn is_idle_variable(directive: &Directive) -> bool {
    // These are of nginx, which uses them itself.
    let is_own = |set: &Directive| !matches!(set.arg(0), "$args" | "$limit_rate");
    match directive.name.as_str() {
        "set" => is_own(directive),
        "if" => {
            let inner = directive.inner();
            !inner.is_empty() && inner.iter().all(|set| set.name == "set" && is_own(set))
        }
        _ => false,
    }
}

/// Returns why nothing took a directive, and whether that changes anything.
pub(super) fn reason(directive: &Directive) -> (&'static str, Effect) {
    if is_idle_variable(directive) {
        return ("no converted directive uses its variable", Effect::None);
    }

    let name = directive.name.as_str();
    let is_meant = |known: &str| match known.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => known == name,
    };

    let all = REASONS.iter().map(|(known, why)| (*known, *why, Effect::Changes));
    let all = all.chain(WITHOUT_EFFECT.iter().map(|(known, why)| (*known, *why, Effect::None)));

    let found = all.filter(|(known, ..)| is_meant(known)).max_by_key(|(known, ..)| known.len());
    found
        .map_or(("flowgate has no such setting", Effect::Changes), |(_, why, effect)| (why, effect))
}
