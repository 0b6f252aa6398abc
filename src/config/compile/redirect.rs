//! Redirects: where they lead, with groups of the route's `path_regex`.

use super::{compiler::Compiler, templates::Use};
use crate::{
    config::{
        decode::At,
        diagnostics::{Problem, SourceSpan, quoted},
        plan::{GroupPiece, Piece, Placeholder, Redirect, Template, UrlPart},
        spec::{RouteSpec, leaf::RedirectTo},
    },
    route::{PathGroup, PathGroups, PathPattern},
};
use http::StatusCode;

/// The long form of `https`.
const HTTPS: &str = "https://{host}{path}";

/// The most groups in a URL.
const MAX_GROUPS: usize = 64;

/// Returns the regular expressions of a route's paths; `None` if one could not be read, which is
/// reported elsewhere.
pub(super) fn groups_of(spec: &RouteSpec) -> Option<PathGroups> {
    let matcher = spec.matcher.value()?;
    let regexes = matcher.path_regex.items().iter().map(|at| PathPattern::regex(&at.value.0));
    let paths: Vec<_> = regexes.collect::<Result<_, _>>().ok()?;
    Some(PathGroups::of(&paths))
}

impl Compiler {
    /// Compiles a redirect to `to`, which may name groups of the route's expressions. Without
    /// `groups`, they are not known.
    pub(super) fn redirect(
        &mut self,
        to: &At<&RedirectTo>,
        status: Option<StatusCode>,
        groups: Option<PathGroups>,
    ) -> Option<Redirect> {
        let is_https = to.value.0 == "https";
        let text = if is_https { HTTPS } else { &to.value.0 };
        let is_group = |variable: &str| {
            let name = variable.strip_prefix('$');
            let groups = groups.as_ref().filter(|groups| !groups.is_empty());
            let group = name.and_then(|name| groups?.group(name).ok());
            group.is_some()
        };
        self.literal_variables_of(text, to.span, |variable| !is_group(variable));
        let template = self.template(text, to.span, Use::Request);
        let mut template = self.with_groups(template, groups.as_ref(), to.span);

        let has_query = |piece: &Piece| match piece {
            Piece::Text(text) => text.contains(['?', '#']),
            Piece::Value(value) => *value == Placeholder::Query,
            Piece::Group(_) => false,
        };
        let keeps_query = !template.0.iter().any(has_query);
        if let Some(Piece::Text(last)) = template.0.last_mut()
            && let Some(rest) = last.strip_suffix('?')
        {
            *last = rest.into();
        }
        if !is_whole(&template) {
            let message = format!("{} is neither a URL nor a path", quoted(&to.value.0));
            let help = "write `https`, or a URL as in `https://{host}{path}`, or a path as in `/new{path}`";
            self.error(Problem::error(to.span, message).help(help));
            return None;
        }

        let default = if is_https { StatusCode::PERMANENT_REDIRECT } else { StatusCode::FOUND };
        let written = self.substitutions.at(to.span).map(|one| one.written.clone());
        let words = written.unwrap_or_else(|| template.to_string()).into();
        let has_groups = template.0.iter().any(|piece| matches!(piece, Piece::Group(_)));
        Some(Redirect {
            status: status.unwrap_or(default),
            to: template,
            words,
            keeps_query,
            groups: groups.filter(|_| has_groups),
        })
    }

    /// Finds groups in the texts of a template: `$1` and `$name`. `$$` is a dollar sign, and so is
    /// one before anything else.
    fn with_groups(
        &mut self,
        template: Template,
        groups: Option<&PathGroups>,
        span: SourceSpan,
    ) -> Template {
        let has_dollar = |piece: &Piece| matches!(piece, Piece::Text(text) if text.contains('$'));
        if !template.0.iter().any(has_dollar) {
            return template;
        }
        let mut made = Vec::with_capacity(template.0.len() + 2);
        for piece in template.0 {
            match piece {
                Piece::Text(text) => self.split_groups(&text, groups, span, &mut made),
                Piece::Value(_) | Piece::Group(_) => made.push(piece),
            }
        }
        if made.iter().filter(|piece| matches!(piece, Piece::Group(_))).count() > MAX_GROUPS {
            let message = format!("the URL has more than {MAX_GROUPS} groups");
            self.error(Problem::error(span, message).help("write a shorter one"));
        }
        Template(made.into())
    }

    fn split_groups(
        &mut self,
        text: &str,
        groups: Option<&PathGroups>,
        span: SourceSpan,
        made: &mut Vec<Piece>,
    ) {
        let mut literal = String::new();
        let mut rest = text;

        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            let (name, behind) = group_name(after);
            rest = behind;

            if let Some(after) = after.strip_prefix('$') {
                literal.push('$');
                rest = after;
                continue;
            }

            let group = groups.and_then(|groups| self.group(name, groups, span));
            let Some(group) = group else {
                literal.push('$');
                literal.push_str(name);
                continue;
            };

            push_text(&mut literal, made);
            if let Some(place) = url_part(made) {
                made.push(Piece::Group(GroupPiece { group, place }));
                continue;
            }

            self.group_in_host(name, span);
            // It stays in the text, so that the rest is checked as it is written.
            if let Some(Piece::Text(before)) = made.pop_if(|last| is_text(last)) {
                literal = before.into();
            }
            literal.push('$');
            literal.push_str(name);
        }

