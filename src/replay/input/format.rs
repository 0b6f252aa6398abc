//! Formats of inputs and their detection; and logs that `replay` does not read, known by their looks,
//! so that an error can name them.

use super::{caddy, common, envoy, events, flowgate, lines::Lines, proxy_manager, traefik};
use crate::counted::inflected;
use clap::ValueEnum;
use core::net::SocketAddr;
use serde_json::{Map, Value};
use std::io;

/// The format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The access log of this gateway.
    Flowgate,
    /// nginx's `combined`, `main`, and others that begin like them.
    Nginx,
    /// Apache's `common`, `combined`, `vhost_combined`, and others that begin like them.
    #[value(alias = "httpd")]
    Apache,
    /// The Common Log Format of nginx, Apache and many others.
    #[value(alias = "clf")]
    Common,
    /// The same with referer and user agent.
    Combined,
    /// The log of Nginx Proxy Manager.
    #[value(alias = "npm")]
    NginxProxyManager,
    /// Caddy's JSON log.
    Caddy,
    /// Envoy's log: its default text, or JSON with the names of its documentation or of Istio.
    #[value(alias = "istio")]
    Envoy,
    /// Traefik's log, as JSON or `common`.
    Traefik,
    /// JSON lines made for `replay`: see docs/replay.md.
    Events,
}

/// Lines to read for the detection: containers and daemons write others when they start.
const MOST_LOOKED_AT: usize = 500;

/// The most bytes of these lines.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The bytes of a line that are kept to be shown.
const SHOWN: usize = 400;

/// The result of the detection.
pub(super) enum Detected {
    Known(Format),
    /// There is no line but blank ones.
    Empty,
    /// The first line, if none is known.
    Unknown(Vec<u8>),
}

impl Format {
    /// Names all of them, as for `--format`.
    pub(super) fn names() -> String {
        let names = Self::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        names.map(|name| name.get_name().to_owned()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned())
    }

    /// Returns whether lines of `self` are read like lines of `other`.
    pub(super) fn is_read_like(self, other: Self) -> bool {
        let is_common =
            |format| matches!(format, Self::Nginx | Self::Apache | Self::Common | Self::Combined);
        self == other || is_common(self) && is_common(other)
    }
}

/// Returns the format of the first line that has a known one.
pub(super) fn detect(lines: &mut Lines) -> io::Result<Detected> {
    let mut first = None;
    let mut bytes = 0;
    for _ in 0..MOST_LOOKED_AT {
        let Some(line) = lines.look()? else { break };
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if let Some(format) = format_of(line) {
            return Ok(Detected::Known(format));
        }
        first.get_or_insert_with(|| line[..line.len().min(SHOWN)].to_vec());
        bytes += line.len();
        if bytes > MOST_BYTES {
            break;
        }
    }
    Ok(first.map_or(Detected::Empty, Detected::Unknown))
}

/// Returns the format of a line.
pub(super) fn format_of(line: &[u8]) -> Option<Format> {
    if !line.starts_with(b"{") {
        // The most specific first.
        return [
            (envoy::is_text as fn(&[u8]) -> bool, Format::Envoy),
            (proxy_manager::is_ours, Format::NginxProxyManager),
            (traefik::is_clf, Format::Traefik),
            (common::is_common, Format::Combined),
        ]
        .into_iter()
        .find_map(|(is, format)| is(line).then_some(format));
    }
    let object: Map<String, Value> = serde_json::from_slice(line).ok()?;
    [
        (flowgate::is_ours(&object), Format::Flowgate),
        (caddy::is_caddy(&object), Format::Caddy),
        (traefik::is_traefik(&object), Format::Traefik),
        (envoy::is_json(&object), Format::Envoy),
        (events::is_event(&object), Format::Events),
    ]
    .into_iter()
    .find_map(|(is, format)| is.then_some(format))
}

