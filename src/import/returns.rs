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

/// Returns the answer of a block that has a `return` of its own, or a `rewrite` that redirects all of its paths.
pub(super) fn answer(
    block: &Directive,
    scope: &Scope<'_>,
    variables: &ServerVariables<'_>,
    report: &mut ImportReport,
) -> Option<Fields> {
    let directive = block.inner().iter().find(|directive| answers(directive))?;
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
        (444, _) => Ok(closing()),
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
fn whole_path(regex: &str) -> Option<&'static str> {
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
pub(super) fn rewritten(
    directive: &Directive,
    variables: &ServerVariables<'_>,
) -> Result<Fields, String> {
    let status = if directive.arg(2) == "permanent" { 301 } else { 302 };
    let to = directive.arg(1).replace("$request_uri?", "$request_uri");
    let begins_with_group = to
        .strip_prefix('$')
        .is_some_and(|rest| rest.starts_with(|sign: char| sign.is_ascii_digit()));
    if !is_whole_url(&to) && !to.starts_with('/') && !begins_with_group {
        return Err("the beginning of the URL is invalid".into());
    }
    // A `?` at the end drops the request's query, and so does any `?` here.
    let to = match to.strip_suffix('?') {
        Some(url) if url.contains('?') => url.to_owned(),
        None if to.contains('?') => return Err("a redirect does not join two queries".into()),
        _ => to,
    };
    // Their own marks cannot be in the file: they are no variable's name.
    let path = whole_path(directive.arg(0)).filter(|path| !path.is_empty());
    let to = path.map_or_else(|| to.clone(), |path| to.replace(path, "\u{1}"));
    let (to, has_groups) = marked(&to)?;
    if has_groups && whole_path(directive.arg(0)).is_some() {
        return Err("a redirect has the whole path or none, and no part of it".into());
    }
    let to = template(&to, variables)?.replace('\u{1}', "{path}").replace('\u{2}', "$");
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
