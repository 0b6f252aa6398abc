//! The leaves of the file: text to a duration, a size, a rate, an address, a name.
//!
//! Each reader takes the text as written and answers with the value or with what is wrong and what
//! to write instead.

use super::calendar::{self, Unit};
use crate::{
    config::diagnostics::quoted,
    flow::{Rate, breaker::Ratio, time::spelled},
    route::canonical_host,
};
use bytesize::ByteSize;
use core::ops::RangeInclusive;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header, uri::PathAndQuery};
use ipnet::{IpNet, Ipv6Net};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    num::NonZeroU64,
    sync::Arc,
    time::Duration,
};

/// Why a text is not the value that its key wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct InvalidValue {
    pub message: String,
    pub help: String,
}

/// The message, and on a second line what to write.
impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.message, self.help)
    }
}

/// Why a text is not the value that its key wants, or beyond a bound of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum Wrong {
    Text(InvalidValue),
    /// As in "`workers` cannot be 0" and "write a number from 1 to 1024".
    Bound {
        found: String,
        wanted: String,
    },
}

impl From<InvalidValue> for Wrong {
    fn from(invalid: InvalidValue) -> Self {
        Self::Text(invalid)
    }
}

/// Returns what is wrong with a text and what to write.
pub(in crate::config) fn invalid<T>(
    message: impl Into<String>,
    help: impl Into<String>,
) -> Result<T, InvalidValue> {
    Err(InvalidValue { message: message.into(), help: help.into() })
}

/// Returns that `text` is or has what it may not, and what to write.
fn not<T>(text: &str, what: &str, help: impl Into<String>) -> Result<T, InvalidValue> {
    invalid(format!("{} {what}", quoted(text)), help)
}

/// The longest path of a Unix socket, in bytes: what `sockaddr_un` has room for.
const MAX_SOCKET_PATH: usize = 107;

/// The longest name of a listener, an upstream, a route or a rule.
const MAX_NAME: usize = 64;

/// Reads a whole number; `_` may part its digits.
pub(in crate::config) fn integer(text: &str) -> Result<u64, InvalidValue> {
    let digits = text.replace('_', "");
    let well_formed = !text.starts_with('_') && !text.ends_with('_') && !digits.starts_with('+');
    match digits.parse() {
        Ok(number) if well_formed => Ok(number),
        _ if digits.starts_with('-') => {
            not(text, "is below zero", "write a whole number, as in `10`")
        }
        _ if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && well_formed => {
            not(text, "is too large", "write a smaller number")
        }
        _ => not(
            text,
            "is not a whole number",
            "write digits without quotes, unit or point, as in `10`",
        ),
    }
}

/// Reads a whole number of at least `min` and at most `max`.
pub(in crate::config) fn integer_within(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let number = integer(text)?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    let wanted = format!("a number from {min} to {max}");
    Err(Wrong::Bound { found: number.to_string(), wanted })
}

/// Reads a duration such as `500ms` or `1m 30s`; `0` needs no unit.
pub(in crate::config) fn duration(text: &str) -> Result<Duration, InvalidValue> {
    const HELP: &str = "write a number and a unit, as in `500ms`, `5s`, `1m 30s` or `2h`";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return not(text, "is below zero", HELP);
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'_' || b == b'.') && !text.is_empty() {
        let help = format!("write the unit: `{text}s` for seconds, `{text}ms` for milliseconds");
        return not(text, "has no unit", help);
    }
    // humantime takes `M` for a month, which no timeout means.
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        let message = format!("{} is not a duration: units are lower-case", quoted(text));
        return invalid(message, HELP);
    }
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= Rate::MAX_WINDOW => Ok(duration),
        Ok(_) => not(text, "is longer than a year", "write at most `366d`"),
        Err(_) => not(text, "is not a duration", HELP),
    }
}

/// Reads a duration of at least `min` and at most `max` nanoseconds.
pub(in crate::config) fn duration_within(
    text: &str,
    min: u64,
    max: u64,
) -> Result<Duration, Wrong> {
    let duration = duration(text)?;
    let shown = |duration| spelled(duration).replace(' ', "");
    within(
        duration,
        [min, max].map(Duration::from_nanos),
        shown,
        format!("as long as {}", quoted(text)),
    )
}

/// Reads a number of bytes such as `64KiB`, `10MB` or `1048576`.
pub(in crate::config) fn size(text: &str) -> Result<u64, InvalidValue> {
    text.parse::<ByteSize>().map(|size| size.as_u64()).or_else(|_| {
        not(
            text,
            "is not a size",
            "write a number and a unit, as in `64KiB`, `10MiB` (1024 each) or `10MB` (1000 each)",
        )
    })
}

/// When the names of an upstream's servers are resolved again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// When their DNS records expire.
    ByTtl,
    /// After this time, which is not zero.
    Every(Duration),
    /// Whenever a connection opens.
    OnConnect,
}

