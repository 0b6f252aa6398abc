//! Checks the sources against the layers of ARCHITECTURE.md. A failure names the
//! line that breaks a rule, and what to do instead.
//!
//! The sources are read as text: tokens without comments, strings and tests. That
//! sees every `use` and every path written out, which is how a dependency begins.

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/lints.rs"]
mod lints;
#[path = "architecture/source.rs"]
mod source;
#[path = "architecture/texture.rs"]
mod texture;

use circles::{File, circles};
use source::{
    Token, absolute, bindings, dependencies, module_of, named_in, paths, strings, tokens,
    without_tests,
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A module at the top of `src/`, and what it may name beside itself, `core` and
/// `std`.
struct Layer {
    name: &'static str,
    inside: &'static [&'static str],
    /// Crates; `None` is any.
    outside: Option<&'static [&'static str]>,
}

/// Lower layers first. `lib.rs` and `main.rs` wire everything and are not listed.
const LAYERS: &[Layer] = &[
    pure("labels", &[], &[]),
    pure("flow", &[], &["ahash", "humantime", "serde", "smallvec", "thiserror"]),
    pure("http1", &[], &["bytes", "http", "httparse", "itoa", "smallvec", "thiserror"]),
    pure("geo", &[], &["ahash", "maxminddb", "serde", "thiserror"]),
    pure(
        "route",
        &["http1", "geo"],
        &["ahash", "http", "ipnet", "regex", "serde", "siphasher", "smallvec", "thiserror"],
    ),
    pure("meter", &[], &["http"]),
    pure("usage", &[], &["flate2", "memchr", "thiserror"]),
    pure("hex", &[], &[]),
    pure("terminal_text", &[], &[]),
    pure("counted", &[], &[]),
    pure("health", &["flow"], &[]),
    pure(
        "auth",
        &["flow", "route", "hex"],
        &["ahash", "base64", "bcrypt", "http", "jsonwebtoken", "serde_json"],
    ),
    pure(
        "config",
        &["flow", "geo", "route", "meter", "usage", "counted", "health", "auth"],
        CONFIG_CRATES,
    ),
    io("clock", &["flow"]),
    io("cluster", &["flow", "route", "config", "clock"]),
    io("shutdown", &["flow", "clock"]),
    io("certs", &[]),
    io("acme", &["flow", "config", "clock"]),
    io("lines", &[]),
    io("key_names", &[]),
    io("small_http", &["flow", "clock"]),
    io("demo", &["flow", "clock", "small_http"]),
    io("access_log", &["flow", "route", "meter", "config", "clock", "lines"]),
    io("preview", &["flow", "geo", "route", "counted", "terminal_text", "config", "access_log"]),
    io("rejections", &["flow", "route", "terminal_text", "config", "access_log", "key_names"]),
    io("worst_paths", &["flow"]),
    io("traces", &["flow", "meter", "http1", "hex", "config", "clock", "access_log"]),
    io(
        "proxy",
        &[
            "flow",
            "geo",
            "route",
            "meter",
            "http1",
            "usage",
            "hex",
            "health",
            "auth",
            "config",
            "clock",
            "cluster",
            "acme",
            "access_log",
            "key_names",
            "preview",
            "traces",
            "rejections",
            "worst_paths",
        ],
    ),
    io("explain", &["flow", "geo", "http1", "route", "terminal_text", "health", "config", "proxy"]),
    io(
        "admin",
        &[
            "flow",
            "route",
            "meter",
            "config",
            "clock",
            "cluster",
            "acme",
            "access_log",
            "key_names",
            "preview",
            "rejections",
            "worst_paths",
            "explain",
            "small_http",
        ],
    ),
    io(
        "replay",
        &["flow", "geo", "route", "usage", "counted", "terminal_text", "config", "access_log"],
    ),
    io("scenario", &["flow", "route", "config", "counted", "replay"]),
    io("admin_client", &["terminal_text", "config"]),
    io(
        "suggest",
        &[
            "flow",
            "route",
            "counted",
            "terminal_text",
            "config",
            "clock",
            "shutdown",
            "replay",
            "admin_client",
        ],
    ),
    io("import", &["geo", "route", "terminal_text", "config"]),
    io("docker", &["terminal_text", "config", "clock", "shutdown"]),
    io(
        "cli",
        &[
            "flow",
            "route",
            "counted",
            "terminal_text",
            "config",
            "clock",
            "shutdown",
            "certs",
            "access_log",
            "preview",
            "rejections",
            "explain",
            "admin",
            "replay",
            "scenario",
            "admin_client",
            "suggest",
            "import",
            "docker",
        ],
    ),
    io(
        "top",
        &[
            "terminal_text",
            "config",
            "worst_paths",
            "admin",
            "counted",
            "admin_client",
            "cli",
            "clock",
        ],
    ),
    io("workers", &["flow", "meter", "config", "clock", "access_log", "proxy"]),
    io("gateway", EVERY_LAYER),
];

