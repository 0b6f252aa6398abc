//! `/explain`, `/preview`, `/preview/apply` and `/reload`: the pages that do something.

use crate::{
    admin::{
        context::{Admin, State},
        endpoint::{Access, Answer, Ask, Endpoint, Pending},
        preview::{self, Control},
        reply::{Reply, json, page, plain},
    },
    explain::{Question, Seeds, StoreState},
};
use http::{StatusCode, header::CONTENT_TYPE};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The longest question, in bytes.
const MOST_QUESTION: usize = 64 << 10;

pub(super) const EXPLAIN: [Endpoint; 1] = [Endpoint {
    path: "/explain",
    methods: "POST",
    about: "what the gateway would do with a request, as JSON; no rule counts it",
    access: Access::Operators,
    most_body: MOST_QUESTION,
    answer: Answer::Now(explain),
}];

pub(super) const PREVIEW: [Endpoint; 2] = [
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

pub(super) const RELOAD: [Endpoint; 1] =
    [Endpoint::post("/reload", "reads the configuration again, as SIGHUP does", reload)];

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

fn reload(admin: &Admin, _: &Ask) -> Reply {
    match admin.state.reload.try_send(()) {
        // Full: a reload is requested already and has yet to read the file.
        Ok(()) | Err(mpsc::error::TrySendError::Full(())) => {
            plain(StatusCode::ACCEPTED, "reload requested; /readyz?verbose shows its result\n")
        }
        Err(mpsc::error::TrySendError::Closed(())) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "the gateway ends\n")
        }
    }
}