/// Reads when names are resolved again: `ttl`, or a duration of at most a day.
pub(in crate::config) fn resolve(text: &str) -> Result<Resolve, Wrong> {
    const DAY: u64 = 24 * 3600 * 1_000_000_000;
    if text == "ttl" {
        return Ok(Resolve::ByTtl);
    }
    let every = duration_within(text, 0, DAY).map_err(|wrong| match wrong {
        Wrong::Text(InvalidValue { message, .. }) => Wrong::Text(InvalidValue {
            message,
            help: "write `ttl`, or a number and a unit, as in `30s`".to_owned(),
        }),
        bound @ Wrong::Bound { .. } => bound,
    })?;
    Ok(if every.is_zero() { Resolve::OnConnect } else { Resolve::Every(every) })
}

/// Reads the address of a DNS server, by default with port 53.
pub(in crate::config) fn dns_server(text: &str) -> Result<SocketAddr, InvalidValue> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().map(|ip: IpAddr| SocketAddr::new(ip, 53)).or_else(|_| text.parse());
    match address {
        Ok(address) if address.port() != 0 => Ok(address),
        _ => not(
            text,
            "is not the address of a DNS server",
            "write an IP address, with a port if it is not 53, as in `10.0.0.2` or `127.0.0.1:8600`",
        ),
    }
}

/// Reads how many bytes per second, as in `1KiB/s`, or `off`.
pub(in crate::config) fn byte_rate(text: &str) -> Result<Option<NonZeroU64>, InvalidValue> {
    const HELP: &str = "write a size per second, as in `1KiB/s`, or `off`";
    if text == "off" {
        return Ok(None);
    }
    let bytes = text.split_once('/').filter(|(_, time)| matches!(time.trim(), "s" | "1s"));
    let bytes = bytes.and_then(|(bytes, _)| size(bytes.trim()).ok()).and_then(NonZeroU64::new);
    bytes.map_or_else(|| not(text, "is not a size per second", HELP), |bytes| Ok(Some(bytes)))
}

/// Reads a number of bytes of at least `min` and at most `max`.
pub(in crate::config) fn size_within(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let shown = |size| ByteSize(size).display().iec().to_string().replace(".0 ", "");
    within(size(text)?, [min, max], shown, format!("as large as {}", quoted(text)))
}

/// Returns the value, or that it is beyond a bound; `too_much` is a larger one in words.
fn within<T: PartialOrd + Copy>(
    value: T,
    [min, max]: [T; 2],
    shown: impl Fn(T) -> String,
    too_much: String,
) -> Result<T, Wrong> {
    if value < min {
        let wanted = format!("at least `{}`", shown(min));
        return Err(Wrong::Bound { found: shown(value), wanted });
    }
    if value > max {
        return Err(Wrong::Bound { found: too_much, wanted: format!("at most `{}`", shown(max)) });
    }
    Ok(value)
}

/// How many per how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct Limit {
    /// A calendar's window with its greatest length.
    pub rate: Rate,
    /// `None` if the window is a duration.
    pub unit: Option<Unit>,
}

impl Limit {
    /// Returns the rate, for whatever counts by durations.
    pub(in crate::config) fn steady(self) -> Result<Rate, InvalidValue> {
        match self.unit {
            None | Some(Unit::Day | Unit::Week) => Ok(self.rate),
            Some(Unit::Month) => invalid("months differ in length", MONTH),
        }
    }
}

const MONTH: &str =
    "write `/month` with `algorithm: fixed_window`, or a number of days, as in `100/30d`";

/// Reads how many per how long: `100/1m`, `100/s`, `1/333ns`, `10000/month`.
pub(in crate::config) fn limit(text: &str) -> Result<Limit, InvalidValue> {
    const HELP: &str = "write how many per how long, as in `100/1s` or `1000/1m`";
    let Some((count, window)) = text.split_once('/') else {
        return not(text, "is not a rate", HELP);
    };
    let count = count.trim();
    let window = window.trim();
    let help = || match count.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') => {
            format!("write {}", quoted(&format!("{whole}/{window}")))
        }
        Some(_) => "write a longer window, as in `1/2s` for `0.5/s`".to_owned(),
        // What has only digits is too large.
        None if count.bytes().all(|b| b.is_ascii_digit() || b == b'_') && !count.is_empty() => {
            format!("write at most {}", Rate::MAX_COUNT)
        }
        None => HELP.to_owned(),
    };
    let count = integer(count).map_err(|e| InvalidValue { help: help(), ..e })?;
    let unit = Unit::named(window);
    // humantime takes a month for 30.44 days.
    let mut words = window.split(|c: char| !c.is_ascii_alphabetic());
    let is_month = words.any(|word| matches!(word, "month" | "months" | "year" | "years" | "y"));
    if let Some(Unit::Month) = unit {
        let longest = Duration::from_hours(31 * 24);
        return Ok(Limit { rate: rate_of(count, longest)?, unit });
    }
    if is_month && unit.is_none() {
        return invalid(format!("{} has no one length", quoted(window)), MONTH);
    }
    let window = if window.starts_with(|c: char| c.is_ascii_digit()) {
        duration(window)
    } else {
        duration(&format!("1{window}"))
    };
    let window = window.map_err(|e| InvalidValue { help: HELP.to_owned(), ..e })?;
    Ok(Limit { rate: rate_of(count, window)?, unit })
}

