//! Requests that are rejected before anything is decided about them: they could not be read, or were
//! late.

use crate::proxy::{message::Response, peer::Peer, response::own_response::explained};
use crate::{
    access_log::{AccessRecord, ResponseOutcome},
    http1::{FramingError, HeadError},
    meter::HttpRejection,
};
use bytes::Bytes;
use core::time::Duration;
use http::StatusCode;

/// Why a request could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnreadableRequest {
    reason: HttpRejection,
    /// What was answered, if anything was.
    pub(crate) status: Option<StatusCode>,
    /// What was rejected, and which setting changes it.
    pub(crate) why: &'static str,
}

impl UnreadableRequest {
    /// Its header was not whole in time.
    pub(crate) const LATE: Self = Self {
        reason: HttpRejection::HeaderTimeout,
        status: None,
        why: "the header did not arrive within `timeouts.header_read`",
    };

    /// Something in it is not HTTP.
    pub(crate) const fn malformed(why: &'static str) -> Self {
        Self { reason: HttpRejection::Malformed, status: Some(StatusCode::BAD_REQUEST), why }
    }

    /// Its connection ended for it.
    pub(crate) const fn ended(why: &'static str) -> Self {
        Self { reason: HttpRejection::Malformed, status: None, why }
    }

    /// Its header is too large, in all or in a part.
    pub(crate) const fn too_large(status: StatusCode, why: &'static str) -> Self {
        Self { reason: HttpRejection::TooLarge, status: Some(status), why }
    }

    /// Returns the rejection of a head that cannot be read.
    pub(crate) fn of_head(error: HeadError) -> Self {
        use FramingError::{
            ContentLength, ContentLengthWithTransferEncoding, ContentLengthsDiffer,
            TooManyConnectionOptions, TransferEncoding, TransferEncodingInHttp10,
            UnknownTransferCoding,
        };

        let why = match error {
            HeadError::TooLarge => "the header is larger than `limits.header_bytes` allows",
            HeadError::TooManyFields => "the header has more lines than `limits.headers` allows",
            HeadError::TargetTooLong => {
                "the target is longer than 65534 bytes, or than `limits.header_bytes` allows"
            }
            HeadError::Method => {
                "the method has a character that no method has, or the client speaks TLS to a listener without `tls`"
            }
            HeadError::Target => {
                "the target has a character that must be percent-encoded, or is not a URI"
            }
            HeadError::Version | HeadError::UnknownVersion => {
                "the HTTP version is missing or neither HTTP/1.0 nor HTTP/1.1, or the target has a blank"
            }
            HeadError::EmptyLines => "too many empty lines come before the header",
            HeadError::Framing(framing) => match framing {
                ContentLength | ContentLengthsDiffer => {
                    "Content-Length is not a number, or is given twice and differs"
                }
                ContentLengthWithTransferEncoding => {
                    "Content-Length and Transfer-Encoding are both given"
                }
                TransferEncodingInHttp10 => "HTTP/1.0 has no Transfer-Encoding",
                TransferEncoding | UnknownTransferCoding => {
                    "the only transfer coding served is chunked, once"
                }
                TooManyConnectionOptions => "Connection has more than 64 options",
            },
            HeadError::Status
            | HeadError::FieldName
            | HeadError::FieldValue
            | HeadError::LineEnd => "a header line is malformed: its name, its value or its end",
        };

        let status = error.status();
        let is_large = matches!(
            status,
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG
        );
        let reason = if is_large { HttpRejection::TooLarge } else { HttpRejection::Malformed };
        Self { reason, status: Some(status), why }
    }

    /// Returns the response to an HTTP/1.1 client, if it gets one.
    pub(crate) fn response(self) -> Option<(Response<()>, Bytes)> {
        self.status.map(|status| explained(Box::default(), status, self.why))
    }

    /// Counts and logs it. A response also gets a line in the access log, without
    /// method, host and path, which are not known.
    pub(crate) fn note(self, peer: &Peer) {
        let worker = &peer.worker;
        worker.rejected(peer.address, self.reason, self.why);
        let Some(status) = self.status.filter(|_| worker.records.access_log.is_on()) else {
            return;
        };

        let snapshot = worker.live.load();
        let record = AccessRecord {
            ts: worker.clock.wall_now(),
            method: "",
            host: "",
            path: "",
            route: None,
            listener: &peer.listener,
            protocol: None,
            status: status.as_u16(),
            answered: Some(Duration::ZERO),
            duration: Duration::ZERO,
            outcome: ResponseOutcome::Completed,
            timeout: None,
            client_ip: peer.address,
            country: None,
            asn: None,
            user: None,
            auth: None,
            auth_duration: None,
            upstream: None,
            upstream_duration: None,
            upload_duration: None,
            attempts: 0,
            upstream_error: None,
            bytes_in: 0,
            bytes_out: 0,
            error: Some(self.why),
            request_id: None,
            trace_id: None,
            headers: &[],
            config_hash: &snapshot.hash,
            flow: None,
            preview: None,
        };
        worker.records.access_log.log(&record, snapshot.settings.access_log_format);
    }
}
