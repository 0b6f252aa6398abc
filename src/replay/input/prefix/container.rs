//! The prefixes of containers.
//!
//! ```text
//! {"log":"…\n","stream":"stdout","time":"…"}                      Docker's files
//! time stdout F …                                                 Kubernetes (CRI), Podman
//! service-1  | …                                                  Docker Compose, Swarm
//! [pod/name/container] …                                          kubectl logs --prefix
//! time …                                                          docker logs -t
//! ```

use super::step::{Part, Step, Stream, is_iso_time, word};
use serde_json::{Map, Value};

/// Docker splits longer lines into parts of this length.
const DOCKER_PART: usize = 16 * 1024;

/// Escapes of terminals begin with this, as colours of Docker Compose.
const ESCAPE: &[u8] = b"\x1b[";

/// First members of objects around lines.
const FIRST: [&[u8]; 9] = [
    b"log",
    b"stream",
    b"time",
    b"date",
    b"message",
    b"MESSAGE",
    b"@timestamp",
    b"kubernetes",
    b"attrs",
];

/// Removes the JSON object around a line: Docker's, journald's (`journalctl -o json`), or that of a
/// log shipper. `expects_more`: the last part of a line is still to come.
pub(super) fn json(line: &[u8], expects_more: bool) -> Step<'_> {
    if !is_wrapper(line) {
        return Step::Bare;
    }
    let Ok(object) = serde_json::from_slice::<Map<String, Value>>(line) else { return Step::Bare };
    let has = |name: &str| object.contains_key(name);
    let stream = object.get("stream").and_then(Value::as_str);
    let has_proof = stream.is_some() || has("time") || has("date") || has("@timestamp");
    let journal = || object.keys().any(|name| name.starts_with('_'));
    let text = match (object.get("log"), object.get("message"), object.get("MESSAGE")) {
        (Some(text), ..) if has_proof || has("kubernetes") => text,
        (None, Some(text), _) if has("@timestamp") => text,
        (None, None, Some(text)) if journal() => text,
        _ => return Step::Bare,
    };
    let text = match text {
        Value::String(text) => text.as_bytes().to_vec(),
        // Some shippers put the inner object here.
        Value::Object(_) => text.to_string().into_bytes(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return Step::Bare,
    };
    let has_end = text.ends_with(b"\n");
    let is_part = stream.is_some() && (expects_more || !has_end && text.len() >= DOCKER_PART);
    if !is_part {
        return Step::Text(text);
    }
    let stream = if stream == Some("stderr") { Stream::Stderr } else { Stream::Stdout };
    let is_last = has_end || text.len() < DOCKER_PART;
    Step::Part(Part { text, stream, is_last })
}

/// Returns whether the first member of an object is one that objects around lines begin with.
fn is_wrapper(line: &[u8]) -> bool {
    let member = line.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let Some(name) = member.and_then(|member| member.strip_prefix(b"\"")) else { return false };
    let end = name.iter().position(|byte| *byte == b'"').unwrap_or(0);
    let name = &name[..end];
    name.starts_with(b"_") || FIRST.contains(&name)
}

/// Removes the prefix of Kubernetes; with the tag `P` a line goes on.
pub(super) fn cri(line: &[u8]) -> Option<Step<'_>> {
    let (time, rest) = word(line)?;
    if !is_iso_time(time) {
        return None;
    }
    let (stream, rest) = word(rest)?;
    let stream = match stream {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return None,
    };
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    // Further tags may follow behind colons.
    let is_last = match rest[..end].split(|byte| *byte == b':').next()? {
        b"F" => true,
        b"P" => false,
        _ => return None,
    };
    let text = rest.get(end + 1..).unwrap_or_default().to_vec();
    Some(Step::Part(Part { text, stream, is_last }))
}

/// Removes a colour, the name of a service or pod, or a time alone.
pub(super) fn rest(line: &[u8]) -> Option<&[u8]> {
    if let Some(escape) = line.strip_prefix(ESCAPE) {
        let end = escape.iter().position(|byte| *byte == b'm')?;
        let is_colour = escape[..end].iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
        return is_colour.then(|| &escape[end + 1..]);
    }
    if line.starts_with(b"[pod/") {
        let end = line.iter().position(|byte| *byte == b']')?;
        return Some(line[end + 1..].trim_ascii_start());
    }
    let (first, rest) = word(line)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@/".contains(&byte);
    if let Some(rest) = rest.strip_prefix(b"|").filter(|_| first.bytes().all(is_name)) {
        return Some(rest.strip_prefix(b" ").unwrap_or(rest));
    }
    is_iso_time(first).then_some(rest)
}
