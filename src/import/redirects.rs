//! `rewrite REGEX TARGET permanent`: redirects of some paths, which come before what else is there.
//! A `return` answers all requests that come to it.

use super::{
    access::rejects,
    condition::PathTest,
    converted_config::Fields,
    locations::{Kind, Location, label},
    media_types,
    pattern::{Literal, Overlap, at_least, begins_with, encoded, path_regex_within},
    report::ImportReport,
    template::{Piece, ServerVariables, joined, pieces, template},
    tree::{Directive, Scope},
};
use regex::bytes::RegexBuilder;
use serde_json::{Value, json};

/// Returns the directives that answer requests for some paths in a block, and that come to requests.
pub(super) fn redirects(block: &Directive) -> Vec<&Directive> {
    let reached = block.inner().iter().take_while(|directive| !answers(directive));
    reached.filter(|directive| redirects_some(directive) || is_path_test(directive)).collect()
}

/// Reports whether an `if` answers requests for some paths.
pub(super) fn is_path_test(directive: &Directive) -> bool {
    PathTest::read(directive).is_some() && directive.inner().iter().any(answers)
}

/// Returns the expression over the paths that a directive answers, and whether the case does not matter.
fn expression(directive: &Directive) -> (String, bool) {
    let test = PathTest::read(directive).map(|test| (test.regex, test.ignores_case));
    test.unwrap_or_else(|| (directive.arg(0).to_owned(), false))
}

/// A route that answers before limits and access are asked.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub directive: &'a Directive,
    /// The name of the route.
    pub label: String,
    /// A key of `match` and its value.
    pub path: (&'static str, Value),
    pub fields: Fields,
}

/// Returns the routes of `all`, which answer some of the paths below `prefix`. Without an equal answer
/// a route answers with an error, so that no request goes where nginx sends none.
pub(super) fn redirected<'a>(
    all: &[&'a Directive],
    prefix: &str,
    scope: &Scope<'_>,
    variables: &ServerVariables<'_>,
    report: &mut ImportReport,
) -> Vec<Answer<'a>> {
    let mut answers = Vec::new();
    for directive in all {
        let (text, ignores_case) = expression(directive);
        let is_test = directive.name == "if";

        let read = match path_regex_within(prefix, &text, ignores_case) {
            Ok(None) => {
                report.take_all(directive);
                continue;
            }
            Ok(Some(regex)) if is_test => {
                let fields = answer(directive, &scope.within(directive), variables, report);
                (regex, fields.ok_or_else(|| "it has no answer".to_owned()))
            }
            Ok(Some(regex)) => {
                with_groups(directive, regex, Redirecting { scope, variables }, report)
            }
            Err(why) if prefix == "/" => (at_least(&text, ignores_case), Err(why)),
            Err(why) => (begins_with(&encoded(prefix)), Err(why)),
        };

        let (regex, fields) = match read {
            (regex, Ok(fields)) => {
                report.take(directive);
                (regex, fields)
            }
            (regex, Err(why)) => {
                report.take_all(directive);
                let is_rejection = is_test && directive.inner().iter().any(rejects);
                let status = if is_rejection { 403 } else { NOT_CONVERTED };
                let paths = format!("Requests for paths that match `{regex}` get {status}");
                report.block(directive, format!("{why}. {paths}"), None);
                (regex, respond(json!({ "status": status })))
            }
        };

        if PathTest::read(directive).is_some_and(|test| test.has_query) {
            report.note(directive, "it is asked for the path, and in nginx for the query too");
        }

        let path = ("path_regex", json!(regex));
        answers.push(Answer { directive, label: label(Kind::Regex(&text, false)), path, fields });
    }
    answers
}

/// Returns the redirect of a `rewrite` with the expression of its route, which has the same groups.
fn with_groups(
    directive: &Directive,
    regex: String,
    context: Redirecting<'_, '_>,
    report: &mut ImportReport,
) -> (String, Result<Fields, String>) {
    let has_groups = directive.arg(1).contains("$1") || directive.arg(1).contains("$2");
    let count = |text: &str| {
        let built = RegexBuilder::new(text).unicode(false).build();
        built.map_or(0, |regex| regex.captures_len())
    };

    if has_groups && count(&regex) != count(directive.arg(0)) {
        return (regex, Err("its groups are not those of one expression here".into()));
    }

    // nginx takes the first place where the expression matches.
    let regex = match regex.strip_prefix(".*") {
        Some(rest) if has_groups => format!(".*?{rest}"),
        _ => regex,
    };
    (regex, rewritten(directive, context, report))
}

