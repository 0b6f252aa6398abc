//! A logged request, and what the parsers of logs share.

use super::problems::Reason;
use crate::{
    flow::Instant,
    replay::{
        event::{Arrival, Ending, Id, Recorded, Request},
        times::scaled,
    },
};
use core::time::Duration;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::{Timestamp, tz::Offset};
use serde_json::{Map, Value};
use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

#[derive(Debug)]
pub(super) struct LoggedRequest {
    pub(super) at: Instant,
    /// If stamps are whole seconds: how long after `at` the stamp is.
    pub(super) coarse: Option<Duration>,
    pub(super) request: Request,
    /// The listener, which only flowgate's log has.
    pub(super) listener: Option<Arc<str>>,
    /// From start to end.
    pub(super) takes: Duration,
    pub(super) ending: Ending,
    /// Fields that only flowgate's log has.
    pub(super) recorded: Option<Box<Recorded>>,
}

impl LoggedRequest {
    pub(super) fn new(at: Instant, request: Request, takes: Duration, status: Option<u16>) -> Self {
        let ending = match status {
            // nginx and Traefik log 499 if the client left.
            Some(499) => Ending::Cancelled(takes),
            _ => Ending::Responded(status),
        };
        Self { at, coarse: None, request, listener: None, takes, ending, recorded: None }
    }

    /// Formats it in one line.
    #[cfg(test)]
    pub(super) fn shown(&self) -> String {
        let Request { method, host, path, client, headers } = &self.request;
        let host = host.as_deref().unwrap_or("-");
        let path = path.as_deref().unwrap_or("-");
        let client = client.map_or_else(|| "-".to_owned(), |client| client.to_string());
        let mut fields: Vec<_> = headers
            .iter()
            .flat_map(|map| map.iter())
            .map(|(name, value)| format!(" {name}: {}", value.to_str().unwrap_or_default()))
            .collect();
        fields.sort();
        let at = self.at.as_nanos();
        let takes = self.takes;
        let ending = self.ending;
        format!("{at} +{takes:?} {client} {method} {host} {path} {ending:?}{}", fields.concat())
    }

    pub(super) fn arrival(self, id: Id) -> Arrival {
        Arrival {
            at: self.at,
            id,
            request: self.request,
            listener: self.listener,
            identity: None,
            route: None,
            key: None,
            cost: None,
            priority: false,
            takes: Some(self.takes),
            ending: self.ending,
            recorded: self.recorded,
        }
    }
}

/// Formats the result of a parser in one line.
#[cfg(test)]
pub(super) fn shown(parsed: Result<Option<LoggedRequest>, Reason>) -> String {
    match parsed {
        Ok(Some(logged)) => logged.shown(),
        Ok(None) => "no request".to_owned(),
        Err(reason) => reason.into_owned(),
    }
}

/// Repeated texts, each stored once.
#[derive(Debug, Default)]
pub(super) struct TextCache {
    texts: HashSet<Arc<str>>,
    headers: HashMap<Box<[u8]>, Option<Arc<HeaderMap>>>,
    /// The last stamp, which many lines share.
    pub(super) second: Option<(Box<[u8]>, Instant)>,
    /// The zone of the first stamp, if any.
    pub(super) zone: Option<Offset>,
}

/// The most texts stored; then it starts over.
const MOST_WORDS: usize = 200_000;

