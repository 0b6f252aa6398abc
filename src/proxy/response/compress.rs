//! Compression of responses: which encoding a client gets, and whether a response is compressed.

use super::{cors::add_vary, encoder::Encoder};
use crate::{
    config::{Coding, Compress},
    http1::{FieldKind, FieldList},
    proxy::record::Completion,
};
use http::{
    HeaderName, HeaderValue, Method, StatusCode, Version,
    header::{
        ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
        CONTENT_RANGE, ETAG,
    },
};

/// Fields that say something about the bytes of the body as they came.
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// A weight of 1, in thousandths.
const WHOLE: u16 = 1000;

/// Returns the encoding that a client of a request with these fields likes best: of equal ones, the first
/// of `compress`. `None`: it takes none of them, or likes none better.
#[inline(never)]
pub(crate) fn accepted_coding(compress: &Compress, headers: &FieldList) -> Option<Coding> {
    if has_no_transform(headers) {
        return None;
    }
    let mut any = None;
    let mut identity = None;
    let mut weights: [Option<u16>; 3] = [None; 3];
    let lists = headers.get_all(&ACCEPT_ENCODING);
    for entry in lists.flat_map(|list| list.split(|byte| *byte == b',')) {
        let mut parts = entry.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let weight = weight(parts);
        if name == b"*" {
            any = Some(weight);
        } else if name.eq_ignore_ascii_case(b"identity") {
            identity = Some(weight);
        } else if let Some(coding) = coding_of(name) {
            weights[coding as usize] = Some(weight);
        }
    }

    let mut best: Option<(u16, Coding)> = None;
    for coding in &compress.codings {
        let weight = weights[*coding as usize].or(any).unwrap_or(0);
        if weight > best.map_or(0, |(most, _)| most) {
            best = Some((weight, *coding));
        }
    }
    best.filter(|(weight, _)| identity.is_none_or(|identity| identity <= *weight))
        .map(|(_, coding)| coding)
}

fn coding_of(name: &[u8]) -> Option<Coding> {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 if is(b"br") => Some(Coding::Br),
        4 if is(b"gzip") => Some(Coding::Gzip),
        4 if is(b"zstd") => Some(Coding::Zstd),
        6 if is(b"x-gzip") => Some(Coding::Gzip),
        _ => None,
    }
}

/// Returns the weight among the parameters of an encoding, in thousandths; 0 if it is malformed (RFC 9110,
/// 12.4.2).
fn weight<'a>(mut parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    let Some(parameter) = parameters.next() else { return WHOLE };
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    let Some((whole, decimals)) = value.and_then(<[u8]>::split_first) else { return 0 };
    let decimals = match decimals {
        [] => &[][..],
        [b'.', decimals @ ..] if decimals.len() <= 3 => decimals,
        _ => return 0,
    };
    if !decimals.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let digit = |place: usize| decimals.get(place).map_or(0, |digit| u16::from(digit - b'0'));
    let part = 100 * digit(0) + 10 * digit(1) + digit(2);
    match whole {
        b'0' => part,
        b'1' if part == 0 => WHOLE,
        _ => 0,
    }
}

fn has_no_transform(headers: &FieldList) -> bool {
    let is_no_transform = |part: &[u8]| part.trim_ascii().eq_ignore_ascii_case(b"no-transform");
    let lists = headers.get_all(&CACHE_CONTROL);
    lists.flat_map(|list| list.split(|byte| *byte == b',')).any(is_no_transform)
}

/// Makes the head of a server's response that of a compressed one, and returns the encoder of its body, if
/// it is compressed. Caches get to know of the other encodings in any case.
#[inline(never)]
pub(crate) fn begin(
    compress: &Compress,
    status: StatusCode,
    headers: &mut FieldList,
    completion: &Completion,
) -> Option<Box<Encoder>> {
    let length = completion.size_hint().exact();
    if !is_compressible(compress, status, headers)
        || length.is_some_and(|length| length < compress.min_size)
    {
        return None;
    }
    add_vary(headers, &[ACCEPT_ENCODING]);

    let is_whole = completion.arrival.method != Method::HEAD;
    let is_read_in_parts = completion.arrival.version > Version::HTTP_10;
    let coding = completion.coding.filter(|_| is_whole && is_read_in_parts)?;
    // A body without a length may be a stream, whose parts should not wait for more.
    let place = completion.peer.worker.encoders.take()?;
    let encoder = Encoder::new(coding, length.is_none(), place)?;
    headers.remove(&CONTENT_LENGTH);
    headers.remove(&ACCEPT_RANGES);
    headers.remove(&CONTENT_ENCODING);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name(coding)));
    weaken_etag(headers);
    Some(encoder)
}

const fn name(coding: Coding) -> &'static str {
    match coding {
        Coding::Zstd => "zstd",
        Coding::Br => "br",
        Coding::Gzip => "gzip",
    }
}

