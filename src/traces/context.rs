//! The trace that a request belongs to, as `traceparent` names it (W3C Trace Context, level 1).

use crate::{
    hex,
    http1::{self, FieldList, Fields},
};
use http::{HeaderName, HeaderValue};

/// The header with the trace and the calling span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with the additions of tracing systems.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// The most bytes and members of `tracestate` that are passed on.
const MOST_STATE: usize = 512;
const MOST_MEMBERS: usize = 32;

/// The trace and the span that a caller's `traceparent` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not zero.
    pub trace_id: u128,
    /// The calling span; not zero.
    pub span_id: u64,
    /// True if the caller records the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Reads the one `traceparent` of a request. Several, or an invalid one, are none.
    pub fn of(headers: Fields<'_>) -> Option<Self> {
        Self::parse(headers.get_only(TRACEPARENT.as_str())?)
    }

    /// Reads `00-TRACE-SPAN-FLAGS`. A later version may have more, which is not read.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let version = read_hex(&head[..2])?;
        let has_dashes = [2, 35, 52].iter().all(|at| head[*at] == b'-');
        let ends = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !has_dashes || !ends {
            return None;
        }
        let trace_id = read_hex(&head[3..35]).filter(|id| *id != 0)?;
        let span_id = u64::try_from(read_hex(&head[36..52])?).ok().filter(|id| *id != 0)?;
        let flags = u8::try_from(read_hex(&head[53..])?).ok()?;
        Some(Self { trace_id, span_id, is_sampled: flags & SAMPLED != 0 })
    }

    /// Writes it as version 00.
    fn text(&self) -> [u8; LENGTH] {
        let mut text = [b'-'; LENGTH];
        text[..2].copy_from_slice(b"00");
        text[3..35].copy_from_slice(&hex::digits_of_128(self.trace_id));
        text[36..52].copy_from_slice(&hex::digits(self.span_id));
        text[53..].copy_from_slice(if self.is_sampled { b"01" } else { b"00" });
        text
    }
}

/// The trace of a request, as its server receives it.
///
/// It is no field among the others: a proxy writes it into each head of HTTP/1.1, so that a request
/// which is not sampled costs no memory.
#[derive(Clone, Copy, Debug)]
pub struct TraceContext {
    own: TraceParent,
    /// True if the trace is the caller's: only then its `tracestate` applies.
    is_continued: bool,
}

impl TraceContext {
    /// Returns the context of a request whose own span is `own`.
    pub fn new(own: TraceParent, is_continued: bool) -> Self {
        Self { own, is_continued }
    }

    /// Returns the value of `traceparent`.
    pub fn text(&self) -> [u8; LENGTH] {
        self.own.text()
    }

    /// Returns the value of `traceparent` as that of a field.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.text()).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// Removes the trace fields of the caller that do not apply to the server.
    pub fn prepare(&self, headers: &mut FieldList) {
        headers.remove(&TRACEPARENT);
        if !headers.contains_key(&TRACESTATE) {
            return;
        }
        let state = self.is_continued.then(|| trace_state((&*headers).into())).flatten();
        match state.and_then(|state| HeaderValue::try_from(state).ok()) {
            Some(state) => headers.insert(&TRACESTATE, &state),
            None => headers.remove(&TRACESTATE),
        }
    }
}

/// Returns `tracestate` as one value of at most 512 bytes, if it is there and valid: at most 32
/// members with different keys.
pub(super) fn trace_state(headers: Fields<'_>) -> Option<String> {
    let mut members: Vec<&str> = Vec::new();
    for value in headers.get_all(TRACESTATE.as_str()) {
        let value = http1::text(value)?;
        // Empty members are allowed, and left out.
        members.extend(value.split(',').map(str::trim).filter(|member| !member.is_empty()));
    }

    let are_valid = members.len() <= MOST_MEMBERS
        && members.iter().enumerate().all(|(at, member)| {
            let Some(key) = key_of(member) else { return false };
            members[..at].iter().all(|earlier| key_of(earlier) != Some(key))
        });

    // A list that is too long loses its last members.
    let mut length = 0;
    let kept = members.iter().take_while(|member| {
        length += member.len() + 1;
        length <= MOST_STATE + 1
    });
    let state = kept.copied().collect::<Vec<_>>().join(",");
    (are_valid && !state.is_empty()).then_some(state)
}

