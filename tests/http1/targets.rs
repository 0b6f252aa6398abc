//! What holds for any bytes, one function for each part of the codec. `tests/http1/fuzz.rs` runs
//! them in every test run, `fuzz/` with libFuzzer.
//!
//! Each compares the codec with a naive reader of what it accepts: lines cut at LF, numbers
//! parsed as text.

use flowgate::http1::{
    BodyLength, FieldKind, Fields, Framing, HeadLimits, HeadWriter, RequestHead, RequestKind,
    ResponseHead,
    chunked::{ChunkedDecoder, MAX_EXTENSION, MAX_EXTENSIONS, MAX_SIZE_DIGITS},
    write_trailers,
};
use http::{Method, Version};

const LIMITS: HeadLimits = HeadLimits { bytes: 1000, fields: 12 };

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// Any bytes as a request's head.
pub(crate) fn request(bytes: &[u8]) {
    let mut head = RequestHead::default();
    let whole = head.parse(bytes, LIMITS);
    for size in [1, 7] {
        let mut in_pieces = RequestHead::default();
        let read = in_steps(bytes, size, |part| in_pieces.parse(part, LIMITS));
        assert_eq!(read, whole, "in pieces of {size}");
    }
    let Ok(Some(length)) = whole else { return };
    assert!(length <= LIMITS.bytes && head.fields(bytes).len() <= LIMITS.fields);
    let (line, fields) = naive_head(&bytes[..length]);
    let parts: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let version = format!("{:?}", head.version());
    assert_eq!(parts, [head.method(bytes), head.target(bytes), version.as_bytes()]);
    assert_eq!(lines(head.fields(bytes)), fields);
    let method = Method::from_bytes(head.method(bytes)).expect("a token");
    let mut out = Vec::new();
    let mut writer = HeadWriter::request(&mut out, &method, head.target(bytes));
    writer.copy_all(head.fields(bytes), is_kept);
    writer.end();
    assert_forwarded(&out, &fields);
    assert_trailers(head.fields(bytes), &fields);
}

/// Any bytes as a response's head. The first byte chooses what it answers.
pub(crate) fn response(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let kind = kind(*first);
    let mut head = ResponseHead::default();
    let whole = head.parse(bytes, LIMITS, kind);
    for size in [1, 7] {
        let mut in_pieces = ResponseHead::default();
        let read = in_steps(bytes, size, |part| in_pieces.parse(part, LIMITS, kind));
        assert_eq!(read, whole, "in pieces of {size}");
    }
    let Ok(Some(length)) = whole else { return };
    let (line, fields) = naive_head(&bytes[..length]);
    let start = format!("{:?} {}", head.version(), head.status().as_str());
    let rest = line.strip_prefix(start.as_bytes()).expect("version and status");
    let reason = rest.strip_prefix(b" ").unwrap_or_default();
    assert_eq!(head.reason(bytes), if reason.is_ascii() { reason } else { b"" });
    assert_eq!(lines(head.fields(bytes)), fields);
    let mut out = Vec::new();
    let mut writer = HeadWriter::response(&mut out, head.status(), Some(head.reason(bytes)));
    writer.copy_all(head.fields(bytes), is_kept);
    writer.end();
    assert_forwarded(&out, &fields);
    assert_trailers(head.fields(bytes), &fields);
}

/// Any bytes as a chunked body.
pub(crate) fn chunked(bytes: &[u8]) {
    let expected = naive_chunks(bytes);
    for size in [usize::MAX, 1, 3] {
        let mut decoder = ChunkedDecoder::new(LIMITS);
        let mut data = Vec::new();
        let mut consumed = 0;
        for piece in bytes.chunks(size) {
            let mut buffer = piece.to_vec();
            let Ok(part) = decoder.decode(&mut buffer) else { break };
            data.extend_from_slice(&buffer[part.data]);
            consumed += part.consumed;
            assert!(part.is_end || part.consumed == piece.len(), "bytes were left behind");
        }
        let read = decoder.is_end().then(|| (data, lines(decoder.trailers().fields()), consumed));
        assert_eq!(read, expected, "in pieces of {size}");
    }
}

