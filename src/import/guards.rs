//! What keeps clients out of a location, and what of it has no counterpart here.

use super::{report::ImportReport, scope::Scope, tree::Directive};
use std::collections::BTreeSet;

/// What keeps clients out in nginx and has no counterpart here. A route with one of these stays
/// closed, so that nothing is open that was not.
const GUARDS: [(&str, &str); 6] = [
    ("auth_request", "no other service is asked: see `auth`"),
    ("auth_jwt", "write `auth: { jwt: … }`"),
    ("auth_delay", "passwords are checked at once"),
    ("secure_link", "links are not verified"),
    ("ssl_verify_client", "certificates of clients are not verified"),
    ("limit_except", "write a route with `method` for each"),
];

/// A directive that keeps clients out and that no route expresses, and why.
#[derive(Clone, Debug)]
pub(super) struct Closing<'a> {
    pub directive: &'a Directive,
    pub why: String,
}

/// Returns the places of all directives that keep clients out of a location: those of two locations
/// are equal if both keep out the same.
pub(super) fn guards(scope: &Scope<'_>) -> BTreeSet<usize> {
    let own = scope.0.last().map(|block| block.inner()).unwrap_or_default();
    // nginx answers with a `return` before it asks for the rest.
    if let Some(answer) = own.iter().find(|directive| directive.name == "return") {
        return rejects(answer).then_some(answer.id).into_iter().collect();
    }
    let names = GUARDS.map(|(name, _)| name).into_iter();
    let single = names.chain(["auth_basic", "auth_basic_user_file", "internal"]);
    let single = single.filter_map(|name| scope.find(name)).filter(|guard| guard.arg(0) != "off");
    let listed = scope.all(&["allow", "deny"]);
    let all = listed.into_iter().chain(single).chain(rejecting_ifs(scope));
    all.map(|directive| directive.id).collect()
}

/// Returns what keeps clients out and does not convert, which closes the route.
pub(super) fn guarding<'a>(scope: &Scope<'a>, report: &mut ImportReport) -> Vec<Closing<'a>> {
    let mut all = Vec::new();
    for (name, why) in GUARDS {
        let Some(directive) = scope.find(name) else { continue };
        if directive.arg(0) == "off" {
            report.take(directive);
        } else if name == "auth_delay" {
            report.note(directive, why);
        } else {
            report.take_all(directive);
            all.push(Closing { directive, why: why.to_owned() });
        }
    }
    all
}

/// Returns those of the server and of the location itself: a location within another does not
/// inherit them.
fn rejecting_ifs<'a>(scope: &Scope<'a>) -> Vec<&'a Directive> {
    let server = scope.0.iter().copied().find(|block| block.name == "server");
    let own = scope.0.last().copied().filter(|block| block.name != "server");
    let blocks = server.into_iter().chain(own);
    let ifs = blocks.flat_map(|block| block.inner().iter().filter(|inner| inner.name == "if"));
    ifs.filter(|block| block.inner().iter().any(rejects)).collect()
}

/// Reports whether a directive is a `return` of an error, or of what is not known.
pub(super) fn rejects(directive: &Directive) -> bool {
    let is_good = |status: u16| (200..400).contains(&status);
    let is_url = directive.args.len() == 1 && directive.arg(0).contains('/');
    directive.name == "return" && !is_url && !directive.arg(0).parse().is_ok_and(is_good)
}
