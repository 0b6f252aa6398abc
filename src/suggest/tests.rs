//! Limits from one half of a log, tried on the other half, for traffic of several shapes.

use super::{Files, LiveOptions, Options, Percent, SuggestResult, run};
use crate::{
    config::Text,
    flow::Instant,
    replay::{Engine, Event, Inputs, TrafficOptions},
};
use core::time::Duration;
use fastrand::Rng;
use flate2::{Compression, write::GzEncoder};
use std::{
    fmt::Write,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

const MINUTE: f64 = 60_000.0;

/// A request: milliseconds from the start, and the last part of its client's address.
type Line = (f64, usize);

/// Adds the requests of a client that asks `rate` times a minute, at random.
fn poisson(rng: &mut Rng, lines: &mut Vec<Line>, client: usize, rate: f64, minutes: f64) {
    let mut at = 0.0;
    loop {
        at -= (1.0 - rng.f64()).ln() * MINUTE / rate;
        if at >= minutes * MINUTE {
            return;
        }
        lines.push((at, client));
    }
}

fn steady(rng: &mut Rng) -> Vec<Line> {
    let mut lines = Vec::new();
    for client in 0..150 {
        poisson(rng, &mut lines, client, 4.0, 60.0);
    }
    lines
}

/// Two days of half an hour each.
fn diurnal(rng: &mut Rng) -> Vec<Line> {
    let mut lines = Vec::new();
    for client in 0..150 {
        poisson(rng, &mut lines, client, 8.0, 60.0);
    }
    let is_kept = |at: f64, chance: f64| {
        chance < 0.5 - 0.45 * (at / (30.0 * MINUTE) * core::f64::consts::TAU).cos()
    };
    lines.retain(|(at, _)| is_kept(*at, rng.f64()));
    lines
}

/// The rates of a Pareto distribution, whose mean a few clients make.
fn heavy_tailed(rng: &mut Rng) -> Vec<Line> {
    let mut lines = Vec::new();
    for client in 0..200 {
        let rate = (1.0 - rng.f64()).powf(-1.0 / 1.2).min(400.0);
        poisson(rng, &mut lines, client, rate, 60.0);
    }
    lines
}

fn with_scraper(rng: &mut Rng) -> Vec<Line> {
    let mut lines = steady(rng);
    poisson(rng, &mut lines, 200, 240.0, 60.0);
    lines
}

/// Clients that load a page with everything on it, and are silent for minutes.
fn bursts(rng: &mut Rng) -> Vec<Line> {
    let mut pages = Vec::new();
    for client in 0..150 {
        poisson(rng, &mut pages, client, 0.3, 60.0);
    }
    let mut lines = Vec::new();
    for (at, client) in pages {
        for _ in 0..rng.usize(5..20) {
            lines.push((at + rng.f64() * 3000.0, client));
        }
    }
    lines
}

/// A scraper that is gone after a quarter of an hour.
fn visited_once(rng: &mut Rng) -> Vec<Line> {
    let mut lines = steady(rng);
    poisson(rng, &mut lines, 200, 240.0, 15.0);
    lines
}

/// Writes lines as events, with times from the first minute that they are in.
fn write(path: &Path, lines: &[Line]) {
    let mut lines = lines.to_vec();
    lines.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut text = String::new();
    for (at, client) in lines {
        let address = format!("192.0.2.{client}");
        writeln!(
            text,
            "{{\"t\":{at:.3},\"client_ip\":\"{address}\",\"path\":\"/api/x\",\"duration\":0}}"
        )
        .unwrap();
    }
    fs::write(path, text).unwrap();
}

fn options(input: PathBuf) -> Options {
    Options {
        traffic: TrafficOptions { inputs: vec![input], ..TrafficOptions::default() },
        live: LiveOptions::default(),
        key: "client_ip".to_owned(),
        together: false,
        window: None,
        margin: None,
        target: None,
    }
}

#[track_caller]
fn suggest(options: &Options) -> (SuggestResult, String) {
    let mut out = Vec::new();
    let files = Files { routes: None, gateway: Path::new("none.yaml") };
    let result = run(options, files, &mut out).unwrap_or_else(|error| panic!("{error}"));
    (result, String::from_utf8(out).unwrap())
}

/// Returns the share that a config states, and that of the log at `path` with its rules.
fn shares(config: &str, path: &Path) -> (f64, f64) {
    let stated =
        config.lines().find_map(|line| line.split_once("would have rejected ")?.1.split_once(" %"));
    let stated: f64 = stated.unwrap_or_else(|| panic!("{config}")).0.parse().unwrap();
    let plan = Text::new(Path::new("suggested.yaml"), config).rules();
    let plan = plan.unwrap_or_else(|problems| panic!("{problems}\n{config}"));
    let mut engine = Engine::new(plan, Instant::EPOCH, None);
    let mut inputs = Inputs::open(&[path.to_owned()], None, &mut |_| {}).unwrap();
    let mut counts = [0_u32; 2];
    while let Some(event) = inputs.next_event() {
        let Event::Arrival(arrival) = event else { continue };
        let result = engine.arrive(&arrival).expect("no rule has a queue");
        assert!(result.route.is_ok());
        counts[usize::from(result.start.is_none())] += 1;
    }
    (stated, f64::from(counts[1]) * 100.0 / f64::from(counts[0] + counts[1]))
}

/// Suggests from one half of a log and tries the other one, in both directions. Returns what was
/// stated, and the configs.
#[track_caller]
fn hold_out(
    shape: fn(&mut Rng) -> Vec<Line>,
    seed: u64,
    change: fn(&mut Options),
) -> Vec<(f64, String)> {
    let lines = shape(&mut Rng::with_seed(seed));
    let middle = 30.0 * MINUTE;
    let (first, mut second): (Vec<_>, Vec<_>) = lines.into_iter().partition(|(at, _)| *at < middle);
    for (at, _) in &mut second {
        *at -= middle;
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("first"), folder.path().join("second")];
    write(&paths[0], &first);
    write(&paths[1], &second);
    let mut configs = Vec::new();
    for [known, held_out] in [[0, 1], [1, 0]] {
        let mut options = options(paths[known].clone());
        change(&mut options);
        let (result, config) = suggest(&options);
        assert_eq!(result, SuggestResult::Proposed, "{config}");
        let (stated, found) = shares(&config, &paths[held_out]);
        // A share of a hundredth of a percent is next to nothing, whatever the ratio.
        let is_near = (stated - found).abs() <= (0.2 * stated).max(0.01);
        assert!(is_near, "seed {seed}: stated {stated} %, found {found} %\n{config}");
        configs.push((stated, config));
    }
    configs
}

const SEEDS: [u64; 2] = [1, 2];

#[test]
fn like_clients_are_left_alone() {
    for shape in [steady, diurnal, bursts] {
        for seed in SEEDS {
            for (stated, config) in hold_out(shape, seed, |_| {}) {
                assert!(stated < 0.01, "{config}");
            }
        }
    }
}

#[test]
fn a_scraper_is_limited_and_nobody_else() {
    for seed in SEEDS {
        for (stated, config) in hold_out(with_scraper, seed, |_| {}) {
            assert!((10.0..40.0).contains(&stated), "{config}");
            assert!(
                config.contains("of 1 of 151 clients") && config.contains("192.0.2.200 with"),
                "{config}"
            );
        }
    }
}

#[test]
fn a_few_large_clients_are_stated_as_they_are() {
    for seed in SEEDS {
        hold_out(heavy_tailed, seed, |_| {});
    }
}

#[test]
fn a_target_is_kept_and_stated() {
    for shape in [with_scraper, heavy_tailed] {
        let configs = hold_out(shape, 1, |options| options.target = "5%".parse().ok());
        for (stated, config) in configs {
            assert!((3.0..=5.0).contains(&stated), "{config}");
        }
    }
}

#[test]
fn what_happened_once_is_no_reason_for_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    write(&path, &visited_once(&mut Rng::with_seed(1)));
    let (_, config) = suggest(&options(path));
    assert!(config.contains("no client stands out for long"), "{config}");
    assert!(config.contains("would have rejected 0 % of the requests"), "{config}");
}