pub(in crate::config) fn zone(text: &str) -> Result<String, InvalidValue> {
    calendar::zone(text).map_or_else(
        || {
            not(
                text,
                "is not a time zone",
                "write a name of the IANA database, as in `Europe/Berlin` or `UTC`",
            )
        },
        Ok,
    )
}

/// Joins the two numbers of a rate, neither of which may be zero or beyond its bound.
pub(in crate::config) fn rate_of(count: u64, window: Duration) -> Result<Rate, InvalidValue> {
    if count == 0 {
        return invalid(
            "a limit of 0 lets nothing pass",
            "write at least 1, as in `1/1s`; to close a route, remove it",
        );
    }
    if window.is_zero() {
        return invalid("a window of no length", "write how long the window is, as in `100/1s`");
    }
    Rate::new(count, window).map_or_else(
        || {
            invalid(
                format!("{count} is more than a limit can count"),
                format!("write at most {}", Rate::MAX_COUNT),
            )
        },
        Ok,
    )
}

/// Reads a part of a whole: a number from 0 to 1 with up to six decimals, or a percentage with up to
/// four.
pub(in crate::config) fn ratio(text: &str) -> Result<Ratio, InvalidValue> {
    let percent = text.strip_suffix('%').map(str::trim_end);
    let decimals = if percent.is_some() { 4 } else { 6 };
    let number = percent.unwrap_or(text);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let millionths = (digits(whole, 6) && digits(part, decimals))
        .then(|| format!("{whole}{part:0<decimals$}").parse().ok())
        .flatten();
    millionths.and_then(Ratio::new).map_or_else(
        || {
            not(
                text,
                "is not a part of a whole",
                "write a number from 0 to 1, or a percentage, as in `0.5` or `50%` for a half",
            )
        },
        Ok,
    )
}

pub(in crate::config) fn address(text: &str) -> Result<SocketAddr, InvalidValue> {
    // A port alone means every address: a socket of `[::]` takes IPv4 too.
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>()
        && !text.contains('+')
    {
        return Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    if let Ok(SocketAddr::V6(address)) = text.parse()
        && let Some(ip) = address.ip().to_ipv4_mapped()
    {
        // Sockets of IPv6 take no IPv4 here, or two listeners could get one connection.
        return invalid(
            format!("{} is an IPv4 address in the form of IPv6", quoted(text)),
            format!("write `{ip}:{}`", address.port()),
        );
    }
    let message = || format!("{} is not an address to listen on", quoted(text));
    text.parse().or_else(|_| invalid(message(), address_help(text)))
}

/// Says what to write in place of `text`, which is not an address to listen on.
fn address_help(text: &str) -> String {
    let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
    if port.parse::<u64>().is_ok_and(|port| port > u64::from(u16::MAX)) {
        return "write a port from 1 to 65535".to_owned();
    }
    if text.matches(':').count() > 1 && !text.contains(['[', '/']) {
        return "write an IPv6 address in brackets and in quotes, as in `\"[::1]:8080\"`"
            .to_owned();
    }
    let port = port.parse::<u16>().map_or_else(|_| "8080".to_owned(), |port| port.to_string());
    format!(
        "write an IP address and a port: `127.0.0.1:{port}` for this machine only, `:{port}` for \
         every address of it"
    )
}

/// Where a server of an upstream is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::config) struct Endpoint {
    /// A name or an address, IPv6 without brackets; or the path of a Unix socket.
    pub host: Arc<str>,
    /// 0 for a Unix socket.
    pub port: u16,
    pub is_tls: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, is_tls } = self;
        let scheme = if *is_tls { "https" } else { "http" };
        if host.starts_with('/') {
            write!(f, "unix:{host}")
        } else if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// Reads `http://host:port`, `https://host:port` or `unix:/path`.
