//! The requests that are sent again after a failure, and where to. Pure.
//!
//! A request that no server can have acted on may be sent again, whatever it is. Another one only if
//! it can do no harm: without a body, with a method that the route's `retry` names.

use crate::{config::RetryPolicy, meter::Resent};
use core::time::Duration;

/// Attempts where the route has no `retry`: enough to pass over a dead server or two, few enough that
/// a dead upstream is answered for soon.
const ATTEMPTS: u32 = 4;

/// The number of times that a request is sent again because its connection was used up, beside the
/// attempts that the route allows: servers close idle connections as they like.
const RENEWALS: u32 = 3;

/// The wait before a server is asked again for the same request. It doubles each time.
const WAIT: Duration = Duration::from_millis(25);

/// The number of times that a request waits for a server that says it has not processed it, whatever the
/// route allows: a server that restarts is back within the 775 ms of these waits.
const UNPROCESSED_WAITS: u32 = 5;

/// A failure of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptFailure {
    /// No connection could be opened: nothing was sent.
    Connect,
    /// The server has not processed it, as it says or as nothing was sent. It was fine before, if
    /// its connection `was_used`.
    Unprocessed { was_used: bool },
    /// An HTTP/2 server has rejected it, which may have too much to do.
    Rejected,
    /// The connection was closed before a response began, after it had served before.
    Idle,
    /// A new connection was closed before a response began.
    Reset,
    /// The response did not begin in time.
    Late,
    /// A response came, with this status. Its server may say when to come again.
    Status { status: u16, says_when: bool },
}

/// Where a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryTarget {
    /// To the same server over a new connection.
    Same,
    /// To a server that was not asked yet.
    Other,
    /// To any, after this long, as all were asked.
    Any(Duration),
}

/// The attempts of one request.
#[derive(Debug)]
pub(crate) struct Retries<'p> {
    policy: Option<&'p RetryPolicy>,
    /// True if it may be sent again after a server had it.
    is_repeatable: bool,
    attempts: u32,
    renewals: u32,
    rounds: u32,
}

impl<'p> Retries<'p> {
    pub(crate) fn new(policy: Option<&'p RetryPolicy>) -> Self {
        Self { policy, is_repeatable: false, attempts: 1, renewals: 0, rounds: 0 }
    }

    /// Notes that it may be sent again after a server had it.
    pub(crate) fn allow_repetition(&mut self, is_repeatable: bool) {
        self.is_repeatable = is_repeatable;
    }

    /// True if it goes to another server if no connection opens.
    pub(crate) fn may_go_elsewhere(&self, is_other_left: bool) -> bool {
        let most = self.policy.map_or(ATTEMPTS, |policy| policy.attempts);
        is_other_left
            && self.is_wanted(AttemptFailure::Connect, is_other_left)
            && self.attempts < most
    }

    /// Decides where a request goes after an attempt; `None`: nowhere. `is_other_left` says whether
    /// some server was not asked yet, and `budget` takes a retry out of the budget if one is left.
    pub(crate) fn next(
        &mut self,
        failed: AttemptFailure,
        is_other_left: bool,
        budget: impl FnOnce(u32) -> bool,
    ) -> Option<RetryTarget> {
        if self.renewals < RENEWALS && self.is_renewed(failed) {
            self.renewals += 1;
            return Some(RetryTarget::Same);
        }

        let most = self.policy.map_or(ATTEMPTS, |policy| policy.attempts);
        if !self.is_wanted(failed, is_other_left) || self.attempts >= most {
            let waits = matches!(failed, AttemptFailure::Unprocessed { .. })
                && (!is_other_left || self.rounds > 0)
                && self.rounds < UNPROCESSED_WAITS;
            return waits.then(|| self.wait());
        }

        // A server that did not have the request costs nothing of the budget.
        let is_free = matches!(
            failed,
            AttemptFailure::Connect
                | AttemptFailure::Unprocessed { .. }
                | AttemptFailure::Rejected
                | AttemptFailure::Idle
        );
        if !is_free && !self.policy.is_none_or(|policy| budget(policy.budget_percent)) {
            return None;
        }

        self.attempts += 1;
        if is_other_left {
            return Some(RetryTarget::Other);
        }
        Some(self.wait())
    }

