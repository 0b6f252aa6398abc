//! The plain values of the file as types: each says how it is read, what it is called, how one
//! looks, and the values that editors accept.

use super::{
    AccessLog, AuthEndpoint, CollectorEndpoint, RedisUrl, SampleRatio, Secret, acme,
    values::{
        self, Endpoint, InvalidValue, Limit, ListenAddress, MediaPattern, OriginPattern, RetryOn,
        StatusOrClose, Wrong, invalid,
    },
};
use crate::{
    auth::{ALGORITHMS, Algorithm},
    config::{
        decode::{At, Key, read_text},
        diagnostics::{Source, quoted},
        vocabulary::{Described, Form, Plain, Values},
    },
    flow::{breaker::Ratio, time::spelled},
    geo::{Asn, Country},
    route::{self, ClientCertificate, MemberPath, ParseError, meant_key},
    usage::{Preset, Weight, check_path},
};
use bytesize::ByteSize;
use core::ops::RangeInclusive;
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION},
};
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Deserializer};
use std::{net::SocketAddr, num::NonZeroU64, path::PathBuf, sync::Arc, time::Duration};

/// A millisecond, a second and an hour in nanoseconds, for bounds of [`Period`].
pub(in crate::config) const MILLI: u64 = 1_000_000;
pub(in crate::config) const SECOND: u64 = 1000 * MILLI;
pub(in crate::config) const HOUR: u64 = 3600 * SECOND;

/// The smallest header that a browser's ordinary request fits into, and hyper's smallest buffer.
pub(in crate::config) const LEAST_HEADER: u64 = 8 * 1024;

/// The longest timeout: 30 days.
pub(in crate::config) const LONGEST_TIMEOUT: u64 = 30 * 24 * HOUR;

/// A wait that must end: at least a millisecond, at most 30 days.
pub(in crate::config) type Timeout = Period<MILLI, LONGEST_TIMEOUT>;

/// Makes types of plain values: what one holds, what it is called, how one looks, how it is read,
/// and the values that editors accept. A `number` may not stand in quotes. Behind `=>` is the value
/// in words, for reports; without it, they do not show the value.
macro_rules! leaves {
    ($($(#[$doc:meta])* $name:ident $(<$min:ident, $max:ident>)? ($inner:ty),
        $words:literal, $example:literal, $read:expr, $values:expr $(, $number:ident)? $(=> $shown:expr)?;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(in crate::config) struct $name $(<const $min: u64, const $max: u64>)? (pub $inner);

        impl<'de $(, const $min: u64, const $max: u64)?> Deserialize<'de> for $name $(<$min, $max>)? {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let is_number = leaves!(@is_number $($number)?);
                let read = |text: &str| Ok(Self($read(text)?));
                read_text(deserializer, is_number, concat!($words, "\n", $example), read)
            }
        }

        impl $(<const $min: u64, const $max: u64>)? Described for $name $(<$min, $max>)? {
            const FORM: &'static Form =
                &Form::Plain(Plain { title: $words, example: $example, values: $values });
            $(
                const IS_SHOWN: bool = true;

                fn shown(&self) -> String {
                    let show: fn(&$inner) -> String = $shown;
                    show(&self.0)
                }
            )?
        }
    )* };
    (@is_number number) => { true };
    (@is_number) => { false };
}

const TEXT: Values = Values::of(&["string"]);
const TEXT_OR_SWITCH: Values = Values::of(&["string", "boolean"]);
const TEXT_OR_NUMBER: Values = Values::of(&["string", "integer"]);
const NUMBER: Values = Values::of(&["integer"]);
const NUMBER_OR_TEXT: Values = Values::of(&["integer", "string"]);
const SHARE: Values = Values::of(&["number", "string"]);
/// Text that YAML may take for a number or a truth value.
const ANY_TEXT: Values = Values::of(&["string", "number", "boolean"]);

/// The names of the algorithms that sign tokens.
const JWT_ALGORITHMS: [&str; ALGORITHMS.len()] = {
    let mut names = [""; ALGORITHMS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = ALGORITHMS[index].0;
        index += 1;
    }
    names
};

/// The names of APIs whose responses have the number of tokens.
const PRESETS: [&str; Preset::ALL.len()] = {
    let mut names = [""; Preset::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = Preset::ALL[index].label();
        index += 1;
    }
    names
};