/// Any lines of fields as a message's framing. The first byte chooses the message.
pub(crate) fn framing(bytes: &[u8]) {
    let Some((first, fields)) = bytes.split_first() else { return };
    let version = if first & 1 == 0 { "HTTP/1.1" } else { "HTTP/1.0" };
    let status = [200, 103, 204, 304, 404][usize::from(first >> 4) % 5];
    let whole = |line: String| [line.as_bytes(), fields, b"\r\n\r\n"].concat();
    let bytes = whole(format!("PUT / {version}\r\n"));
    let mut head = RequestHead::default();
    match head.parse(&bytes, LIMITS) {
        Ok(Some(_)) => assert_framing(
            head.framing(),
            naive_framing(head.fields(&bytes), head.version(), true, BodyLength::None),
        ),
        Ok(None) => {}
        Err(flowgate::http1::HeadError::Framing(_)) => {
            let (_, lines) = naive_head(&bytes);
            let naive = naive_of_lines(&lines, head.version(), true, BodyLength::None);
            assert_eq!(naive, None, "it is not ambiguous");
        }
        Err(_) => return,
    }
    let kind = kind(first >> 1);
    let bytes = whole(format!("{version} {status} x\r\n"));
    let mut head = ResponseHead::default();
    if let Ok(Some(_)) = head.parse(&bytes, LIMITS, kind) {
        let has_body = !matches!(status, 103 | 204 | 304)
            && kind != RequestKind::Head
            && (kind != RequestKind::Connect || status == 404);
        let mut expected =
            naive_framing(head.fields(&bytes), head.version(), false, BodyLength::UntilClose);
        if let Some((body, _, keeps_alive)) = expected.as_mut().filter(|_| !has_body) {
            *keeps_alive |= *body == BodyLength::UntilClose
                && asks_to_keep_alive(&lines(head.fields(&bytes)), head.version());
            *body = BodyLength::None;
        }
        assert_framing(head.framing(), expected);
    }
}

fn kind(byte: u8) -> RequestKind {
    [RequestKind::Other, RequestKind::Head, RequestKind::Connect][usize::from(byte) % 3]
}

fn lines(fields: Fields<'_>) -> Lines {
    fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect()
}

/// Calls `parse` with more and more of `bytes`, until it is done.
fn in_steps<E>(
    bytes: &[u8],
    size: usize,
    mut parse: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
) -> Result<Option<usize>, E> {
    let mut end = 0;
    loop {
        let read = parse(&bytes[..end]);
        if end == bytes.len() || !matches!(read, Ok(None)) {
            return read;
        }
        end = (end + size).min(bytes.len());
    }
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

fn is_token(name: &[u8]) -> bool {
    let is_sign = |byte: &u8| b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || is_sign(byte))
}

fn is_value(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f))
}

/// Cuts a whole head into its first line and its fields.
fn naive_head(head: &[u8]) -> (Vec<u8>, Lines) {
    let lines = head.split(|byte| *byte == b'\n');
    let lines: Vec<&[u8]> = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    let first = lines.iter().position(|line| !line.is_empty()).expect("a first line");
    let fields = lines[first + 1..].iter().take_while(|line| !line.is_empty());
    (lines[first].to_vec(), fields.map(|line| naive_field(line).expect("a field")).collect())
}

fn naive_field(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = &line[..colon];
    let value = trim(&line[colon + 1..]);
    (is_token(name) && is_value(value)).then(|| (name.to_vec(), value.to_vec()))
}

/// Whether a field does not frame the message.
fn is_kept(kind: FieldKind) -> bool {
    !matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding)
}

/// What was forwarded is a head again, without what framed the message.
fn assert_forwarded(out: &[u8], fields: &Lines) {
    let (_, forwarded) = naive_head(out);
    let frames = |name: &[u8]| {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        is(b"content-length") || is(b"transfer-encoding")
    };
    let expected = fields.iter().filter(|(name, _)| !frames(name));
    assert!(forwarded.iter().eq(expected), "{forwarded:?} of {fields:?}");
}

/// Fields that are written as trailers are fields again, without what was for one neighbour only.
fn assert_trailers(written: Fields<'_>, fields: &Lines) {
    let mut out = b"GET / HTTP/1.1\r\n".to_vec();
    let start = out.len();
    write_trailers(written, &mut out, |_| true);
    out.drain(start..start + b"0\r\n".len());
    let (_, trailers) = naive_head(&out);
    let mut rest = fields.iter();
    for line in &trailers {
        assert!(rest.any(|field| field == line), "{line:?} was not there, or not in this order");
        let name = line.0.to_ascii_lowercase();
        let is_hop = |hop: &&[u8]| name == *hop;
        let hops: [&[u8]; 4] = [b"connection", b"te", b"transfer-encoding", b"content-length"];
        assert!(!hops.iter().any(is_hop), "{name:?} is for one neighbour");
    }
}

