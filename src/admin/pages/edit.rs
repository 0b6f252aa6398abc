//! `/edit`: the file in force for the dashboard, if `admin.edit` allows it.

use crate::{
    admin::{
        context::Admin,
        edit::{Checked, LoadError, Loaded, Save, SaveError, completion},
        endpoint::{Access, Answer, Ask, Endpoint, Pending},
        reply::{Reply, json, page, plain},
    },
    config,
};
use http::{HeaderName, StatusCode, header};
use serde::Serialize;
use std::{path::PathBuf, sync::Arc};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    task::spawn_blocking,
};

/// The largest file that a gateway reads.
const MOST_BODY: usize = 16 * 1024 * 1024;

/// The field that the dashboard sends with each request. A page of another site cannot: a browser would ask
/// this listener first, which answers no such question.
const OWN: HeaderName = HeaderName::from_static("x-flowgate-edit");

pub(super) const ENDPOINTS: [Endpoint; 4] = [
    Endpoint {
        answer: Answer::Later(load),
        ..Endpoint::get("/edit", "the file, for the dashboard; only with `admin.edit`", schema)
    },
    Endpoint::get("/edit/schema", "", schema),
    posted("/edit/check", check),
    posted("/edit/save", save),
];

const fn posted(path: &'static str, answer: fn(Arc<Admin>, Ask) -> Pending) -> Endpoint {
    Endpoint {
        path,
        methods: "POST",
        about: "",
        access: Access::Operators,
        most_body: MOST_BODY,
        answer: Answer::Later(answer),
    }
}

/// The result of a save.
#[derive(Serialize)]
struct Saved {
    summary: String,
    /// The hash of the file as it is now.
    hash: String,
}

fn load(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let (path, permit) = match begin(&admin, &ask) {
            Ok(begun) => begun,
            Err(reply) => return *reply,
        };
        let loaded = spawn_blocking(move || {
            let _held = permit;
            Loaded::read(&path)
        });
        match loaded.await {
            Ok(Ok(loaded)) => json(StatusCode::OK, &loaded),
            Ok(Err(error)) => plain(status(&error), format!("{error}\n")),
            Err(_) => failed(),
        }
    })
}

fn schema(admin: &Admin, ask: &Ask) -> Reply {
    match begin_or_reply(admin, ask) {
        Some(reply) => reply,
        None => page(StatusCode::OK, "application/json", completion().into()),
    }
}

fn check(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let (path, permit) = match begin(&admin, &ask) {
            Ok(begun) => begun,
            Err(reply) => return *reply,
        };
        let of = match edited(&ask) {
            Ok(of) => of,
            Err(reply) => return *reply,
        };
        let live = Arc::clone(&admin.state.live);
        let now = admin.state.clock.wall_now();
        let checked = spawn_blocking(move || {
            let _held = permit;
            let is_same = config::fingerprint(&config::Watched::File(path)) == of;
            is_same.then(|| Checked::of(&live, &ask.body, now))
        });
        match checked.await {
            Ok(Some(checked)) if checked.ok => json(StatusCode::OK, &checked),
            Ok(Some(checked)) => json(StatusCode::UNPROCESSABLE_ENTITY, &checked),
            Ok(None) => rejected(&SaveError::Changed),
            Err(_) => failed(),
        }
    })
}

fn save(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let of = match begin(&admin, &ask).and_then(|_| edited(&ask)) {
            Ok(of) => of,
            Err(reply) => return *reply,
        };
        let hash = format!("{:016x}", config::content_hash(&ask.body));
        let (reply, replied) = oneshot::channel();
        let save = Save { text: ask.body.to_vec(), of, reply };
        let ends = || plain(StatusCode::SERVICE_UNAVAILABLE, "the gateway ends\n");
        if admin.state.saves.send(save).await.is_err() {
            return ends();
        }
        match replied.await {
            Ok(Ok(summary)) => json(StatusCode::OK, &Saved { summary, hash }),
            Ok(Err(error)) => rejected(&error),
            Err(_) => ends(),
        }
    })
}

/// Returns the file, if it may be edited, and room for a request about it.
fn begin(admin: &Admin, ask: &Ask) -> Result<(PathBuf, OwnedSemaphorePermit), Box<Reply>> {
    if let Some(reply) = begin_or_reply(admin, ask) {
        return Err(Box::new(reply));
    }
    let Ok(permit) = Arc::clone(&admin.pages).try_acquire_owned() else {
        let text = "too many pages are being read\n";
        return Err(Box::new(plain(StatusCode::SERVICE_UNAVAILABLE, text)));
    };
    Ok((admin.state.live.load().main_file().0.to_owned(), permit))
}

/// Returns why the file may not be edited, if it may not.
fn begin_or_reply(admin: &Admin, ask: &Ask) -> Option<Reply> {
    let is_on = admin.state.live.load().settings.admin.as_ref().is_some_and(|admin| admin.edit);
    if !is_on {
        let text = "the file cannot be edited here: write `edit: true` into its `admin`\n";
        return Some(plain(StatusCode::FORBIDDEN, text));
    }
    // Whatever its value.
    if !ask.head.headers.contains_key(OWN) {
        let text = "send the header field `x-flowgate-edit: 1`\n";
        return Some(plain(StatusCode::FORBIDDEN, text));
    }
    None
}

/// Returns which file was edited, by its hash.
fn edited(ask: &Ask) -> Result<u64, Box<Reply>> {
    let sent = ask.head.headers.get(header::IF_MATCH).and_then(|sent| sent.to_str().ok());
    let hash = sent.map(|sent| sent.trim().trim_matches('"'));
    let hash = hash.filter(|hash| hash.len() == 16).map(|hash| u64::from_str_radix(hash, 16));
    if let Some(Ok(hash)) = hash {
        return Ok(hash);
    }
    let text = "send the `hash` of the file that was edited as `If-Match`\n";
    Err(Box::new(plain(StatusCode::PRECONDITION_REQUIRED, text)))
}

fn rejected(error: &SaveError) -> Reply {
    let status = match error {
        SaveError::Invalid(problems) => {
            return json(StatusCode::UNPROCESSABLE_ENTITY, &Checked::failed(problems));
        }
        SaveError::Changed => StatusCode::PRECONDITION_FAILED,
        SaveError::Conflict(_) => StatusCode::CONFLICT,
        SaveError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    plain(status, format!("{}\n", error.to_string().trim_end()))
}

const fn status(error: &LoadError) -> StatusCode {
    match error {
        LoadError::Unreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        LoadError::NoText | LoadError::Secret(_) => StatusCode::CONFLICT,
    }
}

fn failed() -> Reply {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read\n")
}