leaves! {
    /// A whole number from `MIN` to `MAX`; `_` may part its digits.
    Integer<MIN, MAX>(u64), "a whole number", "10", |text| values::integer_within(text, MIN, MAX),
        NUMBER.within(MIN, MAX), number
        => u64::to_string;
    /// A duration of `MIN` to `MAX` nanoseconds.
    Period<MIN, MAX>(Duration), "a duration", "5s", |text| values::duration_within(text, MIN, MAX),
        TEXT
        => |time| short(*time);
    /// A timeout that may be absent.
    OptionalTimeout(Option<Duration>), "`off`, or a duration", "5s", |text| values::optional_timeout(text, MILLI, LONGEST_TIMEOUT),
        TEXT_OR_SWITCH
        => |time| time.map_or_else(|| "off".to_owned(), short);
    /// A number of bytes from `MIN` to `MAX`.
    Size<MIN, MAX>(u64), "a size", "10MiB", |text| values::size_within(text, MIN, MAX),
        TEXT_OR_NUMBER
        => |bytes| ByteSize(*bytes).to_string();
    /// Bytes per second.
    ByteRate(Option<NonZeroU64>), "`off`, or a size per second", "1KiB/s", values::byte_rate,
        TEXT_OR_SWITCH
        => |rate| byte_rate(*rate);
    /// When names are resolved again.
    ResolveWord(values::Resolve), "`ttl`, or a duration", "30s", values::resolve, TEXT
        => resolve_words;
    /// The address of a DNS server.
    DnsServer(SocketAddr), "the address of a DNS server", "10.0.0.2", values::dns_server,
        TEXT;
    /// The name of a listener, an upstream, a route or a rule.
    Name(Arc<str>), "a name", "checkout", values::name,
        ANY_TEXT
        => |name| name.to_string();
    /// Any text. A plain scalar is text wherever a text is wanted, whatever YAML would make of it.
    Text(String), "a text", "some text", text, ANY_TEXT;
    /// A part of a step of a scenario.
    Sentence(String), "a sentence", "120 x GET /a -> 100 passed", text, TEXT;
    /// The name of a time zone.
    Zone(String), "a text", "some text", values::zone, TEXT
        => String::clone;
    /// A host, or a wildcard.
    Host(String), "a host", "shop.example.com", text, TEXT
        => String::clone;
    /// A path, its beginning, or a template.
    Path(String), "a path", "/api", text, TEXT
        => String::clone;
    /// A regular expression.
    Pattern(String), "a regular expression", "'/v[0-9]+/.*'", text, TEXT;
    /// An address to listen on. A port alone is a number to YAML.
    Address(SocketAddr), "an address", "127.0.0.1:8080", values::address,
        TEXT_OR_NUMBER
        => SocketAddr::to_string;
    /// The address of a listener: an IP address with a port, or a Unix socket.
    Listen(ListenAddress), "an address", "127.0.0.1:8080", values::listen_address,
        TEXT_OR_NUMBER;
    /// The permissions of a file, as octal digits. They are a number to YAML.
    FileMode(u32), "octal digits", "'0660'", values::file_mode, TEXT_OR_NUMBER
        => |mode| format!("{mode:04o}");
    /// The URL of a server.
    Url(Endpoint), "a URL", "http://10.0.1.5:8000", values::url,
        TEXT.matching("^(https?://[^/]+/?|unix:/.+)$");
    /// The URL of a store.
    StoreUrl(RedisUrl), "a URL", "redis://10.0.1.9:6379", RedisUrl::parse,
        TEXT.matching("^rediss?://");
    /// A network, or one address.
    Network(IpNet), "a network", "10.0.0.0/8", values::network, TEXT;
    /// A country.
    CountryCode(Country), "the code of a country", "DE", values::country,
        TEXT.matching("^[A-Za-z]{2}$")
        => Country::to_string;
    /// The number of an autonomous system. Without `AS` it is a number to YAML.
    AsNumber(Asn), "the number of an autonomous system", "64500", values::asn,
        TEXT_OR_NUMBER.matching("^([Aa][Ss])?[0-9]+$")
        => Asn::to_string;
    /// A prefix of NAT64.
    Nat64Prefix(Ipv6Net), "a prefix of NAT64", "64:ff9b:1::/48", values::nat64_prefix,
        TEXT.matching("/(32|40|48|56|64|96)$");
    /// A name for which an authority issues a certificate, in lower case.
    AcmeName(String), "the name of a host", "shop.example.com", acme::name, TEXT;
    /// The URL of an authority's directory.
    AcmeDirectory(String), "`letsencrypt`, `staging`, or a URL", "letsencrypt", acme::directory,
        TEXT.matching("^(letsencrypt|staging|https://.+)$");
    /// Any certificate of a client.
    AnyCertificate(()), "`true`, or a map", "true", any_certificate,
        Values::of(&["boolean"]);
    /// The SHA-256 of a certificate, in lower case and without colons.
    Fingerprint(String), "the SHA-256 of a certificate",
        "2f4c3a0b6d1e8f7a9c5b4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a", fingerprint,
        TEXT.matching("^([0-9A-Fa-f]{2}:?){32}$");
    /// The oldest version of TLS: true for 1.3.
    TlsVersion(bool), "`1.2` or `1.3`", "1.3", tls_version, ANY_TEXT.matching("^1\\.[23]$");
    /// An address of mail.
    Email(String), "an address of mail", "ops@example.com", acme::email, TEXT;
    /// A file, whose name may be meant from the folder of the configuration.
    FileName(PathBuf), "a file name", "certs/site.pem", file, TEXT
        => |path| path.display().to_string();
    /// An HTTP method.
    MethodName(Method), "a method", "GET", values::method,
        TEXT.matching("^[^a-z ]+$");
    /// The name of a cookie that flowgate sets.
    CookieName(Box<str>), "the name of a cookie", "server", cookie_name, ANY_TEXT;
    /// A method, or `*` for all.
    CorsMethod(Option<Method>), "a method, or `*`", "POST", cors_method,
        TEXT.matching("^[^a-z ]+$");
    /// Media types.
    MediaType(MediaPattern), "a media type", "text/html", values::media_type,
        TEXT.matching("^([*]|[^/ ;]+/[^/ ;]+)$");
    /// The origins of scripts.
    CorsOrigin(OriginPattern), "an origin", "https://app.example.com", values::origin,
        TEXT.matching("^([*]|[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+)$");
    /// A method, or `default` for all others.
    MethodOrDefault(Option<Method>), "a method", "POST", method_or_default,
        TEXT;
    /// The name of a header field.
    FieldName(HeaderName), "the name of a header", "x-tenant", values::header_name,
        TEXT
        => HeaderName::to_string;
    /// The name of a header field that a route may change.
    EditableName(HeaderName), "the name of a header", "x-served-by", values::editable,
        TEXT;
    /// The name of a header field that the access log may have.
    LoggedName(HeaderName), "the name of a header", "user-agent", logged_name,
        TEXT;
    /// The name of the header field in which trusted proxies name the client.
    ClientIpHeader(HeaderName), "the name of a header", "cf-connecting-ip", values::client_ip_header,
        TEXT
        => HeaderName::to_string;
    /// The name of a header field of an auth service that the upstream receives.
    CopiedName(HeaderName), "the name of a header", "remote-user", values::copied,
        TEXT;
    /// The URL of an auth service.
    AuthUrl(AuthEndpoint), "a URL", "http://127.0.0.1:9091/auth", AuthEndpoint::parse,
        TEXT.matching("^http://");
    /// The value of a header field.
    FieldValue(HeaderValue), "the value of a header", "some text", values::header_value,
        ANY_TEXT;
    /// A protocol that a client may upgrade to.
    Protocol(String), "the name of a protocol", "websocket", values::upgrade, TEXT;
    /// The status of a rejection, or the end of the connection without a response.
    RejectStatus(StatusOrClose), "a status, or `close`", "429", values::reject_status,
        NUMBER_OR_TEXT.within(400, 599).matching("^close$");
    /// The status of an error.
    Status(StatusCode), "a status", "429", values::status,
        NUMBER.within(400, 599), number;
    /// The status of a redirect.
    RedirectStatus(StatusCode), "a status of redirects", "308", values::redirect_status,
        Values::of(&[]).one_of_numbers(&[301, 302, 303, 307, 308]), number;
    /// The status of a response, or the end of the connection without one.
    AnswerStatus(StatusOrClose), "a status, or `close`", "200", values::answer_status,
        NUMBER_OR_TEXT.within(200, 599).matching("^close$");
    /// Where a redirect leads.
    RedirectTo(String), "`https`, a URL, or a path", "https", values::location,
        TEXT;
    /// A host with or without a port.
    Authority(HeaderValue), "a host", "app.internal", values::authority, TEXT;
    /// The path and the query of a health check.
    CheckPath(Box<str>), "a path", "/healthz", values::check_path, TEXT.matching("^/");
    /// A status, or a range of them.
    Statuses(RangeInclusive<u16>), "statuses", "200-299", values::statuses,
        TEXT_OR_NUMBER.matching("^[1-5][0-9][0-9](-[1-5][0-9][0-9])?$");
    /// A number, or `auto`.
    NumberOrAuto<MIN, MAX>(Option<u64>), "a whole number, or `auto`", "auto", |text| number_or_auto(text, MIN, MAX),
        NUMBER_OR_TEXT.within(MIN, MAX).matching("^auto$");
    /// A weight in thousandths.
    Thousandths(u64), "a number with at most three decimals", "0.25", thousandths,
        SHARE.within(0, 1_000_000), number;
    /// A status, a range of them, or `default` for all others.
    StatusesOrDefault(Option<RangeInclusive<u16>>), "statuses", "401", statuses_or_default,
        TEXT_OR_NUMBER.matching("^([1-5][0-9][0-9](-[1-5][0-9][0-9])?|default)$");
    /// An API whose responses have the number of tokens.
    PresetName(Preset), "an API", "openai", preset, TEXT.one_of(&PRESETS);
    /// The path of a member of a request's body.
    MemberName(MemberPath), "the name of a member", "max_tokens", member_path, ANY_TEXT;
    /// The path of a number in a response.
    JsonPath(String), "a path", "usage.total_tokens", json_path, ANY_TEXT;
    /// A factor in thousandths.
    Factor(Weight), "a factor", "0.25", factor, SHARE, number;
    /// A factor in thousandths that subtracts nothing.
    ChargedFactor(Weight), "a factor", "0.25", charged_factor, SHARE, number;
    /// The only word for a cost without a number.
    Refund(()), "`refund`", "refund", refund, TEXT.one_of(&["refund"]);
    /// Why a request is sent again.
    RetryCause(RetryOn), "a failure", "connect", values::retry_on,
        TEXT_OR_NUMBER.matching("^(connect|reset|timeout|[45][0-9][0-9])$");
    /// A whole number of percent.
    Percent(u32), "a percentage", "20%", values::percent,
        TEXT.matching("^[0-9]+%$")
        => |percent| format!("{percent}%");
    /// Percent with up to four decimals.
    Share(SampleRatio), "a percentage", "1%", SampleRatio::parse,
        TEXT.matching("^[0-9]+(\\.[0-9]{1,4})?%$")
        => SampleRatio::to_string;
    /// The URL of a collector of traces.
    CollectorUrl(CollectorEndpoint), "a URL", "http://127.0.0.1:4318", CollectorEndpoint::parse,
        TEXT.matching("^https?://");
    /// A part of a whole.
    Part(Ratio), "a percentage, or a number from 0 to 1", "0.5", values::ratio,
        SHARE.within(0, 1).matching("^[0-9]+(\\.[0-9]{1,4})? *%$"), number;
    /// How many per how long, or 0: `None`.
    RateOrZero(Option<Limit>), "a rate", "100/1s", rate_or_zero,
        NUMBER_OR_TEXT.within(0, 0).matching("^(0| *[0-9_]+ */ *[0-9a-z ]+)$");
    /// How many per how long.
    Rate(Limit), "a rate", "100/1s", values::limit,
        TEXT.matching("^ *[0-9_]+ */ *[0-9a-z ]+$");
    /// A part of a rule's key.
    KeyPart(String), "a part of a key", "client_ip", text,
        TEXT.matching("^(route|client_ip|host|path|method|listener|user|client_cert|country|asn|(path|header|cookie|query|jwt|auth|json):.+)$");
    /// The part of a request that names its plan.
    PlanPart(String), "a part of a key, or `key`", "jwt:plan", text,
        TEXT.matching("^(key|client_ip|host|path|method|listener|user|client_cert|country|asn|(path|header|cookie|query|jwt|auth|json):.+)$");
    /// The limit of a plan: a rate, or how many requests may be in flight.
    PlanNumber(values::PlanNumber), "a limit", "1000/1m", values::plan_number,
        TEXT_OR_NUMBER.matching("^ *[0-9_]+ *(/ *[0-9a-z ]+)?$");
    /// How a token may be signed.
    JwtAlgorithm(Algorithm), "an algorithm", "RS256", algorithm,
        TEXT.one_of(&JWT_ALGORITHMS);
    /// A condition of an override.
    Condition(String), "a condition", "header:x-tenant", condition,
        TEXT.matching("^(client_ip|country|asn|method|path_prefix|user|(header|query|jwt):.+)$");
    /// What requests get as `Via`, if anything.
    Via(Option<HeaderValue>), "`off`, `on`, or a name", "on", via,
        ANY_TEXT
        => |via| via_words(via.as_ref());
    /// Where the access log goes.
    LogTarget(AccessLog), "`off`, `stdout`, or a file name", "stdout", log_target,
        TEXT_OR_SWITCH
        => AccessLog::to_string;
    /// The name of the primary that sentinels know.
    Primary(String), "a text", "some text", |text| word("the name of the primary", text),
        ANY_TEXT;
    /// The user of the sentinels.
    User(String), "a text", "some text", |text| word("the user", text),
        ANY_TEXT;
    /// A password, which is never shown.
    Password(Secret), "a text", "some text", |text| word("the password", text).map(Secret::new),
        ANY_TEXT;
    /// What clients of the admin listener send, which is never shown.
    AdminToken(Secret), "a token of 16 to 1024 characters", "${ADMIN_TOKEN}", token,
        ANY_TEXT;
    /// What every key in a store begins with.
    Prefix(String), "a text", "some text", prefix,
        ANY_TEXT;
}

