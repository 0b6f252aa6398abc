//! A route as written.

use super::{BreakerSpec, PacingSpec, RuleSpec, plain};
use crate::config::{
    decode::{At, Decoder, Fields},
    node::{Content, Node, Place},
    problem::{Problem, quoted},
    snapshot::{HeaderEdits, Reject, RouteTimeouts},
    values::{self, Invalid},
    vocabulary::{Key, tables},
};
use ahash::AHasher;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use std::{
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

/// The most rules of a route: a decision asks each of them, and the answer's headers name them.
pub(in crate::config) const MAX_RULES: usize = 16;

/// A route.
#[derive(Debug)]
pub(in crate::config) struct RouteSpec {
    pub place: Place,
    pub name: Option<At<Arc<str>>>,
    pub matcher: Option<MatchSpec>,
    pub upstream: Option<At<Arc<str>>>,
    pub flow: Vec<RuleSpec>,
    // Large, and most routes have neither.
    pub breaker: Option<Box<BreakerSpec>>,
    pub pacing: Option<Box<PacingSpec>>,
    pub timeouts: Option<RouteTimeouts>,
    pub body_limit: Option<u64>,
    pub upgrades: Vec<String>,
    pub relaxed_path: bool,
    pub request_trailers: bool,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    pub reject: Option<Reject>,
    /// Tells a route that was edited from one that was not, whatever the layout and the comments.
    pub print: u64,
}

/// What a request must look like.
#[derive(Debug)]
pub(in crate::config) struct MatchSpec {
    pub place: Place,
    pub hosts: Vec<At<String>>,
    pub path: Option<At<PathSpec>>,
    pub methods: Vec<Method>,
    pub headers: Vec<(At<HeaderName>, At<FieldSpec>)>,
    pub query: Vec<(At<String>, At<FieldSpec>)>,
}

/// One of the three ways to say a path.
#[derive(Clone, Debug)]
pub(in crate::config) enum PathSpec {
    Exact(String),
    Prefix(String),
    Regex(String),
}

/// What a header or query field must look like.
#[derive(Clone, Debug)]
pub(in crate::config) enum FieldSpec {
    Equals(String),
    Regex(String),
    Present,
}

impl RouteSpec {
    pub(super) fn read<'s>(d: &mut Decoder<'s>, node: &Node<'s>) -> Option<Self> {
        let f = d.fields(node, &tables::ROUTE)?;
        let mut flow = f.list(d, "flow", RuleSpec::read);
        // Each override is asked as a rule of its own.
        let count = flow.iter().map(|rule| 1 + rule.overrides.len()).sum::<usize>();
        if count > MAX_RULES {
            let place = f.key_place("flow").unwrap_or(f.place);
            let problem = Problem::error(place, format!("{count} rules are too many"))
                .help(format!("write at most {MAX_RULES} rules a route"));
            d.problems.add(problem);
            flow.truncate(MAX_RULES);
        }
        Some(Self {
            place: f.place,
            name: f.leaf(d, "name", values::name),
            matcher: f.map(d, "match").and_then(|f| MatchSpec::read(d, &f)),
            upstream: f.leaf(d, "upstream", values::name),
            flow,
            breaker: f.map(d, "breaker").map(|f| Box::new(BreakerSpec::read(d, &f))),
            pacing: f.map(d, "pacing").map(|f| Box::new(PacingSpec::read(d, &f))),
            timeouts: timeouts(d, &f),
            body_limit: f.size(d, "body_limit").map(|at| at.value),
            upgrades: plain(f.several(d, "upgrades", upgrade)),
            relaxed_path: f.flag(d, "relaxed_path").is_some_and(|at| at.value),
            request_trailers: f.flag(d, "request_trailers").is_some_and(|at| at.value),
            request_headers: header_edits(d, &f, "request_headers"),
            response_headers: header_edits(d, &f, "response_headers"),
            reject: f.map(d, "reject").map(|f| reject(d, &f)),
            print: print(node),
        })
    }
}