pub(in crate::config) fn url(text: &str) -> Result<Endpoint, InvalidValue> {
    const HELP: &str = "write `http://HOST:PORT`, as in `http://10.0.1.5:8000`, or `https://HOST:PORT`, or \
                        `unix:/PATH`";
    let wrong = |why: &str| invalid(format!("{} {why}", quoted(text)), HELP);
    if let Some(path) = text.strip_prefix("unix:") {
        if !path.starts_with('/') {
            return wrong("has no absolute path");
        }
        if path.len() > MAX_SOCKET_PATH || path.contains('\0') {
            return wrong("has a path that no socket can have");
        }
        return Ok(Endpoint { host: path.into(), port: 0, is_tls: false });
    }
    if let Some(path) = text.strip_prefix("http://unix:") {
        let path = format!("unix:{}", path.split(':').next().unwrap_or_default());
        return not(text, "is the form of nginx", format!("write {}", quoted(&path)));
    }
    let Ok(uri) = text.parse::<Uri>() else { return wrong("is not a URL") };
    let is_tls = uri.scheme_str() == Some("https");
    let has_scheme = is_tls || uri.scheme_str() == Some("http");
    let Some(authority) = uri.authority().filter(|_| has_scheme) else {
        let message = format!("{} is not an http:// or https:// URL", quoted(text));
        return invalid(message, scheme_help(text).unwrap_or_else(|| HELP.to_owned()));
    };
    if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") {
        let scheme = if is_tls { "https" } else { "http" };
        let (part, help) = match uri.path() {
            "/" => ("query", ""),
            _ => ("path", "; `rewrite` of a route changes paths"),
        };
        return invalid(
            format!("{} has a {part}; requests keep their own", quoted(text)),
            format!("write `{scheme}://{authority}`{help}"),
        );
    }
    if authority.as_str().contains('@') {
        return wrong("holds a user name");
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let port = match (authority.port_u16(), port) {
        (Some(port), _) if port > 0 => port,
        (None, None) if is_tls => 443,
        (None, None) => 80,
        _ => return wrong("has an invalid port"),
    };
    if host.is_empty() {
        return wrong("has no host");
    }
    if let Some((before, variable)) = text.split_once('$') {
        let end = variable.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = variable.split_at(end.unwrap_or(variable.len()));
        let help = format!("write braces around a variable, as in `{before}${{{name}}}{rest}`");
        return not(text, "has a host that no server can have", help);
    }
    // `%` comes before the zone of an IPv6 address.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '%');
    if !host.chars().all(fits) {
        return wrong("has a host that no server can have");
    }
    Ok(Endpoint { host: host.to_ascii_lowercase().into(), port, is_tls })
}

/// Says what to write in place of a URL with another scheme or without one, if that is known.
fn scheme_help(text: &str) -> Option<String> {
    if let Some(variable) = text.strip_prefix('$') {
        return Some(format!("write braces around a variable, as in `${{{variable}}}`"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let with_scheme = format!("http://{text}");
        return url(&with_scheme).is_ok().then(|| format!("write `{with_scheme}`"));
    };
    match scheme {
        "ws" => Some(format!("write `http://{rest}`, and `upgrades: websocket` in the route")),
        "wss" => Some(format!("write `https://{rest}`, and `upgrades: websocket` in the route")),
        "grpc" | "h2c" => {
            Some(format!("write `http://{rest}`, and `protocol: h2` in the upstream"))
        }
        _ => None,
    }
}

/// Reads a network such as `10.0.0.0/8`, or one address. A network of mapped addresses, as in
/// `::ffff:10.0.0.0/104`, is that of IPv4: addresses of clients are compared in this form.
pub(in crate::config) fn network(text: &str) -> Result<IpNet, InvalidValue> {
    let network = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let Some(network) = network else {
        return not(
            text,
            "is not a network",
            "write an address or a range, as in `10.0.0.0/8`, `192.0.2.1` or `2001:db8::/32`",
        );
    };
    let length = network.prefix_len().checked_sub(MAPPED.prefix_len());
    let is_mapped = MAPPED.contains(&network);
    let mapped = length.filter(|_| is_mapped);
    let of_ipv4 = mapped.and_then(|length| IpNet::new(network.addr().to_canonical(), length).ok());
    Ok(of_ipv4.unwrap_or(network))
}

/// Addresses of IPv4 that are written as those of IPv6 (RFC 4291, 2.5.5.2).
const MAPPED: IpNet =
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96));

/// Reads the name of a listener, an upstream, a route or a rule. Names go into logs, metric labels
/// and the `RateLimit` fields as they are.
pub(in crate::config) fn name(text: &str) -> Result<Arc<str>, InvalidValue> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    if text.is_empty() {
        return invalid("the name is empty", "write a word, as in `checkout`");
    }
    if text.len() > MAX_NAME {
        let message = format!("the name is {} bytes long", text.len());
        return invalid(message, format!("write at most {MAX_NAME}"));
    }
    match text.chars().find(|c| !fits(*c)) {
        None => Ok(text.into()),
        Some(odd) => invalid(
            format!("a name cannot hold {}", quoted(&odd.to_string())),
            "write letters, digits and any of `- _ . / :`",
        ),
    }
}