/// Writes a duration without blanks, as in `1m30s`.
pub(in crate::config) fn short(duration: Duration) -> String {
    spelled(duration).replace(' ', "")
}

/// Writes `1.0 KiB/s`, or `off`.
pub(in crate::config) fn byte_rate(rate: Option<NonZeroU64>) -> String {
    rate.map_or_else(|| "off".to_owned(), |rate| format!("{}/s", ByteSize(rate.get())))
}

#[expect(clippy::unnecessary_wraps, reason = "one of the readers, which share a type")]
fn text(text: &str) -> Result<String, InvalidValue> {
    Ok(text.to_owned())
}

/// Reads the oldest version of TLS: true for 1.3.
fn any_certificate(text: &str) -> Result<(), InvalidValue> {
    match text {
        "true" => Ok(()),
        "false" => invalid(
            "a certificate that must be absent cannot be matched",
            "write `true`, and a more general route for clients without a certificate",
        ),
        _ => invalid(
            format!("{} is not a condition on a certificate", quoted(text)),
            "write `true`, or `{ subject: CN=ann }`",
        ),
    }
}

fn fingerprint(text: &str) -> Result<String, InvalidValue> {
    match ClientCertificate::read_fingerprint(text) {
        Some(fingerprint) => Ok(fingerprint),
        None => invalid(
            format!("{} is not the SHA-256 of a certificate", quoted(text)),
            "write the 64 hexadecimal digits that `openssl x509 -noout -fingerprint -sha256` prints",
        ),
    }
}

