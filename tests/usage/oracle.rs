//! A naive reader of whole bodies, by `serde_json`: it splits them, parses each document, and keeps the
//! last number at each path.

use flowgate::usage::{Format, MAX_COST, Query};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::{collections::HashMap, fmt};

/// The members of an object in their order, also those with equal names.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Returns the weighted sum of the numbers of `query` in a whole body.
pub(crate) fn sum(query: &Query, format: Format, body: &[u8]) -> Option<u64> {
    let mut last = HashMap::new();
    for document in documents(format, body)? {
        walk(&document, &[], &mut |path, number| {
            for (index, term) in query.terms.iter().enumerate() {
                if term.paths.iter().any(|known| split(known) == path) {
                    last.insert(index, number);
                }
            }
        });
    }
    let weighted = last
        .iter()
        .map(|(index, amount)| amount * i128::from(query.terms[*index].weight.in_thousandths()));
    let parts = u128::try_from(weighted.sum::<i128>()).unwrap_or(0);
    let sum = u64::try_from(parts.div_ceil(PARTS.unsigned_abs() * 1000)).unwrap_or(u64::MAX);
    (!last.is_empty()).then(|| sum.min(MAX_COST))
}

/// Parts of one in an amount.
const PARTS: i128 = 1_000_000_000_000;

/// Returns the amount of a number that is not negative, in parts of 10⁻¹², rounded up and at most
/// [`MAX_COST`].
fn amount(text: &str) -> i128 {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = digits.len() - fraction.len();
    // One that has too many digits for a number is as good as any other far from 0.
    let far = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
    let exponent: i64 = exponent.parse().unwrap_or(far);

    // The digits before the point, once it is moved by the exponent and by twelve places.
    let length = i64::try_from(point).expect("it is short") + exponent + 12;
    let kept = usize::try_from(length.clamp(0, 100)).expect("it is short");
    let integer: String = digits.chars().chain(std::iter::repeat('0')).take(kept).collect();
    let has_rest = digits.chars().skip(kept).any(|digit| digit != '0');
    let largest = i128::from(MAX_COST) * PARTS;
    let integer = match integer.trim_start_matches('0') {
        "" => 0,
        digits if digits.len() > 30 => largest,
        digits => digits.parse().expect("they are digits"),
    };
    (integer + i128::from(has_rest)).min(largest)
}

/// Returns the number of events or lines of a whole body.
pub(crate) fn events(format: Format, body: &[u8]) -> u64 {
    let count = match format {
        Format::Json => 0,
        Format::Lines => {
            lines(body).filter(|line| line.iter().any(|byte| !byte.is_ascii_whitespace())).count()
        }
        Format::Events => event_data(body).len(),
    };
    count as u64
}

/// Returns the names in a path.
fn split(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

/// Returns whether a text ends within a number, as in `{"a":0.`: serde calls that an error, though another
/// digit makes it whole.
fn ends_in_number(text: &[u8]) -> bool {
    let longer = [text, b"0"].concat();
    let next = serde_json::Deserializer::from_slice(&longer).into_iter::<Box<RawValue>>().next();
    next.is_none_or(|value| value.map_or_else(|error| error.is_eof(), |_| true))
}

/// Returns the complete documents of a body; `None` if JSON is followed by something else.
fn documents(format: Format, body: &[u8]) -> Option<Vec<Box<RawValue>>> {
    let parsed = |text: &[u8]| serde_json::from_slice::<Box<RawValue>>(text).ok();
    match format {
        Format::Json => {
            let mut values =
                serde_json::Deserializer::from_slice(body).into_iter::<Box<RawValue>>();
            let mut documents = Vec::new();
            loop {
                let begin = values.byte_offset();
                match values.next() {
                    None => break,
                    Some(Ok(value)) => documents.push(value),
                    Some(Err(error)) if error.is_eof() || ends_in_number(&body[begin..]) => break,
                    Some(Err(_)) => return None,
                }
            }
            Some(documents)
        }
        Format::Lines => Some(lines(body).filter_map(parsed).collect()),
        Format::Events => Some(event_data(body).iter().filter_map(|data| parsed(data)).collect()),
    }
}

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'\n')
}

/// Returns the data of each event that has some.
fn event_data(body: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(body).replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut data: Option<String> = None;
    for line in text.split('\n') {
        let value = line.strip_prefix("data:").map(|rest| rest.strip_prefix(' ').unwrap_or(rest));
        let is_last_line =
            core::ptr::eq(line.as_bytes().as_ptr_range().end, text.as_bytes().as_ptr_range().end);
        let value = value.or_else(|| (line == "data" && !is_last_line).then_some(""));
        if line.is_empty() {
            events.extend(data.take());
        } else if let Some(value) = value {
            data = Some(data.map_or_else(|| value.to_owned(), |former| former + "\n" + value));
        }
    }
    events.extend(data);
    events.into_iter().map(String::into_bytes).collect()
}

/// Reports the numbers below a value, which is at `path`, in their order, as amounts.
fn walk(value: &RawValue, path: &[String], found: &mut impl FnMut(&[String], i128)) {
    let text = value.get();
    match text.as_bytes()[0] {
        b'{' => {
            let members: Members = serde_json::from_str(text).expect("it was parsed before");
            for (name, value) in members.0 {
                walk(&value, &[path, &[name]].concat(), found);
            }
        }
        b'[' => {
            let elements: Vec<Box<RawValue>> =
                serde_json::from_str(text).expect("it was parsed before");
            for element in elements {
                walk(&element, path, found);
            }
        }
        b'-' | b'0'..=b'9' => {
            // Of negative numbers only zero counts.
            let amount = amount(text.trim_start_matches('-'));
            if !text.starts_with('-') || amount == 0 {
                found(path, amount);
            }
        }
        _ => {}
    }
}