#[test]
fn a_log_that_is_too_short_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let lines: Vec<Line> = (0..2000).map(|n| (f64::from(n), 1)).collect();
    write(&path, &lines);
    let (result, config) = suggest(&options(path.clone()));
    assert_eq!(result, SuggestResult::Nothing);
    assert!(
        config.contains(
            "no limit is suggested: the log is too short; for a window of 1s it must be 10s long"
        ),
        "{config}"
    );
    write(&path, &lines[..20]);
    let (result, config) = suggest(&options(path.clone()));
    assert_eq!(result, SuggestResult::Nothing);
    assert!(config.contains("20 requests are too few; 1000 are needed"), "{config}");
    write(&path, &[]);
    let (result, config) = suggest(&options(path.clone()));
    assert_eq!(result, SuggestResult::Nothing);
    assert!(config.contains("0 requests") && config.contains("no limit to suggest"), "{config}");
    assert!(config.lines().all(|line| line.starts_with('#')), "{config}");
    let longer = Options { window: Some(Duration::from_hours(1)), ..options(path.clone()) };
    write(&path, &steady(&mut Rng::with_seed(1)));
    let (_, config) = suggest(&longer);
    assert!(config.contains("for a window of 1h it must be 10h long"), "{config}");
}

#[test]
fn windows_and_margins_are_those_that_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    // Ten requests of each client in a minute, at any time.
    let lines = (0..20_000_u32).map(|n| (f64::from(n) * 300.0, n as usize % 20));
    write(&path, &lines.collect::<Vec<_>>());
    let limit = |window: &str, margin: Option<&str>| {
        let window = humantime::parse_duration(window).ok();
        let margin = margin.map(|margin| margin.parse::<Percent>().unwrap());
        let (_, config) = suggest(&Options { window, margin, ..options(path.clone()) });
        let line = config.lines().find(|line| line.contains("        limit: "));
        line.unwrap_or_else(|| panic!("{config}")).trim().to_owned()
    };
    assert_eq!(limit("1m", None), "limit: 15/1m");
    assert_eq!(limit("1m", Some("0%")), "limit: 10/1m");
    assert_eq!(limit("90s", Some("100%")), "limit: 30/90s");
}