fn tls_version(text: &str) -> Result<bool, InvalidValue> {
    let number = text.trim_start_matches("TLSv").trim_start_matches("TLS").trim();
    match number {
        "1.3" => Ok(true),
        "1.2" => Ok(false),
        "1.0" | "1.1" | "1" => invalid(
            format!("TLS {number} is not supported"),
            "write `1.2` or `1.3`; RFC 8996 forbids older versions",
        ),
        _ => invalid(format!("{} is not a version of TLS", quoted(text)), "write `1.2` or `1.3`"),
    }
}

fn algorithm(text: &str) -> Result<Algorithm, InvalidValue> {
    let known = ALGORITHMS.iter().find(|(name, _)| *name == text);
    known.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
        let names = ALGORITHMS.map(|(name, _)| name).join(", ");
        let message = format!("{} is not an algorithm that verifies tokens", quoted(text));
        InvalidValue { message, help: format!("write one of {names}") }
    })
}

fn file(text: &str) -> Result<PathBuf, InvalidValue> {
    if text.contains("://") {
        let message = format!("{} is a URL, not a file name", quoted(text));
        let path = text.strip_prefix("file://").filter(|path| path.starts_with('/'));
        let help = path.map_or_else(
            || "flowgate fetches no URLs: save the file, and write its name".to_owned(),
            |path| format!("write {}", quoted(path)),
        );
        return invalid(message, help);
    }
    if text.is_empty() || text.contains('\0') {
        let message = format!("{} is not a file name", quoted(text));
        return invalid(message, "write a path, as in `certs/site.pem`");
    }
    Ok(PathBuf::from(text))
}

