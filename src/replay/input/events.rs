//! `events`: arrivals and ends as JSON lines, for recordings of other systems.
//!
//! `t` and `duration` are milliseconds, read to the nanosecond. Unknown fields are ignored.

use super::problems::{Reason, json_reason};
use crate::{
    flow::Instant,
    geo::{Asn, Country, Place},
    replay::{
        event::{Arrival, Complete, Ending, Event, Id, Recorded, Request, Settling},
        times::scaled,
    },
};
use core::{fmt, net::IpAddr, time::Duration};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};
use serde_json::{Map, Value, value::RawValue};
use std::{borrow::Cow, sync::Arc};

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    t: &'a RawValue,
    complete: Option<WholeNumber>,
    #[serde(borrow)]
    route: Option<Text<'a>>,
    #[serde(borrow)]
    listener: Option<Text<'a>>,
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    client_ip: Option<IpAddr>,
    #[serde(borrow)]
    country: Option<Text<'a>>,
    asn: Option<u32>,
    #[serde(borrow)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    host: Option<Text<'a>>,
    #[serde(borrow)]
    path: Option<Text<'a>>,
    headers: Option<Map<String, Value>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    cost: Option<WholeNumber>,
    settled: Option<WholeNumber>,
    request_bytes: Option<WholeNumber>,
    response_bytes: Option<WholeNumber>,
    priority: Option<bool>,
    #[serde(borrow)]
    duration: Option<&'a RawValue>,
    status: Option<WholeNumber>,
}

/// A whole number, also written as a float: `3.0`.
#[derive(Clone, Copy)]
struct WholeNumber(u64);

/// A text that is only copied if it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns whether an object is an event.
pub(super) fn is_event(object: &Map<String, Value>) -> bool {
    object.get("t").is_some_and(Value::is_number)
}

/// Parses a line of input number `input`; `arrivals` counts the input's arrivals.
///
/// An unreadable arrival takes a number too, because later ends refer to the recorder's numbers. A
/// line that is no JSON object takes none.
pub(super) fn parse(line: &[u8], input: u32, arrivals: &mut u64) -> Result<Event, Reason> {
    let event = read(line, Id { input, number: *arrivals });
    let is_arrival = match &event {
        Ok(event) => matches!(event, Event::Arrival(_)),
        Err(_) => is_no_end(line),
    };
    *arrivals += u64::from(is_arrival);
    event
}

fn is_no_end(line: &[u8]) -> bool {
    let object = serde_json::from_slice::<Map<String, Value>>(line);
    object.is_ok_and(|object| object.get("complete").is_none_or(Value::is_null))
}

/// Parses the event of a line; `next` identifies an arrival.
fn read(line: &[u8], next: Id) -> Result<Event, Reason> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("not a JSON object".into());
    }

    // Checking the whole line for UTF-8 is faster than each text.
    let line = match str::from_utf8(line) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(line),
    };
    let line: Line<'_> = line.map_err(|error| json_reason(&error))?;

    let at = Instant::from_nanos(millis("t", line.t)?);
    let status = line.status.map(|WholeNumber(status)| u16::try_from(status));
    let status = status.transpose().map_err(|_| "`status` is not a status")?;
    if let Some(WholeNumber(number)) = line.complete {
        if number >= next.number {
            return Err(format!("`complete` names request {number}, which has not come").into());
        }
        return Ok(Event::Complete(Complete { at, of: Id { number, ..next }, status }));
    }

    let takes = line.duration.map(|text| millis("duration", text)).transpose()?;
    let method = match &line.method {
        None => Method::GET,
        Some(Text(name)) => {
            Method::from_bytes(name.as_bytes()).map_err(|_| "`method` is not a method")?
        }
    };

    let country = line
        .country
        .as_ref()
        .map(|Text(text)| Country::read(text).ok_or("`country` is not the code of a country"));
    let country = country.transpose()?;
    let asn = line.asn.map(Asn);
    let place = (country.is_some() || asn.is_some()).then_some(Place { country, asn });

    let shared = |text: Option<Text<'_>>| text.map(|Text(text)| Arc::from(&*text));
    Ok(Event::Arrival(Arrival {
        at,
        id: next,
        request: Request {
            method,
            host: shared(line.host),
            path: shared(line.path),
            headers: line.headers.as_ref().map(headers).transpose()?.map(Arc::new),
            client: line.client_ip,
        },
        listener: shared(line.listener),
        identity: None,
        route: shared(line.route),
        key: line.key.map(key).transpose()?,
        cost: line.cost.map(|WholeNumber(cost)| cost),
        recorded: Recorded::of_event(
            Settling {
                settled: line.settled.map(|WholeNumber(cost)| cost),
                request_bytes: line.request_bytes.map(|WholeNumber(bytes)| bytes),
                response_bytes: line.response_bytes.map(|WholeNumber(bytes)| bytes),
            },
            line.body.map(|body| body.get().into()),
            place,
        ),
        priority: line.priority.unwrap_or(false),
        takes: takes.map(Duration::from_nanos),
        ending: Ending::Responded(status),
    }))
}

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeNumberVisitor)
    }
}