const CONFIG_CRATES: &[&str] = &[
    "ahash",
    "annotate_snippets",
    "bytes",
    "bytesize",
    "http",
    "humantime",
    "ipnet",
    "regex",
    "serde",
    "serde_json",
    "serde_yaml",
    "smallvec",
    "strsim",
    "thiserror",
];

const EVERY_LAYER: &[&str] = &[
    "flow",
    "route",
    "meter",
    "terminal_text",
    "health",
    "auth",
    "config",
    "clock",
    "cluster",
    "shutdown",
    "certs",
    "acme",
    "lines",
    "access_log",
    "key_names",
    "preview",
    "traces",
    "rejections",
    "worst_paths",
    "proxy",
    "admin",
    "workers",
];

/// One file that may name what the rest of its layer may not.
const GRANTS: &[(&str, &[&str])] = &[
    ("config::live::watch", &["notify", "tokio", "tracing"]),
    ("config::live::builder", &["arc_swap"]),
    ("config::live::current", &["arc_swap"]),
    ("config::snapshot::upstream", &["arc_swap"]),
    ("config::compile::plan_file", &["csv"]),
    ("config::spec::calendar", &["jiff"]),
    ("config::plan::certificate", &["aws_lc_rs", "rustls", "webpki"]),
    ("config::plan::acme", &["aws_lc_rs", "rcgen", "rustls"]),
    ("config::compile::acme", &["base64"]),
    ("config::plan::server_verifier", &["rustls", "webpki"]),
    ("config::plan::tls_terms", &["aws_lc_rs", "rustls"]),
    ("config::plan::upstream_tls", &["aws_lc_rs", "rustls", "rustls_native_certs"]),
    ("config::plan::admin_tls", &["aws_lc_rs", "rustls"]),
    ("auth::client_certificate", &["aws_lc_rs", "rcgen", "x509_cert"]),
    ("auth::jwt", &["rcgen"]),
    ("config::tests::acme", &["rcgen"]),
    ("config::tests::certificates", &["rcgen"]),
    ("config::tests::examples", &["rcgen"]),
];

/// What only one layer names, whatever else a layer may.
const ONLY_IN: &[(&str, &str, &str)] = &[
    ("notify", "config", "take what config::watch sends"),
    ("arc_swap", "config preview access_log", "load the snapshot through config::Live"),
    ("serde_yaml", "config", "take a compiled Snapshot: only config reads YAML"),
    ("annotate_snippets", "config", "print config::Diagnostics"),
    ("redis", "cluster", "ask the store through cluster"),
    ("httparse", "http1", "read heads through http1"),
    ("maxminddb", "geo", "look places up through geo"),
    ("Instant::now", "clock", "take flow::Instant as a parameter, or ask a Clock"),
    ("SystemTime::now", "clock", "wall time decides nothing: take flow::Instant as a parameter"),
    ("time::sleep", "clock", "sleep through Clock::sleep_until"),
    ("time::sleep_until", "clock", "sleep through Clock::sleep_until"),
    ("time::timeout", "clock small_http admin_client demo", "bound a wait through Clock::timeout"),
    ("thread::sleep", "", "never: it stops a whole worker"),
];

