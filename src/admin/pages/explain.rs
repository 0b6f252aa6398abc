//! `POST /explain`.

use crate::{
    admin::{
        context::Admin,
        endpoint::{Access, Answer, Ask, Endpoint},
        reply::{Reply, json, plain},
    },
    explain::{Question, Seeds, StoreState},
};
use http::{StatusCode, header::CONTENT_TYPE};
use std::sync::Arc;

/// The longest question, in bytes.
const MOST_BODY: usize = 64 << 10;

pub(super) const ENDPOINTS: [Endpoint; 1] = [Endpoint {
    path: "/explain",
    methods: "POST",
    about: "what the gateway would do with a request, as JSON; no rule counts it",
    access: Access::Operators,
    most_body: MOST_BODY,
    answer: Answer::Now(explain),
}];

fn explain(admin: &Admin, ask: &Ask) -> Reply {
    // A form of another site cannot send this type.
    let sent = ask.head.headers.get(CONTENT_TYPE).and_then(|sent| sent.to_str().ok());
    let is_json = sent.and_then(|sent| sent.split(';').next()).map(str::trim);
    if is_json.is_none_or(|sent| !sent.eq_ignore_ascii_case("application/json")) {
        let text = "send the request to explain as application/json\n";
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    let question: Question = match serde_json::from_slice(&ask.body) {
        Ok(question) => question,
        Err(error) => return plain(StatusCode::BAD_REQUEST, format!("{error}\n")),
    };
    let state = &admin.state;
    let snapshot = Arc::clone(&state.live.load());
    let seeds = Seeds {
        own: state.seed,
        store: state.store.as_ref().map(|store| StoreState {
            seed: store.seed(),
            is_up: store.read().is_up,
            is_cut_off: store.is_cut_off(),
        }),
    };
    let now = state.clock.now();
    match question.explain(&snapshot, &seeds, (now, state.clock.wall(now))) {
        Ok(said) => json(StatusCode::OK, &said),
        Err(wrong) => plain(StatusCode::UNPROCESSABLE_ENTITY, format!("{wrong}\n")),
    }
}