/// Reads an HTTP method, upper-case.
pub(in crate::config) fn method(text: &str) -> Result<Method, InvalidValue> {
    const HELP: &str = "write a method, as in `GET` or `POST`";
    match Method::from_bytes(text.as_bytes()) {
        Ok(_) if text.bytes().any(|b| b.is_ascii_lowercase()) => {
            let help = format!("write `{}`", text.to_ascii_uppercase());
            not(text, "is not upper-case, as methods are", help)
        }
        Ok(method) => Ok(method),
        Err(_) => not(text, "is not a method", HELP),
    }
}

pub(in crate::config) fn header_name(text: &str) -> Result<HeaderName, InvalidValue> {
    text.parse().or_else(|_| {
        not(text, "is not the name of a header", "write letters, digits and `-`, as in `x-tenant`")
    })
}

pub(in crate::config) fn header_value(text: &str) -> Result<HeaderValue, InvalidValue> {
    text.parse().or_else(|_| {
        not(
            text,
            "is not allowed in a header",
            "write visible ASCII characters and spaces, on one line",
        )
    })
}

/// Reads the status of an answer that the gateway gives itself.
pub(in crate::config) fn status(text: &str) -> Result<StatusCode, InvalidValue> {
    let status = text.parse::<StatusCode>().ok();
    status.filter(|s| s.is_client_error() || s.is_server_error()).map_or_else(
        || {
            not(
                text,
                "is not the status of an error",
                "write a status from 400 to 599, as in `429`",
            )
        },
        Ok,
    )
}

/// Reads the status of a redirect.
pub(in crate::config) fn redirect_status(text: &str) -> Result<StatusCode, InvalidValue> {
    let status = text.parse::<StatusCode>().ok();
    status.filter(|s| matches!(s.as_u16(), 301 | 302 | 303 | 307 | 308)).map_or_else(
        || not(text, "is not the status of a redirect", "write 301, 302, 303, 307 or 308"),
        Ok,
    )
}

/// Reads the status of a response.
pub(in crate::config) fn answer_status(text: &str) -> Result<StatusCode, InvalidValue> {
    let status = text.parse::<StatusCode>().ok();
    status.filter(|s| (200..600).contains(&s.as_u16())).map_or_else(
        || not(text, "is not the status of a response", "write a status from 200 to 599"),
        Ok,
    )
}

/// Reads where a redirect leads.
pub(in crate::config) fn location(text: &str) -> Result<String, InvalidValue> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
        if let Some((status, to)) = text.split_once(' ')
            && redirect_status(status).is_ok()
            && location(to.trim()).is_ok()
        {
            let help = format!("write `redirect: {{ to: {}, status: {status} }}`", to.trim());
            return not(text, "is a status and a URL", help);
        }
        let help = "write other characters as escapes, a space as `%20`";
        return not(text, "is not allowed in a URL", help);
    }
    Ok(text.to_owned())
}

/// Reads a host with or without a port, as it stands in `Host`.
pub(in crate::config) fn authority(text: &str) -> Result<HeaderValue, InvalidValue> {
    let host = canonical_host(text).ok();
    let value = host.and_then(|_| HeaderValue::try_from(text).ok());
    value.map_or_else(
        || not(text, "is not a host", "write a name or an address, as in `app.internal:8080`"),
        Ok,
    )
}

/// Reads the path of a health check.
pub(in crate::config) fn check_path(text: &str) -> Result<Box<str>, InvalidValue> {
    let is_path = text.starts_with('/') && text.parse::<PathAndQuery>().is_ok();
    if is_path && !text.contains('#') {
        return Ok(text.into());
    }
    let message = format!("{} is not a path", quoted(text));
    invalid(message, "write what the server is asked for, as in `/healthz`")
}

/// Reads a status or a range of them.
pub(in crate::config) fn statuses(text: &str) -> Result<RangeInclusive<u16>, InvalidValue> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let status = |text: &str| {
        let status = text.trim().parse::<u16>().ok();
        status.filter(|status| text.trim().len() == 3 && (100..600).contains(status))
    };
    match (status(first), status(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => invalid(
            format!("{} is not a status or a range of them", quoted(text)),
            "write statuses from 100 to 599, as in `200` or `200-399`",
        ),
    }
}

/// Why a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum RetryOn {
    Connect,
    Reset,
    Timeout,
    Status(u16),
}

/// Reads why a request is sent again.
pub(in crate::config) fn retry_on(text: &str) -> Result<RetryOn, InvalidValue> {
    match text {
        "connect" => return Ok(RetryOn::Connect),
        "reset" => return Ok(RetryOn::Reset),
        "timeout" => return Ok(RetryOn::Timeout),
        _ => {}
    }
    match text.parse::<u16>() {
        Ok(status) if text.len() == 3 && (400..600).contains(&status) => {
            Ok(RetryOn::Status(status))
        }
        _ => not(
            text,
            "is not a failure that requests are sent again after",
            "write `connect`, `reset`, `timeout`, or a status from 400 to 599, as in `503`",
        ),
    }
}

