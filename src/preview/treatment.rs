//! The treatment of a request by a file, and its difference from that by another file.

use crate::{
    config::Route,
    flow::{ReasonKind, RejectedBy, Report, SlotId, Verdict},
};
use std::sync::Arc;

/// The treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Treatment {
    /// It starts at once.
    Passed,
    /// It starts after a wait, for this rule.
    Delayed(SlotId),
    /// This rule rejects it.
    Rejected(SlotId, ReasonKind),
    /// It is answered before any rule is asked.
    OwnRejection(OwnRejection),
}

/// Why no rule is asked about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnRejection {
    /// No route matches.
    NoRoute,
    /// Servers may read its path differently.
    Path,
    /// The route does not allow the client's address.
    Denied,
    /// The client is not authenticated.
    Unauthenticated,
    /// Its body is longer than the route takes.
    TooLong,
}

/// The change of a request's treatment from the file in force to the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TreatmentChange {
    /// It passes, and would be rejected.
    WouldBeRejected,
    /// It is rejected, and would pass.
    WouldPass,
    /// It starts at once, and would have to wait.
    WouldBeDelayed,
    /// It has to wait, and would start at once.
    NoLongerDelayed,
    /// It passes, or is rejected, by both, but another route answers it, or the route answers
    /// otherwise.
    OtherAnswer,
    /// As now.
    Same,
}

impl Treatment {
    /// Returns what a decision that admits a request says. The length of a wait for a free place is not
    /// known yet, and zero in the report.
    pub fn admitted(report: &Report) -> Self {
        let delayed = report.quotas.iter().filter(|quota| quota.verdict == Verdict::Delayed);
        let longest = delayed.max_by_key(|quota| quota.wait);
        longest.map_or(Self::Passed, |quota| Self::Delayed(quota.slot))
    }

    /// Returns what a decision with this report says, which rejected the request or admitted it.
    pub fn of(rejected: Option<&RejectedBy>, report: &Report) -> Self {
        match rejected {
            Some(by) => Self::Rejected(by.slot, by.reason.kind()),
            None => Self::admitted(report),
        }
    }

    /// Returns the rule that decided, if one did.
    pub const fn rule(self) -> Option<SlotId> {
        match self {
            Self::Delayed(slot) | Self::Rejected(slot, _) => Some(slot),
            Self::Passed | Self::OwnRejection(_) => None,
        }
    }

    pub(super) const fn is_let_through(self) -> bool {
        matches!(self, Self::Passed | Self::Delayed(_))
    }

    /// Returns how a request fares that is treated like this, and like `there` by the new file.
    /// `is_same_route`: the routes have the same name and answer alike.
    pub fn change(self, there: Self, is_same_route: bool) -> TreatmentChange {
        match (self, there) {
            _ if self.is_let_through() && !there.is_let_through() => {
                TreatmentChange::WouldBeRejected
            }
            _ if !self.is_let_through() && there.is_let_through() => TreatmentChange::WouldPass,
            (Self::Passed, Self::Delayed(_)) => TreatmentChange::WouldBeDelayed,
            (Self::Delayed(_), Self::Passed) => TreatmentChange::NoLongerDelayed,
            (Self::OwnRejection(here), Self::OwnRejection(there)) if here == there => {
                TreatmentChange::Same
            }
            (Self::OwnRejection(_), _) | (_, Self::OwnRejection(_)) => TreatmentChange::OtherAnswer,
            _ if is_same_route => TreatmentChange::Same,
            _ => TreatmentChange::OtherAnswer,
        }
    }

    /// Returns the same for requests of a route. Those that no route of the file matches get 404, also if
    /// the rules of the file let them pass.
    pub(super) fn by(self, route: Option<&Arc<Route>>) -> Self {
        let is_unmatched = route.is_some_and(|route| route.is_for_unmatched());
        match self {
            Self::Passed if is_unmatched => Self::OwnRejection(OwnRejection::NoRoute),
            Self::Passed | Self::Delayed(_) | Self::Rejected(..) | Self::OwnRejection(_) => self,
        }
    }

    /// Says it in words: `checkout: rejected by per-client (rate)`.
    pub(super) fn in_words(self, route: Option<&Route>) -> String {
        let name = route.map_or("no route", |route| &*route.name);
        let by = |slot| route.map_or("a rule", |route| route.rule_name(slot));
        match self {
            Self::OwnRejection(OwnRejection::NoRoute) => "no route matches".to_owned(),
            Self::OwnRejection(rejection) => format!("{name}: {}", rejection.words()),
            Self::Delayed(slot) => format!("{name}: delayed by {}", by(slot)),
            Self::Rejected(slot, kind) => {
                format!("{name}: rejected by {} ({})", by(slot), kind.word())
            }
            Self::Passed => match route.and_then(|route| route.action.own_words()) {
                Some(answer) => format!("{name}: passed, {answer}"),
                None => format!("{name}: passed"),
            },
        }
    }
}

impl OwnRejection {
    /// Returns the status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::NoRoute => 404,
            Self::Path => 400,
            Self::Denied => 403,
            Self::Unauthenticated => 401,
            Self::TooLong => 413,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::NoRoute => "no route matches (404)",
            Self::Path => "the path is ambiguous (400)",
            Self::Denied => "the address is not allowed (403)",
            Self::Unauthenticated => "the client is not authenticated (401)",
            Self::TooLong => "the body is too long (413)",
        }
    }
}

impl TreatmentChange {
    /// Every change but none, the most important first.
    pub const ALL: [Self; 5] = [
        Self::WouldBeRejected,
        Self::WouldPass,
        Self::WouldBeDelayed,
        Self::NoLongerDelayed,
        Self::OtherAnswer,
    ];

    /// Returns its word in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::WouldBeRejected => "would_be_rejected",
            Self::WouldPass => "would_pass",
            Self::WouldBeDelayed => "would_be_delayed",
            Self::NoLongerDelayed => "no_longer_delayed",
            Self::OtherAnswer => "other_answer",
            Self::Same => "same",
        }
    }

    /// Says it in words, after a number of requests.
    pub const fn words(self) -> &'static str {
        match self {
            Self::WouldBeRejected => "would be rejected",
            Self::WouldPass => "would pass",
            Self::WouldBeDelayed => "would be delayed",
            Self::NoLongerDelayed => "would no longer be delayed",
            Self::OtherAnswer => "would be answered otherwise",
            Self::Same => "the same",
        }
    }
}
