//! The laws of routing: the table finds what a plain walk over all routes finds, and
//! nothing that a client or a file can say makes it panic.

#[path = "routing/members.rs"]
mod members;

use core::{cmp::Reverse, net::IpAddr};
use flowgate::geo::Located;
use flowgate::route::{
    FieldPattern, HostPattern, KeyPart, KeySpec, Matcher, Nat64, NetworkList, PathPattern, Proxies,
    Seed, Table, Target, canonical_host, dangerous_path, normal_path, parse_method,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{select, subsequence},
    test_runner::FileFailurePersistence,
};
use std::{borrow::Cow, sync::Arc};

fn config(cases: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn the_table_finds_what_a_walk_over_all_routes_finds(
        routes in vec(route(), 0..12),
        requests in vec(request(), 1..12),
    ) {
        let table = Table::build(routes.iter().map(Route::matcher).collect());
        for request in &requests {
            let found = request.ask(|target| table.find(target));
            prop_assert_eq!(found, walk(&routes, request), "{:?}", request);
        }
    }

    #[test]
    fn the_runner_up_is_what_is_found_without_the_best(
        routes in vec(route(), 0..12),
        requests in vec(request(), 1..12),
    ) {
        let table = Table::build(routes.iter().map(Route::matcher).collect());
        for request in &requests {
            let Some(best) = request.ask(|target| table.find(target)) else { continue };
            let rest: Vec<usize> = (0..routes.len()).filter(|route| *route != best).collect();
            let others = Table::build(rest.iter().map(|route| routes[*route].matcher()).collect());
            let expected = request.ask(|target| others.find(target)).map(|found| rest[found]);
            let found = request.ask(|target| table.runner_up(target, best));
            prop_assert_eq!(found.map(|(route, _)| route), expected, "{:?}", request);
        }
    }

    #[test]
    fn a_shadowed_route_is_never_found_and_the_order_names_each_route_once(
        routes in vec(route(), 0..12),
        are_of_web in vec(any::<bool>(), 12),
        requests in vec(request(), 1..12),
    ) {
        let web: Arc<str> = "web".into();
        let of_listener = |(route, is_of_web): (&Route, &bool)| Matcher {
            listeners: is_of_web.then(|| Arc::clone(&web)).into_iter().collect(),
            ..route.matcher()
        };
        let table = Table::build(routes.iter().zip(&are_of_web).map(of_listener).collect());
        let shadowed = table.shadowed(&[Arc::clone(&web)]);
        for request in &requests {
            let find = |target: &Target<'_>| table.find(&Target { listener: Some("web"), ..*target });
            let found = request.ask(find);
            let is_sound = |(earlier, later): &(Vec<usize>, usize)| {
                !earlier.is_empty() && !earlier.contains(later) && found != Some(*later)
            };
            prop_assert!(shadowed.iter().all(is_sound), "{:?} {:?}", shadowed, request);
        }
        let mut order = table.order();
        order.sort_unstable();
        prop_assert!(order.into_iter().eq(0..routes.len()));
    }
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn a_host_in_its_form_stays_as_it_is(text in text()) {
        if let Ok(host) = canonical_host(&text) {
            prop_assert!(host.len() <= 255);
            prop_assert_eq!(canonical_host(&host), Ok(Cow::Borrowed(&*host)));
        }
    }

    #[test]
    fn a_path_in_its_form_stays_as_it_is_and_is_no_more_dangerous(path in text()) {
        let normal = normal_path(&path);
        prop_assert!(normal.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(normal_path(&normal), &*normal);
        prop_assert!(dangerous_path(&normal).is_none() || dangerous_path(&path).is_some());
    }

    #[test]
    fn a_client_is_the_peer_or_an_untrusted_address_if_any_is_named(
        peer in address(),
        lines in vec(vec(any::<u8>(), 0..40), 0..3),
        entries in vec(prop_oneof![3 => address().prop_map(|address| address.to_string()), 1 => text()], 0..80),
    ) {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let trusted = NetworkList::new(trusted, Vec::new());
        let mut headers = HeaderMap::new();
        for line in lines.iter().map(Vec::as_slice).chain([entries.join(", ").as_bytes()]) {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                headers.append("x-forwarded-for", value);
            }
        }
        let nat64 = Nat64::default();
        let proxies = Proxies { trusted: &trusted, header: None, nat64: &nat64 };
        let client = proxies.client(peer, (&headers).into()).address;
        prop_assert_eq!(client, nat64.canonical(client));
        let alone = proxies.client(peer, (&HeaderMap::new()).into()).address;
        prop_assert_eq!(alone, nat64.canonical(peer));
        if !trusted.contains(nat64.canonical(peer)) {
            prop_assert_eq!(client, nat64.canonical(peer));
        }
    }

    #[test]
    fn no_pattern_and_no_request_panics(
        patterns in vec((text(), text()), 1..8),
        host in text(),
        path in text(),
        query in proptest::option::of(text()),
        values in vec(vec(any::<u8>(), 0..40), 0..4),
        peer in address(),
    ) {
        let table = Table::build(patterns.iter().filter_map(|(one, other)| any_matcher(one, other)).collect());
        let mut headers = HeaderMap::new();
        for value in values.iter().filter_map(|value| HeaderValue::from_bytes(value).ok()) {
            headers.append("x-a", value.clone());
            headers.append("cookie", value);
        }
        let target = Target { listener: None, certificate: None,
place: Located::default(), identity: None, body: None, host: &host, path: &path, query: query.as_deref(), method: &Method::GET, headers: (&headers).into() };
        let found = table.find(&target);
        prop_assert!(found.is_none_or(|route| table.matcher(route).is_some()));
        let parts: Vec<KeyPart> = patterns
            .iter()
            .filter_map(|(name, _)| KeyPart::parse(name, 64).ok())
            .chain([KeyPart::Path, KeyPart::Header(HeaderName::from_static("x-a")), KeyPart::Cookie("a".into()), KeyPart::Query("a".into())])
            .collect();
        for part in parts {
            let key = KeySpec::new(vec![part]).unwrap();
            let print = |seed| key.fingerprint(&Seed::new(seed), &target, peer);
            prop_assert_eq!(print([1, 2]), print([1, 2]));
            prop_assert_eq!(print([1, 2]).is_ok(), print([3, 4]).is_ok());
        }
    }
}