fn condition(text: &str) -> Result<String, InvalidValue> {
    let help = match text.split_once(':').unwrap_or((text, "")) {
        ("client_ip" | "country" | "asn" | "method" | "path_prefix" | "user", "") => {
            return Ok(text.to_owned());
        }
        ("header", name) if !name.is_empty() => {
            return values::header_name(name).map(|_| text.to_owned());
        }
        ("query", name) if !name.is_empty() => return Ok(text.to_owned()),
        ("jwt", name) if !name.is_empty() => {
            return match route::KeyPart::parse(text, 0) {
                Ok(_) => Ok(text.to_owned()),
                Err(wrong) => invalid(wrong.message, wrong.help),
            };
        }
        ("jwt", _) => "write the claim's name behind it, as in `jwt:plan: gold`".to_owned(),
        ("header" | "query", _) => {
            format!("write the field's name behind it, as in `{text}:x-tenant: gold`")
        }
        _ => condition_meant(text).map_or_else(
            || {
                "write one of `client_ip`, `country`, `asn`, `method`, `path_prefix`, \
                 `header:NAME`, `query:NAME`, `user` and `jwt:NAME`"
                    .to_owned()
            },
            |meant| format!("did you mean `{meant}`?"),
        ),
    };
    invalid(format!("{} is not a condition", quoted(text)), help)
}

