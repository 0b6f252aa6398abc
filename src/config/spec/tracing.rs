//! Traces: which requests are recorded, how many of them, and the collector that gets them.

use super::{
    ParentTraces, UpstreamTlsSpec,
    keys::keys,
    leaf::{CollectorUrl, EditableName, FieldValue, Share, Text, Timeout},
    values::{self, Endpoint, InvalidValue, invalid},
};
use crate::config::{
    decode::Entries,
    diagnostics::{Source, quoted},
};
use http::{HeaderValue, Uri, uri::PathAndQuery};
use std::{fmt, path::PathBuf, sync::Arc};

keys! {
    /// Traces, sent by OTLP over HTTP. Each sampled request is a span, and each attempt to send it
    /// to a server is a child span. `docs/tracing.md` lists their attributes.
    struct TracingSpec: "the tracing" {
        /// The collector that receives the spans.
        otlp: OtlpSpec;
        /// The share of requests that are sampled, of those that begin a trace here. A request that
        /// continues a trace is sampled if its caller samples it.
        sample: Share = "1%";
        /// Whose `traceparent` flowgate continues: that of every client (on), only that of
        /// `trusted_proxies` (trusted), or none (off). Other requests begin a new trace, which
        /// links to the client's.
        parent: ParentTraces = "on";
        /// The name of this gateway in traces, `service.name`.
        service_name: Text = "flowgate";
        /// Further attributes of this gateway, such as `deployment.environment.name`.
        resource: Entries<Text, Text>, else "–";
    }

    /// A collector that speaks OTLP over HTTP, with JSON bodies: an OpenTelemetry Collector, Jaeger,
    /// Tempo and others.
    struct OtlpSpec: "the collector of traces" {
        /// `http://HOST:PORT` or `https://HOST:PORT`. Without a path, spans go to `/v1/traces`.
        endpoint: CollectorUrl;
        /// Header fields of each export, such as `authorization`.
        headers: Entries<EditableName, FieldValue>, else "–";
        /// How long an export may take, including the connection.
        timeout: Timeout = "10s";
        /// TLS to an endpoint with `https://`.
        tls: UpstreamTlsSpec, else "–";
    }
}

impl TracingSpec {
    /// Has relative names of files meant from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        let otlp = self.otlp.at.as_mut();
        if let Some(tls) = otlp.and_then(|otlp| otlp.value.tls.at.as_mut()) {
            tls.value.resolve(source);
        }
    }

    /// Returns the files that it names.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let tls = self.otlp.value().and_then(|otlp| otlp.tls.value());
        tls.map(|tls| tls.files().collect()).unwrap_or_default()
    }
}

/// The URL of a collector.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectorEndpoint {
    /// A name or an address, IPv6 without brackets.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Whether it begins with `https`.
    pub is_tls: bool,
    /// The host and the port as they are written.
    pub authority: HeaderValue,
    /// The path, with a query if there is one; not to be shown, as it may hold a token.
    pub target: PathAndQuery,
}

impl fmt::Debug for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority.to_str().unwrap_or_default())
    }
}

impl CollectorEndpoint {
    /// Reads the URL of a collector of traces: with `/v1/traces` if it has no path.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, InvalidValue> {
        const HELP: &str = "write `http://HOST:4318`, or `https://HOST/PATH`";
        // Without the text, which may hold a password or a token.
        let wrong = |why: &str| invalid(format!("the collector's URL {why}"), HELP);

        let Ok(uri) = text.parse::<Uri>() else { return wrong("is not a URL") };
        let is_tls = uri.scheme_str() == Some("https");
        let has_scheme = is_tls || uri.scheme_str() == Some("http");
        let Some(authority) = uri.authority().filter(|_| has_scheme) else {
            return wrong("begins with neither `http://` nor `https://`");
        };

        if authority.as_str().contains('@') {
            return invalid(
                "the collector's URL holds a user name",
                "write `headers: { authorization: … }` instead",
            );
        }

        let scheme = if is_tls { "https" } else { "http" };
        let Endpoint { host, port, .. } = values::url(&format!("{scheme}://{authority}"))?;
        let target = uri.path_and_query().filter(|target| target.as_str() != "/");
        let target = target.cloned().unwrap_or(PathAndQuery::from_static("/v1/traces"));
        let Ok(authority) = HeaderValue::from_str(authority.as_str()) else {
            return wrong("has no host");
        };

        Ok(Self { host, port, is_tls, authority, target })
    }
}

