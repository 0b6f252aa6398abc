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
fn the_image_and_the_package_ship_what_packaging_build_makes() {
    assert!(read("Dockerfile").contains("RUN packaging/build program\n"));
    assert!(read("Dockerfile").contains("/src/target/package/flowgate"));
    assert!(read("packaging/build").contains("build --profile dist --locked"));
    assert!(read("Cargo.toml").contains("[profile.dist]"));
}

/// Runs a copy of `packaging/build program` with a cargo and a rustc that write down how they are
/// called, and returns that and what the script says. The compiler is the one named by `commit`.
fn build_with(commit: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profile = folder.path().join("packaging/profile");
    let bin = folder.path().join("bin");
    fs::create_dir_all(&profile).expect("made");
    fs::create_dir_all(&bin).expect("made");
    for name in ["build", "profile/levels.toml", "profile/recorded-with"] {
        fs::copy(root().join("packaging").join(name), folder.path().join("packaging").join(name))
            .expect(name);
    }
    fs::write(profile.join("requests.profdata"), "a profile").expect("written");
    let recorded = read("packaging/profile/recorded-with");
    let of_compiler: String = recorded
        .lines()
        .map(|line| match line.split_once(": ") {
            Some(("commit-hash", known)) if commit != "recorded" => {
                assert_ne!(known, commit);
                format!("commit-hash: {commit}\n")
            }
            Some(_) | None => format!("{line}\n"),
        })
        .collect();
    let script = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/bash\n{text}")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    };
    script(
        "rustc",
        &format!("printf 'rustc 1\\nbinary: rustc\\n{}'\n", of_compiler.replace('\n', "\\n")),
    );
    script(
        "cargo",
        "echo \"$CARGO_ENCODED_RUSTFLAGS $*\" >called\nmkdir -p \"${@: -1}/dist\"\n\
         echo >\"${@: -1}/dist/flowgate\"\n",
    );
    let paths = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(folder.path().join("packaging/build"))
        .arg("program")
        .env("PATH", format!("{}:{paths}", bin.display()))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("FLOWGATE")
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert!(folder.path().join("target/package/flowgate").exists());
    let called = fs::read_to_string(folder.path().join("called")).expect("cargo was called");
    (called, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_is_shipped_has_the_recorded_profile_for_the_compiler_that_it_was_recorded_with() {
    let (called, said) = build_with("recorded");
    assert!(called.starts_with("-Cprofile-use=/"), "no empty flag before it: {called}");
    assert!(called.contains("/packaging/profile/requests.profdata\u{1f}-C"), "{called}");
    assert!(called.contains("--config packaging/profile/levels.toml build --profile dist"));
    assert_eq!(said, "");
    let (called, said) = build_with("0000000000000000000000000000000000000000");
    assert!(called.trim_start().starts_with("build --profile dist --locked"), "{called}");
    assert!(said.contains("without the recorded profile"), "{said}");
    assert!(said.contains("commit-hash: 0000000000000000000000000000000000000000"), "{said}");
}

#[test]
fn a_plain_build_is_plain() {
    assert!(!root().join(".cargo").exists(), "settings of the repository change every build");
    let manifest = read("Cargo.toml");
    assert!(!manifest.contains("[profile.release.package"), "levels of packages");
}

#[test]
fn the_compiler_that_the_profile_names_can_read_it() {
    let shown = Command::new("rustc").arg("-vV").output().expect("rustc runs").stdout;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    if !read("packaging/profile/recorded-with").lines().all(|line| shown.contains(line)) {
        // Another compiler, which builds without the profile.
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().join("empty.rs");
    fs::write(&empty, "pub fn one() -> u8 { 1 }").expect("it can be written");
    let profile = root().join("packaging/profile/requests.profdata");
    let output = Command::new("rustc")
        .args(["--crate-type=rlib", "-C", "opt-level=2"])
        .arg(format!("-Cprofile-use={}", profile.display()))
        .arg(&empty)
        .current_dir(folder.path())
        .output()
        .expect("rustc runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
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