impl MatchSpec {
    fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<Self> {
        if f.is_empty() {
            let problem = Problem::error(f.place, "a match needs at least one condition")
                .help("write `match: { path_prefix: / }` for a route that takes every request");
            d.problems.add(problem);
            return None;
        }
        let path = [
            ("path", PathSpec::Exact as fn(String) -> PathSpec),
            ("path_prefix", PathSpec::Prefix),
            ("path_regex", PathSpec::Regex),
        ]
        .map(|(name, kind)| {
            (f.key_place(name), f.leaf(d, name, values::text).map(|p| p.map(kind)))
        });
        let mut written = path.iter().filter_map(|(place, _)| *place);
        if let (Some(first), Some(second)) = (written.next(), written.next()) {
            let problem = Problem::error(second, "a match takes one kind of path")
                .label("a second one")
                .also(first, "the first")
                .help("write one of `path`, `path_prefix` and `path_regex`, or two routes");
            d.problems.add(problem);
        }
        Some(Self {
            place: f.place,
            hosts: f.several(d, "host", values::text),
            path: path.into_iter().find_map(|(_, path)| path),
            methods: plain(f.several(d, "method", values::method)),
            headers: fields(d, f, "header", values::header_name),
            query: fields(d, f, "query", values::text),
        })
    }
}

/// Reads a map of field names to what the field must look like.
pub(super) fn fields<'s, N>(
    d: &mut Decoder<'s>,
    f: &Fields<'_, 's>,
    name: &str,
    read: impl Fn(&str) -> Result<N, Invalid>,
) -> Vec<(At<N>, At<FieldSpec>)> {
    let Some((key, node)) = f.node(name) else { return Vec::new() };
    let entries = d.entries(node, key);
    let mut patterns = Vec::with_capacity(entries.len());
    for (name, node) in entries {
        let name = At { value: read(&name.value), place: name.place, written: true };
        let name = d.keep(name.value, name.place);
        patterns.extend(name.zip(field_of(d, key, node)));
    }
    patterns
}

/// Reads what a field must look like: a text that must be equal, or a map.
pub(super) fn field_of<'s>(
    d: &mut Decoder<'s>,
    key: &Key,
    node: &Node<'s>,
) -> Option<At<FieldSpec>> {
    match &node.content {
        Content::Map(_) => field(d, node),
        Content::Empty | Content::Scalar(_) | Content::List(_) => {
            d.leaf(node, key, values::text).map(|text| text.map(FieldSpec::Equals))
        }
    }
}

/// Reads the long form of a field's pattern, in which exactly one key says what must hold.
fn field<'s>(d: &mut Decoder<'s>, node: &Node<'s>) -> Option<At<FieldSpec>> {
    let f = d.fields(node, &tables::FIELD)?;
    let equals = f.leaf(d, "equals", values::text).map(|at| at.map(FieldSpec::Equals));
    let regex = f.leaf(d, "regex", values::text).map(|at| at.map(FieldSpec::Regex));
    let present =
        f.flag(d, "present").map(|at| at.map(|present| present.then_some(FieldSpec::Present)));
    let present = match present {
        Some(At { value: None, place, .. }) => {
            let problem = Problem::error(place, "a field that must be absent cannot be matched")
                .help("write `present: true`, and a more specific route for requests that have it");
            d.problems.add(problem);
            None
        }
        Some(At { value: Some(value), place, written }) => Some(At { value, place, written }),
        None => None,
    };
    let mut given = [equals, regex, present].into_iter().flatten();
    let first = given.next();
    let count = ["equals", "regex", "present"].iter().filter(|n| f.node(n).is_some()).count();
    if count != 1 {
        let problem = Problem::error(f.place, "a field's pattern takes exactly one condition")
            .help("write one of `equals`, `regex` and `present: true`");
        d.problems.add(problem);
    }
    first
}

fn reject<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Reject {
    let status = f.leaf(d, "status", values::status).map(|at| at.value);
    let body = f.leaf(d, "body", values::text).map(|at| Bytes::from(at.value));
    let content_type = f.leaf(d, "content_type", values::header_value);
    if let (Some(at), None) = (&content_type, &body) {
        let problem = Problem::error(at.place, "`content_type` without `body`")
            .help("write the `body` that it is the type of, or remove it");
        d.problems.add(problem);
    }
    let guessed = match body.as_ref().and_then(|body| body.first()) {
        Some(b'{' | b'[') => HeaderValue::from_static("application/json"),
        _ => HeaderValue::from_static("text/plain; charset=utf-8"),
    };
    Reject { status, body, content_type: content_type.map_or(guessed, |at| at.value) }
}

