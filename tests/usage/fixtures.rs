//! Responses of the APIs, each in a file.

use flate2::{Compression, write::GzEncoder};
use flowgate::usage::{Format, Preset};
use std::io::Write;

/// A response of an API.
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    pub(crate) preset: Preset,
    pub(crate) format: Format,
    pub(crate) body: &'static [u8],
    /// Its tokens, if it says them.
    pub(crate) tokens: Option<u64>,
    /// Its events, lines or elements.
    pub(crate) events: u64,
}

macro_rules! fixtures {
    ($($name:literal $preset:ident $format:ident $tokens:expr, $events:literal;)*) => {
        pub(crate) const FIXTURES: &[Fixture] = &[$(Fixture {
            name: $name,
            preset: Preset::$preset,
            format: Format::$format,
            body: include_bytes!(concat!("fixtures/", $name)),
            tokens: $tokens,
            events: $events,
        },)*];
    };
}

fixtures! {
    "openai.json" OpenAi Json Some(19 + 10), 0;
    "openai_embeddings.json" OpenAi Json Some(5), 0;
    "openai.sse" OpenAi Events Some(9 + 12), 5;
    "openai_without_usage.sse" OpenAi Events None, 4;
    "openai_responses.json" OpenAiResponses Json Some(36 + 87), 0;
    "openai_responses.sse" OpenAiResponses Events Some(37 + 11), 4;
    "anthropic.json" Anthropic Json Some(2095 + 248 + 1800 + 503), 0;
    "anthropic.sse" Anthropic Events Some(25 + 100 + 40 + 15), 8;
    "gemini.json" Gemini Json Some(63), 0;
    "gemini.sse" Gemini Events Some(59), 3;
    "gemini_array.json" Gemini Json Some(59), 3;
    "ollama.json" Ollama Json Some(26 + 237), 0;
    "ollama.ndjson" Ollama Lines Some(26 + 282), 4;
}

/// Returns a fixture by its name.
pub(crate) fn fixture(name: &str) -> &'static Fixture {
    FIXTURES.iter().find(|fixture| fixture.name == name).expect("it is in the table")
}

/// Returns a body in gzip.
pub(crate) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}
