//! What it costs to find a request's route, by the number of routes.
//!
//! `cargo bench --bench routing` prints the tables. Each figure is the best of some
//! rounds of one thread, which other work on the machine disturbs the least.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use core::{hint::black_box, net::IpAddr, time::Duration};
use flowgate::geo::Located;
use flowgate::route::{
    FieldPattern, HostPattern, KeyPart, KeySpec, Matcher, Nat64, NetworkList, PathPattern, Proxies,
    Seed, Table, Target, canonical_host, dangerous_path,
};
use http::{HeaderMap, HeaderValue, Method};

/// Rounds to take the best of.
const ROUNDS: usize = 15;

/// Searches in a round.
const SEARCHES: u32 = 100_000;

const SIZES: [usize; 3] = [1, 1_000, 10_000];

fn main() {
    println!(
        "find, ns; \"one\" asks for one route over and over, \"all\" for every route by chance"
    );
    println!("{:<44}{:>10}{:>10}{:>10}", "routes", "1", "1,000", "10,000");
    for shape in SHAPES {
        let tables = SIZES.map(|size| (size, Table::build(matchers(shape, size))));
        let row = |asked: fn(usize) -> usize| {
            tables
                .each_ref()
                .map(|(size, table)| format!("{:>10.1}", find_ns(shape, table, asked(*size))))
                .concat()
        };
        println!("{:<44}{}", format!("{}, one", shape.name), row(|_| 1));
        println!("{:<44}{}", format!("{}, all", shape.name), row(|size| size));
    }
    println!("\nbuild, ms");
    for shape in SHAPES {
        let row = SIZES.map(|size| format!("{:>10.2}", build_ms(shape, size))).concat();
        println!("{:<44}{row}", shape.name);
    }
    println!("\nthe rest of what is done for a request, ns");
    around_a_request();
}

/// A kind of route, by the number of one.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    matcher: fn(usize) -> Matcher,
    host: fn(usize) -> String,
    path: fn(usize) -> String,
}

const SHAPES: [Shape; 4] = [
    Shape {
        name: "prefix /r/{i}/",
        matcher: |i| Matcher { paths: vec![prefix(&format!("/r/{i}/"))], ..Matcher::default() },
        host: |_| "gateway.example.com".into(),
        path: |i| format!("/r/{i}/orders/17"),
    },
    Shape {
        name: "template /r{i}/orders/{id}, POST",
        matcher: |i| Matcher {
            paths: vec![PathPattern::exact(&format!("/r{i}/orders/{{id}}")).expect("a template")],
            methods: vec![Method::GET, Method::POST],
            ..Matcher::default()
        },
        host: |_| "gateway.example.com".into(),
        path: |i| format!("/r{i}/orders/17"),
    },
    Shape {
        name: "host s{i}.example.com, prefix /api",
        matcher: |i| on_host(&format!("s{i}.example.com"), prefix("/api")),
        host: |i| format!("s{i}.example.com"),
        path: |_| "/api/orders/17".into(),
    },
    Shape {
        name: "wildcard *.s{i}.example.com, header",
        matcher: |i| Matcher {
            headers: vec![FieldPattern::equals("x-tenant", "gold").expect("a header")],
            ..on_host(&format!("*.s{i}.example.com"), PathPattern::Any)
        },
        host: |i| format!("www.s{i}.example.com"),
        path: |_| "/api/orders/17".into(),
    },
];

fn prefix(path: &str) -> PathPattern {
    PathPattern::prefix(path).expect("a prefix")
}

fn on_host(host: &str, path: PathPattern) -> Matcher {
    let hosts = vec![HostPattern::parse(host).expect("a host")];
    Matcher { hosts, paths: vec![path], ..Matcher::default() }
}

fn matchers(shape: Shape, size: usize) -> Vec<Matcher> {
    (0..size).map(shape.matcher).collect()
}

/// Returns the time of a search among requests for the last `asked` routes.
fn find_ns(shape: Shape, table: &Table, asked: usize) -> f64 {
    let mut random = fastrand::Rng::with_seed(7);
    let size = table.order().len();
    let asked: Vec<usize> = (0..SEARCHES).map(|_| size - 1 - random.usize(..asked)).collect();
    let requests: Vec<(String, String)> =
        asked.iter().map(|i| ((shape.host)(*i), (shape.path)(*i))).collect();
    let headers = headers();
    best_ns(SEARCHES, || {
        for ((host, path), route) in requests.iter().zip(&asked) {
            let target = Target {
                listener: None,
                certificate: None,
                place: Located::default(),
                identity: None,
                body: None,
                host,
                path,
                query: None,
                method: &Method::POST,
                headers: (&headers).into(),
            };
            assert_eq!(table.find(black_box(&target)), Some(*route));
        }
    })
}

fn build_ms(shape: Shape, size: usize) -> f64 {
    let mut all: Vec<_> = (0..ROUNDS).map(|_| matchers(shape, size)).collect();
    best_ns(1, || drop(black_box(Table::build(all.pop().unwrap_or_default())))) / 1e6
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("host", "gateway.example.com"),
        ("user-agent", "curl/8.5.0"),
        ("accept", "*/*"),
        ("x-tenant", "gold"),
        ("x-forwarded-for", "192.0.2.1, 10.0.0.2"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}

fn around_a_request() {
    let headers = headers();
    let trusted = NetworkList::new(["10.0.0.0/8".parse().expect("a network")], Vec::new());
    let nat64 = Nat64::default();
    let proxies = Proxies { trusted: &trusted, header: None, nat64: &nat64 };
    let peer = IpAddr::from([10, 0, 0, 1]);
    let client = IpAddr::from([192, 0, 2, 1]);
    let host = "gateway.example.com:8080";
    let path = "/api/v1/orders/17/items";
    let target = Target {
        listener: None,
        certificate: None,
        place: Located::default(),
        identity: None,
        body: None,
        host,
        path,
        query: None,
        method: &Method::GET,
        headers: (&headers).into(),
    };
    let print = |name: &str, ns: f64| println!("{name:<44}{ns:>10.1}");
    print("canonical_host", each_ns(|| canonical_host(black_box(host)).is_ok()));
    print("dangerous_path", each_ns(|| dangerous_path(black_box(path)).is_none()));
    print(
        "client_ip, two entries",
        each_ns(|| proxies.client(black_box(peer), (&headers).into()).address == client),
    );
    for parts in [&["client_ip"][..], &["header:x-tenant"], &["header:x-tenant", "path"]] {
        let parts = parts.iter().map(|part| KeyPart::parse(part, 64).expect("a key")).collect();
        let key = KeySpec::new(parts).expect("a key");
        let seed = Seed::new([1, 2]);
        print(
            &format!("fingerprint, {key}"),
            each_ns(|| key.fingerprint(&seed, black_box(&target), client).is_ok()),
        );
    }
}

fn each_ns(mut ask: impl FnMut() -> bool) -> f64 {
    best_ns(SEARCHES, || {
        for _ in 0..SEARCHES {
            assert!(black_box(ask()));
        }
    })
}

/// Returns the time that one of `count` steps takes in the best of all rounds.
fn best_ns(count: u32, mut round: impl FnMut()) -> f64 {
    let best = (0..ROUNDS).map(|_| elapsed(&mut round)).min().unwrap_or_default();
    best.as_secs_f64() * 1e9 / f64::from(count)
}

#[expect(clippy::disallowed_types, reason = "a benchmark measures by the machine's clock")]
fn elapsed(mut round: impl FnMut()) -> Duration {
    let start = std::time::Instant::now();
    round();
    start.elapsed()
}
