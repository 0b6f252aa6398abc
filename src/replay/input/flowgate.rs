//! flowgate's own access log.
//!
//! `ts` is the arrival and `duration_ms` the time to the response's end, to the nanosecond, which
//! gives the gateway's order of arrivals and ends. Keys of values that the log lacks, such as
//! headers, are logged as fingerprints.

use super::{
    logged::{LoggedRequest, TextCache, method, rfc3339},
    problems::{Reason, json_reason},
};
use crate::{
    access_log::{ResponseOutcome, StreamLine, StreamState},
    flow::{Instant, Key, Sharer},
    geo::{Asn, Country, Place},
    replay::{
        event::{
            Ending, Recorded, RecordedCost, RecordedKey, RecordedSharer, Request, ResponseHead,
            Settling,
        },
        times::scaled,
    },
};
use core::{net::IpAddr, time::Duration};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, value::RawValue};
use std::{borrow::Cow, collections::BTreeMap};

/// The beginning of a [`StreamLine`].
const STREAM: &[u8] = br#"{"stream":"#;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    ts: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    host: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow)]
    route: Option<Cow<'a, str>>,
    #[serde(borrow)]
    listener: Option<Cow<'a, str>>,
    status: u16,
    #[serde(borrow)]
    answered_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    duration_ms: &'a RawValue,
    #[serde(borrow)]
    upload_ms: Option<&'a RawValue>,
    outcome: Option<ResponseOutcome>,
    client_ip: IpAddr,
    #[serde(borrow)]
    country: Option<Cow<'a, str>>,
    asn: Option<u32>,
    upstream: Option<IgnoredAny>,
    bytes_in: Option<u64>,
    bytes_out: Option<u64>,
    #[serde(borrow)]
    flow: Option<Flow<'a>>,
}

#[derive(Deserialize)]
struct Flow<'a> {
    #[serde(borrow)]
    decision: Cow<'a, str>,
    #[serde(borrow)]
    wait_ms: &'a RawValue,
    #[serde(default)]
    left: bool,
    #[serde(default)]
    keys: BTreeMap<Box<str>, Option<Box<str>>>,
    #[serde(default)]
    priority: Vec<Box<str>>,
    #[serde(default)]
    plans: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    sharers: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    limits: BTreeMap<Box<str>, u32>,
    #[serde(default)]
    reserved: BTreeMap<Box<str>, u64>,
    #[serde(default, borrow)]
    charges: BTreeMap<Box<str>, Vec<(&'a RawValue, u64)>>,
    #[serde(default)]
    settled: BTreeMap<Box<str>, u64>,
}

/// Returns whether an object is of flowgate's log, or of `/requests` of its admin listener.
pub(super) fn is_ours(object: &Map<String, Value>) -> bool {
    object.contains_key("config_hash") && object.contains_key("duration_ms")
        || object.len() == 1 && object.get("stream").is_some_and(Value::is_object)
}

/// Parses a line that says how a stream of `/requests` went on; `None` if it is no such line.
pub(super) fn parse_stream(line: &[u8]) -> Option<StreamState> {
    if !line.starts_with(STREAM) {
        return None;
    }
    serde_json::from_slice(line).ok().map(|StreamLine { stream }| stream)
}

/// Parses a line; `None` if no rule decided.
pub(super) fn parse(line: &[u8], cache: &mut TextCache) -> Result<Option<LoggedRequest>, Reason> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| json_reason(&error))?;
    if line.is_undecided() {
        return Ok(None);
    }

    let at: Instant = rfc3339(&line.ts)?;
    let flow = line.flow.as_ref();
    let whole = millis(line.duration_ms)?;
    // The time of a rejected request at the service is unknown; its whole time is the nearest to that.
    let started = flow.filter(|flow| flow.decision != "rejected");
    let wait = started.map_or(Ok(0), |flow| millis(flow.wait_ms))?;

    let request = Request {
        method: method(&line.method)?,
        host: Some(cache.text(&line.host)).filter(|host| !host.is_empty()),
        path: Some(cache.text(&line.path)),
        headers: None,
        client: Some(line.client_ip),
    };

    let ending = match line.outcome {
        None | Some(ResponseOutcome::Completed | ResponseOutcome::Closed) => {
            Ending::Responded(Some(line.status))
        }
        Some(ResponseOutcome::Failed) => Ending::Failed,
        Some(ResponseOutcome::Cancelled | ResponseOutcome::Cut) => {
            Ending::Cancelled(Duration::from_nanos(whole))
        }
    };

    let until_head = line.answered_ms.map(millis).transpose()?;
    let uploading = line.upload_ms.map_or(Ok(0), millis)?;
    let head = until_head.map(|head| ResponseHead {
        after: Duration::from_nanos(head.saturating_sub(wait)),
        status: line.is_of_service().then_some(line.status),
        uploading: Duration::from_nanos(uploading),
    });

    let recorded = Recorded {
        route: line.route.as_deref().map(|route| cache.text(route)),
        left: flow.is_some_and(|flow| flow.left),
        sharers: flow.map_or_else(|| Ok(Vec::new()), sharers)?,
        limits: flow.map(limits).unwrap_or_default(),
        costs: flow.map_or_else(|| Ok(Vec::new()), |flow| costs(flow, wait))?,
        settling: Settling {
            settled: None,
            request_bytes: line.bytes_in,
            response_bytes: line.bytes_out,
        },
        body: None,
        place: line.place(),
        is_event: false,
        keys: line.flow.map_or_else(|| Ok(Vec::new()), keys)?,
        head,
    };
    let recorded = Some(Box::new(recorded));

    // The wait for the start is the replay's own.
    let takes = Duration::from_nanos(whole.saturating_sub(wait));
    let listener = line.listener.as_deref().map(|name| cache.text(name));
    let logged = LoggedRequest::new(at, request, takes, None);
    Ok(Some(LoggedRequest { listener, ending, recorded, ..logged }))
}

