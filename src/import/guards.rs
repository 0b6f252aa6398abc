//! What keeps clients out of a location, and what of it has no counterpart here.

use super::{report::ImportReport, scope::Scope, tree::Directive};
use std::collections::BTreeSet;

/// What keeps clients out in nginx and has no counterpart here. A route with one of these stays
/// closed, so that nothing is open that was not.
const GUARDS: [(&str, &str); 6] = [
    ("auth_request", "no other service is asked: see `auth`. The route is closed"),
    ("auth_jwt", "write `auth: { jwt: … }`. The route is closed"),
    ("auth_delay", "passwords are checked at once"),
    ("secure_link", "links are not verified. The route is closed"),
    ("ssl_verify_client", "certificates of clients are not verified. The route is closed"),
    ("limit_except", "write a route with `method` for each. The route is closed"),
];

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

/// Notes what keeps clients out and does not convert. Returns whether that closes the route.
pub(super) fn is_guarded(scope: &Scope<'_>, report: &mut ImportReport) -> bool {
    let mut is_closed = is_rejecting(scope, report);
    for (name, why) in GUARDS {
        if let Some(guard) = scope.find(name) {
            if guard.arg(0) == "off" {
                report.take(guard);
                continue;
            }
            report.note(guard, why);
            is_closed |= name != "auth_delay";
        }
    }
    is_closed
}

/// Notes each `if` that rejects requests before a location does anything. Returns whether one does.
pub(super) fn is_rejecting(scope: &Scope<'_>, report: &mut ImportReport) -> bool {
    let ifs = rejecting_ifs(scope);
    for block in &ifs {
        report.take_all(block);
        report.note(block, "write a route with a `match` for each case. The route is closed");
    }
    !ifs.is_empty()
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
