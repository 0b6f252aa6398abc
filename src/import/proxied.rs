//! `proxy_pass`: the upstream of a location, and what it is asked for.
//! Variables in its address have one value, or the location does not convert.

use super::{
    compression::compression,
    converted_config::Fields,
    files::Files,
    headers::{self, Receiver},
    locations::Kind,
    mirror::mirror,
    numbers::{spelled, time},
    pattern::{encoded, path_regex},
    program::substituted,
    report::ImportReport,
    template::{Piece, ServerVariables, pieces},
    tree::{Directive, Scope},
    upstreams::{ProxyTarget, Upstreams},
};
use core::time::Duration;
use serde_json::json;
use std::collections::BTreeMap;

/// A location that passes requests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocationContext<'a, 's> {
    pub scope: &'s Scope<'a>,
    pub variables: &'s ServerVariables<'a>,
    pub kind: Kind<'a>,
    /// The values of the variables that `set` gives one.
    pub values: &'s BTreeMap<String, String>,
    pub files: &'s Files,
    /// The `map` and `geo` blocks.
    pub maps: &'s [&'a Directive],
}

impl<'a> LocationContext<'a, '_> {
    /// Returns the beginning of its paths; `None` for a regular expression.
    const fn prefix(&self) -> Option<&'a str> {
        match self.kind {
            Kind::Exact(path) | Kind::Prefix(path, _) => Some(path),
            Kind::Regex(..) => None,
        }
    }
}

/// Returns what a route does that is this location.
///
/// # Errors
/// No upstream is asked for the same; the text says why.
pub(super) fn proxied<'a>(
    pass: &'a Directive,
    context: LocationContext<'a, '_>,
    upstreams: &mut Upstreams<'_>,
    report: &mut ImportReport,
) -> Result<Fields, String> {
    let address = Address::read(pass, context.values)?;
    let target = address.target()?;
    let scheme = target.scheme;
    let authority = target.authority;

    let mut fields = Fields::default();
    let mut rewrite = match &address.uri {
        Uri::Same => changed(context, report),
        Uri::Path(path) => rewritten(context, path)?,
        Uri::Whole { target, has_query } => {
            note_query(pass, *has_query, report);
            whole(target)
        }
        Uri::Groups { replacement, has_query } => {
            note_query(pass, *has_query, report);
            grouped(context, replacement)?
        }
    };

    let upstream = upstreams.name(target, context.scope, context.files, report)?;
    fields.set("upstream", json!(upstream));

    let usual = authority.strip_suffix(if scheme == "https" { ":443" } else { ":80" });
    let usual = usual.unwrap_or(authority);
    let usual = if usual.starts_with("unix:") { "localhost" } else { usual };

    let module = if target.is_grpc { "grpc" } else { "proxy" };
    let receiver = Receiver { usual, module, maps: context.maps };
    let passed =
        headers::to_upstream(context.scope, receiver, context.variables, &mut fields, report);

    note_redirects(context.scope, pass, passed.host.is_some() || !rewrite.is_empty(), report);
    if let Some(host) = passed.host {
        rewrite.set("host", json!(host));
    }
    if !rewrite.is_empty() {
        fields.set("rewrite", rewrite);
    }
    if !passed.upgrades {
        fields.set("upgrades", json!([]));
    }

    timeouts(context.scope, module, &mut fields, report);
    compression(context.scope, &mut fields, report);
    mirror(context.scope, context.files, upstreams, &mut fields, report);
    Ok(fields)
}

/// Notes that the client's query also passes, unless it does in nginx.
fn note_query(pass: &Directive, has_query: bool, report: &mut ImportReport) {
    if !has_query {
        report.note(pass, "the query also passes: nginx drops it behind a variable");
    }
}

/// Returns how the path changes if `proxy_pass` has one.
fn rewritten(context: LocationContext<'_, '_>, path: &str) -> Result<Fields, String> {
    if path.contains(['?', '#']) || !path.starts_with('/') {
        return Err("the upstream's path has a query".into());
    }
    let Some(prefix) = context.prefix() else {
        return Err("nginx does not take a path behind a regular expression".into());
    };

    let mut rewrite = Fields::default();
    if prefix == path {
        return Ok(rewrite);
    }
    if matches!(context.kind, Kind::Exact(_)) {
        return Ok(whole(path));
    }

    let (Some(old), Some(new)) = (prefix.strip_suffix('/'), path.strip_suffix('/')) else {
        return Ok(replaced(
            &format!("^{}", regex::escape(&encoded(prefix))),
            &path.replace('$', "$$"),
        ));
    };

    if !old.is_empty() {
        rewrite.set("strip_prefix", json!(old));
    }
    if !new.is_empty() {
        rewrite.set("add_prefix", json!(new));
    }
    Ok(rewrite)
}