impl Line<'_> {
    /// Returns whether no rule decided: the request was rejected before, or it ended while a store
    /// decided. An unrouted request may match a route in the replay.
    fn is_undecided(&self) -> bool {
        /// The status of a response without a route.
        const NO_ROUTE: u16 = 404;
        self.flow.is_none() && (self.route.is_some() || self.status != NO_ROUTE)
    }

    /// Returns where the client was. A line without country and AS number is of an unknown address, or of a
    /// gateway without `geo`.
    fn place(&self) -> Option<Place> {
        let country = self.country.as_deref().and_then(Country::read);
        let asn = self.asn.map(Asn);
        (country.is_some() || asn.is_some()).then_some(Place { country, asn })
    }

    /// Returns whether the response comes from the upstream: rejections and the gateway's own 4xx do
    /// not.
    fn is_of_service(&self) -> bool {
        let admitted = |flow: &Flow<'_>| matches!(&*flow.decision, "passed" | "delayed");
        let blames_client = self.upstream.is_none() && self.status < 500;
        self.flow.as_ref().is_none_or(admitted) && !blames_client
    }
}

fn millis(value: &RawValue) -> Result<u64, Reason> {
    scaled(value.get(), 6).ok_or_else(|| format!("{} is no time in ms", value.get()).into())
}

fn sharers(flow: &Flow<'_>) -> Result<Vec<RecordedSharer>, Reason> {
    let read = |text: &str| {
        let mut parts = text.split(' ');
        let key = u64::from_str_radix(parts.next()?, 16).ok()?;
        let weight = parts.next()?.parse().ok()?;
        let class = parts.next()?.parse().ok()?;
        Some(Sharer { key, weight, class })
    };
    let sharers = flow.sharers.iter().map(|(rule, text)| {
        let sharer = read(text).ok_or("a sharer is not its key, its weight and its class")?;
        Ok(RecordedSharer { rule: rule.clone(), sharer })
    });
    sharers.collect()
}

fn limits(flow: &Flow<'_>) -> Vec<(Box<str>, u32)> {
    flow.limits.iter().map(|(rule, limit)| (rule.clone(), *limit)).collect()
}

/// Returns the costs of a request that has waited for its start for so many nanoseconds.
fn costs(flow: &Flow<'_>, wait: u64) -> Result<Vec<RecordedCost>, Reason> {
    let charge = |(after, total): &(&RawValue, u64)| {
        Ok((Duration::from_nanos(millis(after)?.saturating_sub(wait)), *total))
    };
    let costs = flow.reserved.iter().map(|(rule, reserved)| {
        let charges = flow.charges.get(rule).into_iter().flatten().map(charge);
        Ok(RecordedCost {
            rule: rule.clone(),
            reserved: *reserved,
            charges: charges.collect::<Result<_, Reason>>()?,
            settled: flow.settled.get(rule).copied(),
        })
    });
    costs.collect()
}