/// Returns the condition that `text`, which is none, is probably meant to be.
fn condition_meant(text: &str) -> Option<String> {
    let meant = match text {
        "path" => "path".to_owned(),
        _ => meant_key(text)?,
    };
    match meant.split_once(':').map_or(&*meant, |(kind, _)| kind) {
        "client_ip" | "country" | "asn" | "method" | "header" | "query" | "user" | "jwt" => {
            Some(meant)
        }
        "path" => Some("path_prefix".to_owned()),
        _ => None,
    }
}

fn logged_name(text: &str) -> Result<HeaderName, InvalidValue> {
    let name = values::header_name(text)?;
    if [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(&name) {
        return invalid(
            format!("the access log does not take {}, which has secrets", quoted(text)),
            "remove it; `auth` has the user's name in the log",
        );
    }
    Ok(name)
}

fn method_or_default(text: &str) -> Result<Option<Method>, InvalidValue> {
    const EXAMPLE: &str = "write methods, as in `cost: { POST: 5, default: 1 }`";
    const BY_STATUS: &str = "a cost by the status is known after the response: write \
                             `cost: { settle: { status: { 401: 1, default: 0 } } }`";
    let not = |why: &str| invalid(format!("{} is not a method", quoted(text)), why);

    match text {
        "default" => return Ok(None),
        "*" | "all" | "any" | "else" | "other" | "others" => {
            return not("write `default` for all other methods");
        }
        "code" | "response" | "response_code" | "status" | "status_code" | "statuses" => {
            return not(BY_STATUS);
        }
        _ => {}
    }

    if text.bytes().all(|b| b.is_ascii_digit()) {
        return not(BY_STATUS);
    }

    let known = values::method(&text.to_ascii_uppercase()).is_ok_and(|method| is_known(&method));
    match values::method(text) {
        Err(wrong) if !known => Err(InvalidValue { help: EXAMPLE.to_owned(), ..wrong }),
        read => read.map(Some),
    }
}

fn rate_or_zero(text: &str) -> Result<Option<Limit>, InvalidValue> {
    if text == "0" { Ok(None) } else { values::limit(text).map(Some) }
}

fn number_or_auto(text: &str, min: u64, max: u64) -> Result<Option<u64>, Wrong> {
    match text {
        "auto" => Ok(None),
        text if text.starts_with(|first: char| first.is_ascii_digit()) => {
            values::integer_within(text, min, max).map(Some)
        }
        text => Err(Wrong::Text(InvalidValue {
            message: format!("{} is not a number", quoted(text)),
            help: "write a number, or `auto`".to_owned(),
        })),
    }
}

fn thousandths(text: &str) -> Result<u64, InvalidValue> {
    const MOST: u64 = 1_000_000_000;
    let wrong = || {
        invalid(
            format!("{} is not a weight", quoted(text)),
            "write a number from 0 to 1000000 with at most three decimals, as in `0.25`",
        )
    };
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole) || !are_digits(part) || part.len() > 3 {
        return wrong();
    }
    let number = format!("{whole}{part:0<3}").parse::<u64>().ok();
    number.filter(|number| *number <= MOST).map_or_else(wrong, Ok)
}

