//! `return` and `rewrite … permanent` as answers of flowgate.

use super::{
    converted_config::Fields,
    report::ImportReport,
    scope::Scope,
    template::{ServerVariables, template},
    tree::Directive,
};
use serde_json::{Value, json};

/// What an unconverted location answers with.
pub(super) const NOT_CONVERTED: u16 = 501;

/// Returns the answer of a block that has a `return` or a redirecting `rewrite` of its own.
pub(super) fn answer(
    block: &Directive,
    scope: &Scope<'_>,
    variables: &ServerVariables<'_>,
    report: &mut ImportReport,
) -> Option<Fields> {
    let answers = |directive: &&Directive| {
        directive.name == "return" || (directive.name == "rewrite" && is_redirect(directive.arg(2)))
    };
    let directive = block.inner().iter().find(answers)?;
    let read = if directive.name == "return" {
        returned(directive, scope, variables, report)
    } else {
        rewritten(directive, variables)
    };
    Some(match read {
        Ok(fields) => {
            report.take(directive);
            fields
        }
        Err(why) => {
            report.note(directive, format!("{why}. Its requests get {NOT_CONVERTED}"));
            respond(json!({ "status": NOT_CONVERTED }))
        }
    })
}

/// Returns the fields of a route that answers so.
pub(super) fn respond(answer: Value) -> Fields {
    let mut fields = Fields::default();
    fields.set("respond", answer);
    fields
}

/// Returns the fields of a route that sends clients elsewhere.
pub(super) fn redirect(to: &str, status: u16) -> Fields {
    let mut fields = Fields::default();
    fields.set("redirect", json!({ "to": to, "status": status }));
    fields
}

fn returned(
    directive: &Directive,
    scope: &Scope<'_>,
    variables: &ServerVariables<'_>,
    report: &mut ImportReport,
) -> Result<Fields, String> {
    let first = directive.arg(0);
    let text = directive.args.get(1);
    let Ok(status) = first.parse::<u16>() else { return elsewhere(first, 302, variables) };
    match (status, text) {
        (301 | 302 | 303 | 307 | 308, Some(url)) => elsewhere(url, status, variables),
        (301 | 302 | 303 | 307 | 308, None) => Err("a redirect needs a URL".into()),
        (444, _) => Err("no answer closes the connection without one".into()),
        (200..600, None) => Ok(respond(json!({ "status": status }))),
        (204 | 205 | 304, Some(_)) => Err("this status has no body".into()),
        (200..600, Some(text)) => {
            let usual = scope.word("default_type", report).unwrap_or("text/plain");
            let body = template(text, variables)?;
            let headers = json!({ "content-type": usual });
            Ok(respond(json!({ "status": status, "headers": headers, "body": body })))
        }
        _ => Err("this is not the status of a response".into()),
    }
}

fn elsewhere(url: &str, status: u16, variables: &ServerVariables<'_>) -> Result<Fields, String> {
    let begins = ["/", "http://", "https://", "$scheme://", "${scheme}://"];
    if !begins.iter().any(|begin| url.starts_with(begin)) {
        return Err("the beginning of the URL is invalid".into());
    }
    let to = template(url, variables)?;
    // nginx adds no query by itself.
    let to = if to.contains('?') || to.contains("{query}") { to } else { to + "?" };
    Ok(redirect(&to, status))
}

fn is_redirect(flag: &str) -> bool {
    matches!(flag, "permanent" | "redirect")
}

/// Converts a `rewrite` that sends all requests elsewhere.
fn rewritten(directive: &Directive, variables: &ServerVariables<'_>) -> Result<Fields, String> {
    let status = if directive.arg(2) == "permanent" { 301 } else { 302 };
    let path = match directive.arg(0) {
        "^" | ".*" | "^.*" | "^.*$" => None,
        "^(.*)$" | "^(.*)" | "(.*)" => Some("$1"),
        "^/(.*)$" | "^/(.*)" => Some("/$1"),
        _ => return Err("only `rewrite ^` and `rewrite ^(.*)$` redirect exactly the same".into()),
    };
    let to = directive.arg(1).replace("$request_uri?", "$request_uri");
    if !to.starts_with("http://") && !to.starts_with("https://") && !to.starts_with("$scheme://") {
        return Err("only a whole URL redirects exactly the same".into());
    }
    // Its own mark cannot be in the file: it is no variable's name.
    let to = path.map_or_else(|| to.clone(), |path| to.replace(path, "\u{1}"));
    Ok(redirect(&template(&to, variables)?.replace('\u{1}', "{path}"), status))
}