/// Reads a whole number of percent, up to 100.
pub(in crate::config) fn percent(text: &str) -> Result<u32, InvalidValue> {
    let number = text.strip_suffix('%').and_then(|number| integer(number.trim()).ok());
    match number.and_then(|number| u32::try_from(number).ok()) {
        Some(percent) if percent <= 100 => Ok(percent),
        _ => not(text, "is not a percentage", "write a number from 0 to 100 and `%`, as in `20%`"),
    }
}

/// Reports whether it is a word for on or off, which other gateways take where flowgate takes a name.
pub(in crate::config) fn is_switch(word: &str) -> bool {
    matches!(word, "true" | "false" | "yes" | "no" | "on" | "off" | "none")
}

/// Reads the name of a protocol, perhaps with its version (RFC 9110, 7.8), lower-case.
pub(in crate::config) fn upgrade(text: &str) -> Result<String, InvalidValue> {
    let protocol = text.to_ascii_lowercase();
    let name = protocol.split('/').next().unwrap_or_default();
    if matches!(name, "h2c" | "h2" | "h3" | "tls" | "http") {
        return invalid(
            format!("an upgrade to {} would bypass the rules", quoted(text)),
            "write a protocol that is not HTTP, as in `websocket`",
        );
    }
    let has_tokens = protocol.splitn(2, '/').all(|token| header_name(token).is_ok());
    if is_switch(name) || !has_tokens {
        return not(
            text,
            "is not the name of a protocol",
            "write `websocket`, or `upgrades: []` for none",
        );
    }
    Ok(protocol)
}

