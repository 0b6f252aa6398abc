//! `error_page`: the bodies of errors.
//!
//! A page is the text of a `return`, or a file, which becomes a part of the result.

use super::{
    converted_config::Fields,
    files::Files,
    media_types::of_path,
    report::ImportReport,
    template::{ServerVariables, template},
    tree::{Directive, Scope},
};
use serde_json::{Value, json};
use std::fs;

/// The largest file that becomes a part of the result, in bytes.
const MOST_BYTES: u64 = 64 * 1024;

/// Reports whether an auth service decides about the requests of a route.
fn has_service(fields: &Fields) -> bool {
    fields.0.get("auth").is_some_and(|auth| auth.get("forward").is_some())
}

/// A page with its media type.
struct Page {
    body: String,
    content_type: String,
}

/// A location with error pages, as its requests see it.
pub(super) struct ErrorPages<'a, 's> {
    /// The blocks around a request whose error has a page.
    pub scope: &'s Scope<'a>,
    pub http: &'a Directive,
    pub server: &'a Directive,
    pub variables: &'s ServerVariables<'a>,
    pub files: &'s Files,
}

impl<'a> ErrorPages<'a, '_> {
    /// Adds the bodies of the errors that have a page.
    pub(super) fn convert(&self, fields: &mut Fields, report: &mut ImportReport) {
        let pages = self.scope.all(&["error_page"]);
        let modules = ["proxy_intercept_errors", "grpc_intercept_errors"];
        let replaces =
            modules.into_iter().filter(|module| self.scope.is_on(module, report)).count();

        let mut errors = Vec::new();
        for page in pages {
            // `login` of the auth service.
            if page.args.first().is_some_and(|status| status == "401") && has_service(fields) {
                continue;
            }
            // The named location of a 404 serves the paths without a file.
            if page.args.last().is_some_and(|target| target.starts_with('@')) {
                continue;
            }
            match self.error(page, report) {
                Ok(mut error) => {
                    report.take(page);
                    self.take_location(page, report);
                    if replaces > 0 {
                        error["from"] = json!("both");
                    }
                    errors.push(error);
                }
                Err(why) => report.note(page, why),
            }
        }
        if !errors.is_empty() {
            fields.set("errors", errors);
        }
    }

    /// Takes what says where a page is and its type, in a location for that page alone.
    fn take_location(&self, page: &Directive, report: &mut ImportReport) {
        let target = page.args.last().map_or("", String::as_str);
        let own = self.location(target).filter(|location| location.arg(0) == "=");
        let is_of_page =
            |inner: &&Directive| matches!(inner.name.as_str(), "root" | "alias" | "default_type");
        for inner in own.into_iter().flat_map(Directive::inner).filter(is_of_page) {
            report.take(inner);
        }
    }

    /// Returns the entry of `errors` for a page.
    ///
    /// # Errors
    /// The page does not convert; the text says why.
    fn error(&self, directive: &Directive, report: &mut ImportReport) -> Result<Value, String> {
        let (target, statuses) = directive.args.split_last().ok_or("it has no page")?;
        let mut codes = Vec::new();
        for status in statuses {
            if status.starts_with('=') {
                return Err("flowgate keeps the status of the error".into());
            }
            match status.parse::<u16>() {
                Ok(code @ 400..600) => codes.push(code),
                _ => return Err(format!("{status} is not the status of an error")),
            }
        }
        if codes.contains(&494) || codes.iter().any(|code| (495..=499).contains(code)) {
            return Err("the statuses 494 to 499 are of nginx alone".into());
        }

        let Page { body, content_type } = self.page(target, report)?;
        Ok(json!({ "status": codes, "body": body, "content_type": content_type }))
    }

    /// Returns the page at `target`, a path of the server.
    fn page(&self, target: &str, report: &mut ImportReport) -> Result<Page, String> {
        if !target.starts_with('/') || target.contains('$') {
            return Err("its page is not a path of this server".into());
        }

        let location = self.location(target);
        let scope = match location {
            Some(location) => Scope(vec![self.http, self.server, location]),
            None => Scope(vec![self.http, self.server]),
        };
        if let Some(location) = location {
            if let Some(answer) = location.inner().iter().find(|inner| inner.name == "return") {
                let text = answer.args.get(1).ok_or("its page has no text")?;
                let body = template(text, self.variables)?;
                return Ok(Page { body, content_type: of_path(&scope, target, report) });
            }
            if location.inner().iter().any(super::actions::is_pass) {
                return Err("a server makes its page, and flowgate has texts only".into());
            }
        }
        let body = super::template::literal(&self.file(&scope, target)?);
        Ok(Page { body, content_type: of_path(&scope, target, report) })
    }

    /// Returns the text of the file that nginx serves at `target`.
    fn file(&self, scope: &Scope<'_>, target: &str) -> Result<String, String> {
        let own = scope.0.last().filter(|block| block.name == "location");
        let alias = own.and_then(|location| location.all("alias").last());
        let name = match (alias, scope.find("root")) {
            (Some(alias), _) if alias.arg(0).ends_with('/') => {
                let prefix = own.and_then(|location| location.args.last());
                let rest = target.strip_prefix(prefix.map_or("", String::as_str));
                format!("{}{}", alias.arg(0), rest.unwrap_or_default())
            }
            (Some(alias), _) => alias.arg(0).to_owned(),
            (None, Some(root)) => format!("{}{target}", root.arg(0).trim_end_matches('/')),
            (None, None) => return Err("no `root` says where its page is".into()),
        };

        let path = self.files.here(&name);
        let missing = || {
            let name = self.files.named(&name);
            format!("its page {name} is missing here: write its text in `errors`")
        };
        let length = fs::metadata(&path).map_err(|_| missing())?.len();
        if length > MOST_BYTES {
            return Err("its page has more than 64 KiB".into());
        }
        fs::read_to_string(&path).map_err(|_| missing())
    }

    /// Returns the location that takes a path: the exact one, or that with the longest prefix.
    fn location(&self, path: &str) -> Option<&'a Directive> {
        let exact = |location: &&Directive| location.args == ["=", path];
        let prefix = |location: &Directive| match &location.args[..] {
            [prefix] => Some(prefix.clone()),
            [sign, prefix] if sign == "^~" => Some(prefix.clone()),
            _ => None,
        };
        let own = self.server.all("location").find(exact);
        own.or_else(|| {
            let all = self.server.all("location");
            let found = all.filter_map(|location| Some((prefix(location)?, location)));
            let fitting = found.filter(|(prefix, _)| path.starts_with(prefix.as_str()));
            fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, location)| location)
        })
    }
}
