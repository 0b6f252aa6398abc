//! What is installed beside the program: that it is there, and what it is made of.

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect(name)
}

/// What `Cargo.toml` says of the Debian package.
fn deb() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    all["packages"][0]["metadata"]["deb"].clone()
}

/// Whether a file is there, whose name may have one `*`.
fn is_there(pattern: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return root().join(pattern).exists();
    };
    let (folder, before) = before.rsplit_once('/').expect("a folder");
    let files = fs::read_dir(root().join(folder)).expect(folder);
    let names =
        files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned());
    names.into_iter().any(|name| name.starts_with(before) && name.ends_with(after))
}

#[test]
fn the_package_names_files_that_exist_or_that_its_script_makes() {
    let deb = deb();
    let assets = deb["assets"].as_array().expect("a list");
    let mut made = Vec::new();
    for asset in assets {
        let source = asset[0].as_str().expect("a path");
        match source.strip_prefix("target/package/") {
            Some(name) => made.push(name),
            None => assert!(is_there(source), "{source}"),
        }
    }
    let expected = [
        "flowgate",
        "completions/flowgate",
        "completions/_flowgate",
        "completions/flowgate.fish",
        "man/*.1.gz",
    ];
    assert_eq!(made, expected);
    let script = read("packaging/build");
    for name in &expected[1..4] {
        assert!(script.contains(&format!("\"$out/{name}\"")), "{name}");
    }
    let page = read("docs/access-log.md");
    assert!(page.contains(&read("packaging/logrotate")), "the page shows what is installed");
    let scripts = deb["maintainer-scripts"].as_str().expect("a folder");
    assert!(read(&format!("{scripts}/postinst")).contains("#DEBHELPER#"));
    let units = deb["systemd-units"]["unit-scripts"].as_str().expect("a folder");
    assert!(root().join(units).join("flowgate.service").exists());
}

#[test]
fn the_unit_and_the_image_run_commands_that_the_program_has() {
    let unit = read("packaging/flowgate.service");
    let commands: Vec<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Exec")?.split_once("=flowgate "))
        .map(|(_, command)| command)
        .collect();
    let file = "/etc/flowgate/gateway.yaml";
    assert_eq!(commands, [format!("run -c {file}"), format!("check -c {file}")]);
    assert!(read("Dockerfile").contains(&format!("CMD [\"run\", \"-c\", \"{file}\"]")));
    assert_eq!(deb()["conf-files"][0], file);
    // What is installed under that name.
    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["check", "-c"])
        .arg(root().join("examples/plain.yaml"))
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_image_and_the_package_ship_what_the_profile_dist_makes() {
    assert!(read("Dockerfile").contains("cargo build --profile dist --locked"));
    assert!(read("Dockerfile").contains("/src/target/dist/flowgate"));
    assert!(read("packaging/build").contains("cargo build --profile dist --locked"));
    assert!(read("Cargo.toml").contains("[profile.dist]"));
}

#[test]
fn optimized_builds_use_a_profile_that_the_compiler_can_read() {
    let wrapper = root().join("packaging/profile/rustc");
    let profile = root().join("packaging/profile/requests.profdata");
    let run = |words: &[&str]| {
        let mut command = Command::new(&wrapper);
        let output = command.args(words).current_dir(env!("CARGO_TARGET_TMPDIR")).output();
        let output = output.expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    for level in ["2", "3", "s"] {
        let words = ["echo", "-C", &format!("opt-level={level}"), "-C", "lto=fat"];
        let (_, shown) = run(&words);
        let expected = format!(" -Cprofile-use={} ", profile.display());
        assert!(shown.contains(&expected), "{shown}");
    }
    for plain in [
        "-vV name=a",
        "-C opt-level=1",
        "-C opt-level=2 -Cprofile-generate=a",
        "-Cinstrument-coverage -C opt-level=3",
    ] {
        let words: Vec<&str> = ["echo"].into_iter().chain(plain.split(' ')).collect();
        assert_eq!(run(&words), (true, format!("{plain}\n")));
    }
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty.rs");
    fs::write(&empty, "pub fn one() -> u8 { 1 }").expect("it can be written");
    let empty = empty.display().to_string();
    let words = ["rustc", "--crate-type=rlib", "-C", "opt-level=2", &empty];
    assert_eq!(run(&words), (true, String::new()));
}

#[test]
fn one_command_runs_every_test_for_people_and_for_the_gate() {
    let command = "cargo test --locked --no-fail-fast";
    for name in ["README.md", "CONTRIBUTING.md", ".ci/run"] {
        assert!(read(name).contains(command), "{name}");
    }
}

#[test]
fn the_program_prints_its_completions_and_pages() {
    let print = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate")).args(words).output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for (shell, word) in
        [("bash", "complete "), ("zsh", "#compdef flowgate"), ("fish", "complete -c")]
    {
        let (code, script) = print(&["completions", shell]);
        assert!(code == Some(0) && script.contains(word), "{shell}: {script}");
    }
    for words in [&["man"][..], &["man", "replay"]] {
        let (code, page) = print(words);
        assert!(code == Some(0) && page.contains(".SH SYNOPSIS"), "{words:?}: {page}");
    }
    assert_eq!(print(&["man", "nonsense"]), (Some(2), String::new()));
    assert_eq!(print(&["completions", "nonsense"]).0, Some(2));
    let names = print(&["man"]).1;
    let pages: Vec<PathBuf> = names
        .lines()
        .filter_map(|line| line.strip_prefix("flowgate\\-")?.strip_suffix("(1)"))
        .map(PathBuf::from)
        .collect();
    assert!(pages.len() >= 8, "packaging/build finds the pages so: {pages:?}");
}
