//! Requests that are refused before the gateway has seen them: hyper could not read them, or they
//! were late.

use super::{peer::Peer, reply::explained};
use crate::{
    access_log::{AccessRecord, Ending},
    meter::Refusal,
};
use core::time::Duration;
use http::StatusCode;

/// Why a request could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    reason: Refusal,
    /// What was answered, if anything was.
    pub(super) status: Option<StatusCode>,
    /// What was refused, and which setting changes it.
    pub(super) why: &'static str,
}

impl Unread {
    /// Its header was not whole in time.
    pub(super) const LATE: Self = Self {
        reason: Refusal::HeaderTimeout,
        status: None,
        why: "the header did not arrive within `timeouts.header_read`",
    };

    /// Something in it is not HTTP.
    pub(super) const fn malformed(why: &'static str) -> Self {
        Self { reason: Refusal::Malformed, status: Some(StatusCode::BAD_REQUEST), why }
    }

    /// Its connection ended for it.
    pub(super) const fn ended(why: &'static str) -> Self {
        Self { reason: Refusal::Malformed, status: None, why }
    }

    /// Its header is too large, in all or in a part.
    pub(super) const fn too_large(status: StatusCode, why: &'static str) -> Self {
        Self { reason: Refusal::TooLarge, status: Some(status), why }
    }

    /// Returns what an HTTP/1.1 connection ended for, if it was a request that could not be read.
    pub(super) fn of(error: &hyper::Error) -> Option<Self> {
        if !error.is_parse() && !error.is_parse_too_large() {
            return None;
        }
        // hyper distinguishes them in words only; the end-to-end tests hold these.
        Some(match error.to_string().as_str() {
            "message head is too large" => Self::too_large(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the header is larger than `limits.header_bytes` or has more lines than `limits.headers` allows",
            ),
            "URI too long" => {
                Self::too_large(StatusCode::URI_TOO_LONG, "the target is longer than 65534 bytes")
            }
            "invalid HTTP method parsed" => {
                Self::malformed("the method has a character that no method has")
            }
            "invalid URI" => Self::malformed(
                "the target has a character that must be percent-encoded, or is no URI",
            ),
            "invalid HTTP version parsed" => Self::malformed("the version is not one of HTTP/1"),
            "invalid content-length parsed" => {
                Self::malformed("Content-Length is not a number, or is given twice and differs")
            }
            "invalid transfer-encoding parsed" => {
                Self::malformed("the only transfer coding served is chunked, once")
            }
            "unexpected transfer-encoding parsed" => {
                Self::malformed("HTTP/1.0 has no Transfer-Encoding")
            }
            _ => Self::malformed("a header line is malformed: its name, its value or its end"),
        })
    }

    /// Returns what an HTTP/1.1 client is answered, in place of hyper's `own` answer, which has the
    /// date and says nothing else.
    pub(super) fn answer(self, own: &[u8]) -> Vec<u8> {
        let status = self.status.unwrap_or(StatusCode::BAD_REQUEST);
        let (response, body) = explained(status, self.why);
        let mut answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n").into_bytes();
        let mut lines = own.split_inclusive(|byte| *byte == b'\n');
        answer.extend(lines.find(|line| line.starts_with(b"date: ")).unwrap_or_default());
        for (name, value) in response.headers() {
            answer.extend_from_slice(name.as_ref());
            answer.extend_from_slice(b": ");
            answer.extend_from_slice(value.as_bytes());
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        answer.extend_from_slice(&body);
        answer
    }

    /// Counts it, logs it, also in the access log if it was answered: without
    /// method, host and path, which are not known.
    pub(super) fn note(self, peer: &Peer) {
        let worker = &peer.worker;
        worker.request_log.rejected(worker, peer.address, self.reason, self.why);
        let Some(status) = self.status.filter(|_| worker.access_log.is_on()) else { return };
        worker.access_log.log(&AccessRecord {
            ts: worker.clock.now(),
            method: "",
            host: "",
            path: "",
            route: None,
            status: status.as_u16(),
            answered: Some(Duration::ZERO),
            duration: Duration::ZERO,
            outcome: Ending::Completed,
            timeout: None,
            client_ip: peer.address,
            user: None,
            upstream: None,
            upstream_duration: None,
            attempts: 0,
            upstream_error: None,
            bytes_in: 0,
            bytes_out: 0,
            error: Some(self.why),
            request_id: None,
            trace_id: None,
            config_hash: &worker.live.load().hash,
            flow: None,
        });
    }
}