    /// Asks any server again, after a wait that is longer each time.
    fn wait(&mut self) -> RetryTarget {
        let wait = WAIT * (1 << self.rounds.min(6));
        self.rounds += 1;
        RetryTarget::Any(wait)
    }

    /// True if only the connection has failed, and the server is asked over another one.
    fn is_renewed(&self, failed: AttemptFailure) -> bool {
        match failed {
            AttemptFailure::Unprocessed { was_used } => was_used,
            AttemptFailure::Idle => self.is_repeatable,
            AttemptFailure::Connect
            | AttemptFailure::Rejected
            | AttemptFailure::Reset
            | AttemptFailure::Late
            | AttemptFailure::Status { .. } => false,
        }
    }

    /// True if the route wants such a request to be sent again.
    fn is_wanted(&self, failed: AttemptFailure, is_other_left: bool) -> bool {
        let Some(policy) = self.policy else {
            return match failed {
                AttemptFailure::Rejected => true,
                AttemptFailure::Connect | AttemptFailure::Unprocessed { .. } => is_other_left,
                AttemptFailure::Idle | AttemptFailure::Reset => is_other_left && self.is_repeatable,
                AttemptFailure::Late | AttemptFailure::Status { .. } => false,
            };
        };
        match failed {
            AttemptFailure::Connect => policy.connect,
            AttemptFailure::Unprocessed { .. } | AttemptFailure::Rejected => true,
            AttemptFailure::Idle | AttemptFailure::Reset => policy.reset && self.is_repeatable,
            AttemptFailure::Late => policy.timeout && self.is_repeatable,
            // One that says when to come again is not asked earlier.
            AttemptFailure::Status { status, says_when } => {
                self.is_repeatable
                    && policy.statuses.contains(&status)
                    && (is_other_left || !says_when)
            }
        }
    }
}