fn keys(flow: Flow<'_>) -> Result<Vec<RecordedKey>, Reason> {
    let key = |(rule, word): (Box<str>, Option<Box<str>>)| {
        let key = word.map(|word| match &*word {
            "shared" => Ok(Key::Shared),
            "missing" => Ok(Key::Missing),
            "duplicate" => Ok(Key::Duplicate),
            print => {
                // Logs from before the prefix have the digits alone.
                u128::from_str_radix(print.strip_prefix("fp:").unwrap_or(print), 16).map(Key::Of)
            }
        });
        let key = key.transpose().map_err(|_| "a key is not 32 hexadecimal digits")?;
        let priority = flow.priority.contains(&rule);
        let plan = flow.plans.get(&rule).cloned();
        Ok(RecordedKey { rule, key, priority, plan })
    };
    flow.keys.into_iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU32;
    use proptest::prelude::*;

    const LINE: &str = r#"{"ts":"2026-11-21T05:00:00.125000001Z","method":"GET","host":"a.example:80","path":"/x",
        "route":"r","status":200,"answered_ms":101.5,"duration_ms":112.345678,"outcome":"failed","client_ip":"192.0.2.7",
        "upstream":"u:80","upload_ms":0.25,"attempts":1,
        "bytes_in":0,"bytes_out":17,"config_hash":"00d1ce","flow":{"decision":"delayed","rule":"q","limit":1,"used":1,
        "cost":1,"wait_ms":100.0,"keys":{"a":"000000000000000000000000000000ff","b":null,"c":"shared"},"priority":["c"],
        "plans":{"a":"gold"},"sharers":{"q":"00000000000000ff 4 1"}}}"#;

    #[test]
    fn a_line_is_read_to_the_nanosecond() {
        assert!(is_ours(&serde_json::from_str(LINE).unwrap()));
        let it = parse(LINE.as_bytes(), &mut TextCache::default()).unwrap().unwrap();
        assert_eq!(it.at, Instant::from_nanos(1_795_237_200_125_000_001));
        assert_eq!(it.takes, Duration::from_nanos(12_345_678), "the wait is not its own");
        assert_eq!(it.ending, Ending::Failed);
        let after = Duration::from_micros(1500);
        let recorded = it.recorded.unwrap();
        let uploading = Duration::from_micros(250);
        assert_eq!(recorded.head, Some(ResponseHead { after, status: Some(200), uploading }));
        assert_eq!(recorded.route.as_deref(), Some("r"));
        let keys: Vec<_> =
            recorded.keys.iter().map(|key| (&*key.rule, key.key, key.priority)).collect();
        assert_eq!(recorded.keys[0].plan.as_deref(), Some("gold"));
        let part = Sharer { key: 255, weight: NonZeroU32::new(4).unwrap(), class: 1 };
        assert_eq!(recorded.sharers, [RecordedSharer { rule: "q".into(), sharer: part }]);
        let shared = Some(Key::Shared);
        assert_eq!(
            keys,
            [("a", Some(Key::Of(255)), false), ("b", None, false), ("c", shared, true)]
        );
    }

    #[test]
    fn a_request_that_the_gateways_end_cut_off_ends_as_if_its_client_had_left() {
        for outcome in ["cancelled", "cut"] {
            let line = LINE.replace("failed", outcome);
            let it = parse(line.as_bytes(), &mut TextCache::default()).unwrap().unwrap();
            assert_eq!(it.ending, Ending::Cancelled(Duration::from_nanos(112_345_678)));
        }
    }

    #[test]
    fn a_response_of_the_gateway_says_nothing_about_the_upstream() {
        let status = |line: &str| {
            let it = parse(line.as_bytes(), &mut TextCache::default()).unwrap().unwrap();
            it.recorded.unwrap().head.map(|head| head.status)
        };
        let unreached = LINE.replace("\"upstream\":\"u:80\",", "");
        assert_eq!(status(&unreached.replace("200", "502")), Some(Some(502)));
        assert_eq!(status(&unreached.replace("200", "408")), Some(None));
        assert_eq!(status(&LINE.replace("delayed", "rejected").replace("200", "503")), Some(None));
        assert_eq!(status(&LINE.replace("answered_ms", "x")), None);
    }

    #[test]
    fn requests_rejected_before_the_rules_are_left_out() {
        let is_read =
            |line: String| parse(line.as_bytes(), &mut TextCache::default()).unwrap().is_some();
        let undecided = LINE.replace("\"flow\"", "\"x\"");
        let lost = undecided.replace("\"route\"", "\"y\"");
        assert!(!is_read(undecided.replace("200", "413")));
        assert!(!is_read(undecided.replace("200", "404")), "the route's own response");
        assert!(!is_read(lost.replace("200", "400")));
        assert!(is_read(lost.replace("200", "404")), "there was no route");
        let empty = r#"{"decision":"passed","wait_ms":0.0}"#;
        assert!(is_read(undecided.replace("\"bytes_in\":0", &format!("\"flow\":{empty}"))));
    }

    proptest! {
        #[test]
        fn no_line_panics(line: Vec<u8>, from in 0..500_usize, to in 0..500_usize, with in "[ -~]{0,9}") {
            let cache = &mut TextCache::default();
            drop(parse(&line, cache));
            let to = to.clamp(from.min(LINE.len()), LINE.len());
            let from = from.min(LINE.len());
            drop(parse(format!("{}{with}{}", &LINE[..from], &LINE[to..]).as_bytes(), cache));
        }
    }
}
