//! The examples are safe to copy: a scenario proves what each of them claims, and fails if one of
//! its numbers is another.

use core::ops::Range;
use flowgate::{config, flow::Instant, replay::Engine};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

/// An example and its scenario.
#[derive(Clone)]
struct Example {
    config: PathBuf,
    scenario: PathBuf,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every configuration that is offered to readers.
fn examples() -> Vec<Example> {
    let folder = root().join("examples");
    let entries = fs::read_dir(&folder).expect("there are examples");
    let mut configs: Vec<_> = entries
        .map(|entry| entry.expect("it is listed").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        // Configuration and tests in one file.
        .filter(|path| !path.ends_with("scenario.yaml"))
        .collect();
    configs.sort();
    assert!(configs.len() >= 10, "{configs:?}");
    configs.push(root().join("gateway.yaml"));
    let scenario = |stem: &str| folder.join("scenarios").join(stem).with_extension("yaml");
    let named = configs.into_iter().map(|config| {
        let stem = config.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        Example { config, scenario: scenario(&stem) }
    });
    let folders = ["cluster", "files", "kubernetes"].map(|name| Example {
        config: folder.join(name).join("gateway.yaml"),
        scenario: scenario(name),
    });
    named.chain(folders).collect()
}

fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).map_err(|error| (path, error));
    text.expect("it can be read")
}

fn flowgate_test(arguments: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.arg("test").args(arguments).output().expect("it runs")
}

#[test]
fn every_example_says_what_it_does_not_protect_against_and_that_it_is_whole() {
    for Example { config, .. } in examples() {
        let text = read(&config);
        let name = config.display();
        let head = text.lines().take_while(|line| line.starts_with('#'));
        let warns = head.filter(|line| line.starts_with("# Does not protect against: ")).count();
        assert_eq!(warns, 1, "{name}: one line of the first comment says it");
        assert!(text.trim_end().ends_with("\nend: true"), "{name} ends with `end: true`");
    }
}

#[test]
fn a_scenario_proves_each_example() {
    let examples = examples();
    let count =
        fs::read_dir(root().join("examples/scenarios")).expect("there are scenarios").count();
    assert_eq!(count, examples.len(), "one scenario for each example");
    for Example { config, scenario } in examples {
        let relative = read(&scenario);
        let named = relative.lines().find_map(|line| line.strip_prefix("config: "));
        let named = scenario.with_file_name(named.expect("it names its example"));
        assert_eq!(named.canonicalize().ok(), config.canonicalize().ok(), "{}", scenario.display());
        let output = flowgate_test(&[&scenario]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_rule_of_an_example_decides_in_its_scenario() {
    for Example { config, scenario } in examples() {
        let plan = config::read_rules(&config).expect("it is well-formed");
        let engine = Engine::new(plan, Instant::EPOCH, None);
        let text = read(&scenario);
        let untested = untested(&text);
        for route in &engine.snapshot().routes {
            let slots = route.rules.iter().map(|rule| rule.slot);
            for slot in slots.chain(route.breaker).chain(route.pacing) {
                let name = route.rule_name(slot);
                if untested.iter().any(|known| known == name) {
                    continue;
                }
                let decided = format!(" by {name}");
                let by = text.split(&decided).skip(1);
                let mut ends = by.map(|rest| rest.starts_with([',', ' ', '\n']));
                assert!(ends.any(|ends| ends), "{}: nothing is `by {name}`", scenario.display());
            }
        }
    }
}

#[test]
fn no_number_of_an_example_can_change_unnoticed() {
    let run = |example: Example| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let changed = folder.path().join("changed.yaml");
        let text = read(&example.config);
        let mut unnoticed = Vec::new();
        let untested = untested(&read(&example.scenario));
        for (place, other) in changes(&text, &untested) {
            let mut other_text = text.clone();
            other_text.replace_range(place.clone(), &other);
            fs::write(&changed, other_text).expect("written");
            let output = flowgate_test(&["-c".as_ref(), &changed, &example.scenario]);
            let said = String::from_utf8_lossy(&output.stdout);
            if !said.contains(" ... FAILED\n") {
                let line = text[..place.start].matches('\n').count() + 1;
                unnoticed.push(format!(
                    "{}:{line}: `{other}` in place of `{}` {}",
                    example.config.display(),
                    &text[place],
                    String::from_utf8_lossy(&output.stderr)
                ));
            }
        }
        unnoticed
    };
    let threads: Vec<_> =
        examples().into_iter().map(|example| thread::spawn(move || run(example))).collect();
    let unnoticed: Vec<_> =
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    assert!(unnoticed.is_empty(), "{}", unnoticed.join("\n"));
}

/// Returns changes that make rules laxer, each alone: doubled numbers, a window that is not strict,
/// keys that need not be there.
fn changes(text: &str, untested: &[String]) -> Vec<(Range<usize>, String)> {
    let mut changes = Vec::new();
    for key in ["limit: ", "burst: ", "concurrency: ", "rate: ", "open_for: ", "probes: "] {
        for (at, _) in text.match_indices(key) {
            let start = at + key.len();
            let is_key = text[..at].ends_with([' ', '{']);
            let digits = text[start..].bytes().take_while(u8::is_ascii_digit).count();
            if let Some(number) = text[start..start + digits].parse::<u64>().ok().filter(|_| is_key)
            {
                changes.push((start..start + digits, (2 * number).to_string()));
            }
        }
    }
    for (word, other) in
        [("strict: true", "strict: false"), ("on_missing_key: reject", "on_missing_key: skip")]
    {
        changes.extend(
            text.match_indices(word).map(|(at, _)| (at..at + word.len(), other.to_owned())),
        );
    }
    changes.retain(|(place, _)| {
        let line = text[..place.start].rfind('\n').map_or(0, |at| at + 1);
        let line = &text[line..place.start];
        let is_untested = untested.iter().any(|name| line.contains(&format!("name: {name},")));
        // What a comment says is not changed.
        !is_untested && !line.contains('#')
    });
    changes
}

/// Returns the rules that a scenario says it does not test, and why.
fn untested(scenario: &str) -> Vec<String> {
    let lines = scenario.lines().filter_map(|line| line.strip_prefix("# Not tested: "));
    lines.filter_map(|line| Some(line.split_once(", as ")?.0.to_owned())).collect()
}