fn timeouts<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<RouteTimeouts> {
    let short = f.duration(d, "timeout");
    let long = f.map_or_defaults(d, "timeouts")?;
    let mut duration = |name| long.duration(d, name);
    let (first_byte, idle) = (duration("first_byte"), duration("idle"));
    let (event_stream, tunnel) = (duration("event_stream"), duration("tunnel"));
    let request = duration("request");
    if let (Some(short), Some(long)) = (&short, request.filter(|at| at.written)) {
        let problem = Problem::error(long.place, "the whole request has two timeouts")
            .label("here")
            .also(short.place, "and here")
            .help("write one of `timeout` and `timeouts: { request: … }`");
        d.problems.add(problem);
    }
    let value = |at: Option<At<Duration>>| at.map(|at| at.value);
    Some(RouteTimeouts {
        first_byte: value(first_byte)?,
        idle: value(idle)?,
        event_stream: value(event_stream)?,
        tunnel: value(tunnel)?,
        request: value(short.or(request))?,
    })
}

/// Reads a protocol to upgrade to.
fn upgrade(text: &str) -> Result<String, Invalid> {
    let token = values::header_name(text).map(|name| name.as_str().to_owned());
    match token {
        Ok(token) if matches!(token.as_str(), "h2c" | "h2" | "tls" | "http") => values::invalid(
            format!("an upgrade to {} would bypass the rules", quoted(text)),
            "write a protocol that is not HTTP, as in `websocket`",
        ),
        Ok(token) => Ok(token),
        Err(_) => values::invalid(
            format!("{} is not the name of a protocol", quoted(text)),
            "write a word, as in `websocket`",
        ),
    }
}

fn header_edits<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>, name: &str) -> HeaderEdits {
    let Some(f) = f.map(d, name) else { return HeaderEdits::default() };
    let mut set: Vec<(HeaderName, HeaderValue)> = Vec::new();
    if let Some((key, node)) = f.node("set") {
        let entries = d.entries(node, key);
        set.reserve_exact(entries.len());
        for (name, node) in entries {
            let place = name.place;
            let name = d.keep(editable(&name.value), place);
            let value = d.leaf(node, key, values::header_value);
            let (Some(name), Some(value)) = (name, value) else { continue };
            if set.iter().any(|(known, _)| *known == name.value) {
                let problem = Problem::error(place, format!("`{}` is set twice", name.value))
                    .help("header names are the same in either case; remove one");
                d.problems.add(problem);
            }
            set.push((name.value, value.value));
        }
    }
    HeaderEdits { set, remove: plain(f.several(d, "remove", editable)) }
}

/// Reads the name of a header that a route may change: not those that frame the message or name
/// its authority, which the gateway writes itself.
fn editable(text: &str) -> Result<HeaderName, Invalid> {
    const OWN: &[HeaderName] = &[
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let name = values::header_name(text)?;
    if OWN.contains(&name) || matches!(name.as_str(), "keep-alive" | "proxy-connection") {
        return values::invalid(
            format!("`{name}` belongs to the gateway itself"),
            "remove it: it frames the message or names its host",
        );
    }
    Ok(name)
}

/// Returns a hash of what a node says, without its place, its layout and its comments.
fn print(node: &Node<'_>) -> u64 {
    fn hash(node: &Node<'_>, hasher: &mut AHasher) {
        match &node.content {
            Content::Empty => 0u8.hash(hasher),
            Content::Scalar(text) => (1u8, text).hash(hasher),
            Content::List(items) => {
                (2u8, items.len()).hash(hasher);
                for item in items {
                    hash(item, hasher);
                }
            }
            Content::Map(entries) => {
                (3u8, entries.len()).hash(hasher);
                for (key, value) in entries {
                    key.text.hash(hasher);
                    hash(value, hasher);
                }
            }
        }
    }
    let mut hasher = AHasher::default();
    hash(node, &mut hasher);
    hasher.finish()
}
