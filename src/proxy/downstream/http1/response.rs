//! The heads of responses as they are written to clients of HTTP/1.1.

use super::current_request::CurrentRequest;
use crate::http1::{
    BodyLength, Framing, HeadWriter, LengthField,
    framing::{self, has_body},
};
use crate::http1::{FieldKind, FieldList, text};
use crate::proxy::message::{
    hop_by_hop::announced,
    response::{Response, ResponseHead},
};
use crate::proxy::response::response_body::ResponseBody;
use http::{
    HeaderName, HeaderValue, Version,
    header::{CONTENT_LENGTH, DATE},
};
use http_body::Body;
use hyper::ext::ReasonPhrase;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Not at all.
    None,
    /// As it is, with so many bytes to come.
    Sized(u64),
    Chunked,
    /// As it is; the connection's end is its end.
    UntilClose,
}

/// What follows a head.
pub(super) struct Written {
    pub(super) coding: Coding,
    pub(super) announced: Vec<HeaderName>,
}

/// Writes the head of a response with this body.
pub(super) fn write(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    body: &ResponseBody,
    current: &CurrentRequest,
    date: impl FnOnce() -> HeaderValue,
) -> Written {
    let length = match (body.is_end_stream(), body.size_hint().exact()) {
        (true, _) => BodyLength::None,
        (false, Some(length)) => BodyLength::Exactly(length),
        (false, None) => BodyLength::Chunked,
    };
    let has_body = has_body(head.status, current.request);
    let declared = if has_body { None } else { declared(&head.headers) };
    let framing = Framing { body: length, declared, ..Framing::NONE };
    let field = framing::for_response(head.status, current.request, current.version, &framing);
    let coding = match (has_body, length, field) {
        (false, _, _) | (true, BodyLength::None, _) => Coding::None,
        (true, _, LengthField::ContentLength(length)) => Coding::Sized(length),
        (true, _, LengthField::Chunked) => Coding::Chunked,
        (true, _, LengthField::None) => Coding::UntilClose,
    };
    let mut writer = begin(out, head).titled(current.is_titled);
    writer.copy_all((&head.headers).into(), |kind| !is_framing(kind));
    writer.length(field);
    if !head.headers.contains_key(&DATE) {
        writer.field(&DATE, &date());
    }
    if !current.keeps_alive || coding == Coding::UntilClose {
        writer.close();
    } else if current.version == Version::HTTP_10 {
        writer.keep_alive();
    }
    writer.end();
    let has_trailers = coding == Coding::Chunked && current.takes_trailers;
    let announced = if has_trailers { announced(&head.headers) } else { Vec::new() };
    Written { coding, announced }
}

/// Writes an interim response.
pub(super) fn write_interim(out: &mut Vec<u8>, interim: &Response<()>, is_titled: bool) {
    let mut writer = HeadWriter::response(out, interim.status(), None).titled(is_titled);
    writer.copy_all(interim.headers().into(), |kind| !is_framing(kind));
    writer.end();
}

/// Writes the head by which both sides change their protocol.
pub(super) fn write_agreement(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    is_titled: bool,
    date: &HeaderValue,
) {
    let mut writer = begin(out, head).titled(is_titled);
    writer.copy_all((&head.headers).into(), |_| true);
    if !head.headers.contains_key(&DATE) {
        writer.field(&DATE, date);
    }
    writer.end();
}

fn begin<'o>(out: &'o mut Vec<u8>, head: &ResponseHead) -> HeadWriter<'o> {
    let reason = head.reason.as_ref().map(ReasonPhrase::as_bytes);
    HeadWriter::response(out, head.status, reason)
}

/// Whether a field says where the body ends, which is said anew.
fn is_framing(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding)
}

/// Returns what `Content-Length` says, which a response to HEAD and a 304 have without a body.
#[cold]
fn declared(headers: &FieldList) -> Option<u64> {
    text(headers.get(&CONTENT_LENGTH)?)?.parse().ok()
}

/// Writes an answer to a request that could not be read, after which the connection ends.
pub(super) fn write_own(
    out: &mut Vec<u8>,
    response: &Response<()>,
    body: &[u8],
    is_titled: bool,
    date: &HeaderValue,
) {
    let mut writer = HeadWriter::response(out, response.status(), None).titled(is_titled);
    writer.copy_all(response.headers().into(), |_| true);
    writer.length(LengthField::ContentLength(body.len() as u64));
    writer.field(&DATE, date);
    writer.close();
    writer.end();
    out.extend_from_slice(body);
}