/// Returns the key of `key=value`, if both are valid.
fn key_of(member: &str) -> Option<&str> {
    let (key, value) = member.split_once('=')?;
    let is_value = (1..=256).contains(&value.len())
        && value.bytes().all(|byte| (0x20..=0x7e).contains(&byte) && byte != b'=');
    let is_key = match key.split_once('@') {
        Some((tenant, system)) => {
            let begins = tenant.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
            begins
                && tenant.len() <= 241
                && tenant.bytes().all(is_of_key)
                && system.len() <= 14
                && system.starts_with(|c: char| c.is_ascii_lowercase())
                && system.bytes().all(is_of_key)
        }
        None => {
            key.len() <= 256
                && key.starts_with(|c: char| c.is_ascii_lowercase())
                && key.bytes().all(is_of_key)
        }
    };
    (is_key && is_value).then_some(key)
}

const fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/')
}

/// Reads lower-case hexadecimal digits.
fn read_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_traceparent_is_read_and_written_the_same() {
        let read = TraceParent::parse(VALID.as_bytes()).unwrap();
        assert_eq!(read.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((read.span_id, read.is_sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(read.text(), VALID.as_bytes());
        let unsampled = VALID.replace("-01", "-00");
        assert_eq!(TraceParent::parse(unsampled.as_bytes()).unwrap().text(), unsampled.as_bytes());
        // The other flags are ignored.
        for (flags, sampled) in [("02", false), ("03", true), ("ff", true), ("fe", false)] {
            let text = VALID.replace("-01", &format!("-{flags}"));
            assert_eq!(TraceParent::parse(text.as_bytes()).unwrap().is_sampled, sampled);
        }
    }

    #[test]
    fn a_later_version_may_have_more() {
        for text in [VALID.replace("00-", "01-"), VALID.replace("00-", "cc-") + "-what-comes"] {
            let read = TraceParent::parse(text.as_bytes()).unwrap();
            assert_eq!(read.text(), VALID.as_bytes());
        }
    }

    #[test]
    fn an_invalid_traceparent_is_none() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        for text in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-"),
            &format!("{VALID}0"),
            &format!(" {VALID}"),
            &VALID.to_ascii_uppercase(),
            &VALID.replace("00-", "ff-"),
            &VALID.replace("00-", "0g-"),
            &VALID.replace("00-", "01-").replace("-01", "-01x"),
            &VALID.replace('-', "_"),
            &VALID.replace("b7ad6b7169203331", "0000000000000000"),
            &VALID.replace("b7ad6b71", "b7ad6b7+"),
            &zero_trace,
        ] {
            assert_eq!(TraceParent::parse(text.as_bytes()), None, "{text}");
        }
        let mut headers = FieldList::default();
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(TraceParent::of((&headers).into()).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert_eq!(TraceParent::of((&headers).into()), None, "two are none");
    }

    fn state(values: &[&str]) -> Option<String> {
        let values = values.iter().map(|value| HeaderValue::from_str(value).unwrap());
        let headers: FieldList = values.map(|value| (TRACESTATE, value)).collect();
        trace_state((&headers).into())
    }

    #[test]
    fn a_tracestate_is_kept_whole_or_not_at_all() {
        let full = (0..32).map(|at| format!("k{at}=v")).collect::<Vec<_>>().join(",");
        let long = format!("a={}", "v".repeat(256));
        let too_long = format!("{long},b={},c=1", "v".repeat(255));
        for (values, kept) in [
            (
                &["congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"][..],
                "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
            ),
            (&["a=1", " b=2 ,, c=3"], "a=1,b=2,c=3"),
            (&["fw529a3039@dt=FfAaBbCc", "1a@b=c d!~"], "fw529a3039@dt=FfAaBbCc,1a@b=c d!~"),
            (&[&*full], &*full),
            (&[&*long], &*long),
            (&[&*too_long], &*long),
        ] {
            assert_eq!(state(values).as_deref(), Some(kept), "{values:?}");
        }
        let one_more = format!("{full},z=1");
        for values in [
            &[][..],
            &[""],
            &["a"],
            &["a="],
            &["=b"],
            &["A=b"],
            &["1a=b"],
            &["a=b=c"],
            &["a=1,a=2"],
            &["a=1", "a=2"],
            &["a@1=b"],
            &["@a=b"],
            &["a=\t"],
            &[&*one_more],
        ] {
            assert_eq!(state(values), None, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(trace_id in 1_u128.., span_id in 1_u64.., is_sampled: bool) {
            let parent = TraceParent { trace_id, span_id, is_sampled };
            prop_assert_eq!(TraceParent::parse(&parent.text()), Some(parent));
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(read) = TraceParent::parse(&bytes) {
                prop_assert_eq!(TraceParent::parse(&read.text()), Some(read));
            }
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let headers: FieldList = [(TRACESTATE, value)].into_iter().collect();
                prop_assert!(trace_state((&headers).into()).is_none_or(|state| state.len() <= MOST_STATE));
            }
        }
    }
}
