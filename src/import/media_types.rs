//! The media type of a response that nginx makes itself: by the extension of its path.

use super::{
    locations::{Kind, kind},
    report::ImportReport,
    tree::{Directive, Scope},
};

/// The types of nginx without a `types` block.
const BUILT_IN: [(&str, &str); 3] =
    [("gif", "image/gif"), ("html", "text/html"), ("jpg", "image/jpeg")];

/// The types of nginx's `mime.types` that texts and pages usually have, for an import without this file.
const USUAL: [(&str, &str); 14] = [
    ("atom", "application/atom+xml"),
    ("css", "text/css"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "application/javascript"),
    ("json", "application/json"),
    ("rss", "application/rss+xml"),
    ("shtml", "text/html"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("xml", "text/xml"),
];

/// Returns the media type of a `return` with a text in the innermost location of a scope: that of the
/// location's path, if all its requests have the same one, and otherwise `default_type`.
pub(super) fn of_location(scope: &Scope<'_>, report: &mut ImportReport) -> String {
    let location = scope.0.iter().rev().find(|block| block.name == "location");
    let path = match location.and_then(|location| kind(location)) {
        Some(Kind::Exact(path) | Kind::Prefix(path, _)) => path,
        Some(Kind::Regex(..)) | None => "",
    };
    of_path(scope, path, report)
}

/// Returns the media type of a response at `path`.
pub(super) fn of_path(scope: &Scope<'_>, path: &str, report: &mut ImportReport) -> String {
    let usual = scope.word("default_type", report).unwrap_or("text/plain");
    let found = extension(path).and_then(|extension| by_extension(scope, &extension, report));
    found.unwrap_or_else(|| usual.to_owned())
}

/// Returns the extension of a path in lower case. nginx reads none in a segment that begins with the dot.
fn extension(path: &str) -> Option<String> {
    let (_, name) = path.rsplit_once('/')?;
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty() && !extension.is_empty()).then(|| extension.to_ascii_lowercase())
}

fn by_extension(scope: &Scope<'_>, extension: &str, report: &mut ImportReport) -> Option<String> {
    let blocks = scope.all(&["types"]);
    for block in &blocks {
        report.take_all(block);
    }
    if blocks.is_empty() {
        let table = if report.lacks_types() { &USUAL[..] } else { &BUILT_IN[..] };
        let found = table.iter().find(|(known, _)| *known == extension);
        return found.map(|(_, media_type)| (*media_type).to_owned());
    }

    let is_listed =
        |line: &&Directive| line.args.iter().any(|known| known.eq_ignore_ascii_case(extension));
    // nginx takes the last entry of an extension.
    let mut lines = blocks.into_iter().flat_map(Directive::inner);
    lines.rfind(is_listed).map(|line| line.name.clone())
}