#[test]
fn a_usual_request_takes_no_heap_memory() {
    let route = |host: &str, path| Matcher {
        hosts: vec![HostPattern::parse(host).unwrap()],
        paths: vec![path],
        methods: vec![Method::GET],
        headers: vec![FieldPattern::equals("x-tenant", "gold").unwrap()],
        query: vec![FieldPattern::equals("q", "a b").unwrap()],
        ..Matcher::default()
    };
    let table = Table::build(vec![
        route("a.example", PathPattern::exact("/orders/{id}/items").unwrap()),
        route("*.example", PathPattern::prefix("/orders").unwrap()),
        route("*.example", PathPattern::regex("/v[0-9]+/.*").unwrap()),
    ]);
    let key = ["client_ip", "host", "path", "header:x-tenant", "cookie:sid", "query:q"];
    let key =
        KeySpec::new(key.iter().map(|part| KeyPart::parse(part, 64).unwrap()).collect()).unwrap();
    let trusted = NetworkList::new(["10.0.0.0/8".parse().unwrap()], Vec::new());
    let mut headers = HeaderMap::new();
    headers.insert("x-tenant", HeaderValue::from_static("gold"));
    headers.insert("cookie", HeaderValue::from_static("a=1; sid=0123456789abcdef"));
    headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1, 10.0.0.2"));
    let ask = |authority: &str, path: &str| {
        let host = canonical_host(authority).unwrap();
        let target = Target {
            listener: None,
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
            host: &host,
            path: &normal_path(path),
            query: Some("p=1&q=a%20b"),
            method: &Method::GET,
            headers: (&headers).into(),
        };
        assert_eq!(dangerous_path(path), None);
        let proxies = Proxies { trusted: &trusted, header: None, nat64: &Nat64::default() };
        let client = proxies.client(IpAddr::from([10, 0, 0, 1]), (&headers).into()).address;
        assert!(key.fingerprint(&Seed::new([1, 2]), &target, client).is_ok());
        table.find(&target)
    };
    for (authority, path, expected) in [
        ("a.example:8080", "/orders/17/items", Some(0)),
        ("b.example", "/orders/17/items", Some(1)),
        ("b.example", "/v2/x", Some(2)),
        ("c.test", "/orders", None),
    ] {
        // A regular expression makes its scratch memory at its first use.
        assert_eq!(ask(authority, path), expected);
        let allocations = allocation_counter::measure(|| {
            ask(authority, path);
        });
        assert_eq!(allocations.count_total, 0, "{authority}{path}");
    }
}

/// The oracle: the best of all routes that match, by the order that `route` documents.
fn walk(routes: &[Route], request: &Request) -> Option<usize> {
    let ranked = routes
        .iter()
        .enumerate()
        .filter_map(|(index, route)| Some((route.rank(index, request)?, index)));
    ranked.min().map(|(_, index)| index)
}

#[derive(Clone, Debug)]
struct Route {
    hosts: Vec<&'static str>,
    paths: Vec<Path>,
    methods: Vec<Method>,
    headers: Vec<Field>,
    query: Vec<Field>,
}

