//! The cost of finding the members of a request's JSON body.
//!
//! `cargo bench --bench members` prints the table. Each figure is the best of some rounds, by the time
//! that the thread had a core, which other work on the machine disturbs the least.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use core::hint::black_box;
use flowgate::route::{MemberPath, MemberPaths, Scanner};
use std::{fmt::Write as _, sync::Arc};

/// Rounds to take the best of.
const ROUNDS: usize = 5;

/// Bodies of each round.
const BODIES: u32 = 2_000;

/// Bytes of each body: the most that is held back, unless the file has another `limits.peek_body`.
const LENGTH: u32 = 64 * 1024;

/// Bytes of each piece, as they come from a socket.
const PIECE: usize = 16 * 1024;

const WORDS: [&str; 12] =
    ["the", "bucket", "of", "tokens", "fills", "at", "a", "rate", "and", "each", "request", "\\n"];

fn main() {
    fastrand::seed(7);
    println!("{:<44}{:>10}", "bodies of 64 KiB", "MB/s");
    row("JSON: a chat of long messages", &chat(300));
    row("JSON: a chat of short messages", &chat(5));
    row("JSON: a prompt of 8,000 numbers of tokens", &tokens());
}

fn row(name: &str, body: &[u8]) {
    let paths = ["model", "max_tokens"].map(|path| MemberPath::parse(path).expect("a path"));
    let paths = MemberPaths::new(&paths).expect("two paths").expect("some paths");
    let paths = Arc::new(paths);
    let best = (0..ROUNDS).map(|_| round(body, &paths)).fold(f64::INFINITY, f64::min);
    let bytes = f64::from(BODIES) * f64::from(LENGTH);
    println!("{name:<44}{:>10.0}", bytes / best / 1e6);
}

/// Returns the seconds that all bodies of a round take.
fn round(body: &[u8], paths: &Arc<MemberPaths>) -> f64 {
    let start = cpu_seconds();
    for _ in 0..BODIES {
        let mut scanner = Scanner::new(Arc::clone(paths));
        assert!(black_box(body).chunks(PIECE).all(|piece| scanner.push(piece)));
        assert!(black_box(scanner.finish()).is_some(), "it is a whole object");
    }
    cpu_seconds() - start
}

/// Returns for how long this thread has had a core.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse::<f64>().ok());
    nanoseconds.expect("its first field is the time in nanoseconds") / 1e9
}

/// Repeats an element of an array until the body is long enough, and pads it with blanks.
fn body(begin: &str, mut element: impl FnMut(&mut String), end: &str) -> Vec<u8> {
    let mut text = begin.to_owned();
    loop {
        let before = text.len();
        element(&mut text);
        if text.len() + end.len() > LENGTH as usize {
            // Without the comma of the element before.
            text.truncate(before - 1);
            break;
        }
    }
    text.push_str(end);
    text.extend(core::iter::repeat_n(' ', LENGTH as usize - text.len()));
    text.into_bytes()
}

/// Returns a chat whose messages have so many words.
fn chat(words: usize) -> Vec<u8> {
    let element = |text: &mut String| {
        text.push_str(r#"{"role":"user","content":""#);
        for _ in 0..words {
            text.push_str(WORDS[fastrand::usize(..WORDS.len())]);
            text.push(' ');
        }
        text.push_str(r#""},"#);
    };
    body(r#"{"model":"large","messages":["#, element, r#"],"stream":true,"max_tokens":300}"#)
}

/// Returns a prompt as the numbers of its tokens.
fn tokens() -> Vec<u8> {
    let element = |text: &mut String| {
        write!(text, "{},", fastrand::u32(..200_000)).expect("a string takes everything");
    };
    body(r#"{"model":"large","prompt":["#, element, r#"],"max_tokens":300}"#)
}