/// Reads the name of a header that a route may change: not those that frame the message or name
/// its authority, which the gateway writes itself.
pub(in crate::config) fn editable(text: &str) -> Result<HeaderName, InvalidValue> {
    const OWN: &[HeaderName] = &[
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let name = header_name(text)?;
    if OWN.contains(&name) || matches!(name.as_str(), "keep-alive" | "proxy-connection") {
        let help = if name == header::HOST {
            "write `rewrite: { host: … }` at the route: it changes the host for the upstream"
        } else {
            "remove it: it frames the message"
        };
        return invalid(format!("`{name}` belongs to the gateway itself"), help);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_every_spelling() {
        for (text, count, window) in [
            ("100/1m", 100, Duration::from_mins(1)),
            ("100/s", 100, Duration::from_secs(1)),
            ("1/333ns", 1, Duration::from_nanos(333)),
            (" 5 / 500ms", 5, Duration::from_millis(500)),
            ("1_000/1h 30m", 1000, Duration::from_mins(90)),
        ] {
            let rate = limit(text).unwrap().rate;
            assert_eq!((rate.count(), rate.window()), (count, window), "{text}");
        }
        for (text, unit, days) in
            [("7/day", Unit::Day, 1), ("7/ week", Unit::Week, 7), ("7/month", Unit::Month, 31)]
        {
            let limit = limit(text).unwrap();
            assert_eq!(limit.unit, Some(unit), "{text}");
            assert_eq!(limit.rate.window(), Duration::from_hours(24 * days), "{text}");
        }
        assert_eq!(limit("7/1day").unwrap().unit, None);
    }

    #[test]
    fn impossible_rates_say_what_to_write() {
        rejected(limit, "0/1s", "a limit of 0 lets nothing pass");
        rejected(limit, "1/0s", "a window of no length");
        rejected(limit, "1/0", "a window of no length");
        rejected(limit, "100", "`100` is not a rate");
        rejected(limit, "100/", "`1` has no unit");
        rejected(limit, "/s", "`` is not a whole number");
        rejected(limit, "1.5/s", "`1.5` is not a whole number");
        rejected(limit, "-1/s", "`-1` is below zero");
        rejected(limit, "1/400d", "`400d` is longer than a year");
        rejected(limit, "2000000000000/s", "2000000000000 is more than a limit can count");
        rejected(limit, "1/2months", "`2months` has no one length");
        rejected(limit, "1/1y", "`1y` has no one length");
        rejected(|text| limit(text)?.steady(), "1/month", "months differ in length");
        rejected(zone, "Europe/Berlinn", "`Europe/Berlinn` is not a time zone");
        rejected(limit, "99999999999999999999/s", "`99999999999999999999` is too large");
        let help = limit("99999999999999999999/s").unwrap_err().help;
        assert_eq!(help, "write at most 1000000000000");
    }

    #[test]
    fn durations_want_a_unit() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        rejected(duration, "5", "`5` has no unit");
        rejected(duration, "5M", "`5M` is not a duration: units are lower-case");
        rejected(duration, "soon", "`soon` is not a duration");
        rejected(duration, "", "`` is not a duration");
        rejected(duration, "99999999999999999y", "`99999999999999999y` is not a duration");
    }

    #[test]
    fn sizes_know_both_kinds_of_units() {
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("10MB"), Ok(10_000_000));
        assert_eq!(size("7"), Ok(7));
        rejected(size, "-1", "`-1` is not a size");
        rejected(size, "big", "`big` is not a size");
    }

    #[test]
    fn urls_are_a_scheme_a_host_and_a_port() {
        let endpoint = |host: &str, port| Endpoint { host: host.into(), port, is_tls: false };
        assert_eq!(url("http://10.0.1.5:8000"), Ok(endpoint("10.0.1.5", 8000)));
        assert_eq!(url("http://Shop.internal/"), Ok(endpoint("shop.internal", 80)));
        assert_eq!(url("http://[::1]:81"), Ok(endpoint("::1", 81)));
        assert_eq!(url("http://[::1]"), Ok(endpoint("::1", 80)));
        let secured = |host, port| Endpoint { is_tls: true, ..endpoint(host, port) };
        assert_eq!(url("https://Shop.internal"), Ok(secured("shop.internal", 443)));
        assert_eq!(url("https://[::1]:8443/"), Ok(secured("::1", 8443)));
        assert_eq!(url("unix:/run/App.sock"), Ok(endpoint("/run/App.sock", 0)));
        rejected(url, "unix:app.sock", "`unix:app.sock` has no absolute path");
        let long = format!("unix:/{}", "a".repeat(200));
        rejected(url, &long, &format!("{} has a path that no socket can have", quoted(&long)));
        rejected(url, "10.0.1.5:8000", "`10.0.1.5:8000` is not an http:// or https:// URL");
        rejected(url, "http://a/b", "`http://a/b` has a path; requests keep their own");
        rejected(url, "http://a:80?b", "`http://a:80?b` has a query; requests keep their own");
        for (text, help) in [
            ("localhost:8000", "write `http://localhost:8000`"),
            ("$URL", "write braces around a variable, as in `${URL}`"),
            ("http://$HOST:81", "write braces around a variable, as in `http://${HOST}:81`"),
            ("https://a.$ZONE", "write braces around a variable, as in `https://a.${ZONE}`"),
            ("https://a/b", "write `https://a`; `rewrite` of a route changes paths"),
            ("https://a/?b", "write `https://a`"),
            ("ws://a:1", "write `http://a:1`, and `upgrades: websocket` in the route"),
            ("grpc://a:1", "write `http://a:1`, and `protocol: h2` in the upstream"),
        ] {
            assert_eq!(url(text).unwrap_err().help, help, "{text}");
        }
        rejected(url, "http://u@a", "`http://u@a` holds a user name");
        for text in ["http://$HOST", "http://a!", "http://*.a", "http://a,b:81"] {
            rejected(url, text, &format!("`{text}` has a host that no server can have"));
        }
        assert_eq!(url("http://shop_api-1.a.:81"), Ok(endpoint("shop_api-1.a.", 81)));
        rejected(url, "http://a:0", "`http://a:0` has an invalid port");
        rejected(url, "http://a:", "`http://a:` has an invalid port");
        rejected(url, "http://a:99999", "`http://a:99999` has an invalid port");
        rejected(url, "http://", "`http://` is not a URL");
        rejected(url, "", "`` is not a URL");
    }

    #[test]
    fn addresses_are_an_ip_and_a_port() {
        assert_eq!(address("[::]:80"), Ok("[::]:80".parse().unwrap()));
        for every in [":81", "81"] {
            assert_eq!(address(every), Ok("[::]:81".parse().unwrap()));
        }
        rejected(address, ":65536", "`:65536` is not an address to listen on");
        rejected(address, ":", "`:` is not an address to listen on");
        rejected(address, "+81", "`+81` is not an address to listen on");
        rejected(address, ":+81", "`:+81` is not an address to listen on");
        let mapped = "[::ffff:127.0.0.1]:81";
        rejected(address, mapped, "`[::ffff:127.0.0.1]:81` is an IPv4 address in the form of IPv6");
        assert_eq!(address(mapped).unwrap_err().help, "write `127.0.0.1:81`");
        for (text, help) in [
            ("127.0.0.1:70000", "write a port from 1 to 65535"),
            ("::1:80", "write an IPv6 address in brackets and in quotes, as in `\"[::1]:8080\"`"),
        ] {
            assert_eq!(address(text).unwrap_err().help, help, "{text}");
        }
        let help = address("localhost:81").unwrap_err().help;
        assert!(help.starts_with("write an IP address and a port: `127.0.0.1:81`"), "{help}");
    }

    #[test]
    fn words_are_checked() {
        assert_eq!(name("shop.v2/eu-1").as_deref(), Ok("shop.v2/eu-1"));
        rejected(name, "", "the name is empty");
        rejected(name, "a b", "a name cannot hold ` `");
        rejected(name, &"x".repeat(65), "the name is 65 bytes long");
        rejected(method, "get", "`get` is not upper-case, as methods are");
        rejected(method, "G E T", "`G E T` is not a method");
        rejected(header_name, "x y", "`x y` is not the name of a header");
        rejected(header_value, "a\nb", "`a\\nb` is not allowed in a header");
        rejected(status, "200", "`200` is not the status of an error");
        rejected(check_path, "healthz", "`healthz` is not a path");
        rejected(check_path, "/a b", "`/a b` is not a path");
        rejected(check_path, "/a#b", "`/a#b` is not a path");
        assert_eq!(check_path("/a?b=c").as_deref(), Ok("/a?b=c"));
        for text in ["99", "600", "300-200", "0200", "2xx", "200-", "-"] {
            rejected(statuses, text, &format!("`{text}` is not a status or a range of them"));
        }
        assert_eq!((statuses("204"), statuses("200 - 399")), (Ok(204..=204), Ok(200..=399)));
        rejected(network, "10.0.0.0/33", "`10.0.0.0/33` is not a network");
        rejected(integer, "1__", "`1__` is not a whole number");
        for text in ["conect", "200", "600", "0503", "5xx", ""] {
            rejected(
                retry_on,
                text,
                &format!("`{text}` is not a failure that requests are sent again after"),
            );
        }
        assert_eq!(
            (retry_on("reset"), retry_on("429")),
            (Ok(RetryOn::Reset), Ok(RetryOn::Status(429)))
        );
        for text in ["20", "101%", "-1%", "1.5%", "%"] {
            rejected(percent, text, &format!("`{text}` is not a percentage"));
        }
        assert_eq!((percent("0%"), percent("100 %")), (Ok(0), Ok(100)));
        assert_eq!(network("::1"), Ok("::1/128".parse().unwrap()));
    }

    #[test]
    fn a_part_of_a_whole_is_a_number_or_a_percentage() {
        for (text, millionths) in [
            ("0.5", 500_000),
            ("50%", 500_000),
            ("12.5 %", 125_000),
            ("0.0001%", 1),
            ("100%", 1_000_000),
        ] {
            assert_eq!(ratio(text).ok(), Ratio::new(millionths), "{text}");
        }
        for text in ["50", "101%", "0.00001%", "0.0000001", "%", ".5%", "-1%"] {
            rejected(ratio, text, &format!("`{text}` is not a part of a whole"));
        }
    }

    #[test]
    fn a_byte_rate_is_a_size_per_second_or_off() {
        assert_eq!(byte_rate("off"), Ok(None));
        for text in ["1KiB/s", "1024/s", "1 KiB / 1s"] {
            assert_eq!(byte_rate(text), Ok(NonZeroU64::new(1024)), "{text}");
        }
        for text in ["1KiB", "1KiB/m", "0/s", "x/s", "/s", ""] {
            rejected(byte_rate, text, &format!("`{text}` is not a size per second"));
        }
    }

    #[test]
    fn names_are_resolved_by_ttl_or_at_an_interval() {
        let secs = |secs| Ok(Resolve::Every(Duration::from_secs(secs)));
        for (text, read) in [
            ("ttl", Ok(Resolve::ByTtl)),
            ("30s", secs(30)),
            ("0", Ok(Resolve::OnConnect)),
            ("0s", Ok(Resolve::OnConnect)),
            ("24h", secs(24 * 3600)),
        ] {
            assert_eq!(resolve(text), read, "{text}");
        }
        assert!(matches!(resolve("25h"), Err(Wrong::Bound { .. })));
        for text in ["TTL", "always", "30", "-1s", ""] {
            let Err(Wrong::Text(InvalidValue { help, .. })) = resolve(text) else {
                panic!("`{text}` is accepted");
            };
            assert!(help.starts_with("write `ttl`, or "), "{help}");
        }
    }

    #[test]
    fn a_dns_server_is_an_address_with_or_without_a_port() {
        for (text, address) in [
            ("10.0.0.2", "10.0.0.2:53"),
            ("127.0.0.1:8600", "127.0.0.1:8600"),
            ("::1", "[::1]:53"),
            ("[::1]", "[::1]:53"),
            ("[::1]:5353", "[::1]:5353"),
        ] {
            assert_eq!(dns_server(text), Ok(address.parse().expect("an address")), "{text}");
        }
        for text in ["dns.example", "10.0.0.2:0", "10.0.0.2:", "10.0.0.2:99999", "53", ""] {
            rejected(dns_server, text, &format!("`{text}` is not the address of a DNS server"));
        }
    }

    #[track_caller]
    fn rejected<T: fmt::Debug>(
        read: impl Fn(&str) -> Result<T, InvalidValue>,
        text: &str,
        message: &str,
    ) {
        let rejection = read(text).unwrap_err();
        assert_eq!(rejection.message, message);
        assert!(rejection.help.starts_with("write ") || rejection.help.starts_with("remove "));
    }
}