#[test]
fn routes_are_those_of_the_file_or_first_segments() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut text = String::new();
    for n in 0..4000 {
        let place = ["/api/a", "/img/b.png", "/", "/api/c?d"][n % 4];
        let at = n * 500;
        let client = n % 40;
        writeln!(text, "{{\"t\":{at},\"client_ip\":\"192.0.2.{client}\",\"path\":\"{place}\",\"host\":\"shop.example\"}}").unwrap();
    }
    fs::write(&path, text).unwrap();
    let (_, config) = suggest(&options(path.clone()));
    for part in [
        "  - name: api\n    match: { path_prefix: /api }",
        "  - name: img\n",
        "  - name: rest\n    match: { path_prefix: / }",
    ] {
        assert!(config.contains(part), "{config}");
    }
    let file = folder.path().join("gateway.yaml");
    fs::write(&file, ALL_BUT_IMAGES).unwrap();
    let mut out = Vec::new();
    run(&options(path), Files { routes: Some(&file), gateway: &file }, &mut out).unwrap();
    let config = String::from_utf8(out).unwrap();
    assert!(config.contains("  - name: shop\n    # with the `match`"), "{config}");
    assert!(config.contains("1000 requests that reach no route are left out"), "{config}");
    assert!(!config.contains("pass `"), "{config}");
    assert!(!config.contains("listeners"), "{config}");
}

