//! Files of countries and autonomous systems, and what looks at them.

use super::{FRAME, messages};
use crate::{
    config::{Live, Plan, Retired, Snapshot, Watched, describe, diff, read, read_rules},
    flow::Instant,
    geo::{Asn, Country, Located, Place},
    route::{NoKey, Seed, Target},
};
use http::{HeaderMap, Method};
use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

const GEO: &str = "geo: { country: country.mmdb, asn: asn.mmdb }\n";

/// The files that the tests of the repository have.
fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/geo").join(name)).unwrap()
}

/// Writes a configuration with these routes beside the files.
fn with_files(folder: &Path, routes: &str) -> PathBuf {
    for name in ["country.mmdb", "asn.mmdb"] {
        fs::write(folder.join(name), fixture(name)).unwrap();
    }
    let file = folder.join("gateway.yaml");
    fs::write(&file, format!("{FRAME}{GEO}routes:\n{routes}end: true\n")).unwrap();
    file
}

fn route(name: &str, more: &str) -> String {
    format!("  - {{ name: {name}, match: {{ path_prefix: / }}, upstream: app{more} }}\n")
}

fn read_routes(routes: &str) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    read(&with_files(folder.path(), routes)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn place(country: &str, asn: u32) -> Place {
    Place { country: Country::read(country), asn: Some(asn).filter(|asn| *asn != 0).map(Asn) }
}

/// Calls `then` with a request for `/` of a client in this place.
fn ask<T>(place: Place, then: impl FnOnce(&Target<'_>) -> T) -> T {
    let headers = HeaderMap::new();
    then(&Target {
        listener: Some("web"),
        host: "a",
        path: "/",
        query: None,
        method: &Method::GET,
        headers: (&headers).into(),
        certificate: None,
        place: Located::At(place),
        identity: None,
        body: None,
    })
}

#[test]
fn what_looks_at_places_needs_a_file_of_them() {
    let country = "write `geo: { country: GeoLite2-Country.mmdb }` at the top of the file";
    let asn = "write `geo: { asn: GeoLite2-ASN.mmdb }` at the top of the file";
    let of_country = format!("`country` without a file of countries | {country}");
    let of_asn = format!("`asn` without a file of AS numbers | {asn}");
    for (word, value, expected) in [("country", "DE", &of_country), ("asn", "64500", &of_asn)] {
        let routes = |more: &str| format!("{FRAME}routes:\n{}end: true\n", route("a", more));
        let rule = format!(", flow: [{{ name: r, limit: 1/1s, key: [client_ip, {word}] }}]");
        messages(&routes(&rule), &[expected]);
        let except = format!(", flow: [{{ name: r, limit: 1/1s, except: {{ {word}: {value} }} }}]");
        messages(&routes(&except), &[expected]);
        let when = format!(
            ", flow: [{{ name: r, limit: 1/1s, overrides: [{{ when: {{ {word}: {value} }}, limit: 2/1s }}] }}]"
        );
        messages(&routes(&when), &[expected]);
        messages(&routes(&format!(", access: {{ deny: [{{ {word}: {value} }}] }}")), &[expected]);
        let matching = format!(
            "{FRAME}routes: [{{ name: a, match: {{ {word}: {value} }}, upstream: app }}]\nend: true\n"
        );
        messages(&matching, &[expected]);
        let hashed =
            FRAME.replace("name: app,", &format!("name: app, balance: hash, hash_key: {word},"));
        messages(&format!("{hashed}routes:\n{}end: true\n", route("a", "")), &[expected]);
        let shared = format!(
            ", flow: [{{ name: r, concurrency: 1, queue: {{ max: 9, max_wait: 1s, share_by: {word} }} }}]"
        );
        messages(&routes(&shared), &[expected]);
        let planned = format!(
            ", flow: [{{ name: r, limit: 1/1s, key: client_ip, plans: {{ by: {word}, limits: {{ {value}: 2/1s }} }} }}]"
        );
        messages(&routes(&planned), &[expected]);
    }
}

#[test]
fn codes_and_numbers_say_what_to_write() {
    let hint = "write the two letters of ISO 3166, as in `DE`";
    for (entry, expected) in [
        ("{ country: Germany }", &*format!("`Germany` is not the code of a country | {hint}")),
        ("{ country: UK }", "`UK` is not the code of a country | did you mean `GB`?"),
        ("{ country: usa }", "`usa` is not the code of a country | did you mean `US`?"),
        (
            "{ asn: AS }",
            "`AS` is not the number of an autonomous system | write a number up to 4294967295, as in `64500` or `AS64500`",
        ),
        (
            "{ asn: 4294967296 }",
            "`4294967296` is not the number of an autonomous system | write a number up to 4294967295, as in `64500` or `AS64500`",
        ),
        (
            "{}",
            "an entry takes exactly one key | write one of `file`, `country` and `asn`, or two entries",
        ),
        (
            "{ country: DE, asn: 1 }",
            "an entry takes exactly one key | write one of `file`, `country` and `asn`, or two entries",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file =
            with_files(folder.path(), &route("a", &format!(", access: {{ deny: [{entry}] }}")));
        let problems = read(&file).unwrap_err();
        let found: Vec<_> =
            problems.list().map(|one| format!("{} | {}", one.message, one.help)).collect();
        assert_eq!(found, [expected], "{entry}");
    }
    messages(
        &format!("{FRAME}geo: {{}}\nroutes:\n{}end: true\n", route("a", "")),
        &[
            "`geo` without `country` and `asn` | write `geo: { country: GeoLite2-Country.mmdb }`, or remove it",
        ],
    );
}

#[test]
fn a_file_that_cannot_be_used_is_an_error_at_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_files(folder.path(), &route("a", ""));
    let country = fixture("country.mmdb");
    for (contents, expected) in [
        (&b""[..], "is empty"),
        (b"\x1f\x8b\x08", "is compressed"),
        (b"<html>", "is not a file in MaxMind's format"),
        (&country[..country.len() - 40], "was cut off"),
        (&fixture("asn.mmdb"), "has no countries: it is of the type `GeoLite2-ASN`"),
        (&fixture("domains.mmdb"), "has no countries: it is of the type `GeoIP2-Domain`"),
    ] {
        fs::write(folder.path().join("country.mmdb"), contents).unwrap();
        let drawn = read(&file).unwrap_err().to_string();
        assert_eq!(drawn.matches(expected).count(), 1, "{drawn}");
        assert!(drawn.contains("gateway.yaml:3:"), "{drawn}");
        assert!(drawn.contains("the file of countries `"), "{drawn}");
    }
    fs::remove_file(folder.path().join("country.mmdb")).unwrap();
    let problems = read(&file).unwrap_err();
    assert!(problems.to_string().contains("cannot read the file of countries"), "{problems}");
    let awaited = Watched::LargeFile(folder.path().join("country.mmdb"));
    assert!(problems.files().contains(&awaited), "its making mends the configuration");
    // Logs have what the files said, so that the rules do without.
    read_rules(&file).unwrap_or_else(|problems| panic!("{problems}"));
}

#[test]
fn a_plan_shows_and_watches_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_files(folder.path(), &route("a", ""));
    let plan = read(&file).unwrap();
    for name in ["country.mmdb", "asn.mmdb"] {
        assert!(plan.files.contains(&Watched::LargeFile(folder.path().join(name))));
    }
    let said = describe(&plan);
    assert!(said.contains("geo.country  country.mmdb (GeoLite2-Country of 2026-09-21)"), "{said}");
    assert!(said.contains("geo.asn  asn.mmdb (GeoLite2-ASN of 2026-09-21)"), "{said}");
    let geo = plan.settings.geo.as_ref().unwrap();
    for (address, expected) in [
        ("192.0.2.9", place("DE", 64_500)),
        ("198.51.100.9", place("AT", 64_501)),
        ("203.0.113.9", place("FR", 0)),
        ("203.0.113.200", Place::default()),
        ("2001:db8:de::9", place("DE", 64_500)),
        ("10.0.0.1", Place::default()),
        ("::", Place::default()),
    ] {
        assert_eq!(geo.place(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn a_new_file_is_in_force_and_an_unchanged_one_stays_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_files(folder.path(), &route("a", ", access: { deny: [{ country: CH }] }"));
    let live = Live::start(read(&file).unwrap(), Instant::EPOCH);
    let apply =
        || live.apply(read(&file).unwrap(), Instant::EPOCH, &mut Retired::default()).to_string();
    let files = |snapshot: &Snapshot| {
        let geo = snapshot.settings.geo.clone().unwrap();
        [geo.country.clone(), geo.asn.clone()].map(|file| std::sync::Arc::as_ptr(&file.unwrap()))
    };
    let before = files(&live.load());
    assert!(apply().contains("nothing changed"));
    assert_eq!(files(&live.load()), before);

    let old = read(&file).unwrap();
    fs::write(folder.path().join("country.mmdb"), fixture("moved.mmdb")).unwrap();
    assert!(diff(&old, &read(&file).unwrap()).to_string().contains("geo"));
    let said = apply();
    assert!(said.contains("settings (geo)") && said.contains("reset 0"), "{said}");
    let after = files(&live.load());
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1], before[1]);
    let geo = live.load().settings.geo.clone().unwrap();
    assert_eq!(geo.place("192.0.2.9".parse().unwrap()), place("CH", 64_500));
}

#[test]
fn a_route_is_for_one_of_the_countries_and_one_of_the_systems() {
    let matching = |name: &str, conditions: &str| {
        format!("  - {{ name: {name}, match: {{ path_prefix: /{conditions} }}, upstream: app }}\n")
    };
    let plan = read_routes(&format!(
        "{}{}{}",
        matching("both", ", country: [de, AT], asn: [AS64500, 64501]"),
        matching("country", ", country: DE"),
        matching("any", "")
    ));
    for (place, expected) in [
        (place("DE", 64_500), 0),
        (place("AT", 64_501), 0),
        (place("DE", 1), 1),
        (place("DE", 0), 1),
        (place("AT", 1), 2),
        (Place::default(), 2),
        (place("FR", 64_500), 2),
    ] {
        assert_eq!(ask(place, |target| plan.table.find(target)), Some(expected), "{place}");
    }
    assert!(plan.table.looks_at_places());
    assert_eq!(plan.routes[0].matches.to_string(), "/* country AT|DE asn 64500|64501");
    assert!(!read_routes(&matching("any", "")).table.looks_at_places());
}

#[test]
fn access_lists_countries_and_systems_beside_networks() {
    let plan = read_routes(
        "  - name: a\n    match: { path_prefix: / }\n    upstream: app\n    \
         access: { allow: [10.0.0.0/8, { country: [DE, AT] }, { asn: 64502 }], deny: [{ asn: [64500] }, 10.1.0.0/16] }\n  \
         - { name: b, match: { path_prefix: /b }, upstream: app, access: { deny: { country: DE } } }\n",
    );
    let access = plan.routes[0].options.access.as_ref().unwrap();
    assert_eq!(
        access.to_string(),
        "allow 10.0.0.0/8, country AT|DE asn 64502; deny 10.1.0.0/16, asn 64500"
    );
    for (address, place, expected) in [
        ("192.0.2.1", place("DE", 1), None),
        ("192.0.2.1", place("DE", 64_500), Some("`deny` has asn 64500")),
        ("192.0.2.1", place("FR", 64_502), None),
        ("10.0.0.1", Place::default(), None),
        ("10.1.0.1", Place::default(), Some("`deny` has 10.1.0.0/16")),
        (
            "192.0.2.1",
            Place::default(),
            Some("`allow` does not have 192.0.2.1 (country unknown, asn unknown)"),
        ),
        ("192.0.2.1", place("FR", 1), Some("`allow` does not have 192.0.2.1 (country FR, asn 1)")),
    ] {
        let client: IpAddr = address.parse().unwrap();
        let located = Located::At(place);
        assert_eq!(access.denial(client, located).as_deref(), expected, "{address} {place}");
        assert_eq!(access.allows(client, located), expected.is_none(), "{address} {place}");
    }
    let denies = plan.routes[1].options.access.as_ref().unwrap();
    let client = "192.0.2.1".parse().unwrap();
    assert!(denies.allows(client, Located::default()), "unknown addresses are not denied");
    assert!(!denies.allows(client, Located::At(place("DE", 0))));
}

#[test]
fn rules_count_exempt_and_change_by_places() {
    let plan = read_routes(&route(
        "a",
        ", flow: [{ name: r, limit: 1/1s, key: [country, asn], on_missing_key: reject, except: { country: [CH, LI], asn: 64509 }, \
         overrides: [{ when: { country: [DE, AT], asn: 64500 }, limit: 5/1s }] }]",
    ));
    let [german, rule] = &*plan.routes[0].rules else { panic!("a rule and its override") };
    let client: IpAddr = "192.0.2.1".parse().unwrap();
    let seed = Seed::new([1, 2]);
    let print = |place| ask(place, |target| rule.key.fingerprint(&seed, target, client));
    assert_eq!(print(place("DE", 64_500)), print(place("DE", 64_500)));
    assert_ne!(print(place("DE", 64_500)), print(place("DE", 64_501)));
    assert_ne!(print(place("DE", 64_500)), print(place("AT", 64_500)));
    for place in [Place::default(), place("DE", 0), place("", 1)] {
        assert_eq!(print(place), Err(NoKey::Missing), "{place}");
    }
    let place_of_key = place("DE", 64_500);
    assert_eq!(
        ask(place_of_key, |target| rule.key.show(target, client)).as_deref(),
        Some("DE, 64500")
    );
    let nat64 = &plan.settings.nat64;
    assert_eq!(rule.key.read(&seed, nat64, "de, AS64500").ok(), print(place_of_key).ok());
    assert!(rule.key.read(&seed, nat64, "Germany, 1").is_err());
    assert!(rule.key.read(&seed, nat64, "DE, x").is_err());

    let except = rule.except.as_ref().unwrap();
    assert_eq!(except.words(), "country=CH|LI or asn=64509");
    let when = german.when.as_ref().unwrap();
    assert_eq!(&**when.words(), "country=AT|DE, asn=64500");
    for (place, is_exempt, is_german) in [
        (place("CH", 1), true, false),
        (place("DE", 64_509), true, false),
        (place("DE", 64_500), false, true),
        (place("AT", 64_500), false, true),
        (place("DE", 0), false, false),
        (place("FR", 64_500), false, false),
        (Place::default(), false, false),
    ] {
        ask(place, |target| {
            assert_eq!(except.covers(target, client), is_exempt, "{place}");
            assert_eq!(when.covers(target, client), is_german, "{place}");
        });
    }
}
