//! Finds the route of a request, and rejects a path by which a server could mean another route.
//!
//! The proxy, `replay` and the preview use it.

use super::{Route, Snapshot};
use crate::{
    config::plan::{Action, preflight_method},
    route::{Target, dangerous_path, has_encoded_slash, literal_path, without_parameters},
};
use std::sync::Arc;

/// Why a path with an encoded slash reaches no rule.
const ENCODED_SLASH: &str =
    "an encoded slash that leads to another route or rule if it is read as a slash";

/// Why a path with parameters reaches no rule.
const PARAMETERS: &str = "a `;` that leads to another route or rule if the segment is cut off \
     there: let that route match it too";

/// Why a request reaches no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrouted {
    /// No route matches.
    NoRoute,
    /// Different servers may understand different things by the path: why.
    Path(&'static str),
}

/// Says what a path has that flowgate rejects, and which setting lets it pass.
pub fn rejected_path(why: &str) -> String {
    format!(
        "the path has {why}; `relaxed_path: true` of a route lets it pass, also around the rules of \
         other routes"
    )
}

impl Snapshot {
    /// Finds the route of a request whose path was received as `path`; `target` has it in its
    /// [`normal_path`](crate::route::normal_path) form.
    ///
    /// # Errors
    ///
    /// Why it reaches none.
    pub fn find(&self, target: &Target<'_>, path: &str) -> Result<&Arc<Route>, Unrouted> {
        self.find_index(target, path).map(|index| &self.routes[index])
    }

    /// The same, for the route's index.
    ///
    /// # Errors
    ///
    /// Why it reaches none.
    pub fn find_index(&self, target: &Target<'_>, path: &str) -> Result<usize, Unrouted> {
        if self.answers_preflights
            && let Some(index) = self.find_preflight(target, path)
        {
            return Ok(index);
        }
        match self.find_matching(target, path) {
            Err(Unrouted::NoRoute) => self.unmatched().ok_or(Unrouted::NoRoute),
            found => found,
        }
    }

    /// Returns the index of the route that the request takes about which a preflight request asks, if that
    /// one answers it.
    #[inline(never)]
    fn find_preflight(&self, target: &Target<'_>, path: &str) -> Option<usize> {
        let method = preflight_method(target)?;
        let target = Target { method: &method, ..*target };
        let index = self.find_matching(&target, path).ok()?;
        self.routes[index].options.cors.is_some().then_some(index)
    }

    /// Returns the index of the route for requests that no other one matches, if there is one: the last.
    fn unmatched(&self) -> Option<usize> {
        let last = self.routes.len().checked_sub(1)?;
        self.routes[last].is_for_unmatched().then_some(last)
    }

    /// Finds the route whose conditions the request meets.
    fn find_matching(&self, target: &Target<'_>, path: &str) -> Result<usize, Unrouted> {
        // Counting without an early exit becomes vector instructions.
        let odd = path.bytes().filter(|byte| matches!(byte, b'%' | b';')).count();
        if odd == 0 {
            return self.find_plain(target, path);
        }
        let has_slash = has_encoded_slash(path);
        let index = if has_slash {
            self.find_encoded(target, path)?
        } else {
            self.find_plain(target, path)?
        };
        if target.path.contains(';') && !self.is_relaxed(Some(index)) {
            self.check_parameters(index, target)?;
            if has_slash {
                let literal = literal_path(path);
                self.check_parameters(index, &Target { path: &literal, ..*target })?;
            }
        }
        Ok(index)
    }

    /// Finds the route of a request without an encoded slash.
    fn find_plain(&self, target: &Target<'_>, path: &str) -> Result<usize, Unrouted> {
        let index = self.table.find(target);
        if !self.is_relaxed(index)
            && let Some(why) = dangerous_path(path)
        {
            return Err(Unrouted::Path(why));
        }
        index.ok_or(Unrouted::NoRoute)
    }

    /// Finds the route of a request with an encoded slash. Some servers look for slashes before
    /// they decode, others after: both must find the same route and rules. Rules count by decoded
    /// slashes, so that a client gains nothing by encoding some.
    fn find_encoded(&self, target: &Target<'_>, path: &str) -> Result<usize, Unrouted> {
        let literal = literal_path(path);
        let literal = Target { path: &literal, ..*target };
        let index = self.table.find(&literal);
        if self.is_relaxed(index) {
            return index.ok_or(Unrouted::NoRoute);
        }
        if let Some(why) = dangerous_path(path) {
            return Err(Unrouted::Path(why));
        }
        let route = index.and_then(|index| self.routes.get(index));
        let takes_alike = route.is_none_or(|route| route.takes_alike(target, &literal));
        if index != self.table.find(target) || !takes_alike {
            return Err(Unrouted::Path(ENCODED_SLASH));
        }
        index.ok_or(Unrouted::NoRoute)
    }

    /// Checks the path of a request to the route with this index for servers that cut each segment
    /// off at its first `;`: what they are asked for then must not be guarded by another route, or
    /// fall under another rule.
    fn check_parameters(&self, index: usize, target: &Target<'_>) -> Result<(), Unrouted> {
        let cut = without_parameters(target.path);
        let cut = Target { path: &cut, ..*target };
        let is_harmless = match self.table.find(&cut) {
            Some(other) if other != index => !self.routes[other].is_guarded(),
            Some(_) => self.routes[index].takes_alike(target, &cut),
            None => true,
        };
        if is_harmless { Ok(()) } else { Err(Unrouted::Path(PARAMETERS)) }
    }

    /// Reports whether the route with this index takes any path.
    fn is_relaxed(&self, index: Option<usize>) -> bool {
        index
            .and_then(|index| self.routes.get(index))
            .is_some_and(|route| route.options.relaxed_path)
    }
}

impl Route {
    /// Returns whether it answers a request itself, which then meets neither `auth` nor rules, because it is
    /// the preflight of a script.
    pub fn answers_preflight(&self, target: &Target<'_>) -> bool {
        self.options.cors.is_some() && preflight_method(target).is_some()
    }

    /// Reports whether it makes no difference to the route's rules which of these a request is,
    /// but for the whole path and query that they count by.
    fn takes_alike(&self, one: &Target<'_>, other: &Target<'_>) -> bool {
        self.rules.iter().all(|rule| rule.options.takes_alike(one, other))
    }

    /// Reports whether it may keep a request from an upstream.
    fn is_guarded(&self) -> bool {
        self.options.access.is_some()
            || self.options.auth.is_some()
            || !self.rules.is_empty()
            || self.breaker.is_some()
            || self.pacing.is_some()
            || !matches!(self.action, Action::Forward(_))
    }
}