/// Reports whether a directive may answer for a path that begins so.
fn meets(directive: &Directive, path: &str) -> bool {
    let (text, ignores_case) = expression(directive);
    let literal = Literal::of(&text, ignores_case);
    !literal.is_anchored || literal.meets(path) != Overlap::Never
}

/// Reports whether the routes of locations must be regular expressions too, which come in the order
/// of the file: a redirect comes before a location that takes the same paths. `all` are the redirects
/// of the server.
pub(super) fn is_by_regex(all: &[&Directive], locations: &[Location<'_>]) -> bool {
    locations.iter().any(|location| match location.kind {
        Kind::Prefix("/", _) | Kind::Exact(_) | Kind::Regex(..) => false,
        Kind::Prefix(path, _) => {
            !redirects(location.block).is_empty()
                || all.iter().any(|directive| meets(directive, path))
        }
    })
}

/// Returns the match of a route that comes behind the redirects of its server.
pub(super) fn behind(all: &[&Directive], path: (&'static str, Value)) -> (&'static str, Value) {
    let (key, value) = path;
    match value.as_str() {
        Some(path) if key == "path" && all.iter().any(|directive| meets(directive, path)) => {
            ("path_regex", json!(regex::escape(path)))
        }
        _ => (key, value),
    }
}

/// The status of a location that does not convert.
pub(super) const NOT_CONVERTED: u16 = 501;

/// Returns the answer of a block that has a `return` of its own, or a `rewrite` that redirects all of its paths.
pub(super) fn answer(
    block: &Directive,
    scope: &Scope<'_>,
    variables: &ServerVariables<'_>,
    report: &mut ImportReport,
) -> Option<Fields> {
    let directive = block.inner().iter().find(|directive| answers(directive))?;
    let context = Redirecting { scope, variables };
    let read = if directive.name == "return" {
        returned(directive, context, report)
    } else {
        rewritten(directive, context, report)
    };

    Some(match read {
        Ok(fields) => {
            report.take(directive);
            fields
        }
        Err(why) => {
            report.block(directive, format!("{why}. Its requests get {NOT_CONVERTED}"), None);
            respond(json!({ "status": NOT_CONVERTED }))
        }
    })
}

/// Reports whether a directive answers all requests that come to it.
pub(super) fn answers(directive: &Directive) -> bool {
    directive.name == "return" || (is_redirect(directive) && whole_path(directive.arg(0)).is_some())
}

/// Reports whether a directive redirects the requests for some paths.
pub(super) fn redirects_some(directive: &Directive) -> bool {
    is_redirect(directive) && whole_path(directive.arg(0)).is_none()
}

/// Returns the fields of a route that answers so.
pub(super) fn respond(answer: Value) -> Fields {
    let mut fields = Fields::default();
    fields.set("respond", answer);
    fields
}

/// Returns the fields of a route that ends connections without a response.
fn closing() -> Fields {
    let mut fields = Fields::default();
    fields.set("respond", "close");
    fields
}

/// Returns the fields of a route that sends clients elsewhere.
pub(super) fn redirect(to: &str, status: u16) -> Fields {
    let mut fields = Fields::default();
    fields.set("redirect", json!({ "to": to, "status": status }));
    fields
}

/// The scope and the variables of a redirect or a text.
#[derive(Clone, Copy, Debug)]
struct Redirecting<'a, 's> {
    scope: &'s Scope<'a>,
    variables: &'s ServerVariables<'a>,
}

impl Redirecting<'_, '_> {
    /// Returns a target whose `$uri` is a mark in place of the path.
    ///
    /// # Errors
    /// A `rewrite` has changed the path before.
    fn marked_path(
        self,
        directive: &Directive,
        to: &str,
        report: &mut ImportReport,
    ) -> Result<String, String> {
        let is_path = |piece: &Piece<'_>| matches!(piece, Piece::Variable("uri" | "document_uri"));
        let Ok(all) = pieces(to) else { return Ok(to.to_owned()) };
        if !all.iter().any(is_path) {
            return Ok(to.to_owned());
        }
        if self.scope.0.iter().any(|block| changes_path(block)) {
            return Err("a `rewrite` may have changed $uri".into());
        }

        report.note(
            directive,
            "the path in the redirect is as the client wrote it: nginx decodes `$uri`, and joins slashes",
        );
        let all = all.into_iter();
        let marked = all.map(|piece| if is_path(&piece) { Piece::Text(PATH) } else { piece });
        Ok(joined(&marked.collect::<Vec<_>>()))
    }
}

/// The mark of the path in a target. It cannot be in the file: it is no variable's name.
const PATH: &str = "\u{1}";

/// Reports whether a `rewrite` of a block changes the path for the directives behind it.
fn changes_path(block: &Directive) -> bool {
    let changes = |inner: &Directive| inner.name == "rewrite" && !is_redirect(inner);
    block.inner().iter().any(changes)
        || block.all("if").any(|test| test.inner().iter().any(changes))
}

fn returned(
    directive: &Directive,
    context: Redirecting<'_, '_>,
    report: &mut ImportReport,
) -> Result<Fields, String> {
    let Redirecting { scope, variables } = context;
    let first = directive.arg(0);
    let text = directive.args.get(1);
    let Ok(status) = first.parse::<u16>() else {
        return elsewhere(directive, first, 302, context, report);
    };

    match (status, text) {
        (301 | 302 | 303 | 307 | 308, Some(url)) => {
            elsewhere(directive, url, status, context, report)
        }
        (301 | 302 | 303 | 307 | 308, None) => Err("a redirect needs a URL".into()),
        (444, _) => Ok(closing()),
        (200..600, None) => Ok(respond(json!({ "status": status }))),
        (204 | 205 | 304, Some(_)) => Err("this status has no body".into()),
        (200..600, Some(text)) => {
            let body = template(text, variables)?;
            let headers = json!({ "content-type": media_types::of_location(scope, report) });
            Ok(respond(json!({ "status": status, "headers": headers, "body": body })))
        }
        _ => Err("this is not the status of a response".into()),
    }
}

fn elsewhere(
    directive: &Directive,
    url: &str,
    status: u16,
    context: Redirecting<'_, '_>,
    report: &mut ImportReport,
) -> Result<Fields, String> {
    let url = context.marked_path(directive, url, report)?;
    let begins = ["/", "http://", "https://", "$scheme://", "${scheme}://"];
    if !begins.iter().any(|begin| url.starts_with(begin)) && !url.starts_with(PATH) {
        return Err("the beginning of the URL is invalid".into());
    }
    let to = template(&url, context.variables)?.replace(PATH, "{path}");
    // nginx adds no query by itself.
    let to = if to.contains('?') || to.contains("{query}") { to } else { to + "?" };
    Ok(redirect(&to, status))
}

/// Reports whether a directive is a `rewrite` that redirects: with a flag, or to a whole URL.
fn is_redirect(directive: &Directive) -> bool {
    let is_flagged = matches!(directive.arg(2), "permanent" | "redirect");
    directive.name == "rewrite" && (is_flagged || is_whole_url(directive.arg(1)))
}

fn is_whole_url(text: &str) -> bool {
    ["http://", "https://", "$scheme"].iter().any(|begin| text.starts_with(begin))
}

/// Returns what stands for the whole path in the replacement of a `rewrite` that takes every path,
/// or an empty text if nothing does.
pub(super) fn whole_path(regex: &str) -> Option<&'static str> {
    match regex {
        "^" | ".*" | "^.*" | "^.*$" => Some(""),
        "^(.*)$" | "^(.*)" | "(.*)" => Some("$1"),
        "^/(.*)$" | "^/(.*)" => Some("/$1"),
        _ => None,
    }
}

/// Converts a `rewrite` that redirects. Groups are those of its expression.
///
/// # Errors
/// No placeholder stands for a variable.
fn rewritten(
    directive: &Directive,
    context: Redirecting<'_, '_>,
    report: &mut ImportReport,
) -> Result<Fields, String> {
    let status = if directive.arg(2) == "permanent" { 301 } else { 302 };
    let to = directive.arg(1).replace("$request_uri?", "$request_uri");
    let to = context.marked_path(directive, &to, report)?;

    let begins_with_group = to
        .strip_prefix('$')
        .is_some_and(|rest| rest.starts_with(|sign: char| sign.is_ascii_digit()));
    if !is_whole_url(&to) && !to.starts_with('/') && !to.starts_with(PATH) && !begins_with_group {
        return Err("the beginning of the URL is invalid".into());
    }

    // A `?` at the end drops the request's query, and so does any `?` here.
    let to = match to.strip_suffix('?') {
        Some(url) if url.contains('?') => url.to_owned(),
        None if to.contains('?') => return Err("a redirect does not join two queries".into()),
        _ => to,
    };

    let path = whole_path(directive.arg(0)).filter(|path| !path.is_empty());
    let to = path.map_or_else(|| to.clone(), |path| to.replace(path, PATH));
    let (to, has_groups) = marked(&to)?;
    if has_groups && whole_path(directive.arg(0)).is_some() {
        return Err("a redirect has the whole path or none, and no part of it".into());
    }

    let to = template(&to, context.variables)?;
    let to = to.replace(PATH, "{path}").replace('\u{2}', "$");
    Ok(redirect(&to, status))
}

/// Returns a target whose groups are marked, and whether it has any.
///
/// # Errors
/// A digit follows a group: flowgate would read both as one number.
fn marked(to: &str) -> Result<(String, bool), String> {
    let mut parts = to.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut has_groups = false;

    for part in parts {
        let mut signs = part.chars();
        let is_group = signs.next().is_some_and(|sign| sign.is_ascii_digit());
        if is_group && signs.next().is_some_and(|sign| sign.is_ascii_alphanumeric() || sign == '_')
        {
            return Err("a redirect does not end a group before a letter".into());
        }
        out.push(if is_group { '\u{2}' } else { '$' });
        out += part;
        has_groups |= is_group;
    }
    Ok((out, has_groups))
}

#[cfg(test)]
mod tests {
    use crate::import::tests::import;

    /// Returns the routes of the result, each with its comment, and the lines of the report.
    fn routes(server: &str) -> (Vec<String>, Vec<String>) {
        let text = format!("http {{ server {{ listen 81;\n{server} }} }}");
        let (yaml, lines) = import(&text).unwrap();
        let (_, routes) = yaml.split_once("routes:\n").expect(&yaml);
        let routes = routes.split("  - name: ").skip(1);
        let matched = |route: &str| {
            let line = route.lines().find_map(|line| line.trim().strip_prefix("match: "));
            let action = route.lines().nth(2).unwrap_or_default().trim();
            format!("{} {action}", line.unwrap_or_default())
        };
        (routes.map(matched).collect(), lines)
    }

    #[test]
    fn a_host_that_is_redirected_has_a_route_of_its_own() {
        let (found, lines) = routes(
            "server_name a.test www.a.test;
            if ($host = www.a.test) { return 301 https://$host$request_uri; }
            if ($host = 'a.test') { return 301 https://$host$request_uri; }
            return 404;",
        );
        let to = "redirect: { to: \"https://{host}{path}{query}\", status: 301 }";
        let expected = [
            format!("{{ host: www.a.test, path_prefix: / }} {to}"),
            format!("{{ host: a.test, path_prefix: / }} {to}"),
            "{ path_prefix: / } respond: { status: 404 }".to_owned(),
        ];
        assert_eq!(found, expected);
        assert_eq!(lines, [""; 0]);
        // As certbot leaves it: the host has another server at another port.
        let (yaml, lines) = import(
            "http { server { if ($host = a.test) { return 301 https://$host$request_uri; } listen 80; server_name a.test; return 404; }
            server { listen 81; server_name a.test; return 200; } }",
        )
        .unwrap();
        let expected =
            format!("match: {{ listener: http-80, host: a.test, path_prefix: / }}\n    {to}\n");
        assert!(yaml.contains(&expected), "{yaml}");
        assert_eq!(lines, [""; 0]);
        // The other server gets these requests, and the first one does not.
        let (yaml, lines) = import(
            "http { server { listen 81; server_name a.test; if ($host = b.test) { return 301 /; } return 200; }
            server { listen 81; server_name b.test; return 201; } }",
        )
        .unwrap();
        assert!(!yaml.contains("redirect"), "{yaml}");
        assert_eq!(lines, [""; 0]);
    }

    #[test]
    fn the_path_of_a_redirect_is_that_of_the_client() {
        let difference = "the path in the redirect is as the client wrote it: nginx decodes `$uri`, and joins slashes";
        for (directive, expected) in [
            ("return 301 https://new.test$uri$is_args$args;", "https://new.test{path}{query}"),
            ("return 301 https://new.test$uri;", "https://new.test{path}?"),
            ("return 308 $scheme://$http_host/n${document_uri}x;", "{scheme}://{host}/n{path}x?"),
            ("return 302 $uri/;", "{path}/?"),
            ("rewrite ^ https://new.test$uri? permanent;", "https://new.test{path}?"),
            ("rewrite ^/a https://new.test$uri permanent; return 404;", "https://new.test{path}"),
        ] {
            let (found, lines) = routes(directive);
            let to = format!("redirect: {{ to: \"{expected}\"");
            assert!(found[0].contains(&to), "{directive}: {found:?}");
            assert!(lines.len() == 1 && lines[0].ends_with(difference), "{directive}: {lines:?}");
        }

        for directive in [
            "rewrite ^/a(.*)$ $1; return 301 https://new.test$uri;",
            "if ($http_x) { rewrite ^ /b last; } location / { return 301 https://new.test$uri; }",
        ] {
            let (found, lines) = routes(directive);
            assert!(found.iter().any(|route| route.contains("status: 501")), "{found:?}");
            assert!(lines.iter().any(|line| line.contains("may have changed $uri")), "{lines:?}");
        }
    }

    #[test]
    fn a_redirect_of_some_paths_leaves_the_locations() {
        let pass = "proxy_redirect off; proxy_set_header Host $http_host;";
        let (found, lines) = routes(&format!(
            "{pass} rewrite ^/old/(.*)$ /new/$1 permanent; rewrite ^/gone$ /here redirect;
            location / {{ proxy_pass http://h; }} location /x/ {{ return 200; }}"
        ));
        let expected = [
            "{ path_regex: \"/old/(.*)\" } redirect: { to: \"/new/$1\", status: 301 }",
            "{ path_regex: /gone } redirect: { to: /here, status: 302 }",
            "{ path_regex: \"/x/.*\" } respond: { status: 200 }",
            "{ path_prefix: / } upstream: h",
        ];
        assert_eq!(found, expected);
        assert_eq!(lines, [""; 0]);
    }

    #[test]
    fn a_redirect_comes_before_the_locations_that_take_its_paths() {
        let (found, _) = routes(
            "rewrite ^/a /b permanent; rewrite c(?=d) /b permanent;
            location = /a/x { return 200; } location /a/ { return 201; } location = /e { return 202; }
            location /f/ { rewrite ^/f/g /b permanent; return 203; }
            location = /h { rewrite ^/h /b permanent; }",
        );
        let expected = [
            "{ path_regex: \"/a.*\" } redirect: { to: /b, status: 301 }",
            "{ path_regex: \".*c.*\" } respond: { status: 501 }",
            "{ path_regex: /a/x } respond: { status: 200 }",
            "{ path_regex: /e } respond: { status: 202 }",
            "{ path_regex: /h } respond: { status: 501 }",
            "{ path_regex: \"/a/.*\" } respond: { status: 201 }",
            "{ path_regex: \"/f/g.*\" } redirect: { to: /b, status: 301 }",
            "{ path_regex: \"/f/.*\" } respond: { status: 203 }",
            "{ path_prefix: /, method: [GET, HEAD, POST] } respond: { status: 404 }",
            "{ path_prefix: / } respond: { status: 405 }",
        ];
        assert_eq!(found, expected);
    }
}