impl TextCache {
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        if self.texts.len() >= MOST_WORDS {
            self.texts.clear();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    /// Returns the headers that `make` creates from `from`, or created before.
    pub(super) fn headers(
        &mut self,
        from: &[u8],
        make: impl FnOnce() -> Option<HeaderMap>,
    ) -> Option<Arc<HeaderMap>> {
        if let Some(known) = self.headers.get(from) {
            return known.clone();
        }
        if self.headers.len() >= MOST_WORDS {
            self.headers.clear();
        }
        let new = make().map(Arc::new);
        self.headers.insert(from.into(), new.clone());
        new
    }
}

pub(super) fn rfc3339(text: &str) -> Result<Instant, Reason> {
    match text.parse() {
        Ok(stamp) => instant(stamp),
        Err(_) => Err(format!("{text:?} is not a time as RFC 3339 writes it").into()),
    }
}

pub(super) fn instant(stamp: Timestamp) -> Result<Instant, Reason> {
    let nanos = u64::try_from(stamp.as_nanosecond());
    nanos.map(Instant::from_nanos).map_err(|_| "the time is before 1970 or after 2554".into())
}

pub(super) fn method(name: &str) -> Result<Method, Reason> {
    Method::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a method").into())
}

/// Parses an address, with or without a port; `None` for a name or `-`.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    // `fe80::1%eth0` names the interface of a link-local address.
    let bare = bare.split_once('%').map_or(bare, |(address, _zone)| address);
    let address = bare.parse().ok();
    address.or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
}

/// Splits the last address of `X-Forwarded-For` from those before it.
pub(super) fn last_hop(forwarded: &str) -> Option<(Option<&str>, IpAddr)> {
    let (before, last) = match forwarded.rsplit_once(',') {
        Some((before, last)) => (Some(before.trim_end()), last),
        None => (None, forwarded),
    };
    Some((before, address(last.trim())?))
}

pub(super) fn add_header(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    let name = HeaderName::from_bytes(name.as_bytes()).ok();
    if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
        // A log line has fewer than a map can hold.
        let _full = headers.try_append(name, value);
    }
}

/// Returns the first of `names` with a text other than `-`.
pub(super) fn text<'a>(object: &'a Map<String, Value>, names: &[&str]) -> Option<&'a str> {
    let texts = names.iter().filter_map(|name| object.get(*name)?.as_str());
    texts.into_iter().find(|text| !matches!(*text, "" | "-"))
}

/// Returns the digits of a number or of a text.
pub(super) fn digits(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns a status, from a number or from a text.
pub(super) fn status(value: Option<&Value>) -> Option<u16> {
    digits(value)?.parse().ok()
}

/// Returns a target's path, and its host if it is absolute.
pub(super) fn target(text: &str) -> (Option<&str>, &str) {
    let absolute = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match absolute {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            (Some(&rest[..end]), if end == rest.len() { "/" } else { &rest[end..] })
        }
        None => (None, text),
    }
}

/// Creates headers from `fields`, if there are any.
pub(super) fn some_headers<'a>(
    fields: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<Arc<HeaderMap>> {
    let mut headers = HeaderMap::new();
    fields.for_each(|(name, value)| add_header(&mut headers, name, value.as_bytes()));
    (!headers.is_empty()).then(|| Arc::new(headers))
}

/// Parses a number of `unit`s of `10^shift` nanoseconds; absent is zero.
pub(super) fn nanos(
    value: Option<&Value>,
    shift: i32,
    name: &str,
    unit: &str,
) -> Result<Duration, Reason> {
    let Some(digits) = digits(value).filter(|digits| digits != "-") else {
        return Ok(Duration::ZERO);
    };
    scaled(&digits, shift)
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("`{name}` is not a number of {unit}, but {digits}").into())
}

/// Spreads stamps of whole seconds evenly, in their order, and moves each arrival before its stamp.
/// Returns whether there were any.
pub(super) fn spread(arrivals: &mut [(Option<Duration>, Arrival)]) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let coarse = arrivals.iter_mut().filter_map(|(behind, arrival)| Some(((*behind)?, arrival)));
    let mut coarse: Vec<_> = coarse.collect();
    let second =
        |(behind, arrival): &(Duration, &mut Arrival)| (arrival.at + *behind).as_nanos() / SECOND;
    coarse.sort_by_key(second);
    for of_one in coarse.chunk_by_mut(|a, b| second(a) == second(b)) {
        let count = of_one.len() as u64;
        for (position, item) in (0..).zip(of_one) {
            let stamp = Instant::from_nanos(second(item) * SECOND + SECOND / count * position);
            item.1.at = stamp - item.0;
        }
    }
    !coarse.is_empty()
}
