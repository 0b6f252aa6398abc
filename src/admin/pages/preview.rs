//! `/preview` and `/preview/apply`.

use crate::admin::{
    context::{Admin, State},
    endpoint::{Access, Answer, Ask, Endpoint, Pending},
    preview::{self, Control},
    reply::{Reply, page},
};
use std::sync::Arc;

pub(super) const ENDPOINTS: [Endpoint; 2] = [
    Endpoint {
        path: preview::PATH,
        methods: "GET, HEAD, POST, DELETE",
        about: "what a new file would do with live requests; POST begins, DELETE ends",
        access: Access::Operators,
        most_body: preview::MOST_BODY,
        answer: Answer::Later(begin_or_report),
    },
    Endpoint {
        path: preview::APPLY,
        methods: "POST",
        about: "puts the new file of the preview in force",
        access: Access::Operators,
        most_body: 0,
        answer: Answer::Later(apply),
    },
];

fn begin_or_report(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let query = ask.head.uri.query().unwrap_or_default();
        let method = &ask.head.method;
        shown(preview::answer(control(&admin.state), method, query, &ask.body).await)
    })
}

fn apply(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move { shown(preview::apply(control(&admin.state), &ask.head.method).await) })
}

fn control(State { previews, preview, clock, .. }: &State) -> Control<'_> {
    Control { previews, sender: preview, now: clock.now() }
}

fn shown(answer: preview::PreviewReply) -> Reply {
    page(answer.status, answer.content_type, answer.text.into())
}
