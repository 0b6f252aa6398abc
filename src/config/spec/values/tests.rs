//! What is read, and what is said of the rest.

use super::number::size;
use super::*;
use crate::{
    config::spec::{
        calendar::Unit,
        leaf::{LONGEST_TIMEOUT, MILLI},
    },
    flow::breaker::Ratio,
};
use core::{num::NonZeroU64, time::Duration};

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
fn a_timeout_is_up_to_30_days_or_off() {
    let secs = |secs| Ok(Some(Duration::from_secs(secs)));
    let day = 24 * 3600;
    for (text, read) in
        [("off", Ok(None)), ("30d", secs(30 * day)), ("7d", secs(7 * day)), ("1s", secs(1))]
    {
        assert_eq!(optional_timeout(text, MILLI, LONGEST_TIMEOUT), read, "{text}");
    }
    let bound = |wanted: &str| wanted.to_owned();
    for (text, most) in [
        ("0", bound("at least `1ms`, or `off`")),
        ("0s", bound("at least `1ms`, or `off`")),
        ("999us", bound("at least `1ms`, or `off`")),
        ("31d", bound("at most `30d`, or `off`")),
    ] {
        let Err(Wrong::Bound { wanted, .. }) = optional_timeout(text, MILLI, LONGEST_TIMEOUT)
        else {
            panic!("`{text}` is accepted");
        };
        assert_eq!(wanted, most, "{text}");
    }
    for text in ["OFF", "false", "never", "30", "-1s", "", "400d"] {
        let Err(Wrong::Text(InvalidValue { help, .. })) =
            optional_timeout(text, MILLI, LONGEST_TIMEOUT)
        else {
            panic!("`{text}` is accepted");
        };
        assert!(help.ends_with(", or `off` for no timeout"), "{help}");
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
fn rejected<T: std::fmt::Debug>(
    read: impl Fn(&str) -> Result<T, InvalidValue>,
    text: &str,
    message: &str,
) {
    let rejection = read(text).unwrap_err();
    assert_eq!(rejection.message, message);
    assert!(rejection.help.starts_with("write ") || rejection.help.starts_with("remove "));
}