struct WholeNumberVisitor;

impl Visitor<'_> for WholeNumberVisitor {
    type Value = WholeNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 on")
    }

    fn visit_u64<E>(self, number: u64) -> Result<WholeNumber, E> {
        Ok(WholeNumber(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<WholeNumber, E> {
        /// Floats are exact up to here.
        const MOST: f64 = 9_007_199_254_740_992.0;
        if number.fract() == 0.0 && (0.0..=MOST).contains(&number) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is whole"
            )]
            return Ok(WholeNumber(number as u64));
        }
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }
}

fn millis(name: &str, value: &RawValue) -> Result<u64, Reason> {
    scaled(value.get(), 6).ok_or_else(|| {
        format!("`{name}` is not a number of milliseconds from 0 on, but {}", value.get()).into()
    })
}

/// Reads a key, a text or a number.
fn key(value: &RawValue) -> Result<Arc<str>, Reason> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'"') => {
            let Text(text) = serde_json::from_str(text).map_err(|error| json_reason(&error))?;
            Ok(Arc::from(&*text))
        }
        Some(b'{' | b'[') => Err("`key` is neither a text nor a number".into()),
        _ => Ok(text.into()),
    }
}

/// Reads headers: each name has a text or a list of them.
pub(super) fn headers(lines: &Map<String, Value>) -> Result<HeaderMap, Reason> {
    let mut headers = HeaderMap::new();
    for (name, values) in lines {
        let field = HeaderName::from_bytes(name.as_bytes());
        let field = field.map_err(|_| format!("{name:?} is not the name of a header"))?;
        let one = core::slice::from_ref(values);
        for value in values.as_array().map_or(one, Vec::as_slice) {
            let value = value.as_str().and_then(|text| HeaderValue::from_str(text).ok());
            let value = value.ok_or_else(|| format!("the header {name:?} has no such value"))?;
            headers.try_append(field.clone(), value).map_err(|_| "too many headers")?;
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrival(line: &str) -> Result<Arrival, String> {
        match parse(line.as_bytes(), 3, &mut 7).map_err(|reason| reason.to_string())? {
            Event::Arrival(arrival) => Ok(arrival),
            other @ (Event::Complete(_) | Event::Unreadable) => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_field_is_read() {
        let it = arrival(
            r#"{"t": 12.5, "route": "r", "key": "k\n", "client_ip": "192.0.2.4", "method": "POST",
                "host": "a.example", "path": "/x?y=1", "headers": {"X-A": "1", "x-b": ["2", "3"]},
                "body": {"model": "m", "model": "n"}, "cost": 5, "priority": true, "duration": 30.000001, "status": 503, "more": {}}"#,
        )
        .unwrap();
        assert_eq!(it.at, Instant::from_nanos(12_500_000));
        assert_eq!(it.id, Id { input: 3, number: 7 });
        assert_eq!((it.route.as_deref(), it.key.as_deref()), (Some("r"), Some("k\n")));
        assert_eq!(it.request.client, Some([192, 0, 2, 4].into()));
        assert_eq!(it.request.method, Method::POST);
        assert_eq!(it.request.host.as_deref(), Some("a.example"));
        assert_eq!(it.request.path.as_deref(), Some("/x?y=1"));
        assert_eq!(it.body(), Some(r#"{"model": "m", "model": "n"}"#));
        let headers = it.request.headers.unwrap();
        assert_eq!(headers.get("x-a").unwrap(), "1");
        assert_eq!(headers.get_all("x-b").iter().count(), 2);
        assert_eq!((it.cost, it.priority), (Some(5), true));
        assert_eq!(it.takes, Some(Duration::from_nanos(30_000_001)));
        assert_eq!(it.ending, Ending::Responded(Some(503)));
    }

    #[test]
    fn only_the_time_must_be_there() {
        let it = arrival(r#"{"t":0}"#).unwrap();
        assert_eq!((it.request.method, it.takes, it.cost), (Method::GET, None, None));
        assert_eq!(arrival(r#"{"t":0,"key":7}"#).unwrap().key.as_deref(), Some("7"));
    }

    #[test]
    fn an_end_names_an_arrival_that_has_come() {
        let end = parse(br#"{"t":43,"complete":6,"status":500}"#, 1, &mut 7);
        let Ok(Event::Complete(end)) = end else { panic!("{end:?}") };
        assert_eq!(end.of, Id { input: 1, number: 6 });
        assert_eq!((end.at, end.status), (Instant::from_nanos(43_000_000), Some(500)));
        assert!(parse(br#"{"t":43,"complete":7}"#, 1, &mut 7).is_err());
    }

    #[test]
    fn a_bad_line_says_why() {
        for (line, cache) in [
            ("{", "not JSON"),
            ("{}", "missing field `t`"),
            (r#"{"t":-1}"#, "from 0 on, but -1"),
            (r#"{"t":"1"}"#, "from 0 on, but \"1\""),
            (r#"{"t":1,"duration":true}"#, "`duration`"),
            (r#"{"t":1,"key":[]}"#, "`key`"),
            (r#"{"t":1,"method":"A B"}"#, "`method`"),
            (r#"{"t":1,"headers":{"a b":""}}"#, "name of a header"),
            (r#"{"t":1,"headers":{"a":5}}"#, "no such value"),
            (r#"{"t":1,"client_ip":"x"}"#, "IP"),
            (r#"{"t":1,"cost":1.5}"#, "whole number"),
            (r#"{"t":1,"cost":-1}"#, "whole number"),
            (r#"{"t":1,"status":70000}"#, "`status`"),
            ("[1]", "not a JSON object"),
        ] {
            let reason = arrival(line).unwrap_err();
            assert!(reason.contains(cache), "{line}: {reason}");
        }
    }

    #[test]
    fn whole_floats_are_whole_numbers() {
        let it = arrival(r#"{"t":1.0,"cost":3.0,"status":503.0}"#).unwrap();
        assert_eq!((it.cost, it.ending), (Some(3), Ending::Responded(Some(503))));
        let end = parse(br#"{"t":43,"complete":6.0}"#, 1, &mut 7).unwrap();
        assert!(matches!(end, Event::Complete(Complete { of: Id { number: 6, .. }, .. })));
    }

    #[test]
    fn what_is_null_is_not_there() {
        let it = arrival(
            r#"{"t":0,"route":null,"key":null,"client_ip":null,"method":null,"host":null,"path":null,
                "headers":null,"body":null,"cost":null,"priority":null,"duration":null,"status":null,"complete":null}"#,
        );
        let it = it.unwrap();
        assert_eq!((it.route, it.key, it.cost, it.takes), (None, None, None, None));
        assert_eq!((it.request.method, it.request.client), (Method::GET, None));
    }

    #[test]
    fn an_arrival_that_cannot_be_read_takes_a_number() {
        let mut arrivals = 7;
        for (line, then) in [
            (r#"{"t":-1}"#, 8),
            (r#"{"t":1,"cost":-1,"complete":null}"#, 9),
            (r#"{"t":-1,"complete":1}"#, 9),
            (r#"{"t":1,"complete":"x"}"#, 9),
            (r#"{"t":1"#, 9),
            ("[]", 9),
        ] {
            assert!(parse(line.as_bytes(), 0, &mut arrivals).is_err());
            assert_eq!(arrivals, then, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line: Vec<u8>, text in r#"\{"t": ?[0-9.eE+-]{0,12}(, ?"[a-z_]{1,9}": ?[0-9a-z".{}\[\]]{0,9}){0,4}\}"#) {
            let _unused = parse(&line, 0, &mut 1);
            let _unused = parse(text.as_bytes(), 0, &mut 1);
        }
    }
}