/// Modules of `std` that touch the world. `core::net` has the addresses.
const WORLD: &[&str] = &["env", "fs", "io", "net", "os", "process", "thread"];
/// Layers that compute from values alone.
const NO_WORLD: &[&str] = &["flow", "geo", "route", "meter", "http1", "usage", "health", "auth"];

/// Where a lock may be taken within the layers that decide.
const LOCKS: &[&str] = &["flow::gate", "config::live::current"];

/// Words that once meant `rejected`, or decisions: whoever reads a log, a metric, a page or an
/// error meets `passed`, `delayed`, `rejected` and its reasons only.
const OLD_WORDS: &str =
    r"(^|[^a-z])(refus[a-z]*|blocks?|blocked|sheds?|shedding|broken|verdicts?)($|[^a-z])";

/// Words that names in sources and tests do not have, what to write instead, and where they mean
/// something else: HTTP has exchanges, and servers refuse streams of HTTP/2.
const OLD_NAMES: &[(&str, &str, &[&str])] = &[
    (
        "exchange exchanged exchanges exchanging periodic",
        "sync",
        &["src/proxy/", "src/small_http.rs", "src/traces/", "tests/http1/"],
    ),
    (
        "refuse refused refuses refusing refusal refusals",
        "reject",
        &["src/proxy/upstream/", "src/proxy/tests/simulation/", "tests/e2e/upstream_http2.rs"],
    ),
    ("tell tells telling told", "report, send or say", &[]),
    ("fate fates", "outcome", &[]),
    ("asleep", "idle", &[]),
    ("attend attends", "maintain", &[]),
    ("dial dials dialed dialer", "connect", &[]),
    ("linger lingers lingering", "drain", &[]),
];

/// Names of other crates.
const FOREIGN_NAMES: &[&str] =
    &["compare_exchange", "ConnectionRefused", "REFUSED_STREAM", "set_linger"];

/// Circles that are still to be taken apart. This list only gets shorter.
const REMAINING_CIRCLES: &[&str] = &[];

const fn pure(
    name: &'static str,
    inside: &'static [&'static str],
    outside: &'static [&'static str],
) -> Layer {
    Layer { name, inside, outside: Some(outside) }
}

const fn io(name: &'static str, inside: &'static [&'static str]) -> Layer {
    Layer { name, inside, outside: None }
}

#[test]
fn the_sources_keep_to_their_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = rust_files(&root.join("src"));
    assert!(
        files.iter().any(|file| file.starts_with(root.join("src/flow"))),
        "the walk found no file of src/flow, so it proves nothing"
    );
    let crates = dependencies(&read(&root.join("Cargo.toml")));
    let violations: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
            violations(&name, &read(file), &crates)
        })
        .collect();
    assert!(
        violations.is_empty(),
        "{} against the layers of ARCHITECTURE.md:\n{}",
        violations.len(),
        violations.join("\n")
    );
}

#[test]
fn no_folders_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<(String, String)> = rust_files(&root.join("src"))
        .iter()
        .filter(|file| !is_test(file))
        .map(|file| (file.strip_prefix(root).unwrap_or(file).display().to_string(), read(file)))
        .collect();
    let files: Vec<File<'_>> = sources
        .iter()
        .filter(|(name, _)| name != "src/main.rs")
        .map(|(name, source)| (module_of(name), without_tests(&tokens(source))))
        .collect();
    assert!(files.len() > 100, "the walk found {} files, so it proves nothing", files.len());

    let found: Vec<String> = circles(&files)
        .into_iter()
        .map(|circle| circle.join(", "))
        .filter(|circle| !REMAINING_CIRCLES.contains(&circle.as_str()))
        .collect();
    assert!(
        found.is_empty(),
        "a folder and its neighbours import each other in a circle: move what both need into a \
         place of its own, which imports neither\n{}",
        found.join("\n")
    );
}

