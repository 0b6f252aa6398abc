//! `rewrite REGEX TARGET permanent`: redirects of some paths, which come before what else is there.

use super::{
    converted_config::Fields,
    literal::{Literal, Overlap},
    locations::{Kind, Location, label},
    pattern::{at_least, begins_with, encoded, path_regex_within},
    report::ImportReport,
    returns::{NOT_CONVERTED, answers, redirects_some, respond, rewritten},
    template::ServerVariables,
    tree::Directive,
};
use serde_json::{Value, json};

/// Returns the redirects of some paths in a block that come to requests.
pub(super) fn redirects(block: &Directive) -> Vec<&Directive> {
    let reached = block.inner().iter().take_while(|directive| !answers(directive));
    reached.filter(|directive| redirects_some(directive)).collect()
}

/// A route that answers before limits and access are asked.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub directive: &'a Directive,
    /// What the route is called by.
    pub label: String,
    /// A key of `match` and its value.
    pub path: (&'static str, Value),
    pub fields: Fields,
}

/// Returns the routes of `all`, which redirect some of the paths below `prefix`. Without an equal
/// redirect a route answers 501, so that no request goes where nginx sends none.
pub(super) fn redirected<'a>(
    all: &[&'a Directive],
    prefix: &str,
    variables: &ServerVariables<'_>,
    report: &mut ImportReport,
) -> Vec<Answer<'a>> {
    let mut answers = Vec::new();
    for directive in all {
        let text = directive.arg(0);
        let read = match path_regex_within(prefix, text, false) {
            Ok(None) => {
                report.take(directive);
                continue;
            }
            Ok(Some(regex)) => (regex, rewritten(directive, variables)),
            Err(why) if prefix == "/" => (at_least(text, false), Err(why)),
            Err(why) => (begins_with(&encoded(prefix)), Err(why)),
        };
        let (regex, fields) = match read {
            (regex, Ok(fields)) => {
                report.take(directive);
                (regex, fields)
            }
            (regex, Err(why)) => {
                let paths = format!("Requests for paths that match `{regex}` get {NOT_CONVERTED}");
                report.note(directive, format!("{why}. {paths}"));
                (regex, respond(json!({ "status": NOT_CONVERTED })))
            }
        };
        let path = ("path_regex", json!(regex));
        answers.push(Answer { directive, label: label(Kind::Regex(text, false)), path, fields });
    }
    answers
}

/// Reports whether a `rewrite` may match a path that begins so.
fn meets(directive: &Directive, path: &str) -> bool {
    let literal = Literal::of(directive.arg(0), false);
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
pub(super) fn behind(
    all: &[&Directive],
    (key, value): (&'static str, Value),
) -> (&'static str, Value) {
    match value.as_str() {
        Some(path) if key == "path" && all.iter().any(|directive| meets(directive, path)) => {
            ("path_regex", json!(regex::escape(path)))
        }
        _ => (key, value),
    }
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
        assert_eq!(lines, ["nginx.conf:1: if: write a route with a `match` for each case"]);
    }

    #[test]
    fn a_redirect_of_some_paths_leaves_the_locations() {
        let pass = "proxy_redirect off; proxy_set_header Host $http_host;";
        let (found, lines) = routes(&format!(
            "{pass} rewrite ^/old/(.*)$ /new/$1 permanent; rewrite ^/gone$ /here redirect;
            location / {{ proxy_pass http://h; }} location /x/ {{ return 200; }}"
        ));
        let expected = [
            "{ path_regex: \"/old/(.*)\" } respond: { status: 501 }",
            "{ path_regex: /gone } redirect: { to: /here, status: 302 }",
            "{ path_regex: \"/x/.*\" } respond: { status: 200 }",
            "{ path_prefix: / } upstream: h",
        ];
        assert_eq!(found, expected);
        let expected = "nginx.conf:2: rewrite: a redirect has the whole path or none, and no part of it. \
                        Requests for paths that match `/old/(.*)` get 501";
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn a_redirect_comes_before_the_locations_that_take_its_paths() {
        let (found, _) = routes(
            "rewrite ^/a /b permanent; rewrite c(?!d) /b permanent;
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
            "{ path_prefix: / } respond: { status: 404 }",
        ];
        assert_eq!(found, expected);
    }
}
