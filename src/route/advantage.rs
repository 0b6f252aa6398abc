//! Why one of two routes that match a request gets it.

use super::{
    HostPattern, PathPattern,
    host::Kind,
    rank::{Ranked, conditions_key, path_key},
};
use core::{cmp::Reverse, fmt};

/// By what a route comes before another that matches too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advantage {
    /// It names the listener.
    Listener,
    /// Its host is more specific.
    Host,
    /// Its path is more specific.
    Path,
    /// It has more conditions on method, headers or query.
    Conditions,
    /// It is earlier in the file.
    Order,
}

impl Advantage {
    /// Returns what puts `winner` before `other`; both match a request for `host`.
    pub(super) fn of(host: &str, winner: &Ranked, other: &Ranked) -> Self {
        let names = |route: &Ranked| !route.matcher.listeners.is_empty();
        let of_host = |route: &Ranked| {
            let patterns = route.matcher.hosts.iter();
            patterns.filter_map(|pattern| host_key(pattern, host)).min()
        };
        let any = (2, Reverse(0));
        if names(winner) != names(other) {
            Self::Listener
        } else if of_host(winner).unwrap_or(any) != of_host(other).unwrap_or(any) {
            Self::Host
        } else if has_regex(winner) && has_regex(other) {
            Self::Order
        } else if path_key(winner) != path_key(other) {
            Self::Path
        } else if conditions_key(&winner.matcher) != conditions_key(&other.matcher) {
            Self::Conditions
        } else {
            Self::Order
        }
    }
}

fn has_regex(route: &Ranked) -> bool {
    matches!(route.path, PathPattern::Regex(_))
}

/// Returns how specific a pattern is, the lowest most; `None` if it does not match.
fn host_key(pattern: &HostPattern, host: &str) -> Option<(u8, Reverse<usize>)> {
    match pattern.kind() {
        Kind::Exact(name) => (**name == *host).then_some((0, Reverse(0))),
        Kind::Wildcard(suffix) => {
            let matches = host.strip_suffix(&**suffix).is_some_and(|rest| rest.ends_with('.'));
            matches.then_some((1, Reverse(suffix.len())))
        }
    }
}

impl fmt::Display for Advantage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listener => "it names the listener",
            Self::Host => "its host is more specific",
            Self::Path => "its path is more specific",
            Self::Conditions => "it has more conditions",
            Self::Order => "it is earlier in the file",
        })
    }
}