#[test]
fn a_circle_through_a_folder_is_found() {
    let circles_of = |sources: &[(&str, &str)]| {
        let files: Vec<File<'_>> = sources
            .iter()
            .map(|(name, source)| (module_of(name), without_tests(&tokens(source))))
            .collect();
        circles(&files)
    };

    let shown = [
        ("src/a/mod.rs", "mod one; mod two; pub use two::Two; pub(crate) use self::one::One;"),
        ("src/a/one.rs", "use crate::b::B; pub struct One;"),
        ("src/a/two.rs", "pub struct Two;"),
        ("src/b/mod.rs", "pub struct B; fn f() -> crate::a::Two { crate::a::Two }"),
    ];
    assert_eq!(circles_of(&shown), [["a", "b"]], "by different files of a folder");
    let inner = [
        ("src/a/mod.rs", "mod one; mod two;"),
        ("src/a/one.rs", "use super::two::Two; pub struct One;"),
        ("src/a/two/mod.rs", "mod deep; pub use deep::Two;"),
        ("src/a/two/deep.rs", "pub struct Two; use crate::a::one::One;"),
    ];
    assert_eq!(circles_of(&inner), [["a::one", "a::two"]], "a file and an inner folder");

    let siblings = [
        ("src/a/mod.rs", "mod one; mod two;"),
        ("src/a/one.rs", "use super::two::Two; pub struct One;"),
        ("src/a/two.rs", "use super::one::One; pub struct Two;"),
    ];
    assert_eq!(circles_of(&siblings), Vec::<Vec<String>>::new(), "files of one folder");
    let one_way = [
        ("src/a.rs", "mod one; pub use one::One; pub struct A;"),
        ("src/a/one.rs", "use super::A; #[cfg(test)] mod tests { use crate::b::B; }"),
        ("src/b/mod.rs", "mod inner; use crate::a::One; use std::fmt;"),
        ("src/b/inner.rs", "use crate::a::A;"),
    ];
    assert_eq!(circles_of(&one_way), Vec::<Vec<String>>::new(), "a folder below another");
}

#[test]
fn every_dependency_has_its_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let reasons = read(&root.join("docs/dependencies.md"));
    let manifest = read(&root.join("Cargo.toml"));
    for section in ["dependencies", "dev-dependencies"] {
        for name in named_in(&manifest, section) {
            assert!(
                reasons.contains(&format!("| `{name}` | ")),
                "{name} has no row in the tables of docs/dependencies.md: say there what it is for"
            );
        }
    }
}