#[test]
fn one_limit_for_all_routes_counts_a_client_on_each_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut text = String::new();
    for n in 0..4000 {
        let place = ["/api/a", "/img/b.png"][n % 2];
        let at = n * 500;
        let client = n % 5;
        writeln!(text, "{{\"t\":{at},\"client_ip\":\"192.0.2.{client}\",\"path\":\"{place}\",\"host\":\"shop.example\"}}").unwrap();
    }
    fs::write(&path, text).unwrap();
    let window = Some(Duration::from_mins(1));
    let margin = "0%".parse().ok();

    let apart = Options { window, margin, ..options(path) };
    let (_, config) = suggest(&apart);
    assert!(config.contains("limit: 12/1m"), "half of the requests are for each route: {config}");

    let together = Options { together: true, ..apart };
    let (_, config) = suggest(&together);
    assert!(config.contains("\n  # all routes together: 4000 requests of 5 clients\n"), "{config}");
    assert!(
        config.contains("\n  - name: site\n    algorithm: sliding_window\n    limit: 24/1m\n"),
        "{config}"
    );
    let plan = Text::new(Path::new("suggested.yaml"), &config).rules().unwrap();
    assert!(!plan.remarks_at(Instant::EPOCH).has_warnings(), "{config}");

    let file = folder.path().join("gateway.yaml");
    fs::write(&file, ALL_BUT_IMAGES).unwrap();
    let mut out = Vec::new();
    run(&together, Files { routes: Some(&file), gateway: &file }, &mut out).unwrap();
    let config = String::from_utf8(out).unwrap();
    assert!(config.ends_with("flow: [{ budget: site }] # every route of the file\n"), "{config}");
    assert!(!config.contains("listeners"), "{config}");
}

#[test]
fn few_requests_are_counted_and_their_notes_are_plain() {
    const TLS: &str = "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"\\x16\\x03\" 400 150\n";
    const ONE: &str = "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("the port's log");

    fs::write(&path, TLS).unwrap();
    let (result, config) = suggest(&options(path.clone()));
    assert_eq!(result, SuggestResult::Nothing);
    assert!(config.contains("0 requests of ") && !config.contains("1970"), "{config}");
    assert!(config.contains("note: 1 of 1 line has no request"), "{config}");

    fs::write(
        &path,
        format!("Nov 21 05:00:07 web1 nginx: {ONE}Nov 21 05:00:08 web1 sshd[1]: it's \"I\"\n"),
    )
    .unwrap();
    let (_, config) = suggest(&options(path));
    for part in [
        "1 request of ",
        "port's log, 0s long, 2026-11-21 05:00:07 to 05:00:07 UTC.\n",
        "  # rest: 1 request of 1 client\n",
        "1 request is too few; 1000 are needed",
        "note: 1 of 2 lines could not be read:\n",
        ":2: no time in brackets",
    ] {
        assert!(config.contains(part), "no {part:?} in {config}");
    }
}

