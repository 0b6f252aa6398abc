//! A collector of traces, and what its requests say.

use super::{
    eventually,
    upstream::{self, Request, Script},
};
use serde_json::Value;
use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

/// The requests that a server got, and when.
pub(crate) type Seen = Arc<Mutex<Vec<(Request, Instant)>>>;

/// A server that notes requests, and answers with what `answer` makes of a request's number, from 0.
pub(crate) fn noting(answer: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static) -> (Script, Seen) {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let script = Script::answering(move |request| {
        let number = {
            let mut noted = noted.lock().expect("no panic");
            noted.push((request.clone(), Instant::now()));
            noted.len() - 1
        };
        answer(number)
    });
    (script, seen)
}

/// A collector that takes all.
pub(crate) fn collector() -> (Script, Seen) {
    noting(|_| upstream::ok("{}"))
}

/// The body of an export.
pub(crate) fn body(export: &Request) -> Value {
    serde_json::from_slice(&export.body).expect("JSON")
}

/// The spans of an export.
pub(crate) fn spans(body: &Value) -> Vec<Value> {
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
    spans.expect("spans").clone()
}

/// The value of an attribute, with its type.
pub(crate) fn attribute(of: &Value, key: &str) -> Value {
    let attributes = of["attributes"].as_array().expect("attributes");
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(Value::Null, |attribute| attribute["value"].clone())
}

/// The `SERVER` spans of requests for `path` that a collector has got so far.
pub(crate) fn spans_so_far(seen: &Seen, path: &str) -> Vec<Value> {
    let exports = seen.lock().expect("no panic").clone();
    let all = exports.iter().flat_map(|(export, _)| spans(&body(export)));
    all.filter(|span| attribute(span, "url.path")["stringValue"] == path).collect()
}

/// The `SERVER` span of the request for `path`, once the collector has it.
#[track_caller]
pub(crate) fn span_of(seen: &Seen, path: &str) -> Value {
    eventually(&format!("a span of {path}"), || spans_so_far(seen, path).pop())
}

/// The fields called `name` of the request for `path`, as the server got them.
#[track_caller]
pub(crate) fn fields_of(seen: &Seen, path: &str, name: &str) -> Vec<String> {
    let seen = seen.lock().expect("no panic");
    let request = seen.iter().find(|(request, _)| request.path() == path);
    let (request, _) = request.expect("the server got it");
    let fields = request.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
    fields.map(|(_, value)| value.clone()).collect()
}
