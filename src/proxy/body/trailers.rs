//! Trailers of requests: which ones the upstream receives.
//!
//! They come after the decision, and some servers merge them into the header. So nothing may pass
//! in them that the decision was made by, or that changes how the request is handled (RFC 9110,
//! 6.5.1).

use crate::http1::FieldList;
use crate::proxy::message::{
    grpc::is_grpc,
    hop_by_hop::{announced, strip_trailers},
};
use crate::{
    config::{Route, Snapshot},
    route::folded_name,
};
use http::{HeaderMap, HeaderName, header::CONTENT_TYPE};
use std::sync::Arc;

/// Fields that name the client, what it requests, and how to handle that.
const HANDLING: &[&str] = &[
    "age",
    "authorization",
    "cache-control",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "depth",
    "destination",
    "expect",
    "forwarded",
    "from",
    "host",
    "keep-alive",
    "max-forwards",
    "origin",
    "overwrite",
    "pragma",
    "range",
    "referer",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "user-agent",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-real-ip",
];

/// The beginnings of the names of others.
const HANDLING_PREFIXES: &[&str] = &[
    "accept",
    "access-control-",
    "cf-connecting-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "x-forwarded",
    "x-http-method",
    "x-method",
    "x-original",
    "x-rewrite",
];

/// The trailers of a request that may have some.
#[derive(Debug)]
pub(crate) struct RequestTrailers {
    /// The fields that decide about requests.
    deciding: Arc<[Box<str>]>,
    /// The fields that the head announces.
    announced: Vec<HeaderName>,
    route: Arc<Route>,
}

impl RequestTrailers {
    /// Returns what filters the trailers of a request with these `headers`, or `None` if they are
    /// all dropped: they mean something to gRPC, or where the route says so.
    pub(crate) fn of(headers: &FieldList, snapshot: &Snapshot, route: &Arc<Route>) -> Option<Self> {
        let is_of_grpc = || headers.get(&CONTENT_TYPE).is_some_and(is_grpc);
        (route.options.request_trailers || is_of_grpc()).then(|| Self {
            deciding: Arc::clone(&snapshot.deciding_headers),
            announced: announced(headers),
            route: Arc::clone(route),
        })
    }

    /// Whether they may go to a server of HTTP/2: nginx ends the connection, with all its requests, at
    /// the trailers of one. No client of gRPC sends any.
    pub(crate) fn pass_in_http2(&self) -> bool {
        self.route.options.request_trailers
    }

    /// Removes what the upstream may not receive.
    pub(crate) fn filter(&self, trailers: &mut HeaderMap) {
        strip_trailers(trailers, &self.route.options.request_headers, &[]);
        // HTTP/2 lets a `"` pass, which no server of HTTP/1.1 takes in a name.
        let unfit = |name: &&HeaderName| {
            name.as_str().contains('"')
                || !self.announced.contains(name)
                || !self.passes(name.as_str())
        };
        let unfit: Vec<HeaderName> = trailers.keys().filter(unfit).cloned().collect();
        for name in unfit {
            trailers.remove(name);
        }
    }

    fn passes(&self, name: &str) -> bool {
        let name = folded_name(name);
        let edits = &self.route.options.request_headers;
        let mut edited = edits.remove.iter().chain(edits.set.iter().map(|(name, _)| name));
        let decides = self.deciding.binary_search_by(|known| (**known).cmp(&name)).is_ok();
        !decides
            && !HANDLING.contains(&name.as_str())
            && !HANDLING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && !edited.any(|edited| folded_name(edited.as_str()) == name)
    }
}
