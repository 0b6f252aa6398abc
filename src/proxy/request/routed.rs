//! The second stage of a request: its route is known. Its rules admit it, which makes it [`Admitted`], or
//! they reject it.

use super::{
    Decided,
    admitted::{Admitted, discard},
    forward::Forward,
    queued::Queued,
    shared::{self, LocalDecision, PendingDecision, StoreDecision, StoreQuery},
};
use crate::proxy::{
    body::RequestBody,
    message::{Request, Response, grpc},
    rate_limit_headers::RateLimitFields,
    record::{Completion, preview},
    response::{
        own_response::{ReplyOptions, reject},
        response_body::ResponseBody,
    },
};
use crate::{
    config::{Claims, Route},
    flow::{Admission, Instant, Permit, Rejection, Report, Sharer, SlotId},
    preview::{Alike, Treatment},
};
use std::sync::Arc;

/// A request with its route.
pub(super) struct Routed {
    pub(super) request: Request<RequestBody>,
    pub(super) route: Arc<Route>,
    pub(super) forward: Forward,
    pub(super) options: ReplyOptions,
    /// The time of the decision.
    pub(super) now: Instant,
    pub(super) completion: Box<Completion>,
    /// Its parts in the order of queues, if those of its route need any.
    pub(super) sharers: Option<Sharers>,
}

/// The parts of a request in the order of queues.
pub(super) type Sharers = Box<[(SlotId, Sharer)]>;

/// A request that waits for the decision of the store.
pub(crate) struct Undecided {
    pending: PendingDecision,
    routed: Routed,
}

impl Routed {
    /// Has the rules decide, here or in the store. `alike` is a new file in preview, which decides by the
    /// same claims.
    pub(super) fn decide(mut self, claims: &Claims, alike: Option<Alike<'_>>) -> Decided {
        if self.route.is_shared {
            return self.decide_with_store(claims);
        }

        let mut report = Report::default();
        let decided = self.route.gates.decide(self.now, claims, &mut report);
        if let Some(alike) = alike {
            let treatment = Treatment::of(decided.as_ref().err(), &report);
            let Self { request, completion, now, .. } = &mut self;
            preview::decide_alike(alike, claims, treatment, request, completion, *now);
        }

        match decided {
            Ok(permit) if permit.is_waiting() => self.queue(permit, &report),
            Ok(permit) => Decided::Admitted(self.admit(Some(permit), &report)),
            Err(rejection) => Decided::Responded(self.reject(&rejection.with(report))),
        }
    }

    /// Has the rules of this process decide, and returns what is left for the store.
    #[inline(never)]
    fn decide_with_store(self, claims: &Claims) -> Decided {
        let worker = &self.completion.peer.worker;
        let query = StoreQuery::of(worker, &self.route, claims);
        match shared::begin(worker, &self.route, self.now, claims, query) {
            LocalDecision::Decided(decided) => self.settle(decided),
            LocalDecision::Ask(pending) => {
                Decided::Undecided(Box::new(Undecided { pending: *pending, routed: self }))
            }
        }
    }

    fn settle(self, decided: Result<Admission, Rejection>) -> Decided {
        match decided {
            Ok(Admission { permit, report }) if permit.is_waiting() => self.queue(permit, &report),
            Ok(Admission { permit, report }) => {
                Decided::Admitted(self.admit(Some(permit), &report))
            }
            Err(rejection) => Decided::Responded(self.reject(&rejection)),
        }
    }

    /// Has the request wait for the places that it needs.
    #[inline(never)]
    fn queue(mut self, mut permit: Permit, report: &Report) -> Decided {
        if let Some(sharers) = self.sharers.take() {
            self.completion.observers.note_sharers(&self.route, &sharers);
            permit.share(sharers.into_vec());
        }
        self.completion.observers.note_queued(report, &self.route);
        self.completion.log(report.transition);
        Decided::Queued(Box::new(Queued::new(self, permit)))
    }

    /// Notes the admission. `permit` is that of the request.
    pub(super) fn admit(self, permit: Option<Permit>, report: &Report) -> Admitted {
        let Self { request, route, forward, options, now, mut completion, .. } = self;
        // Another thread may have read a later time and come first. That is no wait.
        let delayed = permit.as_ref().filter(|_| !report.wait().is_zero());
        let start = delayed.map_or(now, Permit::start);

        completion.observe_admission(&route, report, &request);
        completion.decision.permit = permit;
        completion.log(report.transition);
        completion.decision.quota = RateLimitFields::admitted(&route, report, options.headers);
        Admitted { request, route, forward, start, completion }
    }

    /// Responds with the rejection.
    #[inline(never)]
    pub(super) fn reject(self, rejection: &Rejection) -> Response<ResponseBody> {
        let Self { mut request, route, forward, options, mut completion, .. } = self;
        completion.observe_rejection(&route, rejection, &request);

        request.body_mut().forget_peeked();
        let (head, body) = request.into_parts();
        discard(&body, forward.fields, &mut completion);
        let grpc = grpc::content_type(&head.headers);
        completion.peer.keep_head(head);
        reject(rejection, &route, &options, grpc, completion)
    }
}

impl Undecided {
    /// Has the store decide.
    pub(super) async fn decide(self) -> Decided {
        let Self { pending, mut routed } = self;
        let peer = Arc::clone(&routed.completion.peer);
        let StoreDecision { decided, held, reserves } =
            pending.ask(&peer.worker, &routed.route).await;
        routed.completion.decision.held = held.map(Box::new);
        routed.completion.decision.shared_reserves = reserves;
        routed.settle(decided)
    }
}