#[test]
fn each_broken_rule_is_found_with_its_fix() {
    let cases = [
        ("src/flow/gate.rs", "use http::StatusCode;", "flow names http"),
        ("src/flow/gate.rs", "fn f() { tokio::spawn(f) }", "flow names tokio"),
        ("src/http1/head.rs", "use std::io::Read;", "http1 names std::io"),
        ("src/flow/gate.rs", "use std::{sync::Arc, net::TcpStream};", "flow names std::net"),
        ("src/flow/gate.rs", "use crate::{flow::Rate, config::Live};", "flow names crate::config"),
        ("src/flow/limiter/mod.rs", "use super::super::proxy;", "flow names crate::proxy"),
        (
            "src/flow/window.rs",
            "use std::sync::{Arc, Mutex};",
            "only gate/mod.rs and live/current.rs lock",
        ),
        ("src/flow/window.rs", "async fn f() {}", "takes time as a value"),
        ("src/route/mod.rs", "use crate::flow::Rate;", "route names crate::flow"),
        ("src/config/compile.rs", "use notify::Watcher;", "config names notify"),
        ("src/config/compile.rs", "use arc_swap::ArcSwap;", "config names arc_swap"),
        ("src/config/spec.rs", "use tokio_rustls::rustls;", "config names tokio_rustls"),
        ("src/config/mod.rs", "use crate::proxy::Worker;", "config names crate::proxy"),
        ("src/proxy/mod.rs", "use serde_yaml::Spanned;", "only config reads YAML"),
        ("src/cluster/store.rs", "use super::redis::{Outages, slots::tag};", "mod.rs re-exports"),
        ("src/proxy/mod.rs", "use crate::admin::Readiness;", "proxy names crate::admin"),
        ("src/proxy/mod.rs", "fn f() { std::time::Instant::now(); }", "flow::Instant"),
        ("src/admin/mod.rs", "fn f() { std::time::SystemTime::now(); }", "wall time"),
        ("src/demo/mod.rs", "async fn f() { tokio::time::sleep(d).await }", "Clock::sleep_until"),
        (
            "src/proxy/mod.rs",
            "use tokio::{sync::Mutex, time::timeout};",
            "bound a wait through Clock::timeout",
        ),
        ("src/clock/mod.rs", "fn f() { std::thread::sleep(d) }", "a whole worker"),
        ("src/proxy/worker.rs", "fn f() { unsafe { g() } }", "unsafe"),
        ("src/proxy/worker.rs", "static mut N: u32 = 0;", "nothing is global"),
        ("src/proxy/worker.rs", "static N: AtomicU32 = AtomicU32::new(0);", "nothing is global"),
        ("src/proxy/worker.rs", "thread_local! { }", "nothing is global"),
        ("src/proxy/worker.rs", "use crate::Gateway;", "nothing calls back up"),
        ("src/cache.rs", "fn f() {}", "give it a row there"),
    ];
    for (file, source, expected) in cases {
        let found = violations(file, source, &known_crates());
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "`{source}` in {file}: expected one line with `{expected}`, got {found:#?}"
        );
        assert!(found[0].starts_with(&format!("{file}:1: ")), "{}", found[0]);
    }
}

#[test]
fn what_is_allowed_is_not_found() {
    let cases = [
        ("src/flow/gate.rs", "use std::sync::{Arc, Mutex}; use core::time::Duration;"),
        (
            "src/flow/gate.rs",
            "// http::StatusCode\n/* tokio::spawn */ fn f() { \"unsafe\"; r#\"http::\"#; }",
        ),
        ("src/flow/gate.rs", "#[cfg(test)]\nmod tests { use std::thread; fn f() { http::x() } }"),
        ("src/flow/time.rs", "fn f<'a>(x: &'a str, c: char) -> &'static str { let q = '\"'; x }"),
        ("src/route/client.rs", "use core::net::IpAddr; use http::HeaderMap;"),
        ("src/config/live/watch.rs", "use notify::Watcher; use tokio::sync::mpsc;"),
        ("src/config/live/current.rs", "use arc_swap::ArcSwap; use crate::flow::Gate;"),
        ("src/config/plan/certificate.rs", "use rustls::sign::CertifiedKey; use webpki::X;"),
        ("src/config/spec/values/mod.rs", "static WORDS: &[&str] = &[\"a\"];"),
        (
            "src/clock/mod.rs",
            "fn f() { tokio::time::Instant::now(); tokio::time::sleep_until(t); }",
        ),
        ("src/proxy/mod.rs", "use crate::{clock::Clock, config::Live}; use super::proxy::Worker;"),
        (
            "src/cluster/decide/request.rs",
            "use crate::cluster::redis::{StoreConnection, tag}; use redis::Cmd;",
        ),
        ("src/cluster/redis/probe.rs", "use super::nodes::Nodes;"),
        ("src/lib.rs", "use crate::gateway; fn f() { admin::serve() }"),
        ("src/main.rs", "fn f() { flowgate::run() }"),
    ];
    for (file, source) in cases {
        let found = violations(file, source, &known_crates());
        assert!(found.is_empty(), "`{source}` in {file}: {found:#?}");
    }
}