#[test]
fn a_log_without_listeners_is_for_the_one_that_is_passed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    fs::write(&file, TWO_LISTENERS).unwrap();
    let log = folder.path().join("access.log");
    let line = |minute: usize| format!("{}\n", FORMATS[2].1(1, minute / 60, minute % 60));
    fs::write(&log, (0..1200).map(line).collect::<String>()).unwrap();
    let suggested = |listener: Option<&str>| {
        let mut options = options(log.clone());
        options.traffic.listener = listener.map(str::to_owned);
        let mut out = Vec::new();
        run(&options, Files { routes: Some(&file), gateway: &file }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let config = suggested(None);
    assert!(config.contains("pass `--listener https` (then 1000 of 1000 match)"), "{config}");
    let config = suggested(Some("https"));
    assert!(config.contains("# shop: 1200 requests of 1 client"), "{config}");
    assert!(!config.contains("--listener"), "{config}");
}

const TWO_LISTENERS: &str = "\
listeners: [{ name: http, listen: 127.0.0.1:1 }, { name: https, listen: 127.0.0.1:2 }]
routes:
  - { name: shop, match: { listener: https }, respond: 204 }
";

const ALL_BUT_IMAGES: &str = "\
listeners: [{ name: web, listen: 127.0.0.1:0 }]
upstreams: [{ name: app, servers: [{ url: http://127.0.0.1:1 }] }]
routes:
  - { name: shop, match: { host: shop.example, path_prefix: /api }, upstream: app }
  - { name: home, match: { host: shop.example, path: / }, upstream: app }
";

/// A format of logs: how it writes the request of a client at a minute and a second.
type Format = (&'static str, fn(client: usize, minute: usize, second: usize) -> String);

/// Every format that is read, of the same requests at 5 o'clock.
const FORMATS: [Format; 8] = [
    ("events", |client, minute, second| {
        let at = (minute * 60 + second) * 1000;
        format!(
            "{{\"t\":{at},\"client_ip\":\"192.0.2.{client}\",\"path\":\"/api/x\",\"duration\":0}}"
        )
    }),
    ("combined", |client, minute, second| {
        format!(
            "192.0.2.{client} - - [21/Nov/2026:05:{minute:02}:{second:02} +0000] \"GET /api/x HTTP/1.1\" 200 5 \"-\" \"curl\""
        )
    }),
    ("common", |client, minute, second| {
        format!(
            "192.0.2.{client} - - [21/Nov/2026:05:{minute:02}:{second:02} +0000] \"GET /api/x HTTP/1.1\" 200 5"
        )
    }),
    ("caddy", |client, minute, second| {
        let ts = 1_795_237_200 + minute * 60 + second;
        format!(
            "{{\"ts\":{ts}.0,\"request\":{{\"remote_ip\":\"192.0.2.{client}\",\"method\":\"GET\",\"host\":\"h\",\"uri\":\"/api/x\"}},\"duration\":0.0,\"status\":200}}"
        )
    }),
    ("envoy text", |client, minute, second| {
        format!(
            "[2026-11-21T05:{minute:02}:{second:02}.000Z] \"GET /api/x HTTP/2\" 200 - 0 5 0 0 \"192.0.2.{client}\" \"-\" \"-\" \"h\" \"-\""
        )
    }),
    ("envoy JSON", |client, minute, second| {
        format!(
            "{{\"start_time\":\"2026-11-21T05:{minute:02}:{second:02}.000Z\",\"method\":\"GET\",\"path\":\"/api/x\",\"response_code\":200,\"duration\":0,\"downstream_remote_address\":\"192.0.2.{client}:99\"}}"
        )
    }),
    ("traefik", |client, minute, second| {
        format!(
            "{{\"StartUTC\":\"2026-11-21T05:{minute:02}:{second:02}.0Z\",\"RequestMethod\":\"GET\",\"RequestPath\":\"/api/x\",\"Duration\":0,\"ClientHost\":\"192.0.2.{client}\",\"DownstreamStatus\":200}}"
        )
    }),
    ("flowgate", |client, minute, second| {
        format!(
            "{{\"ts\":\"2026-11-21T05:{minute:02}:{second:02}.0Z\",\"method\":\"GET\",\"host\":\"h\",\"path\":\"/api/x\",\"route\":\"all\",\"status\":200,\"duration_ms\":0.0,\"outcome\":\"completed\",\"client_ip\":\"192.0.2.{client}\",\"config_hash\":\"0\",\"flow\":{{\"decision\":\"passed\",\"wait_ms\":0.0}}}}"
        )
    }),
];

#[test]
fn the_same_traffic_in_every_format_gives_the_same_limit() {
    // At most one request a second: some logs have no parts of a second.
    let mut rng = Rng::with_seed(3);
    let mut requests = Vec::new();
    for at in 0..3600 {
        let client = if at % 3 == 0 { 200 } else { rng.usize(0..120) };
        if rng.f64() < 0.7 {
            requests.push((client, at / 60, at % 60));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut configs: Vec<(String, Vec<String>)> = Vec::new();
    for (name, line) in FORMATS {
        let lines = requests.iter().map(|(client, minute, second)| line(*client, *minute, *second));
        let text = lines.collect::<Vec<_>>().join("\n") + "\n";
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(text.as_bytes()).unwrap();
        for (name, bytes) in [
            (name.to_owned(), text.into_bytes()),
            (format!("{name}, gzipped"), gzip.finish().unwrap()),
        ] {
            let path = folder.path().join(&name);
            fs::write(&path, bytes).unwrap();
            let (result, config) = suggest(&options(path));
            assert_eq!(result, SuggestResult::Proposed, "{name}: {config}");
            let rules: Vec<String> =
                config.lines().filter(|line| line.contains("limit:")).map(str::to_owned).collect();
            assert!(!rules.is_empty(), "{name}: {config}");
            configs.push((name, rules));
        }
    }
    let (_, expected) = &configs[0];
    for (name, rules) in &configs {
        assert_eq!(rules, expected, "{name}");
    }
}