/// Returns a rewrite of what an expression finds in the path.
fn replaced(found: &str, replacement: &str) -> Fields {
    let mut rewrite = Fields::default();
    rewrite.set("path_regex", json!({ "match": found, "replace": replacement }));
    rewrite
}

/// Returns a rewrite of the whole path.
fn whole(path: &str) -> Fields {
    replaced("^.*$", &path.replace('$', "$$"))
}

/// Returns a rewrite to groups of the location's regular expression.
fn grouped(context: LocationContext<'_, '_>, replacement: &str) -> Result<Fields, String> {
    let Kind::Regex(text, ignores_case) = context.kind else {
        return Err("no regular expression has these groups".into());
    };
    path_regex(text, ignores_case)?;
    if has_long_group(replacement) {
        return Err("a digit follows a group of the regular expression".into());
    }
    Ok(replaced(&whole_match(text, ignores_case), replacement))
}

/// Returns an expression for the whole path in which `text` is found, with its groups.
fn whole_match(text: &str, ignores_case: bool) -> String {
    let case = if ignores_case { "(?i)" } else { "" };
    format!("{case}^.*?(?:{text}).*$")
}

/// Reports whether a digit follows a group: nginx reads one digit, and flowgate all.
fn has_long_group(replacement: &str) -> bool {
    let is_digit = |sign: char| sign.is_ascii_digit();
    replacement
        .split('$')
        .skip(1)
        .any(|part| part.chars().take(2).filter(|sign| is_digit(*sign)).count() == 2)
}

/// Converts `rewrite REGEX PATH break;`: the only one of a location that passes requests on.
fn changed(context: LocationContext<'_, '_>, report: &mut ImportReport) -> Fields {
    let Some(location) = context.scope.0.last() else { return Fields::default() };
    let rewrites: Vec<_> = location.all("rewrite").collect();
    let [rewrite] = &rewrites[..] else { return Fields::default() };

    let text = rewrite.arg(0);
    let to = rewrite.arg(1);
    let groups = pieces(to).unwrap_or_else(|_| vec![Piece::Variable("")]);
    let has_groups_only = groups.iter().all(|piece| match piece {
        Piece::Text(_) => true,
        Piece::Variable(name) => !name.is_empty() && name.chars().all(|sign| sign.is_ascii_digit()),
    });

    let is_plain = rewrite.arg(2) == "break" && !to.ends_with('?') && has_groups_only;
    if !is_plain || has_long_group(to) || path_regex(text, false).is_err() {
        return Fields::default();
    }

    report.take(rewrite);
    if let Some((old, new)) = prefixes(context, text, to) {
        let mut fields = Fields::default();
        if !old.is_empty() {
            fields.set("strip_prefix", json!(old));
        }
        if !new.is_empty() {
            fields.set("add_prefix", json!(new));
        }
        return fields;
    }

    // flowgate adds the slash at the beginning in no case.
    let to = if to.starts_with('/') { to.to_owned() } else { format!("/{to}") };
    replaced(&whole_match(text, false), &to)
}

/// Returns the old and the new prefix of `rewrite ^/api/(.*)$ /v1/$1`, in a location whose paths all
/// begin with `/api/`.
fn prefixes<'t>(
    context: LocationContext<'_, '_>,
    text: &'t str,
    to: &'t str,
) -> Option<(&'t str, &'t str)> {
    let pattern = text.strip_prefix('^')?;
    let old = pattern.strip_suffix("/(.*)$").or_else(|| pattern.strip_suffix("/(.*)"))?;
    let new = to.strip_suffix("/$1")?;

    let is_plain = |text: &str| {
        text.is_empty()
            || (text.starts_with('/')
                && text.chars().all(|sign| sign.is_ascii_alphanumeric() || "/-_".contains(sign)))
    };

    let is_within = context.prefix().is_some_and(|prefix| prefix.starts_with(&format!("{old}/")));
    (is_within && is_plain(old) && is_plain(new)).then_some((old, new))
}

/// Notes, once for all locations, that nginx changes the redirects of an upstream that does not know
/// its public name.
fn note_redirects(
    scope: &Scope<'_>,
    pass: &Directive,
    is_renamed: bool,
    report: &mut ImportReport,
) {
    let written = scope.find("proxy_redirect");
    if let Some(off) = written.filter(|redirect| redirect.arg(0) == "off") {
        report.take(off);
    } else if written.is_none() && is_renamed {
        report.note_once(
            pass,
            "here and elsewhere, nginx also changes `Location` fields that name the upstream (proxy_redirect), flowgate does not",
        );
    }
}

/// The longest timeout of a route.
const LONGEST: Duration = Duration::from_hours(30 * 24);