/// Returns what breaks a rule in one file, one line each with its fix.
fn violations(file: &str, source: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let module = module_of(file);
    let tokens = without_tests(&tokens(source));
    let mut found = words(&module, &tokens);
    let layer = module.first().and_then(|name| LAYERS.iter().find(|layer| layer.name == *name));
    if let (None, Some(name)) = (layer, module.first()) {
        let fix = "is no layer that ARCHITECTURE.md knows: give it a row there and in LAYERS";
        found.push((1, format!("src/{name} {fix}")));
    }
    for (line, path) in paths(&tokens) {
        let path = absolute(&module, path);
        found.extend(only_in(&module, &path).map(|fix| (line, fix)));
        found.extend(passes_interface(&module, &path).map(|fix| (line, fix)));
        if let Some(fix) = layer.and_then(|layer| crosses(layer, &module, &path, crates)) {
            found.push((line, fix));
        }
    }
    // A forbidden crate is one mistake, however many rules it breaks.
    found.dedup_by_key(|(line, _)| *line);
    found.into_iter().map(|(line, fix)| format!("{file}:{line}: {fix}")).collect()
}

/// Says which wall `path` goes through, if it does.
fn crosses(
    layer: &Layer,
    module: &[&str],
    path: &[&str],
    crates: &BTreeSet<String>,
) -> Option<String> {
    let name = layer.name;
    match path {
        ["crate", first, ..] if *first == name || layer.inside.contains(first) => None,
        ["crate", first, ..] => Some(format!(
            "{name} names crate::{first}; it may name {:?}: nothing calls back up, pass a value or move the code",
            layer.inside
        )),
        ["std", part, ..] if NO_WORLD.contains(&name) && WORLD.contains(part) => Some(format!(
            "{name} names std::{part}: it computes from values alone, let the caller do the IO"
        )),
        [first, ..]
            if layer.outside.is_some_and(|all| !all.contains(first)) && crates.contains(*first) =>
        {
            let here = module.join("::");
            let granted =
                GRANTS.iter().any(|(place, all)| here.starts_with(place) && all.contains(first));
            (!granted).then(|| {
                format!(
                    "{name} names {first}, which is for another layer, or for one file of this one"
                )
            })
        }
        _ => None,
    }
}

/// Says who alone may name `path`, if somebody else is meant.
fn only_in(module: &[&str], path: &[&str]) -> Option<String> {
    let here = module.first().copied().unwrap_or_default();
    let written = path.join("::");
    ONLY_IN
        .iter()
        .filter(|(_, layers, _)| !layers.split(' ').any(|layer| layer == here))
        .find(|(what, _, _)| format!("::{written}::").contains(&format!("::{what}::")))
        .map(|(what, _, fix)| format!("{what}: {fix}"))
}

/// Says what `path` reaches behind the names that `cluster/redis/mod.rs` re-exports, if it does.
fn passes_interface(module: &[&str], path: &[&str]) -> Option<String> {
    let ["crate", "cluster", "redis", inner, _, ..] = path else { return None };
    let is_module = inner.starts_with(|first: char| first.is_ascii_lowercase());
    (is_module && !module.starts_with(&["cluster", "redis"])).then(|| {
        format!("cluster::redis::{inner} is private: name what cluster/redis/mod.rs re-exports")
    })
}

/// Finds what single words show: `unsafe`, locks, async, things global.
fn words(module: &[&str], tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let here = module.join("::");
    let layer = module.first().copied().unwrap_or_default();
    let mut found = Vec::new();
    for (at, &(line, word)) in tokens.iter().enumerate() {
        let fix = match word {
            "unsafe" => Some("no unsafe, not even well meant".to_owned()),
            "static" if is_mutable(&tokens[at + 1..]) => {
                Some("nothing is global: own it in gateway and pass it".to_owned())
            }
            "thread_local" | "lazy_static" => {
                Some("nothing is global: own it in gateway and pass it".to_owned())
            }
            "Mutex" | "RwLock" | "Condvar"
                if ["flow", "route", "config"].contains(&layer)
                    && !LOCKS.iter().any(|place| here == *place) =>
            {
                Some(format!("{layer} takes a lock: only gate/mod.rs and live/current.rs lock"))
            }
            "async" | "await" if NO_WORLD.contains(&layer) => {
                Some(format!("{layer} takes time as a value: the caller does the waiting"))
            }
            _ => None,
        };
        found.extend(fix.map(|fix| (line, fix)));
    }
    found
}

