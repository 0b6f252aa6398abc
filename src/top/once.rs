//! One sample as plain text, for scripts and where there is no terminal.

use super::{
    error::TopError,
    feed::{path, read},
    model::{Message, Model, Query},
    screen::text,
};
use crate::{
    admin_client::{AdminClient, ClientError},
    clock::Clock,
};
use core::time::Duration;
use std::io::{self, Write};

/// How long the first sample may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes the latest sample that the gateway has.
pub(super) async fn write(
    client: &AdminClient,
    query: &Query,
    out: &mut impl Write,
) -> Result<(), TopError> {
    let clock = Clock::start();
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the gateway sends no sample");
    let received = clock.timeout(PATIENCE, receive(client, query)).await;
    let model = received.map_err(|_| late())??;
    let model = model.ok_or_else(late)?;
    out.write_all(text::page(&model).as_bytes())?;
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