/// The most members of an object to name.
const MOST_NAMED: usize = 6;

const CONVERT: &str = "convert it to events, or to the format `combined`";

/// Returns the kind of log that a line is of, and what to do.
pub(super) fn foreign(line: &[u8]) -> Option<String> {
    if let Some((program, command)) = compressed(line) {
        let unpack = format!("unpack it, `{command} FILE | flowgate replay -`");
        return Some(format!("data that {program} has compressed: {unpack}"));
    }
    if line.contains(&0) {
        return Some("text in UTF-16, or no text: `iconv -t UTF-8` converts UTF-16".to_owned());
    }
    let line = String::from_utf8_lossy(line);
    let line = line.trim();
    if line.starts_with('{') {
        return serde_json::from_str(line).ok().map(|object| json(&object));
    }
    let words: Vec<&str> = line.split_ascii_whitespace().take(16).collect();
    without_requests(line, &words).or_else(|| of_requests(line, &words))
}

/// Returns the program of a magic number, and its command.
fn compressed(line: &[u8]) -> Option<(&'static str, &'static str)> {
    let known: [(&[u8], _, _); 4] = [
        (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
        (b"\xfd7zXZ", "xz", "xzcat"),
        (b"BZh", "bzip2", "bzcat"),
        (b"PK\x03\x04", "zip", "unzip -p"),
    ];
    let found = known.into_iter().find(|(magic, ..)| line.starts_with(magic));
    found.map(|(_, program, command)| (program, command))
}

/// Returns the kind of a log that has no requests, or not what a replay needs of them.
fn without_requests(line: &str, words: &[&str]) -> Option<String> {
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let has_date = is_date(word(0), '/') && word(1).contains(':');
    let is_level = word(2).starts_with('[') && word(2).ends_with(']');
    let (what, instead) = if has_date && is_level {
        ("nginx's error log, which has no requests", "its access log")
    } else if is_apache_error(line) {
        ("Apache's error log, which has no requests", "its access log")
    } else if is_tls_request(line) {
        (
            "Apache's `ssl_request_log`, which has no status",
            "its access log, which has the same requests",
        )
    } else if line.starts_with("[20") && line.contains("][") && words.len() > 2 {
        ("Envoy's own log, which has no requests", "its access log")
    } else if line.starts_with("time=") && line.contains(" level=") {
        ("a program's own log in the format `logfmt`", "an access log")
    } else {
        return None;
    };
    Some(format!("{what}: pass {instead}"))
}

/// Returns the kind of a log of requests.
fn of_requests(line: &str, words: &[&str]) -> Option<String> {
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let is_protocol = |word| matches!(word, "http" | "https" | "h2" | "grpcs" | "ws" | "wss");
    let has_dash_date = |at| is_date(word(at), '-') && word(at).contains('T');
    let is_squid = word(0).contains('.') && word(0).parse::<f64>().is_ok() && word(3).contains('/');

    let what = if is_date(word(0), '/') && line.contains('\t') {
        let instead = "write `format json` in its `log` directive";
        return Some(format!("Caddy's `console` format: {instead}"));
    } else if is_haproxy(line) {
        "HAProxy's log"
    } else if is_protocol(word(0)) && has_dash_date(1) {
        "the log of an AWS Application Load Balancer (ALB)"
    } else if has_dash_date(0) && word(2).parse::<SocketAddr>().is_ok() {
        "the log of an AWS Classic Load Balancer (ELB)"
    } else if word(0) == "tls" && has_dash_date(2) {
        "the log of an AWS Network Load Balancer (NLB)"
    } else if ["REST.", "WEBSITE.", "BATCH."].iter().any(|name| line.contains(name)) {
        "the access log of AWS S3"
    } else if line.starts_with("#Software: Microsoft") {
        "the log of Microsoft IIS (W3C)"
    } else if ["#Version:", "#Fields:", "#Date:", "#Software:"]
        .iter()
        .any(|name| line.starts_with(name))
    {
        "a log in the W3C format, as of IIS or AWS CloudFront"
    } else if is_date(word(0), '-') && word(1).contains(':') && words.len() > 10 {
        "a log in the W3C format without its head, as of IIS or AWS CloudFront"
    } else if is_squid {
        "Squid's own format"
    } else if line.starts_with('[') && (line.contains('{') || line == "[") {
        return Some("a JSON array: write one object in each line".to_owned());
    } else {
        return None;
    };

    Some(format!("{what}: {CONVERT}"))
}

/// Returns whether a word begins with a date, as `2026-11-21` with `-` between.
fn is_date(word: &str, between: char) -> bool {
    let mut parts = word.split(between);
    let mut has_digits = |count: usize| {
        let part = parts.next().unwrap_or_default();
        part.len() >= count && part.chars().take(count).all(|c| c.is_ascii_digit())
    };
    has_digits(4) && has_digits(2) && has_digits(2)
}

/// Returns whether a line is as `[Sat Nov 21 05:00:07.123456 2026] [core:error] …`.
fn is_apache_error(line: &str) -> bool {
    let time = line.strip_prefix('[').and_then(|rest| rest.split_once("] ["));
    time.is_some_and(|(time, _)| {
        time.split_ascii_whitespace().count() == 5 && time.chars().take(3).all(char::is_alphabetic)
    })
}

/// Returns whether a line is as `[time] 192.0.2.1 TLSv1.3 TLS_AES_256_GCM_SHA384 "GET / HTTP/1.1" 5`.
fn is_tls_request(line: &str) -> bool {
    let fields = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let fields = fields.and_then(|(_, rest)| rest.split_once('"')).map(|(fields, _)| fields);
    fields.is_some_and(|fields| {
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        let is_version = |word: &&str| word.starts_with("TLS") || word.starts_with("SSL");
        fields.len() == 3 && (is_version(&fields[1]) || fields[1..] == ["-", "-"])
    })
}

/// Returns whether a line has a time without a zone and HAProxy's timers, as `10/0/30/69/109`.
fn is_haproxy(line: &str) -> bool {
    let Some((before, rest)) = line.split_once('[') else { return false };
    let client = before.split_ascii_whitespace().next_back().unwrap_or_default();
    let is_timers = |word: &str| {
        let parts = word.split('/');
        parts.clone().count() >= 3
            && parts.clone().all(|part| part.trim_start_matches(['-', '+']).parse::<u64>().is_ok())
    };
    let has_timers = rest.split_ascii_whitespace().take(6).any(is_timers);
    line.contains("haproxy[") || client.parse::<SocketAddr>().is_ok() && has_timers
}

fn json(object: &Map<String, Value>) -> String {
    let has = |name: &str| object.contains_key(name);
    let what = if has("httpRequest") {
        "the log of a Google Cloud load balancer"
    } else if has("EdgeStartTimestamp") || has("ClientRequestURI") {
        "Cloudflare's log"
    } else if has("remote_addr") || has("request_uri") || has("http_user_agent") {
        "JSON of a `log_format` of nginx"
    } else if has("level") && (has("msg") || has("message") || has("fields")) {
        return "a program's own log: pass an access log".to_owned();
    } else {
        "JSON"
    };
    let names = object.keys().take(MOST_NAMED).map(|name| format!("`{name}`"));
    let mut names: Vec<_> = names.collect();
    if object.len() > MOST_NAMED {
        names.push("…".to_owned());
    }
    let members = inflected(object.len(), "member", "members");
    format!("{what} with the {members} {}: {CONVERT}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines, and a part of what they are called.
    const KNOWN: &[(&str, &str)] = &[
        (
            "2026/11/21 05:00:07 [error] 31#31: *1 open() \"/a\" failed (2: No such file), client: 192.0.2.1, request: \"GET /a HTTP/1.1\"",
            "nginx's error log",
        ),
        (
            "[Sat Nov 21 05:00:07.123456 2026] [core:error] [pid 1:tid 2] [client 192.0.2.1:5] AH00128: File does not exist",
            "Apache's error log",
        ),
        (
            "[Sat Nov 21 05:00:07 2026] [error] [client 192.0.2.1] File does not exist",
            "Apache's error log",
        ),
        (
            "[21/Nov/2026:05:00:07 +0000] 192.0.2.1 TLSv1.3 TLS_AES_256_GCM_SHA384 \"GET / HTTP/1.1\" 1375",
            "ssl_request_log",
        ),
        ("[21/Nov/2026:05:00:07 +0000] 192.0.2.1 - - \"GET / HTTP/1.1\" 375", "ssl_request_log"),
        (
            "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"",
            "HAProxy",
        ),
        (
            "haproxy[14389]: 10.0.1.2:33312 [06/Feb/2009:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0",
            "HAProxy",
        ),
        (
            "h2 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 10.0.1.252:48160 10.0.0.66:9000 0.000 0.002 0.000 200 200 5 257 \"GET https://10.0.2.105:773/ HTTP/2.0\" \"curl/7.46.0\"",
            "ALB",
        ),
        (
            "2015-05-13T23:39:43.945958Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 \"GET http://www.example.com:80/ HTTP/1.1\" \"curl/7.38.0\" - -",
            "Classic Load Balancer",
        ),
        (
            "tls 2.0 2018-12-20T02:59:40 net/my-network-loadbalancer/c6e77e28c25b2234",
            "Network Load Balancer",
        ),
        ("#Software: Microsoft Internet Information Services 10.0", "IIS"),
        ("#Fields: date time s-ip cs-method cs-uri-stem", "W3C"),
        ("#Version: 1.0", "CloudFront"),
        (
            "2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td111.cloudfront.net\t/index.html\t200\t-\tMozilla",
            "CloudFront",
        ),
        (
            "79a5 bucket [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a5 3E57 REST.GET.VERSIONING - \"GET /b?versioning HTTP/1.1\" 200 -",
            "S3",
        ),
        (
            "1286536309.450   921 192.0.2.68 TCP_MISS/200 507 POST http://a.example/ - DIRECT/10.0.0.1 text/html",
            "Squid",
        ),
        (
            "2026/11/21 05:00:07.123\tINFO\thttp.log.access\thandled request\t{\"request\": {}}",
            "Caddy's `console`",
        ),
        (
            "[2026-11-21 05:00:07.123][1][info][main] [source/server/server.cc:1] starting",
            "Envoy's own log",
        ),
        ("time=\"2026-11-21T05:00:07Z\" level=info msg=\"Configuration loaded\"", "logfmt"),
        ("{\"level\":\"info\",\"ts\":1,\"msg\":\"started\"}", "a program's own log"),
        (
            "{\"remote_addr\":\"192.0.2.1\",\"status\":\"200\"}",
            "nginx with the members `remote_addr`, `status`",
        ),
        ("{\"httpRequest\":{},\"insertId\":\"a\"}", "Google Cloud"),
        ("{\"start\":1}", "JSON with the member `start`: "),
        ("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7}", "`f`, …"),
        ("[{\"a\":1},", "JSON array"),
        ("BZh91AY&SY", "bzip2"),
        ("P\0K\0", "UTF-16"),
    ];

    #[test]
    fn foreign_logs_are_known_by_their_looks() {
        for (line, name) in KNOWN {
            let kind = foreign(line.as_bytes()).unwrap_or_default();
            assert!(kind.contains(name), "{line}: {kind:?}");
        }
        for line in ["hello world", "{", "{\"a\":", "", "192.0.2.1 - - [", "Nov 21 05:00:07 a"] {
            assert_eq!(foreign(line.as_bytes()), None, "{line}");
        }
    }
}