/// Returns whether a `static`, of which `rest` follows, can change while the process runs.
fn is_mutable(rest: &[Token<'_>]) -> bool {
    rest.iter().map(|(_, word)| *word).take_while(|word| *word != "=" && *word != ";").any(|word| {
        matches!(
            word,
            "mut" | "Mutex" | "RwLock" | "OnceLock" | "LazyLock" | "OnceCell" | "RefCell" | "Cell"
        ) || word.starts_with("Atomic")
            || word.starts_with("ArcSwap")
    })
}

fn known_crates() -> BTreeSet<String> {
    dependencies(
        "[dependencies]\narc-swap = \"1\"\nhttp = \"1\"\nnotify = \"8\"\nrustls-webpki = \"0\"\n\
         serde_yaml = \"2\"\ntokio = \"1\"\ntokio-rustls = \"0\"\n[dev-dependencies]\nproptest = \"1\"\n",
    )
}

#[test]
fn decisions_have_one_vocabulary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let old = regex::Regex::new(OLD_WORDS).expect("the pattern is written above");
    assert!(old.is_match("flowgate_http_refused_total") && old.is_match("shed_dry_run"));
    let mut found = Vec::new();
    let mut search = |file: &Path, line: usize, text: &str| {
        // The system's message for a connection is not ours.
        let text = text
            .to_ascii_lowercase()
            .replace("connection refused", "")
            // What HTTP/2 calls one of its codes.
            .replace("refused_stream", "")
            // The end of names of nginx's directives.
            .replace("_by_lua_block", "");
        if let Some(word) = old.find(&text) {
            let file = file.strip_prefix(root).unwrap_or(file).display();
            found.push(format!("{file}:{line}: `{}` in {text}", word.as_str()));
        }
    };
    for file in rust_files(&root.join("src")).into_iter().filter(|file| !is_test(file)) {
        let source = read(&file);
        strings(&source).for_each(|(line, text)| search(&file, line, text));
    }
    // What clap prints of the command line is written as comments.
    let main = root.join("src/cli/mod.rs");
    let source = read(&main);
    let help = (1..).zip(source.lines()).filter(|(_, line)| line.trim_start().starts_with("///"));
    help.for_each(|(line, text)| search(&main, line, text));
    let is_page = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "md");
    let pages = files_in(&root.join("docs")).into_iter().filter(is_page);
    let pages = pages.chain(["README.md", "gateway.schema.json"].map(|page| root.join(page)));
    for page in pages.chain(files_in(&root.join("examples"))) {
        let text = read(&page);
        (1..).zip(text.lines()).for_each(|(line, text)| search(&page, line, text));
    }
    assert!(found.is_empty(), "say `rejected` and why:\n{}", found.join("\n"));
}