/// The data and the trailers of a whole chunked body, and its length.
fn naive_chunks(bytes: &[u8]) -> Option<(Vec<u8>, Lines, usize)> {
    let mut data = Vec::new();
    let mut at = 0;
    let mut extensions = 0;
    loop {
        let line = naive_line(&bytes[at..])?;
        at += line.len() + 2;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, extension) = line.split_at(digits);
        extensions += extension.len();
        let is_extension = matches!(trim(extension), [] | [b';', ..]) && is_value(extension);
        if digits.is_empty()
            || digits.len() > usize::from(MAX_SIZE_DIGITS)
            || !is_extension
            || extension.len() > MAX_EXTENSION as usize
            || extensions > MAX_EXTENSIONS as usize
        {
            return None;
        }
        let digits = core::str::from_utf8(digits).expect("ASCII");
        let size = usize::try_from(u64::from_str_radix(digits, 16).expect("16 digits")).ok()?;
        if size == 0 {
            break;
        }
        let end = at.checked_add(size)?;
        data.extend_from_slice(bytes.get(at..end)?);
        if bytes.get(end..end + 2)? != b"\r\n" {
            return None;
        }
        at = end + 2;
    }
    let mut trailers = Vec::new();
    let start = at;
    loop {
        let line = naive_line(&bytes[at..])?;
        at += line.len() + 2;
        if at - start > LIMITS.bytes {
            return None;
        }
        if line.is_empty() {
            return (trailers.len() <= LIMITS.fields).then_some((data, trailers, at));
        }
        trailers.push(naive_field(line)?);
    }
}

/// The first line, which ends with CRLF and has neither within.
fn naive_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
    bytes[end..].starts_with(b"\r\n").then(|| &bytes[..end])
}

type Naive = Option<(BodyLength, Option<u64>, bool)>;

fn assert_framing(framing: &Framing, expected: Naive) {
    let Framing { body, declared, keeps_alive } = *framing;
    assert_eq!(Some((body, declared, keeps_alive)), expected);
}

fn naive_framing(
    fields: Fields<'_>,
    version: Version,
    is_request: bool,
    default: BodyLength,
) -> Naive {
    naive_of_lines(&lines(fields), version, is_request, default)
}

/// The elements of a list, over all its lines.
fn elements(lines: &Lines, name: &str) -> Vec<String> {
    let lines = lines.iter().filter(|line| line.0.eq_ignore_ascii_case(name.as_bytes()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(trim(bytes)).to_ascii_lowercase();
    lines.flat_map(|line| line.1.split(|byte| *byte == b',').map(text)).collect()
}

fn asks_to_keep_alive(lines: &Lines, version: Version) -> bool {
    let options = elements(lines, "connection");
    let has = |option: &str| options.iter().any(|known| known == option);
    !has("close") && (version == Version::HTTP_11 || has("keep-alive"))
}

/// How a message with these lines is framed, if that is certain.
fn naive_of_lines(lines: &Lines, version: Version, is_request: bool, default: BodyLength) -> Naive {
    let has = |name: &str| lines.iter().any(|line| line.0.eq_ignore_ascii_case(name.as_bytes()));
    let lengths = elements(lines, "content-length");
    let is_list = |line: &(Vec<u8>, Vec<u8>)| {
        line.0.eq_ignore_ascii_case(b"content-length") && line.1.contains(&b',')
    };
    let mut numbers = Vec::new();
    for length in &lengths {
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let digits = length.trim_start_matches('0');
        let number = if digits.is_empty() { Some(0) } else { digits.parse::<i64>().ok() };
        numbers.push(number.filter(|_| is_number)?);
    }
    numbers.dedup();
    if numbers.len() > 1 || (is_request && lines.iter().any(is_list)) {
        return None;
    }
    let is_chunked = has("transfer-encoding");
    if is_chunked
        && (version != Version::HTTP_11
            || elements(lines, "transfer-encoding") != ["chunked"]
            || !lengths.is_empty())
    {
        return None;
    }
    if elements(lines, "connection").len() > 64 {
        return None;
    }
    let declared = numbers.first().map(|number| number.unsigned_abs());
    let body = match declared {
        _ if is_chunked => BodyLength::Chunked,
        Some(length) => BodyLength::Exactly(length),
        None => default,
    };
    let keeps_alive = asks_to_keep_alive(lines, version) && body != BodyLength::UntilClose;
    Some((body, declared, keeps_alive))
}