/// A share of all traces, by their ids: a gateway that samples less samples a part of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRatio {
    /// In millionths.
    millionths: u32,
}

impl SampleRatio {
    /// Reads percent with up to four decimals, up to 100.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let number = text.strip_suffix('%').map(str::trim);
        let parts = number.map(|number| number.split_once('.').unwrap_or((number, "0")));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let millionths = parts.and_then(|(whole, decimals)| {
            let fits = is_number(whole) && is_number(decimals) && decimals.len() <= 4;
            let whole = whole.parse::<u32>().ok().filter(|whole| fits && *whole <= 100)?;
            Some(whole * 10_000 + format!("{decimals:0<4}").parse::<u32>().ok()?)
        });
        match millionths.filter(|millionths| *millionths <= 1_000_000) {
            Some(millionths) => Ok(Self { millionths }),
            None => invalid(
                format!("{} is not a percentage", quoted(text)),
                "write a number from 0 to 100 with up to four decimals and `%`, as in `0.5%`",
            ),
        }
    }

    /// Whether a trace is sampled. The last 56 bits of an id are random (W3C Trace Context, level 2).
    pub const fn includes(self, trace_id: u128) -> bool {
        let random = trace_id & ((1 << 56) - 1);
        // The threshold of OpenTelemetry's consistent sampling: those above it are sampled.
        let rejected = (1_000_000 - self.millionths) as u128;
        random * 1_000_000 >= rejected << 56
    }
}

impl fmt::Display for SampleRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.millionths) / 10_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_means_the_usual_one() {
        for (text, host, port, is_tls, target) in [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, false, "/v1/traces"),
            ("http://Collector/", "collector", 80, false, "/v1/traces"),
            ("https://[::1]/otlp/v1/traces?a=b", "::1", 443, true, "/otlp/v1/traces?a=b"),
        ] {
            let read = CollectorEndpoint::parse(text).unwrap();
            assert_eq!((&*read.host, read.port, read.is_tls), (host, port, is_tls));
            assert_eq!(read.target, target);
        }
        let read = CollectorEndpoint::parse("https://a:4318/hidden?token=hidden").unwrap();
        assert_eq!(format!("{read} {read:?}"), "https://a:4318 https://a:4318");
    }

    #[test]
    fn what_is_no_url_is_rejected_without_being_shown() {
        for text in ["collector:4318", "grpc://a", "http://", "http://me:hidden@a", "a b/hidden"] {
            let invalid = CollectorEndpoint::parse(text).unwrap_err();
            assert!(!invalid.message.contains("hidden"), "{}", invalid.message);
        }
    }

    #[test]
    fn a_share_of_the_traces_is_sampled() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut sampled = [0; 5];
        let ratios =
            [0, 1_000, 10_000, 500_000, 1_000_000].map(|millionths| SampleRatio { millionths });
        for _ in 0..100_000 {
            let id = random.u128(..);
            let included = ratios.map(|ratio| ratio.includes(id));
            assert!(included.is_sorted(), "a larger share has all of a smaller one");
            for (count, is_included) in sampled.iter_mut().zip(included) {
                *count += u32::from(is_included);
            }
        }
        assert_eq!((sampled[0], sampled[4]), (0, 100_000));
        assert!((60..150).contains(&sampled[1]), "{sampled:?}");
        assert!((900..1_100).contains(&sampled[2]), "{sampled:?}");
        assert!((49_000..51_000).contains(&sampled[3]), "{sampled:?}");
        for id in [0, 1, u128::MAX, 1 << 56, (1 << 56) - 1] {
            assert!(!ratios[0].includes(id) && ratios[4].includes(id), "{id:x}");
        }
    }

    #[test]
    fn a_share_is_shown_in_percent() {
        for (text, shown) in [
            ("0.0001%", "0.0001%"),
            ("0.1%", "0.1%"),
            ("1.0000 %", "1%"),
            ("12.50%", "12.5%"),
            ("100%", "100%"),
            ("0%", "0%"),
        ] {
            assert_eq!(SampleRatio::parse(text).unwrap().to_string(), shown);
        }
        for text in
            ["", "%", "1", "0.01", "-1%", "+1%", "1.%", ".5%", "0.00001%", "101%", "100.1%", "1e1%"]
        {
            let invalid = SampleRatio::parse(text).unwrap_err();
            assert!(invalid.message.contains("is not a percentage"), "{text}");
        }
    }
}
