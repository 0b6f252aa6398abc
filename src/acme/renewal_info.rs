//! ACME renewal information (ARI, RFC 9773): the window in which an authority suggests to renew.

use super::{
    client::Client,
    schedule::{Issued, RenewalInfo, next_check, seconds},
};
use crate::flow::Instant;
use jiff::Timestamp;
use serde::Deserialize;
use std::io;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    suggested_window: Window,
    #[serde(default, rename = "explanationURL")]
    explanation: Option<String>,
}

#[derive(Deserialize)]
struct Window {
    start: String,
    end: String,
}

/// Requests the window of a certificate. Without one, the usual time is in force until the next request.
pub(super) async fn request(client: &Client, issued: &Issued, now: Instant) -> Option<RenewalInfo> {
    let id = issued.id.as_deref()?;
    let window = match window(client, id).await {
        Ok(window) => window,
        Err(error) => {
            tracing::debug!(%error, "no renewal information");
            None
        }
    };
    let check_at = seconds(next_check(now, client.retry_after()));
    Some(RenewalInfo { certificate: id.to_owned(), window, check_at })
}

async fn window(client: &Client, id: &str) -> io::Result<Option<[u64; 2]>> {
    client.read_directory().await?;
    let Some(url) = client.renewal_info() else { return Ok(None) };
    let text = client.get(&format!("{}/{id}", url.trim_end_matches('/'))).await?;
    read(&text).map(Some)
}

/// Reads a window, in seconds since 1970.
fn read(text: &[u8]) -> io::Result<[u64; 2]> {
    let Response { suggested_window: Window { start, end }, explanation } =
        serde_json::from_slice(text)?;
    if let Some(explanation) = explanation {
        let explanation: String =
            explanation.chars().filter(|c| !c.is_control()).take(200).collect();
        tracing::info!(%explanation, "the authority explains when to renew a certificate");
    }
    let seconds = |time: &str| {
        let time: Timestamp = time.parse().map_err(io::Error::other)?;
        Ok::<_, io::Error>(u64::try_from(time.as_second()).unwrap_or(0))
    };
    Ok([seconds(&start)?, seconds(&end)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_as_the_standard_writes_it() {
        let text = br#"{
            "suggestedWindow": {"start": "2025-01-02T04:00:00Z", "end": "2025-01-03T04:00:00.5+01:00"},
            "explanationURL": "https://acme.example.com/docs/ari"
        }"#;
        assert_eq!(read(text).unwrap(), [1_735_790_400, 1_735_873_200]);
        for text in [
            "",
            "{}",
            r#"{"suggestedWindow": {}}"#,
            r#"{"suggestedWindow": {"start": "tomorrow", "end": "2025-01-03T04:00:00Z"}}"#,
            r#"{"suggestedWindow": {"start": 1, "end": 2}}"#,
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
