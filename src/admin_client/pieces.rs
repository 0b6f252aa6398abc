//! An answer that is read while it comes.

use super::{endpoint::AdminEndpoint, error::ClientError};
use bytes::Bytes;
use core::time::Duration;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

/// How long nothing may come: streams of the gateway say at least every five seconds how they go on.
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
