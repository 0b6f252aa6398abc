//! `flowgate replay`: what it decides, prints and rejects.

#![expect(clippy::float_cmp, reason = "decimals that are written as they were read")]

#[path = "replay/azure.rs"]
mod azure;
#[path = "replay/decisions.rs"]
mod decisions;
#[path = "replay/golden.rs"]
mod golden;
#[path = "replay/logs.rs"]
mod logs;
#[path = "replay/prefixes.rs"]
mod prefixes;
#[path = "replay/report.rs"]
mod report;

use flowgate::replay::{self, Options, Output, ReplayError, TrafficOptions};
use std::{fs, path::Path};

/// A configuration whose one route has `rules`, which are lines of YAML.
fn one_route(rules: &str) -> String {
    config(&format!("  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n{rules}"))
}

/// A configuration with `routes`, which are lines of YAML.
fn config(routes: &str) -> String {
    format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         upstreams: [{{ name: up, servers: [{{ url: http://127.0.0.1:9 }}] }}]\n\
         routes:\n{routes}\n"
    )
}

fn options(input: &Path) -> Options {
    Options {
        traffic: TrafficOptions {
            inputs: vec![input.to_owned()],
            format: None,
            host: None,
            listener: None,
        },
        route: None,
        output: Output::Decisions,
        against: None,
        html: None,
        svg: None,
        strict: false,
    }
}

/// Replays `input` through `config` and returns what was printed and what was complained of.
fn replayed(
    config: &str,
    input: impl AsRef<[u8]>,
    change: impl Fn(&mut Options),
) -> Result<(String, String), ReplayError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config_file = folder.path().join("gateway.yaml");
    let input_file = folder.path().join("input");
    fs::write(&config_file, config).expect("written");
    fs::write(&input_file, input).expect("written");
    let mut options = options(&input_file);
    change(&mut options);
    let mut out = Vec::new();
    let mut complaints = Vec::new();
    replay::run(&options, &config_file, &mut out, &mut complaints, None)?;
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    Ok((text(out), text(complaints)))
}
