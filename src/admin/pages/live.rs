//! `/live`: what the dashboard and `flowgate top` follow.

use crate::admin::{
    context::Admin,
    endpoint::{Access, Answer, Ask, Endpoint, Pending},
    live::{self, Query},
    reply::stream,
};
use std::{borrow::Cow, sync::Arc};
use tokio::sync::mpsc;

pub(super) const ENDPOINTS: [Endpoint; 1] = [Endpoint {
    path: "/live",
    methods: "GET",
    about: "a sample of all of this a second, as server-sent events",
    access: Access::Operators,
    most_body: 0,
    answer: Answer::Later(follow),
}];

fn follow(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let (sender, receiver) = mpsc::channel(1);
        let reply = stream(&admin, "text/event-stream", receiver);
        if reply.status().is_success() {
            let query = Query::read(|name| ask.query(name).next().map(Cow::into_owned));
            let stopping = ask.stopping().cancelled_owned();
            let sending = live::send(admin, query, sender);
            tokio::spawn(async {
                tokio::select! {
                    () = sending => {}
                    () = stopping => {}
                }
            });
        }
        reply
    })
}
