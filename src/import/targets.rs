//! The address of a `proxy_pass`, without its variables.

use super::{
    scope::Scope,
    template::{Piece, pieces},
    tree::Directive,
    upstreams::ProxyTarget,
};

/// How often a variable may name another one.
const LONGEST_CHAIN: usize = 8;

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
    /// This path in place of the whole one.
    Whole(String),
    /// The location's regular expression with its groups; the query stays if it says so.
    Groups { replacement: String, has_query: bool },
}

impl Address {
    /// Reads the address of a directive. `set` directives around it give values to its variables.
    ///
    /// # Errors
    /// It has a variable that only a request gives a value to, or is no address.
    pub(super) fn read(pass: &Directive, scope: &Scope<'_>) -> Result<Self, String> {
        let has_variables = pass.arg(0).contains('$');
        let text = substituted(pass.arg(0), scope, LONGEST_CHAIN);
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
            _ if path.contains('$') => groups(path)?,
            _ if has_variables => Uri::Whole(path.to_owned()),
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
    let ends = ["$is_args$args", "$is_args$query_string", "?$args", "?$query_string"];
    let without = ends.iter().find_map(|end| path.strip_suffix(end));
    let replacement = without.unwrap_or(path);
    for piece in pieces(replacement)? {
        if let Piece::Variable(name) = piece
            && !name.chars().all(|sign| sign.is_ascii_digit())
        {
            return Err(format!("`rewrite` has no value for ${name}"));
        }
    }
    if replacement.contains(['?', '#']) || !replacement.starts_with('/') {
        return Err("the upstream's path has a query".into());
    }
    Ok(Uri::Groups { replacement: replacement.to_owned(), has_query: without.is_some() })
}

/// Returns a text with the values that `set` gives to its variables, for every request the same.
fn substituted(text: &str, scope: &Scope<'_>, depth: usize) -> String {
    let Ok(all) = pieces(text) else { return text.to_owned() };
    if depth == 0 {
        return text.to_owned();
    }
    let value = |name: &str| {
        let variable = format!("${name}");
        let mut sets = scope.0.iter().rev().flat_map(|block| block.inner().iter().rev());
        // Another block may set it for a request that a `rewrite` sends here.
        let server = scope.0.iter().find(|block| block.name == "server");
        let own = scope.0.iter().map(|block| sets_of(block, &variable)).sum::<usize>();
        let is_changed = server.is_some_and(|server| {
            let outer = scope.0.iter().filter(|block| block.name == "http");
            let outer = outer.map(|block| sets_of(block, &variable)).sum::<usize>();
            all_sets_of(server, &variable) + outer > own
        });
        let set = sets.find(|inner| inner.name == "set" && inner.arg(0) == variable);
        set.filter(|_| !is_changed).map(|set| substituted(set.arg(1), scope, depth - 1))
    };
    let written = all.into_iter().map(|piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Variable(name) => value(name).unwrap_or_else(|| format!("${name}")),
    });
    written.collect()
}

/// Returns how often a block itself sets a variable.
fn sets_of(block: &Directive, variable: &str) -> usize {
    block.all("set").filter(|set| set.arg(0) == variable).count()
}

/// Returns how often a block and those within it set a variable.
fn all_sets_of(block: &Directive, variable: &str) -> usize {
    let inner = block.inner().iter().map(|inner| all_sets_of(inner, variable)).sum::<usize>();
    sets_of(block, variable) + inner
}
