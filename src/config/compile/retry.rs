//! A route's `retry`.

use super::compiler::Compiler;
use crate::config::{
    diagnostics::Problem,
    plan::RetryPolicy,
    spec::{RetrySpec, values::RetryOn},
};
use http::Method;

/// The statuses that are retried by default: gateways' and overload's statuses.
const STATUSES: [u16; 3] = [502, 503, 504];

/// The methods that are sent again where the file does not say: those that ask for nothing to be
/// done (RFC 9110, 9.2.1).
const METHODS: [Method; 3] = [Method::GET, Method::HEAD, Method::OPTIONS];

impl Compiler {
    pub(super) fn retry(&mut self, spec: &RetrySpec) -> Option<RetryPolicy> {
        for at in spec.methods.items() {
            let method = &at.value.0;
            if [Method::POST, Method::PATCH].contains(method) {
                self.error(
                    Problem::error(at.span, format!("`{method}` cannot be sent again"))
                        .label("a server may do twice what it asks for")
                        .help("remove it; flowgate always sends a request again that no server can have acted on"),
                );
            }
        }

        let on = spec.on.is_written().then(|| spec.on.plain(|cause| cause.0));
        let has = |cause| on.as_ref().is_none_or(|on| on.contains(&cause));
        let statuses = on.as_ref().map_or_else(
            || STATUSES.to_vec(),
            |on| {
                let statuses = on.iter().filter_map(|cause| match *cause {
                    RetryOn::Status(status) => Some(status),
                    RetryOn::Connect | RetryOn::Reset | RetryOn::Timeout => None,
                });
                statuses.collect()
            },
        );

        Some(RetryPolicy {
            attempts: u32::try_from(spec.attempts.number()?.value).unwrap_or(u32::MAX),
            connect: has(RetryOn::Connect),
            reset: has(RetryOn::Reset),
            timeout: on.as_ref().is_some_and(|on| on.contains(&RetryOn::Timeout)),
            statuses,
            methods: if spec.methods.is_written() {
                spec.methods.plain(|method| method.0.clone())
            } else {
                METHODS.to_vec()
            },
            budget_percent: spec.budget.value()?.0,
        })
    }
}