fn is_compressible(compress: &Compress, status: StatusCode, headers: &FieldList) -> bool {
    let has_body = !matches!(status.as_u16(), 100..=199 | 204 | 205 | 206 | 304);
    let is_identity = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"identity");
    has_body
        && headers.first(FieldKind::ContentType).is_some_and(|media| compress.takes(media))
        && headers.get_all(&CONTENT_ENCODING).all(is_identity)
        && !headers.contains_key(&CONTENT_RANGE)
        && !has_no_transform(headers)
        && !DIGESTS.iter().any(|name| headers.contains_key(name))
}

/// Has the validator stand for both forms of the body: bytes of one never complete those of the other (RFC
/// 9110, 8.8.3.3).
fn weaken_etag(headers: &mut FieldList) {
    let Some(etag) = headers.get(&ETAG).filter(|etag| etag.starts_with(b"\"")) else { return };
    let weak = HeaderValue::try_from([b"W/", etag].concat());
    match weak {
        Ok(weak) => headers.insert(ETAG, weak),
        Err(_) => headers.remove(&ETAG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compress(codings: &[Coding]) -> Compress {
        Compress { codings: codings.to_vec(), types: None, min_size: 1 }
    }

    fn fields(lines: &[(HeaderName, &'static str)]) -> FieldList {
        let mut headers = FieldList::default();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_client_gets_the_encoding_that_it_likes_best() {
        use Coding::{Br, Gzip, Zstd};
        let all = compress(&[Zstd, Br, Gzip]);
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip, deflate, br", Some(Br)),
            ("GZIP", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip;q=1.0, br;q=0.9", Some(Gzip)),
            ("gzip;q=0.5, br;q=0.501", Some(Br)),
            ("gzip ; q=0.5 , zstd;Q=0.5", Some(Zstd)),
            ("*", Some(Zstd)),
            ("zstd;q=0, *", Some(Br)),
            ("*;q=0, gzip;q=0.1", Some(Gzip)),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("identity;q=0, gzip", Some(Gzip)),
            ("", None),
            ("identity", None),
            ("deflate, compress", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("gzip;q=1.001", None),
            ("gzip;q=2", None),
            ("gzip;q=-1", None),
            ("gzip;q=0.1234", None),
            ("gzip;q=", None),
            ("gzip;level=9", None),
            ("gzipped", None),
            (",,;", None),
        ] {
            let headers = fields(&[(ACCEPT_ENCODING, accepted)]);
            assert_eq!(accepted_coding(&all, &headers), expected, "{accepted}");
        }
        assert_eq!(accepted_coding(&all, &fields(&[])), None);
        let lines = [(ACCEPT_ENCODING, "br;q=0.1"), (ACCEPT_ENCODING, "gzip")];
        assert_eq!(accepted_coding(&all, &fields(&lines)), Some(Gzip));
        let own = compress(&[Gzip, Zstd]);
        let usual = (ACCEPT_ENCODING, "gzip, deflate, br, zstd");
        assert_eq!(accepted_coding(&own, &fields(core::slice::from_ref(&usual))), Some(Gzip));
        let kept = (CACHE_CONTROL, "max-age=0, No-Transform");
        assert_eq!(accepted_coding(&own, &fields(&[usual, kept])), None);
    }

    #[test]
    fn what_must_stay_as_it_came_does() {
        let all = compress(&[Coding::Gzip]);
        let html = (http::header::CONTENT_TYPE, "text/html");
        let takes = |status: u16, more: &[(HeaderName, &'static str)]| {
            let lines = [&[html.clone()][..], more].concat();
            is_compressible(&all, status.try_into().unwrap(), &fields(&lines))
        };
        for status in [200, 201, 403, 404, 500] {
            assert!(takes(status, &[]), "{status}");
        }
        for status in [101, 204, 205, 206, 304] {
            assert!(!takes(status, &[]), "{status}");
        }
        assert!(takes(200, &[(CONTENT_ENCODING, "identity"), (CACHE_CONTROL, "no-cache")]));
        for line in [
            (CONTENT_ENCODING, "gzip"),
            (CONTENT_ENCODING, "identity, br"),
            (CONTENT_RANGE, "bytes 0-1/5"),
            (CACHE_CONTROL, "public,NO-TRANSFORM"),
            (DIGESTS[0].clone(), "sha-256=:x:"),
        ] {
            assert!(!takes(200, core::slice::from_ref(&line)), "{line:?}");
        }
        let untyped = fields(&[]);
        assert!(!is_compressible(&all, StatusCode::OK, &untyped));
    }

    #[test]
    fn a_strong_validator_becomes_weak() {
        for (before, after) in
            [("\"a\"", Some("W/\"a\"")), ("W/\"a\"", Some("W/\"a\"")), ("odd", Some("odd"))]
        {
            let mut headers = fields(&[(ETAG, before)]);
            weaken_etag(&mut headers);
            assert_eq!(headers.get(&ETAG), after.map(str::as_bytes));
        }
    }
}
