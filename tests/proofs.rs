//! The proofs in `proofs/` hold, and a wrong formula fails them; and the formulas that they are about
//! are the code's: random steps of a gate equal those of the formulas.

#[path = "proofs/walk.rs"]
mod walk;

use std::{
    path::Path,
    process::{Command, Output},
};

/// Each proof with its wrong formulas.
const PROOFS: &[(&str, &[&str])] = &[
    ("gcra.py", &["clamped-debt", "without-max", "reset-on-give-back"]),
    ("fixed_window.py", &["clamped-excess", "other-window"]),
];

#[test]
fn every_lemma_holds_and_every_wrong_formula_is_refuted() {
    for (file, wrong) in PROOFS {
        let output = run(file, &[]);
        let text = text_of(&output);
        assert!(output.status.success(), "{file}:\n{text}");
        assert!(text.contains("formula    right"), "{file} says which formula it took:\n{text}");
        let holds = text.lines().filter(|line| line.starts_with("holds")).count();
        assert!(holds >= 7, "{file} has {holds} lemmas:\n{text}");
        for name in *wrong {
            let is_refuted = text.contains(&format!("refuted    {name}:"));
            assert!(is_refuted, "{file} refutes {name}:\n{text}");
        }
    }
}

#[test]
fn a_proof_of_a_wrong_formula_fails() {
    for (file, wrong) in PROOFS {
        for name in *wrong {
            let output = run(file, &["--with", name]);
            let text = text_of(&output);
            assert_eq!(output.status.code(), Some(1), "{file} with {name}:\n{text}");
            assert!(text.contains("FAILS"), "{file} with {name} has a counterexample:\n{text}");
        }
    }
}

#[test]
fn every_proof_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proofs");
    let entries = folder.read_dir().expect("it is a folder");
    let names = entries.map(|entry| entry.expect("it can be listed").file_name());
    let mut scripts: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "py"))
        .collect();
    scripts.sort();
    let mut listed: Vec<&str> = PROOFS.iter().map(|(file, _)| *file).collect();
    listed.sort_unstable();
    assert_eq!(scripts, listed);
}

/// Runs a proof. Without z3 it fails: the proof is not skipped.
fn run(file: &str, arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The package python3-z3 is for Debian's Python, which need not be the first one on the path.
    let of_debian = "/usr/bin/python3";
    let program = if Path::new(of_debian).exists() { of_debian } else { "python3" };
    let mut command = Command::new(program);
    command.arg(root.join("proofs").join(file)).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
    command.output().expect(".ci/setup installs Python and python3-z3")
}

fn text_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
