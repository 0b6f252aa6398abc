//! Settling the costs of a request that are known only after its response.
//!
//! They are settled before the last byte of the response is handed to the client's connection: a
//! request that begins later finds them charged.

use super::Completion;
use crate::{
    config::{ResponseEnd, Route},
    flow::{Instant, Permit, Reserve},
    http1::FieldList,
    usage::{Encoding, Format, Passed, Reader},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use std::sync::Arc;

impl Completion {
    /// Settles what the response has cost, if any of the request's rules settles and has not yet.
    #[inline]
    pub(super) fn settle_costs(&mut self, at: Instant) {
        let decision = &self.decision;
        let permits = [&decision.permit, &decision.early_permit];
        if permits.into_iter().flatten().any(|permit| !permit.reserves().is_empty()) {
            self.settle_all(at);
        }
    }

    #[inline(never)]
    fn settle_all(&mut self, at: Instant) {
        let usage = self.response.usage.take().map(|mut usage| {
            usage.finish();
            usage
        });
        let passed = Passed {
            request_bytes: self.upstream.upload.as_ref().map_or(0, |upload| upload.bytes()),
            response_bytes: self.response.bytes(),
            events: usage.as_ref().map_or(0, |usage| usage.events()),
            is_whole: self.response.is_whole(),
        };
        let end = ResponseEnd {
            passed,
            status: self.sent_status().map(|status| status.as_u16()),
            is_failure: self.has_failed_before_response(),
        };

        let Some(route) = self.route.clone() else { return };
        let decision = &mut self.decision;
        for permit in [&mut decision.permit, &mut decision.early_permit].into_iter().flatten() {
            settle(permit, &route, end, usage.as_deref(), at);
        }
    }

    /// Begins to look for numbers in the body of a server's response, if a rule that has admitted the
    /// request settles by them.
    #[inline(never)]
    pub(crate) fn begin_usage(&mut self, headers: &FieldList) {
        let Some(route) = &self.route else { return };
        let Some(queries) = &route.usage else { return };
        let decision = &self.decision;
        let permits = [&decision.permit, &decision.early_permit];
        let mut reserves = permits.into_iter().flatten().flat_map(Permit::reserves);
        let reads = |reserve: &Reserve| {
            let rule = route.rules.iter().find(|rule| rule.slot == reserve.slot());
            rule.is_some_and(|rule| rule.query.is_some())
        };
        if !reserves.any(reads) {
            return;
        }

        let value = |name: &HeaderName| headers.value(name);
        let content_type = value(&header::CONTENT_TYPE);
        let encoding = value(&header::CONTENT_ENCODING);
        let text = |value: &Option<HeaderValue>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let format = Format::of(text(&content_type).as_deref());
        let encoding = Encoding::of(text(&encoding).as_deref());
        self.response.usage = Some(Box::new(Reader::new(Arc::clone(queries), format, encoding)));
    }

    /// Looks for numbers in a part of a server's response.
    #[inline(never)]
    pub(super) fn read_usage(&mut self, part: &[u8]) {
        if let Some(usage) = &mut self.response.usage {
            usage.push(part);
        }
    }

    /// Returns the status that the client got; `None` if there was no response.
    fn sent_status(&self) -> Option<StatusCode> {
        self.response.status.filter(|_| !self.response.is_closed())
    }
}

/// Settles the costs of a request at `at`.
fn settle(
    permit: &mut Permit,
    route: &Route,
    end: ResponseEnd,
    usage: Option<&Reader>,
    at: Instant,
) {
    permit.settle(at, |reserve| {
        let rule = route.rules.iter().find(|rule| rule.slot == reserve.slot())?;
        let reading = usage.zip(rule.query).map(|(usage, query)| usage.reading(query));
        rule.cost.settle.as_ref()?.cost(end, reserve.cost(), reading)
    });
}
