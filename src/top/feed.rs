//! Receives samples: one for `--once`, or all, with a new connection when the gateway goes away.

use super::{
    TopError,
    model::{Message, Model, Query},
    screen,
};
use crate::{
    admin::sample::{ConfigState, History, Sample},
    admin_client::{AdminClient, ClientError, ServerSentEvent},
    clock::Clock,
};
use core::{fmt::Write as _, time::Duration};
use std::io::{self, Write};
use tokio::sync::{mpsc, watch};

/// The routes that are asked for: more fit on few screens.
const ROUTES: usize = 100;

/// The longest silence: the gateway sends an event a second.
const SILENCE: Duration = Duration::from_secs(6);

/// The waits before another connection, by the number of failures.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Sends what comes to `messages` until its receiver is dropped. Another query begins another
/// stream.
pub(super) async fn follow(
    client: AdminClient,
    mut queries: watch::Receiver<Query>,
    messages: mpsc::Sender<Message>,
    clock: Clock,
) {
    let mut failures = 0;
    loop {
        let query = queries.borrow_and_update().clone();
        let ended = tokio::select! {
            changed = queries.changed() => {
                if changed.is_err() {
                    return;
                }
                continue;
            }
            ended = stream(&client, &query, &messages, &clock, &mut failures) => ended,
        };
        let why = ended.map_or_else(|error| error.to_string(), str::to_owned);
        if messages.send(Message::Lost(why)).await.is_err() {
            return;
        }
        let pause = PAUSES[failures.min(PAUSES.len() - 1)];
        failures += 1;
        clock.timer(clock.now() + pause).await;
    }
}

/// Follows one stream to its end. Returns why it ended.
async fn stream(
    client: &AdminClient,
    query: &Query,
    messages: &mpsc::Sender<Message>,
    clock: &Clock,
    failures: &mut usize,
) -> Result<&'static str, ClientError> {
    let mut events = client.follow(&path(query)).await?;
    loop {
        let Ok(next) = clock.timeout(SILENCE, events.next()).await else {
            return Ok("the gateway is silent");
        };
        let Some(event) = next? else { return Ok("the gateway has closed the connection") };
        let Some(read) = read(&event) else { continue };
        *failures = 0;
        if messages.send(read).await.is_err() {
            return Ok("");
        }
    }
}

/// Reads an event; `None` for one that is of another version.
pub(super) fn read(event: &ServerSentEvent) -> Option<Message> {
    let data = &*event.data;
    match &*event.name {
        "sample" => serde_json::from_str::<Sample>(data).ok().map(Box::new).map(Message::Sample),
        "config" => {
            serde_json::from_str::<ConfigState>(data).ok().map(Box::new).map(Message::Config)
        }
        "history" => serde_json::from_str::<History>(data).ok().map(Box::new).map(Message::History),
        _ => None,
    }
}

/// Returns the path that asks for the routes of a query.
pub(super) fn path(query: &Query) -> String {
    let Query { sort, filter } = query;
    let mut path = format!("/live?size={ROUTES}&sort={}&q=", sort.word());
    for byte in filter.bytes() {
        // Writing to a String cannot fail.
        _ = write!(path, "%{byte:02x}");
    }
    path
}

/// The time that the first sample may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes the latest sample that the gateway has.
pub(super) async fn write_one(
    client: &AdminClient,
    query: &Query,
    out: &mut impl Write,
) -> Result<(), TopError> {
    let clock = Clock::start();
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the gateway sends no sample");
    let received = clock.timeout(PATIENCE, receive(client, query)).await;
    let model = received.map_err(|_| late())??;
    let model = model.ok_or_else(late)?;
    out.write_all(screen::page(&model).as_bytes())?;
    Ok(out.flush()?)
}

async fn receive(client: &AdminClient, query: &Query) -> Result<Option<Model>, ClientError> {
    let mut events = client.follow(&path(query)).await?;
    let mut model = Model::new(query.clone());
    while let Some(event) = events.next().await? {
        let Some(message) = read(&event) else { continue };
        let is_last = matches!(message, Message::Sample(_));
        model.take(message);
        if is_last {
            return Ok(Some(model));
        }
    }
    Ok(None)
}