fn timeouts(scope: &Scope<'_>, module: &str, fields: &mut Fields, report: &mut ImportReport) {
    const USUAL: Duration = Duration::from_mins(1);
    let names = [format!("{module}_read_timeout"), format!("{module}_send_timeout")];

    let mut limit = |name: &str| {
        let directive = scope.take(name, report)?;
        let limit = time(directive.arg(0));
        match limit {
            None => report.note(directive, "the time is not clear"),
            Some(limit) if limit > LONGEST => {
                report.note(directive, "a timeout has at most 30 days");
            }
            Some(_) => {}
        }
        limit.map(|limit| limit.min(LONGEST))
    };

    let [read, send] = names.each_ref().map(|name| limit(name));

    if send.unwrap_or(USUAL) != read.unwrap_or(USUAL)
        && let Some(directive) = scope.find(&names[1]).or_else(|| scope.find(&names[0]))
    {
        report.note(
            directive,
            format!("`timeouts.idle` is one limit for both directions: here that of {}", names[0]),
        );
    }

    if let Some(read) = read {
        let text = spelled(read);
        let mut all = Fields::default();
        for key in ["first_byte", "idle", "event_stream", "tunnel"] {
            all.set(key, json!(text));
        }
        // A response may take as long as nginx lets it.
        if read > Duration::from_hours(1) {
            all.set("request", json!("off"));
        }
        fields.set("timeouts", all);
    }
}

/// An address with the path that servers are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub scheme: String,
    /// A host with a port or without, `unix:/PATH`, or the name of an `upstream`.
    pub authority: String,
    pub uri: Uri,
}

/// The path and query that servers are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Uri {
    /// The client's.
    Same,
    /// This path in place of the location's prefix.
    Path(String),
    /// This path in place of the whole one, perhaps with a query. The client's query stays behind it if
    /// it says so.
    Whole { target: String, has_query: bool },
    /// The same with groups of the location's regular expression.
    Groups { replacement: String, has_query: bool },
}

impl Address {
    /// Reads the address of a directive with the values of variables.
    ///
    /// # Errors
    /// It has a variable that only a request gives a value to, or is no address.
    pub(super) fn read(
        pass: &Directive,
        values: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let has_variables = pass.arg(0).contains('$');
        let text = substituted(pass.arg(0), values);
        let (scheme, rest) = match text.split_once("://") {
            Some(parts) => parts,
            None if pass.name == "grpc_pass" => ("grpc", text.as_str()),
            None => return Err("the address is invalid".into()),
        };

        let (authority, path) = parted(rest);
        let path = path.unwrap_or_default();
        if authority.contains('$') {
            return Err("a route has one upstream, and no variable".into());
        }

        let uri = match path {
            ""
            | "$request_uri"
            | "$uri$is_args$args"
            | "$document_uri$is_args$args"
            | "$uri$is_args$query_string" => Uri::Same,
            _ if has_variables => groups(path)?,
            _ => Uri::Path(path.to_owned()),
        };

        Ok(Self { scheme: scheme.into(), authority: authority.into(), uri })
    }

    /// Returns what an upstream is made for.
    ///
    /// # Errors
    /// Its servers speak neither HTTP nor gRPC.
    pub(super) fn target(&self) -> Result<ProxyTarget<'_>, String> {
        let (scheme, is_grpc) = match self.scheme.as_str() {
            "http" => ("http", false),
            "https" => ("https", false),
            "grpc" => ("http", true),
            "grpcs" => ("https", true),
            _ => return Err("only http, https and grpc are passed to".into()),
        };
        Ok(ProxyTarget { scheme, authority: &self.authority, is_grpc })
    }
}

/// Splits an address before its path. That of a socket ends with a colon.
fn parted(rest: &str) -> (&str, Option<&str>) {
    if let Some(socket) = rest.strip_prefix("unix:") {
        let end = socket.find(':').map_or(rest.len(), |at| at + 6);
        return (&rest[..end], Some(&rest[end..]).filter(|path| !path.is_empty()));
    }
    let whole = ["$request_uri", "$uri", "$document_uri"].iter().filter_map(|name| rest.find(name));
    let end = whole.chain(rest.find(['/', '?'])).min().unwrap_or(rest.len());
    (&rest[..end], Some(&rest[end..]).filter(|path| !path.is_empty()))
}

/// Reads a path with groups of the location's regular expression.
fn groups(path: &str) -> Result<Uri, String> {
    let ends = [
        "$is_args$args",
        "$is_args$query_string",
        "?$args",
        "?$query_string",
        "&$args",
        "&$query_string",
    ];
    let without = ends.iter().find_map(|end| path.strip_suffix(end));
    let has_query = without.is_some();
    let replacement = without.unwrap_or(path);
    for piece in pieces(replacement)? {
        if let Piece::Variable(name) = piece
            && !name.chars().all(|sign| sign.is_ascii_digit())
        {
            return Err(format!("`rewrite` has no value for ${name}"));
        }
    }

    if replacement.contains('#') || !replacement.starts_with('/') {
        return Err("the upstream's path is not clear".into());
    }
    let target = replacement.to_owned();
    Ok(if target.contains('$') {
        Uri::Groups { replacement: target, has_query }
    } else {
        Uri::Whole { target, has_query }
    })
}