impl AttemptFailure {
    /// Returns what a request that is sent again after it is counted as.
    pub(crate) const fn counted(self) -> Resent {
        match self {
            Self::Connect => Resent::Connect,
            Self::Unprocessed { .. } | Self::Rejected => Resent::Unprocessed,
            Self::Idle => Resent::Idle,
            Self::Reset => Resent::Reset,
            Self::Late => Resent::Timeout,
            Self::Status { .. } => Resent::Status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AttemptFailure::{Connect, Idle, Late, Rejected, Reset, Status, Unprocessed};
    use RetryTarget::{Any, Other, Same};

    const BUSY: AttemptFailure = Status { status: 503, says_when: false };
    const LATER: AttemptFailure = Status { status: 503, says_when: true };
    const ENDED: AttemptFailure = Unprocessed { was_used: true };
    const UNSENT: AttemptFailure = Unprocessed { was_used: false };

    fn policy() -> RetryPolicy {
        RetryPolicy {
            attempts: 3,
            connect: true,
            reset: true,
            timeout: true,
            statuses: vec![503],
            methods: Vec::new(),
            budget_percent: 20,
        }
    }

    fn first(
        policy: Option<&RetryPolicy>,
        is_repeatable: bool,
        failed: AttemptFailure,
        is_other_left: bool,
    ) -> Option<RetryTarget> {
        let mut retries = Retries::new(policy);
        retries.allow_repetition(is_repeatable);
        retries.next(failed, is_other_left, |_| true)
    }

    #[test]
    fn what_is_sent_again_and_where() {
        let policy = policy();
        let wait = Some(Any(WAIT));
        let other = Some(Other);
        let same = Some(Same);
        // By failure: without `retry`, then with it; each with another server left and without one.
        for (failed, is_repeatable, plain, wanted) in [
            (Connect, false, [other, None], [other, wait]),
            (UNSENT, false, [other, wait], [other, wait]),
            (ENDED, false, [same, same], [same, same]),
            (Rejected, false, [other, wait], [other, wait]),
            (Idle, false, [None, None], [None, None]),
            (Idle, true, [same, same], [same, same]),
            (Reset, false, [None, None], [None, None]),
            (Reset, true, [other, None], [other, wait]),
            (Late, false, [None, None], [None, None]),
            (Late, true, [None, None], [other, wait]),
            (BUSY, false, [None, None], [None, None]),
            (BUSY, true, [None, None], [other, wait]),
            (LATER, true, [None, None], [other, None]),
            (Status { status: 500, says_when: false }, true, [None, None], [None, None]),
        ] {
            let next =
                |policy| [true, false].map(|left| first(policy, is_repeatable, failed, left));
            assert_eq!(next(None), plain, "{failed:?}, repeatable {is_repeatable}");
            assert_eq!(
                next(Some(&policy)),
                wanted,
                "{failed:?}, repeatable {is_repeatable}, retry"
            );
        }
    }

    #[test]
    fn a_route_may_want_less() {
        let none = RetryPolicy {
            connect: false,
            reset: false,
            timeout: false,
            statuses: Vec::new(),
            ..policy()
        };
        for failed in [Connect, Reset, Late, BUSY] {
            assert_eq!(first(Some(&none), true, failed, true), None, "{failed:?}");
        }
        assert_eq!(first(Some(&none), true, Idle, true), Some(Same));
        let once = RetryPolicy { attempts: 1, ..policy() };
        for failed in [Connect, Rejected, Reset, Late, BUSY] {
            assert_eq!(first(Some(&once), true, failed, true), None, "{failed:?}");
        }
        assert_eq!(first(Some(&once), false, ENDED, true), Some(Same));
    }

    #[test]
    fn attempts_are_bounded_and_waits_grow() {
        let policy = RetryPolicy { attempts: 5, ..policy() };
        let mut retries = Retries::new(Some(&policy));
        retries.allow_repetition(true);
        let mut next = |failed, left| retries.next(failed, left, |_| true);
        let wait = |factor| Some(Any(WAIT * factor));
        assert_eq!(next(Reset, true), Some(Other));
        assert_eq!([next(Reset, false), next(Connect, false)], [wait(1), wait(2)]);
        assert_eq!([(); 3].map(|()| next(Idle, true)), [Some(Same); 3]);
        assert_eq!([next(Idle, true), next(Idle, true)], [Some(Other), None]);
        assert_eq!(next(BUSY, false), None);
    }

    #[test]
    fn another_server_is_asked_when_one_closes_connection_after_connection() {
        for (failed, is_repeatable) in [(Idle, true), (ENDED, false)] {
            let mut retries = Retries::new(None);
            retries.allow_repetition(is_repeatable);
            let mut next = |is_other_left| retries.next(failed, is_other_left, |_| true);
            assert_eq!([(); 3].map(|()| next(true)), [Some(Same); 3], "{failed:?}");
            assert_eq!(next(true), Some(Other), "{failed:?}");
            let rest = core::iter::from_fn(|| next(false)).collect::<Vec<_>>();
            let waits = [1, 2, 4, 8, 16].map(|factor| Any(WAIT * factor));
            assert_eq!(rest, if failed == ENDED { &waits[..] } else { &[] }, "{failed:?}");
        }
        // A rejection is no ended connection: the attempts bound it.
        let mut retries = Retries::new(None);
        let mut left = [true, false, false, false].into_iter();
        let next = || retries.next(Rejected, left.next()?, |_| true);
        let all: Vec<_> = core::iter::from_fn(next).collect();
        assert_eq!(all, [Other, Any(WAIT), Any(WAIT * 2)]);
        // After a wait all servers are left again.
        let mut retries = Retries::new(None);
        let mut left = [true, false].into_iter().chain(core::iter::repeat(true));
        let next = || retries.next(UNSENT, left.next().unwrap_or(true), |_| true);
        let all: Vec<_> = core::iter::from_fn(next).collect();
        let waits = all.iter().filter(|next| matches!(next, Any(_))).count();
        assert_eq!(waits, UNPROCESSED_WAITS as usize, "{all:?}");
    }

    #[test]
    fn only_what_a_server_had_takes_from_the_budget() {
        let policy = policy();
        for (failed, is_free) in [
            (Connect, true),
            (UNSENT, true),
            (ENDED, true),
            (Idle, true),
            (Rejected, true),
            (Reset, false),
            (Late, false),
            (BUSY, false),
        ] {
            let mut retries = Retries::new(Some(&policy));
            retries.allow_repetition(true);
            let next = retries.next(failed, true, |percent| {
                assert_eq!(percent, 20);
                false
            });
            assert_eq!(next.is_some(), is_free, "{failed:?}");
        }
        let mut plain = Retries::new(None);
        plain.allow_repetition(true);
        assert!(plain.next(Reset, true, |_| unreachable!("no budget without `retry`")).is_some());
    }
}