#[test]
fn names_have_no_old_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for file in ["src", "tests"].iter().flat_map(|folder| rust_files(&root.join(folder))) {
        let source = read(&file);
        let file = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let names = tokens(&source).into_iter();
        let names = names.filter_map(|(line, name)| Some((line, name, instead_of(&file, name)?)));
        found.extend(names.map(|(line, name, fix)| format!("{file}:{line}: `{name}`: {fix}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_name_with_an_old_word_is_found() {
    let is_old = |file, name| instead_of(file, name).is_some();
    for name in ["is_refused", "REFUSED", "Refusal", "LINGER_BYTES", "OnTold", "who_waits"] {
        assert!(is_old("src/flow/gate.rs", name), "{name}");
    }
    for name in ["ConnectionRefused", "retold", "is_known", "who", "Fated", "compare_exchange"] {
        assert!(!is_old("src/flow/gate.rs", name), "{name}");
    }
    assert!(
        is_old("src/cluster/store.rs", "exchanged") && !is_old("src/small_http.rs", "exchange")
    );
}

/// Says what to write instead of `name`, if it has an old word.
fn instead_of(file: &str, name: &str) -> Option<&'static str> {
    if FOREIGN_NAMES.contains(&name) {
        return None;
    }
    if name.starts_with("who_") || name.starts_with("whoever_") {
        return Some("name the client, gateway or request");
    }
    let mut snake = String::new();
    let mut former = '_';
    for letter in name.chars() {
        if letter.is_uppercase() && former.is_lowercase() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        former = letter;
    }
    let has = |words: &str| snake.split('_').any(|part| words.split(' ').any(|word| word == part));
    let (_, instead, _) = OLD_NAMES.iter().find(|(words, _, elsewhere)| {
        has(words) && !elsewhere.iter().any(|place| file.starts_with(place))
    })?;
    Some(instead)
}

#[test]
fn each_statement_binds_one_value_and_each_argument_has_a_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let folders = ["src", "tests", "benches", "fuzz/targets"];
    let files = folders.iter().flat_map(|folder| rust_files(&root.join(folder)));
    for file in files.chain([root.join("fuzz/codec.rs")]) {
        let source = read(&file);
        let file = file.strip_prefix(root).unwrap_or(&file).display();
        let bindings = bindings(&tokens(&source));
        found.extend(bindings.into_iter().map(|(line, fix)| format!("{file}:{line}: {fix}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_statement_that_binds_two_values_and_an_argument_without_a_name_are_found() {
    let lines = |source: &str| -> Vec<usize> {
        bindings(&tokens(source)).into_iter().map(|(line, _)| line).collect()
    };
    assert_eq!(lines("let (a, mut b) = (1, f(2));"), [1]);
    assert_eq!(lines("\nlet (a, b): (u8, u8) = (1, 2);"), [2]);
    assert_eq!(lines("let [a, b] = [1, f(2)];\nlet [a, b]: [u8; 2] = [0; 2];"), [1, 2]);
    assert_eq!(lines("f();\n(a.b, c[0]) = (1, 2);\n[a, b] = [b, a];"), [2, 3]);
    assert_eq!(lines("if a {\n(a, b) = (b, a)\n}\n(a, b) = (b, a);"), [2, 4]);
    assert_eq!(lines("match a {\nA => (a, b) = (1, 2),\n}; f(|| (a, b) = (1, 2));"), [2, 3]);
    assert_eq!(lines("f.map(|it| it);\nf.all(|&it| it);\nf.any(|(it, _)| it)"), [1, 2, 3]);
    assert_eq!(lines("let (a, b) = f(1, 2); let (c, d) = (*a)?; let (e, f) = (a, b).clone();"), []);
    assert_eq!(lines("let [a, b] = [c, d].map(f); let [a, b] = c[0]; let [a, ..] = f([c]);"), []);
    assert_eq!(lines("(a, b) = f(1, 2); (a, b) = (c, d).clone(); (a, b) == (c, d);"), []);
    assert_eq!(lines("a[0] = [1, 2]; const A: [u8; 2] = [1, 2]; (a, b) += (1, 2);"), []);
    assert_eq!(lines("let Some((a, b)) = c else { return }; f.map(|item| item)"), []);
    assert_eq!(lines("if let (Some(a), Some(b)) = (c, d) { return }"), []);
}

fn is_test(file: &Path) -> bool {
    file.iter().any(|part| ["tests", "tests.rs", "timeline.rs"].iter().any(|test| part == *test))
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is a folder");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("src is a folder");
    let mut all: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it can be listed").path()).collect();
    all.sort();
    all.into_iter()
        // What cargo builds of a package of its own, such as `benches/store`, is not source.
        .filter(|path| !path.ends_with("target"))
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("sources are UTF-8 and readable")
}