fn statuses_or_default(text: &str) -> Result<Option<RangeInclusive<u16>>, InvalidValue> {
    match text {
        "default" => Ok(None),
        "*" | "all" | "any" | "else" | "other" | "others" => invalid(
            format!("{} is not a status or a range of them", quoted(text)),
            "write `default` for all other statuses",
        ),
        text => values::statuses(text).map(Some),
    }
}

fn preset(text: &str) -> Result<Preset, InvalidValue> {
    let known = Preset::ALL.into_iter().find(|preset| preset.label() == text);
    known.ok_or_else(|| InvalidValue {
        message: format!("{} is not an API whose responses are known", quoted(text)),
        help: format!(
            "write one of {}, or where the numbers are, as in `settle: {{ json: {{ \
             usage.total_tokens: 1 }}, otherwise: {{ events: 1 }} }}`",
            PRESETS.join(", ")
        ),
    })
}

fn member_path(text: &str) -> Result<MemberPath, InvalidValue> {
    MemberPath::parse(text).map_err(|ParseError { message, help }| InvalidValue { message, help })
}

fn json_path(text: &str) -> Result<String, InvalidValue> {
    let path = text.strip_prefix("$.").unwrap_or(text);
    if path.contains(['[', ']', '*', '/', '$']) {
        return invalid(
            format!("{} is not a path of member names", quoted(text)),
            "write names with dots between them, as in `usage.total_tokens`; the elements of arrays are read without an index",
        );
    }
    check_path(path).map_err(|error| InvalidValue {
        message: error.to_string(),
        help: "write names with dots between them, as in `usage.total_tokens`".to_owned(),
    })?;
    Ok(path.to_owned())
}

/// Reads a number with at most three decimals.
fn factor(text: &str) -> Result<Weight, InvalidValue> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = || {
        let fits = is_number(whole) && is_number(decimals) && decimals.len() <= 3;
        let whole = whole.parse::<i64>().ok().filter(|whole| fits && *whole <= 1_000_000)?;
        Some(whole * 1000 + format!("{decimals:0<3}").parse::<i64>().ok()?)
    };

    let thousandths =
        thousandths().map(|number| if text.starts_with('-') { -number } else { number });
    match thousandths.map(|number| (number, Weight::thousandths(number))) {
        Some((number, weight)) if weight.in_thousandths() == number => Ok(weight),
        Some(_) | None => invalid(
            format!("{} is not a factor", quoted(text)),
            "write a number of at most 1000000 with up to three decimals, as in `0.25`",
        ),
    }
}

/// Reads a factor that makes nothing cheaper.
fn charged_factor(text: &str) -> Result<Weight, InvalidValue> {
    let weight = factor(text)?;
    if weight.in_thousandths() < 0 {
        return invalid(
            format!("{} would make a cost smaller", quoted(text)),
            "write a number from 0 to 1000000, as in `0.25`",
        );
    }
    Ok(weight)
}

fn refund(text: &str) -> Result<(), InvalidValue> {
    if text == "refund" {
        return Ok(());
    }
    invalid(
        format!("{} is not a cost", quoted(text)),
        "write `refund` to give the reserve back, or weights, as in `{ request_bytes: 0.25, events: 1 }`",
    )
}

/// Reads the name of a cookie, a token (RFC 6265, 4.1.1).
fn cookie_name(text: &str) -> Result<Box<str>, InvalidValue> {
    const MOST: usize = 64;
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if (1..=MOST).contains(&text.len()) && text.bytes().all(is_sign) {
        return Ok(text.into());
    }
    invalid(
        format!("{} is not the name of a cookie", quoted(text)),
        "write 1 to 64 letters, digits and `-` or `_`, as in `server`",
    )
}

/// Reads a method, or `*`.
fn cors_method(text: &str) -> Result<Option<Method>, InvalidValue> {
    if text == "*" { Ok(None) } else { values::method(text).map(Some) }
}

/// Reports whether it is a method of HTTP itself.
fn is_known(method: &Method) -> bool {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::CONNECT,
        Method::OPTIONS,
        Method::TRACE,
        Method::PATCH,
    ];
    known.contains(method)
}

