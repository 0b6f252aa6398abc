//! `/preview`: a new file beside the one in force, for commands and the dashboard.

use crate::{
    flow::Instant,
    preview::{Command, CommandError, Previews},
};
use core::time::Duration;
use http::{Method, StatusCode};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

/// The largest file that a gateway reads.
pub(super) const MOST_BODY: usize = 16 * 1024 * 1024;

/// The longest preview.
const MOST_TIME: Duration = Duration::from_hours(24);

/// The path of the report, and that of putting the new file in force.
pub(super) const PATH: &str = "/preview";
pub(super) const APPLY: &str = "/preview/apply";

/// The access of a client to previews at `now`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control<'a> {
    pub(super) previews: &'a Previews,
    pub(super) sender: &'a mpsc::Sender<Command>,
    pub(super) now: Instant,
}

/// An answer: a text, or JSON.
pub(super) struct PreviewReply {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) text: String,
}

/// The answer to a file that was put in force.
#[derive(Serialize)]
struct Applied {
    summary: String,
}

/// Answers a request for [`PATH`] with this query and this body.
pub(super) async fn answer(
    control: Control<'_>,
    method: &Method,
    query: &str,
    body: &[u8],
) -> PreviewReply {
    match *method {
        Method::GET | Method::HEAD => report(control),
        Method::POST => begin(control, query, body).await,
        Method::DELETE => match send(control, |reply| Command::Stop { reply }).await {
            Some(()) => report(control),
            None => ends(),
        },
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "GET, POST or DELETE\n"),
    }
}

/// Answers a request for [`APPLY`].
pub(super) async fn apply(control: Control<'_>, method: &Method) -> PreviewReply {
    if *method != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "POST\n");
    }
    let applied = send(control, |reply| Command::Apply { reply }).await;
    done(applied.map(|applied| applied.map(|summary| Applied { summary })))
}

fn report(control: Control<'_>) -> PreviewReply {
    match control.previews.report(control.now) {
        Some(report) => json(&report),
        None => plain(StatusCode::NOT_FOUND, "there was no preview yet\n"),
    }
}

async fn begin(control: Control<'_>, query: &str, body: &[u8]) -> PreviewReply {
    let mut most = None;
    let mut is_check = false;
    for field in query.split('&').filter(|field| !field.is_empty()) {
        match field.split_once('=').unwrap_or((field, "")) {
            ("check", "") => is_check = true,
            ("for", time) => match humantime::parse_duration(time) {
                Ok(time) if !time.is_zero() && time <= MOST_TIME => most = Some(time),
                _ => {
                    let text = "`for` is a duration of at most a day, as in `for=10m`\n";
                    return plain(StatusCode::BAD_REQUEST, text);
                }
            },
            _ => return plain(StatusCode::BAD_REQUEST, "write `for=10m`, or `check`\n"),
        }
    }
    let text = body.to_vec();
    done(send(control, |reply| Command::Begin { text, most, is_check, reply }).await)
}

/// Has the control thread carry out a command. `None` if the gateway ends.
async fn send<T>(
    control: Control<'_>,
    command: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Option<T> {
    let (reply, replied) = oneshot::channel();
    control.sender.send(command(reply)).await.ok()?;
    replied.await.ok()
}

fn done(done: Option<Result<impl Serialize, CommandError>>) -> PreviewReply {
    let error = match done {
        None => return ends(),
        Some(Ok(value)) => return json(&value),
        Some(Err(error)) => error,
    };
    let status = match error {
        CommandError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        CommandError::Conflict(_) => StatusCode::CONFLICT,
        CommandError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    plain(status, &format!("{}\n", error.to_string().trim_end()))
}

fn ends() -> PreviewReply {
    plain(StatusCode::SERVICE_UNAVAILABLE, "the gateway ends\n")
}

fn plain(status: StatusCode, text: &str) -> PreviewReply {
    PreviewReply { status, content_type: "text/plain; charset=utf-8", text: text.to_owned() }
}

fn json(value: &impl Serialize) -> PreviewReply {
    match serde_json::to_string_pretty(value) {
        Ok(text) => PreviewReply {
            status: StatusCode::OK,
            content_type: "application/json",
            text: text + "\n",
        },
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be written\n"),
    }
}
