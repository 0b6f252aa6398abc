//! Runs the fuzz targets on stable, with as many inputs on each run: the corpus, and changes of it
//! that a fixed seed chooses. `fuzz/` has libFuzzer find inputs by coverage.
//!
//! An input that fails is printed. It belongs into `tests/http1/corpus/`.

use crate::{generate::TOKENS, targets};
use fastrand::Rng;
use std::{fs, panic::catch_unwind, path::Path};

/// Together a minute of CPU time without optimization.
const INPUTS: u32 = 1_000_000;

#[test]
fn any_request_is_read_or_rejected() {
    run("request", targets::request);
}

#[test]
fn any_response_is_read_or_rejected() {
    run("response", targets::response);
}

#[test]
fn any_chunked_body_is_read_or_rejected() {
    run("chunked", targets::chunked);
}

#[test]
fn any_framing_is_certain_or_rejected() {
    run("framing", targets::framing);
}

fn run(name: &str, target: fn(&[u8])) {
    let corpus = corpus(name);
    assert!(corpus.len() >= 10, "the corpus of {name} has {} inputs", corpus.len());
    let mut random = Rng::with_seed(9112);
    for input in &corpus {
        check(input, target);
    }
    for _ in 0..INPUTS {
        let mut input = corpus[random.usize(..corpus.len())].clone();
        for _ in 0..random.u32(1..6) {
            change(&mut input, &corpus, &mut random);
        }
        input.truncate(3000);
        check(&input, target);
    }
}

fn check(input: &[u8], target: fn(&[u8])) {
    assert!(catch_unwind(|| target(input)).is_ok(), "with b\"{}\"", input.escape_ascii());
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http1/corpus").join(name);
    let entries = fs::read_dir(folder).expect("there is a corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it is readable").path()).collect();
    // The order in a folder is by chance.
    files.sort();
    files.iter().map(|file| fs::read(file).expect("it is readable")).collect()
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Rng) {
    let at = random.usize(..=input.len());
    let end = (at + random.usize(1..16)).min(input.len());
    let token = TOKENS[random.usize(..TOKENS.len())].as_bytes();
    match random.u8(..8) {
        0 => drop(input.drain(at..end)),
        1 | 2 => drop(input.splice(at..at, token.iter().copied())),
        3 => drop(input.splice(at..end, token.iter().copied())),
        4 if at < input.len() => input[at] = random.u8(..),
        5 if at < input.len() => input[at] ^= 1 << random.u8(..8),
        6 => {
            let part = input[at..end].to_vec();
            let times = random.usize(1..40);
            drop(input.splice(at..at, part.repeat(times)));
        }
        _ => {
            let other = &corpus[random.usize(..corpus.len())];
            let from = random.usize(..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}