fn log_target(text: &str) -> Result<AccessLog, InvalidValue> {
    // A word for on or off is no name for a file, unless a folder is before it.
    let not = |meant: &str| {
        invalid(
            format!("`access_log` cannot be {}", quoted(text)),
            format!("write `{meant}`, or a file name as `access.log` or `./{text}`"),
        )
    };
    match text {
        "off" => Ok(AccessLog::Off),
        "stdout" => Ok(AccessLog::Stdout),
        "on" | "true" | "yes" | "stderr" => not("stdout"),
        "false" | "no" | "none" => not("off"),
        path => file(path).map(AccessLog::File).map_err(|wrong| {
            let is_remote = path.contains("://") && !path.starts_with("file:");
            let help = || "write `stdout`, or a file name as `access.log`".to_owned();
            InvalidValue { help: if is_remote { help() } else { wrong.help }, ..wrong }
        }),
    }
}

/// Writes `ttl`, or the interval.
fn resolve_words(resolve: &values::Resolve) -> String {
    match resolve {
        values::Resolve::ByTtl => "ttl".to_owned(),
        values::Resolve::Every(interval) => short(*interval),
        values::Resolve::OnConnect => "0s".to_owned(),
    }
}

fn via_words(via: Option<&HeaderValue>) -> String {
    let via = via.and_then(|via| via.to_str().ok());
    via.unwrap_or("off").to_owned()
}

fn via(text: &str) -> Result<Option<HeaderValue>, InvalidValue> {
    let name = match text {
        "off" => return Ok(None),
        "on" => "flowgate",
        name => name,
    };
    let is_name = values::header_name(name).is_ok() && !values::is_switch(name);
    match HeaderValue::try_from(format!("1.1 {name}")) {
        Ok(value) if is_name => Ok(Some(value)),
        _ => invalid(
            format!("{} is not a name for `Via`", quoted(text)),
            "write `on`, `off`, or a word without spaces, as in `edge-1`",
        ),
    }
}

/// Reads a text that is not empty.
fn word(what: &str, text: &str) -> Result<String, InvalidValue> {
    if text.is_empty() {
        return invalid(format!("{what} is empty"), "write it, or remove the key");
    }
    Ok(text.to_owned())
}

/// Reads what clients of the admin listener must send. The message does not show it.
pub(in crate::config) fn token(text: &str) -> Result<Secret, InvalidValue> {
    const HELP: &str =
        "write 16 to 1024 visible ASCII characters, as `openssl rand -hex 32` prints them";
    if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return invalid("the token has a character that is not allowed in a header", HELP);
    }
    if !(16..=1024).contains(&text.len()) {
        return invalid(format!("the token has {} characters", text.len()), HELP);
    }
    Ok(Secret::new(text.to_owned()))
}

fn prefix(text: &str) -> Result<String, InvalidValue> {
    if text.contains(['{', '}']) {
        // What stands in the first braces of a key is its hash tag: by it, all of a route's keys
        // lie on one node.
        let message = format!("{} has a brace, by which a cluster picks the node", quoted(text));
        return invalid(message, "write it without braces, as in `flowgate:`");
    }
    Ok(text.to_owned())
}

impl<const MIN: u64, const MAX: u64> Key<Integer<MIN, MAX>> {
    pub(in crate::config) fn number(&self) -> Option<At<u64>> {
        self.read(|number| number.0)
    }
}

impl<const MIN: u64, const MAX: u64> Key<Period<MIN, MAX>> {
    pub(in crate::config) fn duration(&self) -> Option<At<Duration>> {
        self.read(|period| period.0)
    }
}

impl Key<OptionalTimeout> {
    /// Returns the timeout; in it, `None` is one that is off.
    pub(in crate::config) fn timeout(&self) -> Option<At<Option<Duration>>> {
        self.read(|timeout| timeout.0)
    }
}

impl<const MIN: u64, const MAX: u64> Key<Size<MIN, MAX>> {
    pub(in crate::config) fn bytes(&self) -> Option<u64> {
        self.value().map(|size| size.0)
    }
}

impl Key<bool> {
    /// Reports whether it is true; what could not be read is not.
    pub(in crate::config) fn is_true(&self) -> bool {
        self.is_some_and(|at| at.value)
    }
}

impl Key<Address> {
    pub(in crate::config) fn address(&self) -> Option<At<SocketAddr>> {
        self.read(|address| address.0)
    }
}

impl Key<FileName> {
    /// Returns the name of the file.
    pub(in crate::config) fn path(&self) -> Option<At<PathBuf>> {
        self.read(|file| file.0.clone())
    }

    /// Has a relative name meant from the folder of the file that it stands in.
    pub(in crate::config) fn resolve(&mut self, source: &Source) {
        if let Some(at) = &mut self.at {
            at.value.0 = source.folder_at(at.span).join(&at.value.0);
        }
    }
}