#[derive(Clone, Debug)]
enum Path {
    Any,
    /// `None` is a parameter.
    Whole(Vec<Option<&'static str>>),
    Prefix(Vec<&'static str>),
    /// An expression that the walk can do without: this text somewhere.
    Contains(&'static str),
}

/// A name and the value to have, if any.
type Field = (&'static str, Option<&'static str>);

/// Host, path and the rest, as tuples that compare.
type Rank =
    ((u8, Reverse<usize>), (u8, Reverse<usize>, usize), (bool, Reverse<usize>, Reverse<usize>));

impl Route {
    fn matcher(&self) -> Matcher {
        let field = |(name, value): &Field| match value {
            Some(value) => FieldPattern::equals(name, value).expect("a name"),
            None => FieldPattern::present(name).expect("a name"),
        };
        Matcher {
            hosts: self
                .hosts
                .iter()
                .map(|host| HostPattern::parse(host).expect("a host"))
                .collect(),
            paths: self.paths.iter().map(Path::pattern).collect(),
            methods: self.methods.clone(),
            headers: self.headers.iter().map(field).collect(),
            query: self.query.iter().map(field).collect(),
            ..Matcher::default()
        }
    }

    fn rank(&self, index: usize, request: &Request) -> Option<Rank> {
        let host = self.hosts.iter().filter_map(|host| {
            if let Some(suffix) = host.strip_prefix('*') {
                return request.host.ends_with(suffix).then_some((1, Reverse(suffix.len())));
            }
            if let Some(prefix) = host.strip_suffix('*') {
                return request.host.starts_with(prefix).then_some((2, Reverse(prefix.len())));
            }
            (*host == request.host).then_some((0, Reverse(0)))
        });
        let host = if self.hosts.is_empty() { (3, Reverse(0)) } else { host.min()? };
        let admitted = (self.methods.is_empty() || self.methods.contains(&request.method))
            && self.headers.iter().all(|asked| has(&request.headers, asked))
            && self.query.iter().all(|asked| has(&request.query, asked));
        let conditions =
            (self.methods.is_empty(), Reverse(self.headers.len()), Reverse(self.query.len()));
        let segments = request.segments();
        let path = self.paths.iter().filter_map(|path| path.rank(index, &segments)).min()?;
        admitted.then_some((host, path, conditions))
    }
}

impl Path {
    fn pattern(&self) -> PathPattern {
        let pattern = match self {
            Self::Any => Ok(PathPattern::Any),
            Self::Whole(segments) => {
                let segments: Vec<&str> =
                    segments.iter().map(|segment| segment.unwrap_or("{id}")).collect();
                PathPattern::exact(&format!("/{}", segments.join("/")))
            }
            Self::Prefix(segments) => PathPattern::prefix(&format!("/{}", segments.join("/"))),
            Self::Contains(text) => PathPattern::regex(&format!(".*{text}.*")),
        };
        pattern.expect("a path")
    }

    fn rank(&self, index: usize, path: &[&str]) -> Option<(u8, Reverse<usize>, usize)> {
        match self {
            Self::Any => Some((4, Reverse(0), 0)),
            Self::Whole(segments) => {
                let fits = |(asked, has): (Option<&str>, &str)| match asked {
                    Some(asked) => asked == has,
                    None => !has.is_empty(),
                };
                let literals = segments.iter().flatten().count();
                let kind = u8::from(literals < segments.len());
                let matches = segments.len() == path.len()
                    && segments.iter().copied().zip(path.iter().copied()).all(fits);
                matches.then_some((kind, Reverse(literals), 0))
            }
            Self::Prefix(segments) => {
                path.starts_with(segments).then_some((2, Reverse(segments.len()), 0))
            }
            Self::Contains(text) => {
                format!("/{}", path.join("/")).contains(text).then_some((3, Reverse(0), index))
            }
        }
    }
}

/// Returns whether any of `fields` with the name asked for has the value asked for.
fn has(fields: &[(&str, &str)], (name, value): &Field) -> bool {
    let mut named = fields.iter().filter(|field| field.0 == *name);
    named.any(|field| value.is_none_or(|value| value == field.1))
}

#[derive(Clone, Debug)]
struct Request {
    host: &'static str,
    method: Method,
    path: Vec<(&'static str, Spelling)>,
    trailing_slash: bool,
    headers: Vec<(&'static str, &'static str)>,
    query: Vec<(&'static str, &'static str)>,
}

/// How a segment is written.
#[derive(Clone, Copy, Debug)]
enum Spelling {
    Plain,
    Escaped,
    AfterTwoSlashes,
}

impl Request {
    fn segments(&self) -> Vec<&'static str> {
        let end = (self.trailing_slash || self.path.is_empty()).then_some("");
        self.path.iter().map(|(segment, _)| *segment).chain(end).collect()
    }

    fn path(&self) -> String {
        let segments = self.path.iter().map(|(segment, spelling)| match spelling {
            Spelling::Plain => format!("/{segment}"),
            Spelling::Escaped => format!("/%{:x}{}", segment.as_bytes()[0], &segment[1..]),
            Spelling::AfterTwoSlashes => format!("//{segment}"),
        });
        let slash = if self.trailing_slash || self.path.is_empty() { "/" } else { "" };
        segments.chain([slash.to_owned()]).collect()
    }

    fn ask<T>(&self, question: impl FnOnce(&Target<'_>) -> T) -> T {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let path = self.path();
        let query = query.join("&");
        question(&Target {
            listener: None,
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
            host: self.host,
            path: &normal_path(&path),
            query: Some(&*query).filter(|query| !query.is_empty()),
            method: &self.method,
            headers: (&headers).into(),
        })
    }
}

fn route() -> impl Strategy<Value = Route> {
    let hosts = subsequence(vec!["a.x", "b.a.x", "x", "*.x", "*.a.x", "b.*", "b.a.*"], 0..3);
    let methods = subsequence(vec![Method::GET, Method::POST], 0..=2);
    let paths = prop_oneof![2 => vec(path(), 1), 1 => vec(path(), 2..4)];
    (hosts, paths, methods, fields_asked(), fields_asked()).prop_map(
        |(hosts, paths, methods, headers, query)| Route { hosts, paths, methods, headers, query },
    )
}

fn path() -> impl Strategy<Value = Path> {
    let whole =
        (vec(prop_oneof![2 => segment().prop_map(Some), 1 => Just(None)], 0..4), any::<bool>());
    let whole = whole.prop_map(|(mut segments, trailing_slash)| {
        if trailing_slash || segments.is_empty() {
            segments.push(Some(""));
        }
        Path::Whole(segments)
    });
    prop_oneof![
        1 => Just(Path::Any),
        4 => whole,
        3 => vec(segment(), 1..4).prop_map(Path::Prefix),
        1 => select(vec!["a", "b/", "1", "/a/b"]).prop_map(Path::Contains),
    ]
}

fn segment() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "b", "c1"])
}

/// Mostly nothing, so that enough requests match.
fn fields_asked() -> impl Strategy<Value = Vec<Field>> {
    let some = subsequence(vec![("x-a", None), ("x-a", Some("1")), ("x-b", Some("2"))], 0..3);
    prop_oneof![2 => Just(Vec::new()), 1 => some]
}

fn request() -> impl Strategy<Value = Request> {
    let host = select(vec!["a.x", "b.a.x", "c.b.a.x", "x", "y"]);
    let method = select(vec![Method::GET, Method::POST, Method::PUT]);
    let spelling = select(vec![
        Spelling::Plain,
        Spelling::Plain,
        Spelling::Escaped,
        Spelling::AfterTwoSlashes,
    ]);
    let fields = || vec((select(vec!["x-a", "x-b"]), select(vec!["1", "2"])), 0..4);
    (host, method, vec((segment(), spelling), 0..4), any::<bool>(), fields(), fields()).prop_map(
        |(host, method, path, trailing_slash, headers, query)| Request {
            host,
            method,
            path,
            trailing_slash,
            headers,
            query,
        },
    )
}

/// Text in which the characters with a meaning are frequent.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        r"[ -~]{0,40}",
        r"/?([a-c.%/;{}=&+*:\[\]\?#é0-9FfXx	 ]|%2[eEfF]|%[0-9a-f]{2}|\.\.|//){0,30}",
        r"(\*\.|\[)?[a-cA-C0-9.:-]{0,12}(\]|\.|:[0-9]{0,6})?",
        r"(header|cookie|query|client_ip|path|[(|)?+*a]):?[a-z(|)?+*]{0,8}",
        any::<String>(),
    ]
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
        any::<[u8; 2]>().prop_map(|[a, b]| IpAddr::from([
            0,
            0,
            0,
            0,
            0,
            0xffff,
            0x0a00 | u16::from(a),
            b.into()
        ])),
    ]
}

/// Returns a matcher of whatever of these texts is a pattern, if one is.
fn any_matcher(one: &str, other: &str) -> Option<Matcher> {
    let paths = [PathPattern::exact(one), PathPattern::prefix(one), PathPattern::regex(one)];
    let fields = || {
        [FieldPattern::equals(one, other), FieldPattern::regex("x-a", other)].into_iter().flatten()
    };
    Some(Matcher {
        hosts: HostPattern::parse(other).into_iter().collect(),
        paths: vec![paths.into_iter().flatten().next()?],
        methods: parse_method(other).into_iter().collect(),
        headers: fields().collect(),
        query: fields().collect(),
        ..Matcher::default()
    })
}
