//! What it costs to find numbers in the bodies of responses.
//!
//! `cargo bench --manifest-path fuzz/Cargo.toml --bench usage` prints the table; it builds the reader
//! alone, in seconds. Each figure is the best of some rounds, by the time that the thread had a core,
//! which other work on the machine disturbs the least.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use core::hint::black_box;
use flate2::{Compression, write::GzEncoder};
use flowgate::usage::{Encoding, Format, Preset, Queries, Reader};
use std::{fmt::Write as _, io::Write as _, sync::Arc};

/// Rounds to take the best of.
const ROUNDS: usize = 5;

/// Bytes of each body.
const LENGTH: u32 = 100_000_000;

/// Bytes of each piece, as they come from a socket.
const PIECE: usize = 16 * 1024;

const WORDS: [&str; 12] =
    ["the", "bucket", "of", "tokens", "fills", "at", "a", "rate", "and", "each", "request", "\\n"];

fn main() {
    fastrand::seed(7);
    println!("{:<44}{:>10}{:>14}{:>10}", "MB/s of the plain body", "plain", "gzip", "ratio");
    row("JSON: embeddings of 1,536 numbers", &embeddings(), Format::Json, Preset::OpenAi);
    row("JSON: chats of 300 words, in an array", &chats(), Format::Json, Preset::OpenAi);
    row("text/event-stream: chunks of a chat", &events(), Format::Events, Preset::OpenAi);
    row("NDJSON: lines of a chat", &lines(), Format::Lines, Preset::Ollama);
    println!("\nbytes of a reader: {}", size_of::<Reader>());
}

fn row(name: &str, body: &[u8], format: Format, preset: Preset) {
    let compressed = gzip(body);
    let ratio = body.len() / compressed.len();
    let plain = throughput(body, format, preset, Encoding::Identity);
    let gzip = throughput(&compressed, format, preset, Encoding::Gzip);
    println!("{name:<44}{plain:>10.0}{gzip:>14.0}{:>10}", format!("{ratio}:1"));
}

/// Returns the megabytes of a plain body that are read in a second.
fn throughput(body: &[u8], format: Format, preset: Preset, encoding: Encoding) -> f64 {
    let queries = Arc::new(Queries::new(&[preset.query()]).expect("a preset can be followed"));
    let round = || {
        let start = cpu_seconds();
        let mut reader = Reader::new(Arc::clone(&queries), format, encoding);
        black_box(body).chunks(PIECE).for_each(|piece| reader.push(piece));
        reader.finish();
        assert_eq!(reader.reading(0).sum, Some(16), "it found the number at the end");
        cpu_seconds() - start
    };
    let best = (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min);
    f64::from(LENGTH) / best / 1e6
}

/// Returns for how long this thread has had a core.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse::<f64>().ok());
    nanoseconds.expect("its first field is the time in nanoseconds") / 1e9
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}

fn word() -> &'static str {
    WORDS[fastrand::usize(..WORDS.len())]
}

/// Repeats a piece until the body is long enough.
fn body(begin: &str, mut piece: impl FnMut(&mut String), end: &str) -> Vec<u8> {
    let mut text = String::new();
    text.push_str(begin);
    while text.len() < LENGTH as usize {
        piece(&mut text);
    }
    text.push_str(end);
    text.into_bytes()
}

fn embeddings() -> Vec<u8> {
    let piece = |text: &mut String| {
        text.push_str(r#"{"object":"embedding","index":0,"embedding":["#);
        for _ in 0..1536 {
            write!(text, "{:.9},", fastrand::f64() / 10.0 - 0.05)
                .expect("a string takes everything");
        }
        text.push_str("0]},");
    };
    body(
        r#"{"object":"list","data":["#,
        piece,
        r#"{}],"usage":{"prompt_tokens":16,"total_tokens":16}}"#,
    )
}

fn chats() -> Vec<u8> {
    let piece = |text: &mut String| {
        text.push_str(r#"{"id":"chatcmpl-9xQm","choices":[{"index":0,"message":{"role":"assistant","content":""#);
        for _ in 0..300 {
            text.push_str(word());
            text.push(' ');
        }
        text.push_str(
            r#""},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":9}},"#,
        );
    };
    body("[", piece, "{}]")
}

fn events() -> Vec<u8> {
    let piece = |text: &mut String| {
        text.push_str(r#"data: {"id":"chatcmpl-9xQmYc2rT0aB1cD2eF3gH4iJ5kL6m","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_3aa7262c27","choices":[{"index":0,"delta":{"content":" "#);
        text.push_str(word());
        text.push_str("\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");
    };
    let end = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n";
    body("", piece, end)
}

fn lines() -> Vec<u8> {
    let piece = |text: &mut String| {
        let micros = fastrand::u32(..1_000_000);
        let begin = r#"{"model":"llama3.2","created_at":"2026-11-29T08:52:00."#;
        let message = r#"Z","message":{"role":"assistant","content":" "#;
        let end = r#""},"done":false}"#;
        write!(text, "{begin}{micros:06}{message}{}{end}", word())
            .expect("a string takes everything");
        text.push('\n');
    };
    body("", piece, "{\"done\":true,\"prompt_eval_count\":7,\"eval_count\":9}\n")
}