        literal.push_str(rest);
        push_text(&mut literal, made);
    }

    fn group_in_host(&mut self, name: &str, span: SourceSpan) {
        let span = self.span_of(&format!("${name}"), span);
        let message = format!("clients could choose the host of the URL by `${name}`");
        let help = "write the host, and groups behind it, as in `https://www.example.com/$1`";
        self.error(Problem::error(span, message).help(help));
    }

    /// Returns a group of the route's expressions. A number that none has is an error, and a word is
    /// text.
    fn group(&mut self, name: &str, groups: &PathGroups, span: SourceSpan) -> Option<PathGroup> {
        let is_number = name.starts_with(|c: char| c.is_ascii_digit());
        let is_word = !is_number && (name.is_empty() || groups.is_empty());
        if is_word {
            return None;
        }
        let lacks = match groups.group(name) {
            Ok(group) if !groups.is_empty() => return Some(group),
            Err(_) if !is_number => return None,
            Ok(_) => None,
            Err(expression) => Some(expression),
        };
        let message = match lacks {
            None => format!("`${name}` is a group of `path_regex`, which this route does not have"),
            Some(expression) => format!("{} has no group `{name}`", quoted(expression)),
        };
        let help = format!(
            "write what `${name}` stands for in parentheses, as in `match: {{ path_regex: '/old/(.*)' }}`, \
             or `$${name}` for the text itself"
        );
        let span = self.span_of(&format!("${name}"), span);
        self.error(Problem::error(span, message).help(help));
        None
    }
}

/// Splits the number or the word off that `text` begins with.
fn group_name(text: &str) -> (&str, &str) {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let fits =
        |c: char| c.is_ascii_digit() || (!is_number && (c.is_ascii_alphabetic() || c == '_'));
    text.split_at(text.find(|c| !fits(c)).unwrap_or(text.len()))
}

const fn is_text(piece: &Piece) -> bool {
    matches!(piece, Piece::Text(_))
}

fn push_text(text: &mut String, made: &mut Vec<Piece>) {
    if !text.is_empty() {
        made.push(Piece::Text(std::mem::take(text).into()));
    }
}

/// Returns whether the text is a URL or a path.
fn is_whole(template: &Template) -> bool {
    match template.0.first() {
        Some(Piece::Text(text)) => {
            let text = text.to_ascii_lowercase();
            let has = |scheme: &str| {
                let host = template.0.get(1) == Some(&Piece::Value(Placeholder::Host));
                text.starts_with(scheme) && (text.len() > scheme.len() || host)
            };
            text.starts_with('/') || has("http://") || has("https://")
        }
        Some(Piece::Value(Placeholder::Path) | Piece::Group(_)) => true,
        Some(Piece::Value(Placeholder::Scheme)) => {
            matches!(template.0.get(1), Some(Piece::Text(text)) if text.starts_with("://"))
        }
        Some(Piece::Value(_)) | None => false,
    }
}

/// Returns which part of a URL follows `pieces`; `None`: the host is not complete there.
fn url_part(pieces: &[Piece]) -> Option<UrlPart> {
    let begun: String = pieces.iter().map(stand_in).collect();
    let names_host = matches!(pieces.first(), Some(Piece::Text(text)) if text.starts_with("//"));
    let authority = if names_host {
        begun.strip_prefix("//")
    } else if begun.starts_with('/') {
        None
    } else {
        begun.split_once("://").map(|(_, rest)| rest)
    };
    if begun.contains(['?', '#']) {
        return Some(UrlPart::Query);
    }
    match authority {
        Some(host) if !host.contains('/') => {
            let is_complete = host.ends_with(|c: char| c.is_ascii_alphanumeric() || c == ']');
            is_complete.then_some(UrlPart::AfterHost)
        }
        Some(_) | None => Some(UrlPart::Path),
    }
}

/// Returns a text with the form of what a piece stands for.
fn stand_in(piece: &Piece) -> &str {
    match piece {
        Piece::Text(text) => text,
        Piece::Value(Placeholder::Scheme) => "https",
        Piece::Value(Placeholder::Port) => "443",
        Piece::Value(Placeholder::Path) => "/path",
        Piece::Value(Placeholder::Query) => "?query",
        Piece::Value(
            Placeholder::ClientCertFingerprint
            | Placeholder::ClientCertSubject
            | Placeholder::ClientIp
            | Placeholder::Asn
            | Placeholder::Country
            | Placeholder::Host
            | Placeholder::Method
            | Placeholder::RequestId
            | Placeholder::RetryAfter
            | Placeholder::Rule
            | Placeholder::Uri
            | Placeholder::Url,
        ) => "value",
        // It begins with a slash behind a host.
        Piece::Group(GroupPiece { place: UrlPart::AfterHost, .. }) => "/",
        Piece::Group(_) => "group",
    }
}
