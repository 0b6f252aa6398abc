//! Server-sent events, one after the other.

use super::{endpoint::AdminEndpoint, error::ClientError};
use bytes::{Bytes, BytesMut};
use core::time::Duration;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

/// The longest event, in bytes.
const MOST: usize = 16 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// The kind of the event; `message` if it names none.
    pub name: String,
    /// Its data, lines joined by `\n`.
    pub data: String,
}

/// The events of one request. Dropping it ends the request.
#[derive(Debug)]
pub struct ServerSentEvents {
    pub(super) pieces: Pieces,
    pub(super) received: Received,
}

impl ServerSentEvents {
    /// Waits for the next event; `None` if the gateway has ended the stream.
    ///
    /// # Errors
    /// Nothing came for 30 s, the connection broke, or an event is longer than 16 MiB.
    pub async fn next(&mut self) -> Result<Option<ServerSentEvent>, ClientError> {
        loop {
            if let Some(event) = self.received.event() {
                return Ok(Some(event));
            }
            let Some(piece) = self.pieces.next().await? else { return Ok(None) };
            if self.received.0.len() + piece.len() > MOST {
                return Err(self.pieces.too_long("an event", MOST));
            }
            self.received.0.extend_from_slice(&piece);
        }
    }
}

/// The received bytes that are not yet an event.
#[derive(Debug, Default)]
pub(super) struct Received(BytesMut);

impl Received {
    /// Takes the next whole event.
    fn event(&mut self) -> Option<ServerSentEvent> {
        loop {
            let end = self.0.windows(2).position(|pair| pair == b"\n\n")?;
            let text = self.0.split_to(end + 2);
            let event = ServerSentEvent::read(&String::from_utf8_lossy(&text));
            if event.is_some() {
                return event;
            }
        }
    }
}

impl ServerSentEvent {
    /// Reads the lines of one; `None` if there is no data, as in comments.
    fn read(text: &str) -> Option<Self> {
        let mut name = "message";
        let mut data: Option<String> = None;
        for line in text.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match (field, &mut data) {
                ("event", _) => name = value,
                ("data", None) => data = Some(value.to_owned()),
                ("data", Some(data)) => {
                    data.push('\n');
                    data.push_str(value);
                }
                _ => {}
            }
        }
        Some(Self { name: name.to_owned(), data: data? })
    }
}

/// The longest silence: streams of the gateway send a line at least every five seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// The pieces of an answer. Dropping it ends the request.
#[derive(Debug)]
pub struct Pieces {
    pub(super) endpoint: AdminEndpoint,
    pub(super) body: Incoming,
}

impl Pieces {
    /// Waits for the next piece, which may be cut anywhere; `None` if the gateway has ended the answer.
    ///
    /// # Errors
    /// Nothing came for 30 s, or the connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Ok(frame) = timeout(SILENCE, self.body.frame()).await else {
            let seconds = SILENCE.as_secs();
            return Err(ClientError::TooLate { endpoint: self.endpoint.clone(), seconds });
        };
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| self.unreadable(error.to_string()))?;
        Ok(Some(frame.into_data().unwrap_or_default()))
    }

    /// Returns the error that a part of the answer, as `an event`, is longer than `most` bytes.
    pub fn too_long(&self, what: &str, most: usize) -> ClientError {
        self.unreadable(format!("{what} is longer than {most} bytes"))
    }

    fn unreadable(&self, cause: String) -> ClientError {
        ClientError::Unreadable { endpoint: self.endpoint.clone(), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&str]) -> Vec<(String, String)> {
        let mut received = Received::default();
        let mut found = Vec::new();
        for piece in pieces {
            received.0.extend_from_slice(piece.as_bytes());
            found.extend(std::iter::from_fn(|| received.event()));
        }
        found.into_iter().map(|ServerSentEvent { name, data }| (name, data)).collect()
    }

    #[test]
    fn events_are_found_wherever_the_pieces_are_cut() {
        let text = "retry: 2000\n\n: comment\n\nevent: sample\ndata: {\"a\":\ndata:1}\n\ndata: é\n\nevent: none\n\n";
        let expected = [
            ("sample".to_owned(), "{\"a\":\n1}".to_owned()),
            ("message".to_owned(), "é".to_owned()),
        ];
        assert_eq!(events(&[text]), expected);
        let cuts = (0..text.len()).filter(|cut| text.is_char_boundary(*cut));
        for cut in cuts {
            assert_eq!(events(&[&text[..cut], &text[cut..]]), expected, "{cut}");
        }
    }
}
